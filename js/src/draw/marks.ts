/**
 * Marks, which are the parts of a picture: rectangles, lines, texts, images, curves and dots. A
 * list of marks can be painted on a canvas, written as SVG, and searched for the mark under the
 * pointer.
 */

/** Data of a view about what a mark stands for, such as a token. `hitTest` returns these data. */
type Meaning = Record<string, unknown>;

/** A rectangular area of a picture. */
export interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A filled or outlined rectangle. */
export interface RectMark extends Area {
  kind: "rect";
  fill?: string;
  stroke?: string;
  strokeWidth?: number;
  radius?: number;
  opacity?: number;
  /**
   * Colours (red, green, blue, opacity, each 0 to 255) of a gradient from left to right, in place
   * of `fill`.
   */
  ramp?: readonly (readonly [number, number, number, number])[];
  meaning?: Meaning;
}

/** A straight line. */
export interface LineMark {
  kind: "line";
  x0: number;
  y0: number;
  x1: number;
  y1: number;
  stroke: string;
  strokeWidth?: number;
  opacity?: number;
}

export type TextFont = "text" | "token";

/** One line of text, centred vertically at `y`. */
export interface TextMark {
  kind: "text";
  x: number;
  y: number;
  text: string;
  fill: string;
  size: number;
  font: TextFont;
  bold?: boolean;
  align?: "start" | "middle" | "end";
  /** Rotation about (x, y), in degrees clockwise. */
  rotate?: number;
  opacity?: number;
  /** Whether a line crosses out the text, as for keys that are left out of a plot. */
  struck?: boolean;
}

/**
 * An image of `columns` by `rows` cells. `pixels` has red, green, blue and opacity of each cell.
 */
export interface ImageMark extends Area {
  kind: "image";
  pixels: Uint8ClampedArray<ArrayBuffer>;
  columns: number;
  rows: number;
  /** Whether colours change gradually between cells. Otherwise cells have sharp edges. */
  smooth?: boolean;
  /** Whether a screen pixel that covers several small cells shows the mean of these cells. */
  averaged?: boolean;
  opacity?: number;
  /** Whether the image is a photo or drawing, which an SVG contains as pixels, not as shapes. */
  picture?: boolean;
  /**
   * Colour "#rrggbb" of the background on which the image lies. The image itself does not paint the
   * background. If an SVG has the image as shapes, translucent cells are written as opaque cells,
   * with their colour blended with this colour.
   */
  ground?: string | undefined;
}

/** Diagonal lines in some cells of a grid with `columns` by `rows` cells. */
export interface HatchMark extends Area {
  kind: "hatch";
  columns: number;
  rows: number;
  /** 1 for each cell with lines, otherwise 0, in row-major order. */
  cells: Uint8Array;
  stroke: string;
  strokeWidth?: number;
  opacity?: number;
  /** Distance between lines along an edge of the area, in pixels. */
  spacing: number;
}

/** Length of a dash and of a gap in a dashed curve, in pixels. */
export const DASHES = [4.5, 3];

/**
 * Many curves of one colour between two lists of tokens. They are stored in typed arrays, because
 * one object per curve would need too much memory and time.
 *
 * The lists are two columns, and curves leave them horizontally.
 */
export interface CurvesMark {
  kind: "curves";
  color: string;
  count: number;
  x0: Float32Array;
  y0: Float32Array;
  x1: Float32Array;
  y1: Float32Array;
  /** Opacity of each curve, 0 to 1. */
  opacity: Float32Array;
  /** Width of each curve in pixels. */
  width: Float32Array;
  /** Whether curves are dashed, as for negative numbers. */
  dashed?: boolean;
  /** Return the data about what curve `i` stands for. */
  meaning?: (i: number) => Meaning;
}

/**
 * Functions that draw dots. They are part of the mark, so that the bundle of a view without dots
 * does not contain them.
 */
export interface DotsPainter {
  paint: (context: CanvasRenderingContext2D, mark: DotsMark) => void;
  /** Return SVG elements: one image if `asPixels` is true (for many dots), otherwise paths. */
  write: (mark: DotsMark, asPixels: boolean) => string;
}

/**
 * Many discs and squares. All have one radius unless `near` is set. `hitTest` ignores dots. Views
 * find the dot under the pointer themselves.
 */
export interface DotsMark {
  kind: "dots";
  painter: DotsPainter;
  count: number;
  x: Float32Array;
  y: Float32Array;
  /** Index of each dot's colour in `colors`. */
  color: Uint8Array;
  colors: readonly string[];
  /** Shape of each dot: 0 for a disc, 1 for a square. */
  shape: Uint8Array;
  radius: number;
  opacity: number;
  /** Line width of the outline. If positive, dots have an outline and no filling. */
  ring?: number;
  /** Depth of each dot, from 0 (most distant) to 255 (nearest). Distant dots look small and faint. */
  near?: Uint8Array;
  /** Area in which dots are visible. Dots outside of it are not drawn. */
  area: Area;
}

export type Mark = RectMark | LineMark | TextMark | ImageMark | HatchMark | CurvesMark | DotsMark;

/** A complete picture in two layers. The front layer covers the back layer, which can be dimmed. */
export interface Scene {
  width: number;
  height: number;
  background: string | null;
  back: Mark[];
  /** Opacity of everything in `back`. */
  backOpacity: number;
  front: Mark[];
  /** Description in the SVG file of a figure without visible captions. Views do not show it. */
  description?: string;
}

/** Return a scene without a background, for display in the page. */
export function sceneOf(
  { width, height }: { width: number; height: number },
  back: Mark[],
  front: Mark[],
  backOpacity = 1,
): Scene {
  return { width, height, background: null, back, backOpacity, front };
}

/**
 * CSS lists of fonts: first fonts of the system, then fonts for Chinese, Japanese and Korean.
 * Exported figures may replace the lists with fonts that the user chose.
 */
export const FONTS: Record<TextFont, string> = {
  text: 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "Hiragino Sans", sans-serif',
  token:
    'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "Hiragino Sans", monospace',
};

/** Return the CSS `font` of a text. */
export function fontOf(text: { size: number; font: TextFont; bold?: boolean }): string {
  return `${text.bold ? "600 " : ""}${text.size}px ${FONTS[text.font]}`;
}

type Curve = [number, number, number, number, number, number, number, number];

/** Return x and y of a Bézier curve's start, first and second control point, and end. */
export function curveAt(mark: CurvesMark, i: number): Curve {
  const [x0, y0] = [mark.x0[i] as number, mark.y0[i] as number];
  const [x1, y1] = [mark.x1[i] as number, mark.y1[i] as number];
  const middle = (x0 + x1) / 2;
  return [x0, y0, middle, y0, middle, y1, x1, y1];
}

/**
 * Return the share (0 to 1) of its way along the columns that a curve has covered at a point
 * between the columns. `crossing` is 0 at the start of the curve and 1 at its end. The curve has y = y0 + shiftAfter(crossing) * (y1 - y0) at x = x0 + crossing * (x1 -
 * x0).
 */
export function shiftAfter(crossing: number): number {
  // Both control points are halfway between the columns, so crossing = 1.5 t (1 - t) + t³. This is
  // the solution for the parameter t of the Bézier curve.
  const t = 0.5 + Math.sinh(Math.asinh(4 * (crossing - 0.5)) / 3);
  return t * t * (3 - 2 * t);
}

function nearestCurve(mark: CurvesMark, x: number, y: number, maxDistance: number): number {
  let best = -1;
  let bestScore = 0;
  // All curves of a mark begin at one of two columns and end at the other, so `shift` is the same
  // for all curves.
  const [start, end] = [mark.x0[0], mark.x1[0]];
  if (start === undefined || end === undefined) return -1;
  const crossing = (x - start) / (end - start);
  if (crossing < 0 || crossing > 1) return -1;
  const shift = shiftAfter(crossing);
  for (let i = 0; i < mark.count; i++) {
    const from = mark.y0[i] as number;
    const distance = Math.abs(from + ((mark.y1[i] as number) - from) * shift - y);
    if (distance > maxDistance) continue;
    // Prefer opaque curves and near curves. At `maxDistance`, the score of a curve is one third of
    // its opacity.
    const score = (mark.opacity[i] as number) * (1 - distance / (maxDistance * 1.5));
    if (score > bestScore) {
      best = i;
      bestScore = score;
    }
  }
  return best;
}

/**
 * Return the meaning of the topmost rectangle with a meaning at (x, y). If no such rectangle
 * exists, return the meaning of a curve within `maxDistance` pixels, with a preference for opaque
 * curves. Return null if no curve is so near.
 */
export function hitTest(marks: Mark[], x: number, y: number, maxDistance = 4): Meaning | null {
  for (const mark of [...marks].reverse()) {
    if (mark.kind !== "rect" || !mark.meaning) continue;
    const [across, down] = [x - mark.x, y - mark.y];
    if (across >= 0 && across < mark.width && down >= 0 && down < mark.height) return mark.meaning;
  }
  let best: Meaning | null = null;
  let bestOpacity = 0;
  for (const mark of marks) {
    if (mark.kind !== "curves" || !mark.meaning) continue;
    const i = nearestCurve(mark, x, y, maxDistance);
    if (i >= 0 && (mark.opacity[i] as number) > bestOpacity) {
      best = mark.meaning(i);
      bestOpacity = mark.opacity[i] as number;
    }
  }
  return best;
}

/** Characters that XML forbids, including halves of surrogate pairs. */
const FORBIDDEN = /[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
/** Control characters that change the direction of the text after them. */
const TURNS_DIRECTION = /[\u202a-\u202e\u2066-\u2069]/g;

/**
 * Return a text that is safe to show in any file or page. Characters that XML forbids become
 * U+FFFD. Characters that would change the direction of the text after them become visible names,
 * such as ‹U+202E›.
 */
export function printable(text: string): string {
  return text
    .replace(FORBIDDEN, "\uFFFD")
    .replace(TURNS_DIRECTION, (mark) => `‹U+${mark.charCodeAt(0).toString(16).toUpperCase()}›`);
}

/** A complete isolate (see `isolated`), with its text. */
const ISOLATE = /\u2068([^\u202a-\u202e\u2066-\u2069]*)\u2069/g;

/**
 * Return a text in an isolate (FSI, PDI) if it has letters or digits that are written from right to
 * left. In a sentence, they would otherwise move the numbers and punctuation after them.
 */
export function isolated(text: string): string {
  const rightToLeft =
    /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
  return rightToLeft.test(text) ? `\u2068${text}\u2069` : text;
}

/** Return a text without the characters of complete isolates. */
export function withoutIsolates(text: string): string {
  return text.replace(ISOLATE, "$1");
}

/** Return `printable` for a sentence, in which complete isolates remain. They change no text after them. */
export function printableSentence(text: string): string {
  const parts = text.split(ISOLATE);
  return parts.map((part, i) => (i % 2 ? isolated(printable(part)) : printable(part))).join("");
}

/** Complete the isolates of a sentence that is broken into lines. */
export function isolatedLines(lines: readonly string[]): string[] {
  let isOpen = false;
  return lines.map((line) => {
    const text = isOpen ? `\u2068${line}` : line;
    isOpen = text.lastIndexOf("\u2068") > text.lastIndexOf("\u2069");
    return isOpen ? `${text}\u2069` : text;
  });
}

/**
 * Return the text of a token as views show it: `printable`, with a dotted circle before a combining
 * mark that has no letter, because the mark alone has no width and would join the text before it.
 *
 * @param safe `printableSentence` for a text that may be a sentence about a token.
 */
export function tokenText(text: string, safe = printable): string {
  const shown = safe(text);
  return /^\p{M}/u.test(shown) ? `\u25cc${shown}` : shown;
}

const SWAPPED: Record<string, string> = {
  ...{ x: "y", y: "x", width: "height", height: "width" },
  ...{ x0: "y0", y0: "x0", x1: "y1", y1: "x1" },
};

/** Swap the horizontal and vertical values of a point, a box, a line or a rectangle if `swap` is true. */
export function transposed<Shape extends object>(shape: Shape, swap: boolean): Shape {
  if (!swap) return shape;
  const entries = Object.entries(shape).map(([field, value]) => [SWAPPED[field] ?? field, value]);
  return Object.fromEntries(entries) as Shape;
}

/** Fields of marks that are positions along an axis, "x" or "y", or lengths. */
const GEOMETRY: Record<string, "x" | "y" | "length"> = {
  ...{ x: "x", x0: "x", x1: "x", y: "y", y0: "y", y1: "y" },
  ...{ width: "length", height: "length", size: "length", spacing: "length" },
  ...{ radius: "length", ring: "length", strokeWidth: "length" },
};

/** Return a mark, or the area of a mark, enlarged by `factor` and then moved by (dx, dy). */
function transform<Shape extends object>(shape: Shape, factor: number, dx = 0, dy = 0): Shape {
  const distances = { x: dx, y: dy, length: 0 };
  const entries = Object.entries(shape).map(([field, value]) => {
    if (field === "area") return [field, transform(value, factor, dx, dy)];
    const kind = GEOMETRY[field];
    if (kind === undefined || value === undefined) return [field, value];
    const change = (number: number): number => number * factor + distances[kind];
    return [field, typeof value === "number" ? change(value) : value.map(change)];
  });
  return Object.fromEntries(entries) as Shape;
}

/** Return marks moved by (dx, dy). */
export function translate(marks: readonly Mark[], dx: number, dy: number): Mark[] {
  return marks.map((mark) => transform(mark, 1, dx, dy));
}

/** Return a scene enlarged by a factor. */
export function scaled(scene: Scene, factor: number): Scene {
  const enlarge = (mark: Mark): Mark =>
    // An outline without a stated width is one pixel wide before it is enlarged.
    transform("stroke" in mark ? { strokeWidth: 1, ...mark } : mark, factor);
  const { width, height } = scene;
  return {
    ...scene,
    width: width * factor,
    height: height * factor,
    back: scene.back.map(enlarge),
    front: scene.front.map(enlarge),
  };
}
