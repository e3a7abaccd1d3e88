/** Paints all lines: at once, or, where they are very many, those in sight first. */

import { paintMarks, prepare } from "../../draw/canvas";
import { type CurvePainter, curvePainters } from "../../draw/curve-painters";
import {
  CurveRaster,
  finished,
  type Part,
  type Rasterable,
  rasterable,
} from "../../draw/curve-raster";
import type { Mark } from "../../draw/marks";
import { BROWSER_TASKS, inSlices } from "../../draw/slices";
import { unfinished } from "../../ui/exports/printing";
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
  #picture: Picture | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    /** Called where more is painted later. */
    private readonly onMore: () => void,
  ) {}

  get painted(): Painted {
    return this.#picture?.painted ?? "all";
  }

  /** Paints marks in place of what is there; what is still under way for others ends. */
  paint(marks: Mark[], width: number, height: number): void {
    this.stop();
    this.#picture = null;
    const context = prepare(this.canvas, width, height);
    if (!context) return;
    const curves = rasterable(marks);
    if (!curves || curves.count <= MOST_AT_ONCE) {
      paintMarks(context, marks);
      return;
    }
    this.#picture = new Picture(context, curves, this.onMore);
    this.#picture.refine();
  }

  /** Ends what is under way. */
  stop(): void {
    this.#picture?.stop();
  }
}

/** Pixels along, from and to before. */
type Stretch = readonly [number, number];

/** Very many lines on a canvas: the strongest in sight at once, then all, part by part. */
class Picture {
  painted: Painted;
  readonly #raster: CurveRaster;
  /** Parts that lack lines, and those of them that a worker paints. */
  readonly #lacking: Set<Stretch>;
  readonly #begun = new Set<Stretch>();
  #stopSlices: (() => void) | undefined;
  #stopped = false;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly curves: Rasterable,
    private readonly onMore: () => void,
  ) {
    const { canvas } = context;
    const raster = new CurveRaster(curves, context.getTransform().a);
    this.#raster = raster;
    const end = Math.min(curves.vertical ? canvas.height : canvas.width, raster.stop);
    const parts: Stretch[] = [];
    for (let at = Math.max(0, raster.start); at < end; at += PART)
      parts.push([at, Math.min(end, at + PART)]);
    const sight = this.#inSight();
    const least = raster.opacityOfStrongest(...sight, COARSE);
    const seen = parts.filter((part) => away(part, sight) < 0);
    for (const part of seen) this.#show(finished(raster.paint(...part, least)));
    this.painted = least === 0 ? "in sight" : "strongest";
    this.#lacking = new Set(least === 0 ? parts.filter((part) => !seen.includes(part)) : parts);
  }

  /** Paints what is lacking, in workers or while this thread has nothing else to do. */
  refine(): void {
    // Paper waits for nothing.
    if (globalThis.matchMedia?.("print").matches) {
      this.#finish();
      return;
    }
    unfinished.add(this.#finish);
    const painters = curvePainters();
    if (painters.length === 0) {
      this.#inSlices();
      return;
    }
    // What workers are sent is copied first: the strongest are to be seen before.
    BROWSER_TASKS.afterFrame(() => {
      for (const painter of painters) void this.#by(painter);
    });
  }

  stop(): void {
    this.#stopped = true;
    this.#stopSlices?.();
    unfinished.delete(this.#finish);
  }

  readonly #finish = (): void => {
    finished(this.#here());
  };

  #inSlices(): void {
    this.#stopSlices ??= inSlices(this.#here());
  }

  /** On this thread, also what a worker has begun. */
  *#here(): Generator<void> {
    this.#begun.clear();
    for (let part = this.#next(); part; part = this.#next()) {
      const done = yield* this.#raster.paint(...part);
      this.#add(part, done);
      yield;
    }
  }

  async #by(painter: CurvePainter): Promise<void> {
    const { a: scale } = this.context.getTransform();
    for (let part = this.#next(); part && !this.#stopped; part = this.#next()) {
      this.#begun.add(part);
      try {
        const done = await painter.paint(this.curves, scale, ...part);
        if (!this.#stopped) this.#add(part, done);
      } catch {
        if (!this.#stopped) this.#inSlices();
        return;
      }
    }
  }

  /** The nearest to what is in sight: readers scroll meanwhile. */
  #next(): Stretch | undefined {
    const sight = this.#inSight();
    const left = [...this.#lacking].filter((part) => !this.#begun.has(part));
    return left.sort((a, b) => away(a, sight) - away(b, sight))[0];
  }

  #add(part: Stretch, done: Part): void {
    if (!this.#lacking.delete(part)) return;
    this.#show(done);
    const sight = this.#inSight();
    const painted = this.#lacking.size === 0 ? "all" : "in sight";
    const changed = painted !== this.painted;
    if (!changed || [...this.#lacking].some((each) => away(each, sight) <= 0)) return;
    this.painted = painted;
    this.onMore();
  }

  #show({ start, stop, pixels }: Part): void {
    const { vertical, across, left } = this.#raster;
    const [wide, high] = vertical ? [across, stop - start] : [stop - start, across];
    const [x, y] = vertical ? [left, start] : [start, left];
    this.context.putImageData(new ImageData(pixels, wide, high), x, y);
  }

  #inSight(): Stretch {
    const { canvas } = this.context;
    const { vertical } = this.curves;
    const length = vertical ? canvas.height : canvas.width;
    const [from, to] = sightOf(canvas, vertical);
    return [from * length, to * length];
  }
}

/** How far a part is from what is in sight; less than 0 in it. */
function away([start, stop]: Stretch, [from, to]: Stretch): number {
  return Math.max(start - to, from - stop);
}
