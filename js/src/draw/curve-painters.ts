/** Workers that paint pictures of curves part by part, beside the thread that answers the reader. */

import type { Part, Rasterable } from "./curve-raster";
import type { ToPaint } from "./curve-worker";
import script from "./curve-worker.ts?script";

/** More are seldom faster: each has all curves of its own to go through. */
const MOST = 4;
/** A worker that has nothing to paint for so long is ended, and the curves that it has with it. */
const IDLE_MS = 10_000;

/** Whether the host has no workers, or allows none of such an address. */
let refused = typeof Worker === "undefined";
let address: string | undefined;
let painters: CurvePainter[] | undefined;

/** The page's workers, on their way; none where there can be none. */
export function curvePainters(): readonly CurvePainter[] {
  if (refused) return [];
  painters ??= Array.from(
    { length: Math.min(MOST, navigator.hardwareConcurrency) },
    () => new CurvePainter(),
  );
  try {
    for (const painter of painters) painter.start();
  } catch {
    refused = true;
    return [];
  }
  return painters;
}

/** One worker, which paints in the order in which it is asked. */
export class CurvePainter {
  #worker: Worker | null = null;
  #curves: Rasterable | null = null;
  #asked: { resolve: (part: Part) => void; reject: (reason: Error) => void }[] = [];
  #idle: ReturnType<typeof setTimeout> | undefined;

  start(): void {
    if (this.#worker) return;
    address ??= URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const worker = new Worker(address);
    worker.onmessage = ({ data }: MessageEvent<Part>) => {
      this.#asked.shift()?.resolve(data);
      if (this.#asked.length === 0) this.#rest();
    };
    worker.onerror = (event) => {
      event.preventDefault();
      refused = true;
      this.#end(event.message);
    };
    this.#worker = worker;
    this.#rest();
  }

  /**
   * A part of a picture.
   *
   * @throws where the host has refused the worker, or it failed: paint it otherwise.
   */
  paint(curves: Rasterable, scale: number, start: number, stop: number): Promise<Part> {
    this.start();
    clearTimeout(this.#idle);
    const message: ToPaint = { scale, start, stop };
    if (curves !== this.#curves) {
      // A function says what curves mean, and cannot be sent.
      const marks = curves.marks.map(({ meaning, ...mark }) => mark);
      message.curves = { ...curves, marks };
      this.#curves = curves;
    }
    return new Promise((resolve, reject) => {
      this.#asked.push({ resolve, reject });
      this.#worker?.postMessage(message);
    });
  }

  #rest(): void {
    this.#idle = setTimeout(() => this.#end(), IDLE_MS);
  }

  #end(problem = ""): void {
    clearTimeout(this.#idle);
    this.#worker?.terminate();
    this.#worker = null;
    this.#curves = null;
    for (const { reject } of this.#asked) reject(new Error(problem));
    this.#asked = [];
  }
}
