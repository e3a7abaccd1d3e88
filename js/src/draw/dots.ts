/**
 * Many small discs and squares as pixels in a typed array, and as paths of an SVG.
 *
 * A call of the canvas for each dot would take seconds at 200,000 of them. Here each is a stamp
 * that was worked out once for its radius and its position between the pixels.
 */

import type { DotsMark, DotsPainter, ImageMark, Mark } from "./marks";

/** An SVG with more dots than this has them as pixels: editors take no more shapes. */
export const MOST_DOTS = 20_000;

/** Steps from no coverage of a pixel to a whole one. */
const LEVELS = 64;
/** Positions between two pixels that a stamp is worked out for, each way. */
const PHASES = 4;
/** Steps from the farthest dots of a plot in three dimensions to the nearest. */
const DEPTHS = 8;
/** A square of this half side has the area of a disc of radius 1. */
const HALF_SIDE = /* @__PURE__ */ Math.sqrt(Math.PI) / 2;

/** All dots of some marks. */
export function dotsIn(...lists: readonly (readonly Mark[])[]): number {
  return lists.flat().reduce((sum, mark) => sum + (mark.kind === "dots" ? mark.count : 0), 0);
}

/** Radius and opacity of a dot at a share of the way from the farthest to the nearest. */
export function atDepth(
  radius: number,
  opacity: number,
  near: number,
): { radius: number; opacity: number } {
  return { radius: radius * (0.65 + 0.7 * near), opacity: opacity * (0.3 + 0.7 * near) };
}

/** Premultiplied pixels: red in the lowest byte, opacity in the highest. */
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

/** How much of the pixel whose middle is (dx, dy) from a dot's middle the dot covers. */
function covered(shape: number, radius: number, dx: number, dy: number): number {
  if (radius <= 0) return 0;
  if (shape === 1) {
    const half = radius * HALF_SIDE;
    const along = (d: number): number => clamp(Math.min(half, d + 0.5) - Math.max(-half, d - 0.5));
    return along(dx) * along(dy);
  }
  const inside = clamp(radius - Math.hypot(dx, dy) + 0.5);
  // Below half a pixel the edge would make a disc larger than it is.
  return radius < 0.5 ? inside * Math.PI * radius * radius : inside;
}

/** Coverage in steps of LEVELS, for each phase one after the other. */
interface Stamps {
  side: number;
  /** From the pixel that holds the dot's middle to the stamp's first. */
  before: number;
  levels: Uint8Array;
}

const stampCache = new Map<string, Stamps>();

function stampsOf(shape: number, wanted: number, wantedRing: number): Stamps {
  // Zooming goes through all radii: those within a sixteenth of a pixel look the same.
  const radius = Math.max(1 / 16, Math.round(wanted * 16) / 16);
  const ring = Math.round(wantedRing * 16) / 16;
  const name = `${shape} ${radius} ${ring}`;
  const cached = stampCache.get(name);
  if (cached) return cached;
  if (stampCache.size > 256) stampCache.clear();
  const outer = ring > 0 ? radius + ring / 2 : radius;
  const inner = ring > 0 ? radius - ring / 2 : 0;
  const before = Math.ceil(outer);
  const side = 2 * before + 1;
  const levels = new Uint8Array(PHASES * PHASES * side * side);
  let at = 0;
  for (let phaseY = 0; phaseY < PHASES; phaseY++) {
    for (let phaseX = 0; phaseX < PHASES; phaseX++) {
      for (let y = 0; y < side; y++) {
        for (let x = 0; x < side; x++) {
          const dx = x - before + 0.5 - (phaseX + 0.5) / PHASES;
          const dy = y - before + 0.5 - (phaseY + 0.5) / PHASES;
          const hole = ring > 0 ? covered(shape, inner, dx, dy) : 0;
          levels[at++] = Math.round((covered(shape, outer, dx, dy) - hole) * LEVELS);
        }
      }
    }
  }
  const made = { side, before, levels };
  stampCache.set(name, made);
  return made;
}

/** Red, green and blue of "#rrggbb" as the low bytes of a pixel. */
function wordOf(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1, 7), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/**
 * Premultiplied pixels of colours at steps of opacity, `steps + 1` for each colour.
 *
 * Rounded down, so that a pixel which is painted again and again never runs over.
 */
export function sourceWords(
  colors: readonly string[],
  opacity: number,
  steps: number,
): { words: Uint32Array; alphas: Uint16Array } {
  const alphas = new Uint16Array(steps + 1);
  for (let step = 0; step <= steps; step++)
    alphas[step] = Math.round(256 * clamp(opacity) * (step / steps));
  const words = new Uint32Array(colors.length * (steps + 1));
  colors.forEach((color, i) => {
    const [red, green, blue] = wordOf(color);
    for (let step = 0; step <= steps; step++) {
      const alpha = alphas[step] as number;
      const part = (value: number): number => Math.floor((value * alpha) / 256);
      words[i * (steps + 1) + step] =
        (part(red) | (part(green) << 8) | (part(blue) << 16) | (part(255) << 24)) >>> 0;
    }
  });
  return { words, alphas };
}

/** A premultiplied pixel painted over another; `alpha` from 0 to 256 is the upper one's. */
export function over(below: number, source: number, alpha: number): number {
  const rest = 256 - alpha;
  const even = ((Math.imul(below & 0xff00ff, rest) + 0x800080) >>> 8) & 0xff00ff;
  const odd = (Math.imul((below >>> 8) & 0xff00ff, rest) + 0x800080) & 0xff00ff00;
  return (source + (even | odd)) >>> 0;
}

/**
 * Paints dots into a raster.
 *
 * @param scale pixels of the raster to one of the mark's.
 * @param left where the raster begins, in the mark's pixels.
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

/** Dots of one step of depth; all where there is no depth. */
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
  const look = depth < 0 ? mark : atDepth(mark.radius, mark.opacity, (depth + 0.5) / DEPTHS);
  const ring = (mark.ring ?? 0) * scale;
  const stamps = [0, 1].map((each) => stampsOf(each, look.radius * scale, ring));
  const { words, alphas } = sourceWords(mark.colors, look.opacity, LEVELS);
  for (let i = 0; i < mark.count; i++) {
    if (depth >= 0 && near && ((near[i] as number) * DEPTHS) >> 8 !== depth) continue;
    const px = ((x[i] as number) - left) * scale;
    const py = ((y[i] as number) - top) * scale;
    const { side, before, levels } = stamps[shape[i] === 1 ? 1 : 0] as Stamps;
    const cellX = Math.floor(px);
    const cellY = Math.floor(py);
    const firstX = cellX - before;
    const firstY = cellY - before;
    // Also false where a coordinate is not a number.
    if (!(firstX < width && firstY < height && firstX + side > 0 && firstY + side > 0)) continue;
    const phaseX = Math.floor((px - cellX) * PHASES);
    const phaseY = Math.floor((py - cellY) * PHASES);
    const base = (color[i] as number) * (LEVELS + 1);
    let at = (phaseY * PHASES + phaseX) * side * side;
    for (let row = firstY; row < firstY + side; row++) {
      if (row < 0 || row >= height) {
        at += side;
        continue;
      }
      let place = row * width + firstX;
      for (let column = firstX; column < firstX + side; column++, at++, place++) {
        const level = levels[at] as number;
        if (level === 0 || column < 0 || column >= width) continue;
        const rest = 256 - (alphas[level] as number);
        const below = pixels[place] as number;
        // As `over` has it; written out, because a call for each pixel costs a third of the frame.
        const even = ((Math.imul(below & 0xff00ff, rest) + 0x800080) >>> 8) & 0xff00ff;
        const odd = (Math.imul((below >>> 8) & 0xff00ff, rest) + 0x800080) & 0xff00ff00;
        pixels[place] = (words[base + level] as number) + (even | odd);
      }
    }
  }
}

const OPAQUE = 0xff000000;

/**
 * The raster with colours as a canvas wants them, not multiplied by opacity.
 *
 * @param into bytes of another raster of this size, to be written over.
 */
export function straight(
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

/** Dots as pixels of the area that they are shown in, `scale` to one of the mark's. */
export function pixelsOf(
  mark: DotsMark,
  scale: number,
): { pixels: Uint8ClampedArray<ArrayBuffer>; columns: number; rows: number } {
  const columns = Math.max(1, Math.ceil(mark.area.width * scale));
  const rows = Math.max(1, Math.ceil(mark.area.height * scale));
  const raster = makeRaster(columns, rows);
  paintInto(raster, mark, scale, mark.area.x, mark.area.y);
  return { pixels: straight(raster), columns, rows };
}

function number(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/**
 * What overlaps in one path is painted once, so that dots in one path would show no density: they
 * are dealt out to so many.
 */
const PATHS = 12;

/** Dots as paths, one for each colour and shape in each deal. */
export function dotPaths(mark: DotsMark): string {
  const { area, ring = 0 } = mark;
  const groups = new Map<
    string,
    { color: number; shape: number; depth: number; moves: string[] }
  >();
  for (let i = 0; i < mark.count; i++) {
    const x = mark.x[i] as number;
    const y = mark.y[i] as number;
    const inside =
      x >= area.x && y >= area.y && x <= area.x + area.width && y <= area.y + area.height;
    if (!inside) continue;
    const depth = mark.near ? ((mark.near[i] as number) * DEPTHS) >> 8 : -1;
    const [color, shape] = [mark.color[i] as number, mark.shape[i] === 1 ? 1 : 0];
    // Far ones first.
    const order = String(depth + 1).padStart(2, "0");
    const deal = String(Math.floor((i * PATHS) / mark.count)).padStart(2, "0");
    const name = `${order} ${deal} ${String(color).padStart(3, "0")} ${shape}`;
    const group = groups.get(name);
    const move = dotPath(x, y, shape, ring > 0 ? mark.radius : 0);
    if (group) group.moves.push(move);
    else groups.set(name, { color, shape, depth, moves: [move] });
  }
  const paths = [...groups.keys()].sort().map((name) => {
    const group = groups.get(name) as {
      color: number;
      shape: number;
      depth: number;
      moves: string[];
    };
    const { color, shape, depth, moves } = group;
    const look = depth < 0 ? mark : atDepth(mark.radius, mark.opacity, (depth + 0.5) / DEPTHS);
    const width = ring > 0 ? ring : look.radius * 2 * (shape === 1 ? HALF_SIDE : 1);
    return (
      `<path d="${moves.join("")}" stroke="${mark.colors[color] ?? "none"}"` +
      ` stroke-width="${number(width)}" stroke-linecap="${shape === 1 ? "square" : "round"}"` +
      ` opacity="${Math.round(look.opacity * 1000) / 1000}"/>`
    );
  });
  return `<g fill="none">${paths.join("")}</g>`;
}

/** A dot as a line of no length, which its round or square ends make one; or its outline. */
function dotPath(x: number, y: number, shape: number, radius: number): string {
  if (radius === 0) return `M${number(x)} ${number(y)}h0`;
  const half = number(radius * HALF_SIDE);
  const whole = number(2 * radius * HALF_SIDE);
  if (shape === 1)
    return `M${number(x)} ${number(y)}m-${half} -${half}h${whole}v${whole}h-${whole}z`;
  const [r, d] = [number(radius), number(2 * radius)];
  return `M${number(x - radius)} ${number(y)}a${r} ${r} 0 1 0 ${d} 0a${r} ${r} 0 1 0 -${d} 0`;
}

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
