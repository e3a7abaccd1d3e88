/** Paints all lines: at once, or, where they are very many, those in sight first. */

import { paintMarks, prepare } from "../../draw/canvas";
import { CurveRaster, type Part, type Rasterable, rasterable } from "../../draw/curve-raster";
import type { Mark } from "../../draw/marks";
import { inSlices } from "../../draw/slices";
import type { Ground, Painted } from "../../ui/plot/plot";

/** Fewer lines are painted at once by the canvas itself, which takes a tenth of a second. */
const MOST_AT_ONCE = 25_000;
/** So many of the strongest in sight stand for all until those are painted. */
const COARSE = 5000;
/** Pixels along of what is painted by itself. */
const PART = 512;

/** The share of a canvas that is in the window, along. */
function sightOf(canvas: HTMLCanvasElement, vertical: boolean): [number, number] {
  const box = canvas.getBoundingClientRect();
  const [start, length, room] = vertical
    ? [box.top, box.height, window.innerHeight]
    : [box.left, box.width, window.innerWidth];
  if (length === 0) return [0, 0];
  const share = (place: number): number => Math.max(0, Math.min(1, (place - start) / length));
  return [share(0), share(room)];
}

/** The lines of a plot on their canvas. */
export class LineGround implements Ground {
  painted: Painted = "all";
  #stop: () => void = () => {};

  constructor(
    private readonly canvas: HTMLCanvasElement,
    /** Called where more is painted later. */
    private readonly onMore: () => void,
  ) {}

  /** Paints marks in place of what is there; what is still under way for others ends. */
  paint(marks: Mark[], width: number, height: number): void {
    this.stop();
    const context = prepare(this.canvas, width, height);
    const curves = rasterable(marks);
    if (!context || !curves || curves.count <= MOST_AT_ONCE) {
      if (context) paintMarks(context, marks);
      this.painted = "all";
      return;
    }
    const work = this.#refine(context, curves);
    // Paper waits for nothing.
    const finish = (): void => {
      while (!work.next().done);
    };
    if (globalThis.matchMedia?.("print").matches) {
      finish();
      return;
    }
    const stop = inSlices(work);
    window.addEventListener("beforeprint", finish);
    this.#stop = () => {
      stop();
      window.removeEventListener("beforeprint", finish);
    };
  }

  /** Ends what is under way. */
  stop(): void {
    this.#stop();
  }

  /** Runs as far as the first picture before it returns. */
  #refine(context: CanvasRenderingContext2D, curves: Rasterable): Iterator<unknown> {
    const { vertical } = curves;
    const { canvas } = this;
    const scale = context.getTransform().a;
    const raster = new CurveRaster(curves, scale);
    const length = vertical ? canvas.height : canvas.width;
    const inSight = (): [number, number] => {
      const [from, to] = sightOf(canvas, vertical);
      return [from * length, to * length];
    };
    const show = ({ start, stop, pixels }: Part): void => {
      const [wide, high] = vertical ? [raster.across, stop - start] : [stop - start, raster.across];
      const [x, y] = vertical ? [raster.left, start] : [start, raster.left];
      context.putImageData(new ImageData(pixels, wide, high), x, y);
    };
    const first = Math.max(0, raster.start);
    const end = Math.min(length, raster.stop);
    let parts: [number, number][] = [];
    for (let at = first; at < end; at += PART) parts.push([at, Math.min(end, at + PART)]);

    const [top, bottom] = inSight();
    const least = raster.opacityOfStrongest(top, bottom, COARSE);
    const seen = parts.filter(([start, stop]) => stop > top && start < bottom);
    for (const [start, stop] of seen) show(finished(raster.paint(start, stop, least)));
    if (least === 0) parts = parts.filter((part) => !seen.includes(part));
    this.painted = least === 0 ? "in sight" : "strongest";
    const now = (painted: Painted): void => {
      if (this.painted === painted) return;
      this.painted = painted;
      this.onMore();
    };

    return (function* (): Generator<void> {
      while (parts.length > 0) {
        // Readers scroll meanwhile.
        const [from, to] = inSight();
        const away = ([start, stop]: [number, number]): number =>
          Math.max(0, start - to, from - stop);
        const next = parts.reduce((a, b) => (away(b) < away(a) ? b : a));
        if (away(next) > 0) now("in sight");
        parts = parts.filter((part) => part !== next);
        show(yield* raster.paint(next[0], next[1]));
        yield;
      }
      now("all");
    })();
  }
}

/** What a generator gives at its end. */
function finished<T>(work: Generator<unknown, T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}
