/** Export of a picture as PDF through the print dialog, on a page of the picture's size. */

/** Print one picture without the page or notebook around it. */
export function printPicture(
  svg: string,
  size: { width: number; height: number },
  title: string,
): void {
  const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
  const frame = document.createElement("iframe");
  frame.setAttribute("aria-hidden", "true");
  // The frame must have a layout, or it prints nothing. It is outside the visible area.
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
