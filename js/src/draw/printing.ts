/** Function for printing one picture alone. */

/**
 * Print one picture alone, for example as PDF. The paper has the size of the picture. The page or
 * notebook that contains the view is not printed.
 */
export function printPicture(
  svg: string,
  size: { width: number; height: number },
  title: string,
): void {
  const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
  const frame = document.createElement("iframe");
  frame.setAttribute("aria-hidden", "true");
  // Place the frame outside the visible area. With "display: none" it would have no layout, and
  // nothing would be printed.
  frame.style.cssText = `position: fixed; right: 100%; width: ${width}px; height: ${height}px`;
  document.body.append(frame);
  const [inside, page] = [frame.contentWindow, frame.contentDocument];
  if (!inside || !page)
    throw new Error("The PDF export needs a frame, which this page does not allow.");
  const style = page.createElement("style");
  style.textContent = `
    @page { size: ${width}px ${height}px; margin: 0 }
    body { margin: 0; print-color-adjust: exact; -webkit-print-color-adjust: exact }
    svg { display: block }`;
  page.title = title;
  page.head.append(style);
  const picture = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  page.body.append(page.importNode(picture, true));
  inside.addEventListener("afterprint", () => frame.remove());
  inside.focus();
  inside.print();
}
