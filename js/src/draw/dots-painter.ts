/** Paints dots to a canvas and writes them as SVG; apart, because only some views have any. */

import { dotPaths, makeRaster, paintInto, pixelsOf, type Raster, straight } from "./dots";
import type { DotsMark, DotsPainter, ImageMark } from "./marks";

// Kept while its size stays the same: a plot is painted at every move, and tiles one by one.
let aside: { canvas: HTMLCanvasElement; raster: Raster; image: ImageData } | null = null;

/** An empty raster of a size, and what brings it onto a canvas. */
function asideOf(width: number, height: number): NonNullable<typeof aside> {
  if (aside?.raster.width === width && aside.raster.height === height) {
    aside.raster.pixels.fill(0);
    return aside;
  }
  const canvas = aside?.canvas ?? document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  aside = { canvas, raster: makeRaster(width, height), image: new ImageData(width, height) };
  return aside;
}

/** Dots on whole pixels of the screen, so that nothing is blurred on the way. */
function paintDots(context: CanvasRenderingContext2D, mark: DotsMark): void {
  const transform = context.getTransform();
  const scale = transform.a;
  const { area } = mark;
  const left = Math.floor(area.x * scale + transform.e);
  const top = Math.floor(area.y * scale + transform.f);
  const width = Math.ceil((area.x + area.width) * scale + transform.e) - left;
  const height = Math.ceil((area.y + area.height) * scale + transform.f) - top;
  if (width <= 0 || height <= 0 || mark.count === 0) return;
  const { canvas, raster, image } = asideOf(width, height);
  const between = canvas.getContext("2d");
  if (!between) return;
  paintInto(raster, mark, scale, (left - transform.e) / scale, (top - transform.f) / scale);
  straight(raster, image.data);
  between.putImageData(image, 0, 0);
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(canvas, left, top);
  context.restore();
}

/** Pixels to one of the SVG's, where dots are too many to be shapes; fewer of small pictures. */
const DOTS_SCALE = 3;
const SMALL_SCALE = 2;
const SMALL = 300;

/** Dots as shapes, or as one image; shapes also where there is no canvas to make one. */
function writeDots(mark: DotsMark, embedded: ((image: ImageMark) => string | null) | null): string {
  const scale = mark.area.width < SMALL ? SMALL_SCALE : DOTS_SCALE;
  const image = embedded?.({
    kind: "image",
    ...mark.area,
    ...pixelsOf(mark, scale),
    smooth: true,
  });
  return image ?? dotPaths(mark);
}

export const DOTS_PAINTER: DotsPainter = { paint: paintDots, write: writeDots };
