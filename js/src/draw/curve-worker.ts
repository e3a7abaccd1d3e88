/** What a worker runs that paints parts of a picture of curves (`curve-painters.ts`). */

import { CurveRaster, finished, type Rasterable } from "./curve-raster";

/** What a worker is told. */
export interface ToPaint {
  /** Of which picture; left out where it is that of the message before. */
  curves?: Rasterable;
  scale: number;
  start: number;
  stop: number;
}

let raster: CurveRaster | undefined;

addEventListener("message", ({ data }: MessageEvent<ToPaint>) => {
  const { curves, scale, start, stop } = data;
  if (curves) raster = new CurveRaster(curves, scale);
  const part = finished((raster as CurveRaster).paint(start, stop));
  postMessage(part, { transfer: [part.pixels.buffer] });
});
