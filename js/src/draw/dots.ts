/**
 * Painting of many small discs and squares, as pixels in a typed array or as SVG paths.
 *
 * One canvas call per dot would take seconds for 200,000 dots. Instead each dot is copied from a
 * stamp. A stamp has, for each pixel near a dot, the share of the pixel that the dot covers. It is
 * computed once for each radius and for each position of the dot's centre within a pixel.
 */

import type { DotsMark, DotsPainter, ImageMark, Mark } from "./marks";

/** Maximum number of dots that an SVG contains as shapes. Editors become slow with more shapes. */
export const MAX_SHAPE_DOTS = 20_000;

/**
 * Number of steps of a pixel's covered share. Step 0 is not covered, and step `LEVELS` is
 * completely covered.
 */
const LEVELS = 64;
/** Number of positions within a pixel that have a stamp, along each axis. */
const PHASES = 4;
/**
 * Number of depth steps of a three-dimensional plot. Dots in one step have the same size and
 * opacity.
 */
const DEPTHS = 8;
/** Half the side of a square with the area of a disc of radius 1. */
const HALF_SIDE = /* @__PURE__ */ Math.sqrt(Math.PI) / 2;

/** Return the number of dots in lists of marks. */
export function countDots(...lists: readonly (readonly Mark[])[]): number {
  return lists.flat().reduce((sum, mark) => sum + (mark.kind === "dots" ? mark.count : 0), 0);
}

/** Return the radius and opacity of a dot at depth `near`, from 0 (most distant) to 1 (nearest). */
export function atDepth(
  radius: number,
  opacity: number,
  near: number,
): { radius: number; opacity: number } {
  return { radius: radius * (0.65 + 0.7 * near), opacity: opacity * (0.3 + 0.7 * near) };
}

/** Pixels with premultiplied colours, red in the lowest byte and opacity in the highest byte. */
interface Raster {
  width: number;
  height: number;
  pixels: Uint32Array;
}

export function makeRaster(width: number, height: number): Raster {
  return { width, height, pixels: new Uint32Array(width * height) };
}

function clamp(value: number): number {
  return value < 0 ? 0 : value > 1 ? 1 : value;
}

/**
 * Return the share of a pixel that a dot covers. (dx, dy) is the distance of the pixel's centre
 * from the centre of the dot.
 */
function coverage(shape: number, radius: number, dx: number, dy: number): number {
  if (radius <= 0) return 0;
  if (shape === 1) {
    const half = radius * HALF_SIDE;
    const along = (d: number): number => clamp(Math.min(half, d + 0.5) - Math.max(-half, d - 0.5));
    return along(dx) * along(dy);
  }
  const inside = clamp(radius - Math.hypot(dx, dy) + 0.5);
  // This formula gives too large a disc for a radius below half a pixel. Multiply by the disc's
  // area.
  return radius < 0.5 ? inside * Math.PI * radius * radius : inside;
}

/**
 * Stamps of a shape and radius, one after the other for each position within a pixel. `levels` has
 * the covered share (0 to LEVELS) of side * side pixels for each stamp.
 */
interface Stamps {
  side: number;
  /** Number of columns (and rows) of a stamp before the pixel with the dot's centre. */
  before: number;
  levels: Uint8Array;
}

const stampCache = new Map<string, Stamps>();

function stampsOf(shape: number, exactRadius: number, exactRing: number): Stamps {
  // Zooming produces many different radii. Round them to a sixteenth of a pixel, which looks the
  // same, so that stamps are reused.
  const radius = Math.max(1 / 16, Math.round(exactRadius * 16) / 16);
  const ring = Math.round(exactRing * 16) / 16;
  const cacheKey = `${shape} ${radius} ${ring}`;
  const cached = stampCache.get(cacheKey);
  if (cached) return cached;
  if (stampCache.size > 256) stampCache.clear();
  const outer = ring > 0 ? radius + ring / 2 : radius;
  const inner = ring > 0 ? radius - ring / 2 : 0;
  const before = Math.ceil(outer);
  const side = 2 * before + 1;
  const levels = new Uint8Array(PHASES * PHASES * side * side);
  let index = 0;
  for (let phaseY = 0; phaseY < PHASES; phaseY++) {
    for (let phaseX = 0; phaseX < PHASES; phaseX++) {
      for (let y = 0; y < side; y++) {
        for (let x = 0; x < side; x++) {
          const dx = x - before + 0.5 - (phaseX + 0.5) / PHASES;
          const dy = y - before + 0.5 - (phaseY + 0.5) / PHASES;
          const hole = ring > 0 ? coverage(shape, inner, dx, dy) : 0;
          levels[index++] = Math.round((coverage(shape, outer, dx, dy) - hole) * LEVELS);
        }
      }
    }
  }
  const stamps = { side, before, levels };
  stampCache.set(cacheKey, stamps);
  return stamps;
}

/** Return red, green and blue of "#rrggbb". */
function rgbOf(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1, 7), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/**
 * Return premultiplied pixels for each colour and opacity step, with `steps + 1` entries per
 * colour. `alphas` has the opacity of each step, from 0 to 256 * `opacity`.
 *
 * Values are rounded down, so that painting over a pixel many times never overflows a byte.
 */
export function sourcePixels(
  colors: readonly string[],
  opacity: number,
  steps: number,
): { words: Uint32Array; alphas: Uint16Array } {
  const alphas = new Uint16Array(steps + 1);
  for (let step = 0; step <= steps; step++)
    alphas[step] = Math.round(256 * clamp(opacity) * (step / steps));
  const words = new Uint32Array(colors.length * (steps + 1));
  colors.forEach((color, i) => {
    const [red, green, blue] = rgbOf(color);
    for (let step = 0; step <= steps; step++) {
      const alpha = alphas[step] as number;
      const part = (value: number): number => Math.floor((value * alpha) / 256);
      words[i * (steps + 1) + step] =
        (part(red) | (part(green) << 8) | (part(blue) << 16) | (part(255) << 24)) >>> 0;
    }
  });
  return { words, alphas };
}

/**
 * Paint the premultiplied pixel `source` with opacity `alpha`, 0 to 256, over the pixel `below`.
 */
export function blend(below: number, source: number, alpha: number): number {
  const remaining = 256 - alpha;
  const even = ((Math.imul(below & 0xff00ff, remaining) + 0x800080) >>> 8) & 0xff00ff;
  const odd = (Math.imul((below >>> 8) & 0xff00ff, remaining) + 0x800080) & 0xff00ff00;
  return (source + (even | odd)) >>> 0;
}

/**
 * Paint dots into a raster.
 *
 * @param scale raster pixels per pixel of the mark.
 * @param left left edge of the raster, in pixels of the mark.
 * @param top top edge of the raster, in pixels of the mark.
 */
export function paintInto(
  raster: Raster,
  mark: DotsMark,
  scale: number,
  left: number,
  top: number,
): void {
  if (!mark.near) {
    paintDepth(raster, mark, scale, left, top, -1);
    return;
  }
  for (let depth = 0; depth < DEPTHS; depth++) paintDepth(raster, mark, scale, left, top, depth);
}

/** Paint the dots of one depth step. If `depth` is -1, paint all dots. */
function paintDepth(
  raster: Raster,
  mark: DotsMark,
  scale: number,
  left: number,
  top: number,
  depth: number,
): void {
  const { width, height, pixels } = raster;
  const { x, y, color, shape, near } = mark;
  const style = depth < 0 ? mark : atDepth(mark.radius, mark.opacity, (depth + 0.5) / DEPTHS);
  const ring = (mark.ring ?? 0) * scale;
  const stamps = [0, 1].map((shapeCode) => stampsOf(shapeCode, style.radius * scale, ring));
  const { words, alphas } = sourcePixels(mark.colors, style.opacity, LEVELS);
  for (let i = 0; i < mark.count; i++) {
    if (depth >= 0 && near && ((near[i] as number) * DEPTHS) >> 8 !== depth) continue;
    const centerX = ((x[i] as number) - left) * scale;
    const centerY = ((y[i] as number) - top) * scale;
    const { side, before, levels } = stamps[shape[i] === 1 ? 1 : 0] as Stamps;
    const pixelX = Math.floor(centerX);
    const pixelY = Math.floor(centerY);
    const firstX = pixelX - before;
    const firstY = pixelY - before;
    // If a coordinate is NaN, the comparisons are false, so the dot is omitted.
    if (!(firstX < width && firstY < height && firstX + side > 0 && firstY + side > 0)) continue;
    const phaseX = Math.floor((centerX - pixelX) * PHASES);
    const phaseY = Math.floor((centerY - pixelY) * PHASES);
    const base = (color[i] as number) * (LEVELS + 1);
    let levelIndex = (phaseY * PHASES + phaseX) * side * side;
    for (let row = firstY; row < firstY + side; row++) {
      if (row < 0 || row >= height) {
        levelIndex += side;
        continue;
      }
      let pixelIndex = row * width + firstX;
      for (let column = firstX; column < firstX + side; column++, levelIndex++, pixelIndex++) {
        const level = levels[levelIndex] as number;
        if (level === 0 || column < 0 || column >= width) continue;
        const remaining = 256 - (alphas[level] as number);
        const below = pixels[pixelIndex] as number;
        // This is the body of `blend`. A function call for each pixel would take a third of the
        // frame's time.
        const even = ((Math.imul(below & 0xff00ff, remaining) + 0x800080) >>> 8) & 0xff00ff;
        const odd = (Math.imul((below >>> 8) & 0xff00ff, remaining) + 0x800080) & 0xff00ff00;
        pixels[pixelIndex] = (words[base + level] as number) + (even | odd);
      }
    }
  }
}

const OPAQUE = 0xff000000;

/**
 * Return the pixels of a raster with colours that are not premultiplied, as a canvas needs them.
 *
 * @param into bytes to write the pixels to. They must have the size of the raster.
 */
export function unpremultiply(
  raster: Raster,
  into = new Uint8ClampedArray(4 * raster.pixels.length),
): Uint8ClampedArray<ArrayBuffer> {
  const { pixels } = raster;
  const out = new Uint32Array(into.buffer);
  for (let i = 0; i < pixels.length; i++) {
    const pixel = pixels[i] as number;
    const alpha = pixel >>> 24;
    if (alpha === 0 || pixel >= OPAQUE) {
      out[i] = alpha === 0 ? 0 : pixel;
      continue;
    }
    const factor = 255 / alpha;
    const red = Math.min(255, (pixel & 255) * factor + 0.5);
    const green = Math.min(255, ((pixel >>> 8) & 255) * factor + 0.5);
    const blue = Math.min(255, ((pixel >>> 16) & 255) * factor + 0.5);
    out[i] = (red | (green << 8) | (blue << 16) | (alpha << 24)) >>> 0;
  }
  return into;
}

/** Paint dots to an image of the mark's area, with `scale` image pixels per pixel of the mark. */
export function dotPixels(
  mark: DotsMark,
  scale: number,
): { pixels: Uint8ClampedArray<ArrayBuffer>; columns: number; rows: number } {
  const columns = Math.max(1, Math.ceil(mark.area.width * scale));
  const rows = Math.max(1, Math.ceil(mark.area.height * scale));
  const raster = makeRaster(columns, rows);
  paintInto(raster, mark, scale, mark.area.x, mark.area.y);
  return { pixels: unpremultiply(raster), columns, rows };
}

function formatNumber(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/**
 * Number of paths over which the dots of one colour and shape are distributed. Each SVG path paints
 * overlapping dots only once, so a single path would not show the density of dots.
 */
const NUM_PATHS = 12;

/** Return the dots in the area of a mark as SVG paths. */
export function dotPaths(mark: DotsMark): string {
  const { area, ring = 0 } = mark;
  const groups = new Map<
    string,
    { color: number; shape: number; depth: number; paths: string[] }
  >();
  for (let i = 0; i < mark.count; i++) {
    const x = mark.x[i] as number;
    const y = mark.y[i] as number;
    const isInside =
      x >= area.x && y >= area.y && x <= area.x + area.width && y <= area.y + area.height;
    if (!isInside) continue;
    const depth = mark.near ? ((mark.near[i] as number) * DEPTHS) >> 8 : -1;
    const [color, shape] = [mark.color[i] as number, mark.shape[i] === 1 ? 1 : 0];
    // Groups are painted in the order of their keys. Distant dots come first, so that nearer dots
    // are over them.
    const order = String(depth + 1).padStart(2, "0");
    const batch = String(Math.floor((i * NUM_PATHS) / mark.count)).padStart(2, "0");
    const groupKey = `${order} ${batch} ${String(color).padStart(3, "0")} ${shape}`;
    const group = groups.get(groupKey);
    const path = dotPath(x, y, shape, ring > 0 ? mark.radius : 0);
    if (group) group.paths.push(path);
    else groups.set(groupKey, { color, shape, depth, paths: [path] });
  }
  const paths = [...groups.keys()].sort().map((groupKey) => {
    const group = groups.get(groupKey) as {
      color: number;
      shape: number;
      depth: number;
      paths: string[];
    };
    const { color, shape, depth, paths } = group;
    const style = depth < 0 ? mark : atDepth(mark.radius, mark.opacity, (depth + 0.5) / DEPTHS);
    const width = ring > 0 ? ring : style.radius * 2 * (shape === 1 ? HALF_SIDE : 1);
    return (
      `<path d="${paths.join("")}" stroke="${mark.colors[color] ?? "none"}"` +
      ` stroke-width="${formatNumber(width)}" stroke-linecap="${shape === 1 ? "square" : "round"}"` +
      ` opacity="${Math.round(style.opacity * 1000) / 1000}"/>`
    );
  });
  return `<g fill="none">${paths.join("")}</g>`;
}

/**
 * Return the path of a dot. If `radius` is 0, it is a line of length 0, whose large caps look like
 * a disc or square. Otherwise it is the outline of the dot.
 */
function dotPath(x: number, y: number, shape: number, radius: number): string {
  if (radius === 0) return `M${formatNumber(x)} ${formatNumber(y)}h0`;
  const half = formatNumber(radius * HALF_SIDE);
  const side = formatNumber(2 * radius * HALF_SIDE);
  if (shape === 1)
    return `M${formatNumber(x)} ${formatNumber(y)}m-${half} -${half}h${side}v${side}h-${side}z`;
  const [r, d] = [formatNumber(radius), formatNumber(2 * radius)];
  return `M${formatNumber(x - radius)} ${formatNumber(y)}a${r} ${r} 0 1 0 ${d} 0a${r} ${r} 0 1 0 -${d} 0`;
}

// Kept for the next painting of the same size, because dragging a plot paints it many times.
let buffer: { canvas: HTMLCanvasElement; raster: Raster; image: ImageData } | null = null;

/**
 * Return an empty raster of this size, with a canvas and an image of the same size, which copy the
 * raster to the screen.
 */
function bufferOf(width: number, height: number): NonNullable<typeof buffer> {
  if (buffer?.raster.width === width && buffer.raster.height === height) {
    buffer.raster.pixels.fill(0);
    return buffer;
  }
  const canvas = buffer?.canvas ?? document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  buffer = { canvas, raster: makeRaster(width, height), image: new ImageData(width, height) };
  return buffer;
}

/** Paint dots aligned with the pixels of the screen, so that they are not blurred. */
function paintDots(context: CanvasRenderingContext2D, mark: DotsMark): void {
  const transform = context.getTransform();
  const scale = transform.a;
  const { area } = mark;
  const left = Math.floor(area.x * scale + transform.e);
  const top = Math.floor(area.y * scale + transform.f);
  const width = Math.ceil((area.x + area.width) * scale + transform.e) - left;
  const height = Math.ceil((area.y + area.height) * scale + transform.f) - top;
  if (width <= 0 || height <= 0 || mark.count === 0) return;
  const { canvas, raster, image } = bufferOf(width, height);
  const bufferContext = canvas.getContext("2d");
  if (!bufferContext) return;
  paintInto(raster, mark, scale, (left - transform.e) / scale, (top - transform.f) / scale);
  unpremultiply(raster, image.data);
  bufferContext.putImageData(image, 0, 0);
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(canvas, left, top);
  context.restore();
}

/**
 * Number of image pixels per pixel of the SVG, for dots that an SVG contains as an image. Marks
 * narrower than `SMALL_WIDTH` have `SMALL_SCALE`, and others `DOTS_SCALE`.
 */
const DOTS_SCALE = 3;
const SMALL_SCALE = 2;
const SMALL_WIDTH = 300;

/** Return dots as SVG: as one image if `embedded` can write an image, else as paths. */
function writeDots(mark: DotsMark, embedded: ((image: ImageMark) => string | null) | null): string {
  const scale = mark.area.width < SMALL_WIDTH ? SMALL_SCALE : DOTS_SCALE;
  const image = embedded?.({
    kind: "image",
    ...mark.area,
    ...dotPixels(mark, scale),
    smooth: true,
  });
  return image ?? dotPaths(mark);
}

export const DOTS_PAINTER: DotsPainter = { paint: paintDots, write: writeDots };
