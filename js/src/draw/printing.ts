/** Functions for printing the page with its views, and for printing one picture alone. */

import { options } from "preact";

/**
 * Run `change`, and render everything that depends on it before this function returns.
 *
 * Preact renders in microtasks and runs effects after an animation frame. While Firefox prepares a
 * page for print (from `beforeprint` to `afterprint`), it runs neither of them. Therefore, this
 * function collects Preact's callbacks and calls them itself.
 */
export function renderAtOnce(change: () => void): void {
  const { debounceRendering, requestAnimationFrame } = options;
  const waiting: (() => void)[] = [];
  const wait = (callback: () => void): void => {
    waiting.push(callback);
  };
  Object.assign(options, { debounceRendering: wait, requestAnimationFrame: wait });
  try {
    change();
    for (let next = waiting.shift(); next; next = waiting.shift()) next();
  } finally {
    Object.assign(options, { debounceRendering, requestAnimationFrame });
  }
}

/**
 * While the page is printed, replace each canvas in `root` by a copy of its picture. Stop doing
 * this when `ended` is aborted.
 *
 * For print, views are drawn again in the light theme. The browser prints such a canvas as a list
 * of drawing commands. The first command clears the canvas, and some PDF viewers then also clear
 * everything below it. The copy has only one command, which draws the picture.
 */
export function printCopies(root: HTMLElement, ended: AbortSignal): void {
  const undo: (() => void)[] = [];
  const copyAll = (): void => {
    for (const canvas of root.querySelectorAll("canvas")) {
      if (canvas.width === 0 || canvas.height === 0) continue;
      const copy = canvas.cloneNode() as HTMLCanvasElement;
      copy.getContext("2d")?.drawImage(canvas, 0, 0);
      canvas.before(copy);
      const { display } = canvas.style;
      canvas.style.display = "none";
      undo.push(() => {
        canvas.style.display = display;
        copy.remove();
      });
    }
  };
  const restore = (): void => {
    for (const restoreCanvas of undo.splice(0)) restoreCanvas();
  };
  window.addEventListener("beforeprint", copyAll, { signal: ended });
  window.addEventListener("afterprint", restore, { signal: ended });
  ended.addEventListener("abort", restore);
}

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
