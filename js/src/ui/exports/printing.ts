/** Canvases on paper. */

/** Components that follow a change of theme are rendered within so many turns. */
const TURNS = 20;

/**
 * Prints a fresh copy in place of every canvas.
 *
 * A canvas that is painted anew for the paper's theme is printed as the steps of its painting. The
 * first of them clears it, and some programs that show PDF clear with it all that lies below.
 */
export function printCopies(root: HTMLElement, ended: AbortSignal): void {
  const undo: (() => void)[] = [];
  const copyAll = async (): Promise<void> => {
    for (let turn = 0; turn < TURNS; turn++) await null;
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
    for (const each of undo.splice(0)) each();
  };
  window.addEventListener("beforeprint", copyAll, { signal: ended });
  window.addEventListener("afterprint", restore, { signal: ended });
  ended.addEventListener("abort", restore);
}
