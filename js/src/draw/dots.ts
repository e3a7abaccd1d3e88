/**
 * Painting of many small discs and squares, as pixels in a typed array or as SVG paths.
 *
 * One canvas call per dot would take seconds for 200,000 dots. Instead each dot is copied from a
 * stamp. A stamp has, for each pixel near a dot, the share of the pixel that the dot covers. It is
 * computed once for each shape, radius and outline width, and for each of a few positions of the
 * dot's centre within a pixel.
 *
 * In a three-dimensional plot, the depth of each dot is rounded to one of a few depth steps.
 */

import type { DotsMark, DotsPainter } from "./marks";
import { element, imageElement, opacityText, rounded } from "./svg";

/**
 * Number of steps of a pixel's covered share, which is rounded to a step from 0 (not covered) to
 * `LEVELS` (completely covered).
 */
const LEVELS = 64;
/**
 * Number of positions along each axis to which a dot's centre is rounded within a pixel. Each
 * combination of positions has a stamp.
 */
const PHASES = 4;
/** Number of depth steps. All dots of a step have the same radius and opacity. */
const DEPTHS = 8;
/** Half the side of a square with the area of a disc of radius 1. */
const HALF_SIDE = /* @__PURE__ */ Math.sqrt(Math.PI) / 2;

/**
 * Return the radius and opacity of dots at a depth step, or those of the mark if `depth` is null.
 */
function styleAt({ radius, opacity }: DotsMark, depth: number | null) {
  if (depth === null) return { radius, opacity };
  const near = (depth + 0.5) / DEPTHS;
  return { radius: radius * (0.65 + 0.7 * near), opacity: opacity * (0.3 + 0.7 * near) };
}

/** Return the depth step of a dot, from 0 (most distant), or null if the mark has no depths. */
function depthOf({ near }: DotsMark, i: number): number | null {
  return near ? ((near[i] as number) * DEPTHS) >> 8 : null;
}

/**
 * Image in which dots are painted. It shows an area of the mark. Each pixel has red in the lowest
 * byte and opacity in the highest byte. While dots are painted, colours are premultiplied by
 * opacity.
 */
interface Raster {
  width: number;
  height: number;
  pixels: Uint32Array;
  /** Left edge, in the coordinates of the mark. */
  left: number;
  /** Top edge, in the coordinates of the mark. */
  top: number;
  /** Number of raster pixels per unit of the mark's coordinates. */
  scale: number;
}

function clamp(value: number): number {
  return value < 0 ? 0 : value > 1 ? 1 : value;
}

/**
 * Return the share of a pixel that a dot covers. (dx, dy) is the position of the pixel's centre
 * relative to the dot's centre. All lengths are in raster pixels.
 */
function coverage(shape: number, radius: number, dx: number, dy: number): number {
  if (radius <= 0) return 0;
  if (shape === 1) {
    const half = radius * HALF_SIDE;
    const along = (d: number): number => clamp(Math.min(half, d + 0.5) - Math.max(-half, d - 0.5));
    return along(dx) * along(dy);
  }
  const inside = clamp(radius - Math.hypot(dx, dy) + 0.5);
  // For a radius below half a pixel, this share is too large. Multiply it by the area of the disc.
  return radius < 0.5 ? inside * Math.PI * radius * radius : inside;
}

/**
 * Stamps of one shape, radius and outline width, for all positions of a dot's centre within a
 * pixel. `levels` has these stamps one after the other. Each stamp has the covered share (0 to
 * LEVELS) of side * side pixels.
 */
interface Stamps {
  side: number;
  /** Number of columns (and rows) of a stamp before the pixel that contains the dot's centre. */
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

/**
 * Return `words` and `alphas`. `words` has a premultiplied pixel for each colour and each step of
 * the covered share, with `LEVELS + 1` pixels per colour. `alphas` has the opacity of each step,
 * from 0 to 256 * `opacity`.
 *
 * The bytes of `words` are rounded down, so that painting over a pixel many times never overflows a
 * byte.
 */
function sourcePixels(colors: readonly string[], opacity: number) {
  const steps = Array.from({ length: LEVELS + 1 }, (_, step) => step);
  const alphas = steps.map((step) => Math.round(256 * clamp(opacity) * (step / LEVELS)));
  const words = colors.flatMap((color) => {
    const value = Number.parseInt(color.slice(1, 7), 16);
    return alphas.map((alpha) => {
      const part = (byte: number): number => Math.floor(((byte & 255) * alpha) / 256);
      return (
        (part(value >> 16) | (part(value >> 8) << 8) | (part(value) << 16) | (part(255) << 24)) >>>
        0
      );
    });
  });
  return { words: Uint32Array.from(words), alphas: Uint16Array.from(alphas) };
}

/** Paint the dots of one depth step, or all dots of a mark without depths if `depth` is null. */
function paintDepth(raster: Raster, mark: DotsMark, depth: number | null): void {
  const { width, height, pixels, left, top, scale } = raster;
  const { x, y, color, shape } = mark;
  const style = styleAt(mark, depth);
  const ring = (mark.ring ?? 0) * scale;
  const stamps = [0, 1].map((shapeCode) => stampsOf(shapeCode, style.radius * scale, ring));
  const { words, alphas } = sourcePixels(mark.colors, style.opacity);
  for (let i = 0; i < mark.count; i++) {
    if (depthOf(mark, i) !== depth) continue;
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
        // Paint the dot over the pixel. `even` and `odd` each have two of the four bytes of the
        // pixel that lies below.
        const even = ((Math.imul(below & 0xff00ff, remaining) + 0x800080) >>> 8) & 0xff00ff;
        const odd = (Math.imul((below >>> 8) & 0xff00ff, remaining) + 0x800080) & 0xff00ff00;
        pixels[pixelIndex] = (words[base + level] as number) + (even | odd);
      }
    }
  }
}

const OPAQUE = 0xff000000;

/** Divide the colours of pixels by their opacity, because `ImageData` is not premultiplied. */
function unpremultiply(pixels: Uint32Array): void {
  for (let i = 0; i < pixels.length; i++) {
    const pixel = pixels[i] as number;
    const alpha = pixel >>> 24;
    if (alpha === 0 || pixel >= OPAQUE) continue;
    const factor = 255 / alpha;
    const red = Math.min(255, (pixel & 255) * factor + 0.5);
    const green = Math.min(255, ((pixel >>> 8) & 255) * factor + 0.5);
    const blue = Math.min(255, ((pixel >>> 16) & 255) * factor + 0.5);
    pixels[i] = (red | (green << 8) | (blue << 16) | (alpha << 24)) >>> 0;
  }
}

/** Paint dots into a new raster, and return its pixels as bytes. */
function paintInto(mark: DotsMark, raster: Omit<Raster, "pixels">) {
  const pixels = new Uint32Array(raster.width * raster.height);
  const depths = mark.near ? Array.from({ length: DEPTHS }, (_, depth) => depth) : [null];
  for (const depth of depths) paintDepth({ ...raster, pixels }, mark, depth);
  unpremultiply(pixels);
  return new Uint8ClampedArray(pixels.buffer);
}

/**
 * Return pixels of the mark's area with its dots, with `scale` image pixels per unit of its
 * coordinates.
 */
export function dotPixels(mark: DotsMark, scale: number) {
  const { x: left, y: top, ...size } = mark.area;
  const width = Math.max(1, Math.ceil(size.width * scale));
  const height = Math.max(1, Math.ceil(size.height * scale));
  const pixels = paintInto(mark, { width, height, left, top, scale });
  return { pixels, columns: width, rows: height };
}

/**
 * Number of paths over which the dots of one colour, shape and depth step are distributed. If dots
 * of one SVG path overlap, the path paints the overlap only once. A single path would therefore not
 * show where dots are dense.
 */
const NUM_PATHS = 12;

/** Return the dots whose centres are in the mark's area as SVG paths. */
export function dotPaths(mark: DotsMark): string {
  const { area, ring = 0 } = mark;
  const paths = new Map<number, { index: number; parts: string[] }>();
  for (let i = 0; i < mark.count; i++) {
    const x = mark.x[i] as number;
    const y = mark.y[i] as number;
    const isInside =
      x >= area.x && y >= area.y && x <= area.x + area.width && y <= area.y + area.height;
    if (!isInside) continue;
    // Paths are painted in the order of their keys. Distant dots come first, so that nearer dots
    // are over them.
    const batch = Math.floor((i * NUM_PATHS) / mark.count);
    const [color, shape] = [mark.color[i] as number, mark.shape[i] as number];
    const key = (((depthOf(mark, i) ?? 0) * NUM_PATHS + batch) * 256 + color) * 2 + shape;
    const path = paths.get(key) ?? { index: i, parts: [] };
    path.parts.push(dotPath(x, y, shape, ring > 0 ? mark.radius : 0));
    paths.set(key, path);
  }
  const ordered = [...paths].sort(([a], [b]) => a - b);
  const elements = ordered.map(([, { index, parts }]) => {
    // All dots of a path have the same depth step, colour and shape, so the first dot gives the
    // style.
    const style = styleAt(mark, depthOf(mark, index));
    const isSquare = mark.shape[index] === 1;
    return element("path", {
      d: parts.join(""),
      stroke: mark.colors[mark.color[index] as number] ?? "none",
      "stroke-width": ring > 0 ? ring : style.radius * 2 * (isSquare ? HALF_SIDE : 1),
      "stroke-linecap": isSquare ? "square" : "round",
      opacity: opacityText(style.opacity),
    });
  });
  return element("g", { fill: "none" }, elements.join(""));
}

/**
 * Return the path data of a dot. If `radius` is 0, the path is a line of length 0. Its caps, which
 * are as wide as the dot, make it a disc or a square. Otherwise the path is the outline of the dot.
 */
function dotPath(x: number, y: number, shape: number, radius: number): string {
  const start = `M${rounded(x)} ${rounded(y)}`;
  if (radius === 0) return `${start}h0`;
  const [half, side] = [rounded(radius * HALF_SIDE), rounded(2 * radius * HALF_SIDE)];
  if (shape === 1) return `${start}m-${half} -${half}h${side}v${side}h-${side}z`;
  const [r, d] = [rounded(radius), rounded(2 * radius)];
  return `M${rounded(x - radius)} ${rounded(y)}a${r} ${r} 0 1 0 ${d} 0a${r} ${r} 0 1 0 -${d} 0`;
}

/**
 * Canvas from which dots are copied to the visible canvas. It is reused, because dots are painted
 * many times while the reader drags the plot.
 */
let buffer: HTMLCanvasElement | null = null;

/**
 * Paint dots as an image whose pixels are aligned with the pixels of the screen, so that the dots
 * are not blurred.
 */
function paintDots(context: CanvasRenderingContext2D, mark: DotsMark): void {
  const { a: scale, e: shiftX, f: shiftY } = context.getTransform();
  const { area } = mark;
  const x = Math.floor(area.x * scale + shiftX);
  const y = Math.floor(area.y * scale + shiftY);
  const width = Math.ceil((area.x + area.width) * scale + shiftX) - x;
  const height = Math.ceil((area.y + area.height) * scale + shiftY) - y;
  if (width <= 0 || height <= 0 || mark.count === 0) return;
  const [left, top] = [(x - shiftX) / scale, (y - shiftY) / scale];
  const pixels = paintInto(mark, { width, height, left, top, scale });
  buffer ??= document.createElement("canvas");
  // Set the size only if it changes, because setting it always reallocates the canvas.
  if (buffer.width !== width || buffer.height !== height) Object.assign(buffer, { width, height });
  buffer.getContext("2d")?.putImageData(new ImageData(pixels, width, height), 0, 0);
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(buffer, x, y);
  context.restore();
}

/**
 * Return dots as SVG: as one image if `asPixels` is true and a canvas is supported, else as paths.
 */
function writeDots(mark: DotsMark, asPixels: boolean): string {
  // Image pixels per pixel of the SVG. A figure may have many small plots, so their images have
  // fewer pixels.
  const scale = mark.area.width < 300 ? 2 : 3;
  const image = asPixels
    ? imageElement({ kind: "image", smooth: true, ...mark.area, ...dotPixels(mark, scale) })
    : null;
  return image ?? dotPaths(mark);
}

export const DOTS_PAINTER: DotsPainter = { paint: paintDots, write: writeDots };
