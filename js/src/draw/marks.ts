/**
 * The one list of marks that is painted to a canvas, written as SVG and asked what is under the
 * pointer. A view computes marks and nothing else.
 */

/** What a mark stands for, handed back by the hit test. */
type Meaning = Record<string, unknown>;

/** A filled or outlined rectangle. */
export interface RectMark {
  kind: "rect";
  x: number;
  y: number;
  width: number;
  height: number;
  fill?: string;
  stroke?: string;
  strokeWidth?: number;
  radius?: number;
  opacity?: number;
  /** Colours from left to right at equal distances, in place of `fill`: red, green, blue, opacity. */
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

/** One line of text; `y` is its middle. */
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
  /** Degrees clockwise about (x, y). */
  rotate?: number;
  opacity?: number;
  /** A line through the text, for what is left out. */
  struck?: boolean;
}

/** A picture from RGBA bytes, its cells drawn with sharp edges unless `smooth`. */
export interface ImageMark {
  kind: "image";
  x: number;
  y: number;
  width: number;
  height: number;
  pixels: Uint8ClampedArray<ArrayBuffer>;
  columns: number;
  rows: number;
  smooth?: boolean;
  /** Where small cells are not whole pixels of the screen, a pixel is the mean of those under it. */
  averaged?: boolean;
  opacity?: number;
  /** Of something, so that it is written as pixels, also where few cells would be shapes. */
  picture?: boolean;
  /** The one colour, "#rrggbb", that lies below it: files then need no cells that let it through. */
  ground?: string | undefined;
}

/** Lengths of a dashed curve's dashes and of the gaps between them, in pixels. */
export const DASHES = [4.5, 3];

/**
 * Many curves of one colour, in typed arrays: a mark for each would be too many objects.
 *
 * A curve leaves its start and reaches its end at right angles to the columns of tokens: level
 * where the columns stand ("vertical"), upright where they lie ("horizontal").
 */
export interface CurvesMark {
  kind: "curves";
  columns: "vertical" | "horizontal";
  color: string;
  count: number;
  x0: Float32Array;
  y0: Float32Array;
  x1: Float32Array;
  y1: Float32Array;
  /** 0 to 1 each. */
  opacity: Float32Array;
  /** Pixels each. */
  width: Float32Array;
  /** Whether they are dashed, as those of negative numbers are. */
  dashed?: boolean;
  /** The meaning of curve i, for the hit test. */
  meaning?: (i: number) => Meaning;
}

/** Steps of opacity in which curves are sorted, so that strong ones lie on top. */
export const OPACITY_STEPS = 192;

/** The step with which a curve is drawn: the faintest is drawn all the same. */
export function opacityStep(opacity: number): number {
  return Math.min(OPACITY_STEPS, Math.max(1, Math.round(opacity * OPACITY_STEPS)));
}

/** How dots are drawn; a mark brings its own, so that views without dots need not contain it. */
export interface DotsPainter {
  paint: (context: CanvasRenderingContext2D, mark: DotsMark) => void;
  /** Elements of an SVG; `embedded` gives one for an image, where dots are too many for shapes. */
  write: (mark: DotsMark, embedded: ((image: ImageMark) => string | null) | null) => string;
}

/**
 * Many discs and squares of one radius, in typed arrays. They have no meaning for the hit test:
 * the view finds the nearest with an index of its own.
 */
export interface DotsMark {
  kind: "dots";
  painter: DotsPainter;
  count: number;
  x: Float32Array;
  y: Float32Array;
  /** Index into `colors`, which are "#rrggbb". */
  color: Uint8Array;
  colors: readonly string[];
  /** 0 for a disc, 1 for a square. */
  shape: Uint8Array;
  radius: number;
  opacity: number;
  /** Outlines of this width instead of what they enclose. */
  ring?: number;
  /** 0 for the farthest to 255 for the nearest: far dots are smaller and fainter. */
  near?: Uint8Array;
  /** Where dots are shown; those outside are not. */
  area: { x: number; y: number; width: number; height: number };
}

export type Mark = RectMark | LineMark | TextMark | ImageMark | CurvesMark | DotsMark;

/** A whole picture: what lies behind can be dimmed as one. */
export interface Scene {
  width: number;
  height: number;
  background: string | null;
  back: Mark[];
  /** Opacity of everything in `back`. */
  backOpacity: number;
  front: Mark[];
  /** What a file says of itself where the picture does not say it. */
  description?: string;
}

/** A scene without a background, for the page. */
export function sceneOf(
  { width, height }: { width: number; height: number },
  back: Mark[],
  front: Mark[],
  backOpacity = 1,
): Scene {
  return { width, height, background: null, back, backOpacity, front };
}

/** Font families: first what the host has, then faces that hold CJK. */
export const FONTS: Record<TextFont, string> = {
  text: 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "Hiragino Sans", sans-serif',
  token:
    'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "Hiragino Sans", monospace',
};

/** The CSS `font` of a text. */
export function fontOf(text: { size: number; font: TextFont; bold?: boolean }): string {
  return `${text.bold ? "600 " : ""}${text.size}px ${FONTS[text.font]}`;
}

/** Where a cubic curve with level ends is, at parameter t: its share of the way and of the rise. */
function wayAt(t: number): number {
  // Both control points lie half the way along.
  return 1.5 * t * (1 - t) + t * t * t;
}

function riseAt(t: number): number {
  return t * t * (3 - 2 * t);
}

/** The share of the rise that a curve has made after a share of its way. */
export function riseAfter(way: number): number {
  let low = 0;
  let high = 1;
  for (let i = 0; i < 24; i++) {
    const middle = (low + high) / 2;
    if (wayAt(middle) < way) low = middle;
    else high = middle;
  }
  return riseAt((low + high) / 2);
}

function nearestCurve(mark: CurvesMark, x: number, y: number, reach: number): number {
  const vertical = mark.columns === "vertical";
  let best = -1;
  let bestScore = 0;
  // All curves of a mark share their two columns, so the rise is the same for all.
  const [start, end] = vertical ? [mark.x0[0], mark.x1[0]] : [mark.y0[0], mark.y1[0]];
  if (start === undefined || end === undefined) return -1;
  const way = ((vertical ? x : y) - start) / (end - start);
  if (way < 0 || way > 1) return -1;
  const rise = riseAfter(way);
  const from = vertical ? mark.y0 : mark.x0;
  const to = vertical ? mark.y1 : mark.x1;
  const at = vertical ? y : x;
  for (let i = 0; i < mark.count; i++) {
    const a = from[i] as number;
    const distance = Math.abs(a + ((to[i] as number) - a) * rise - at);
    if (distance > reach) continue;
    // Of curves that cross here the strongest is meant, and of equals the nearest.
    const score = (mark.opacity[i] as number) * (1 - distance / (reach * 1.5));
    if (score > bestScore) {
      best = i;
      bestScore = score;
    }
  }
  return best;
}

/** The meaning of what lies at (x, y), the topmost first; null where there is none. */
export function hitTest(marks: Mark[], x: number, y: number, reach = 4): Meaning | null {
  for (let m = marks.length - 1; m >= 0; m--) {
    const mark = marks[m] as Mark;
    if (mark.kind === "rect" && mark.meaning) {
      const inside =
        x >= mark.x && x < mark.x + mark.width && y >= mark.y && y < mark.y + mark.height;
      if (inside) return mark.meaning;
    }
  }
  let best: Meaning | null = null;
  let bestOpacity = 0;
  for (const mark of marks) {
    if (mark.kind !== "curves" || !mark.meaning) continue;
    const i = nearestCurve(mark, x, y, reach);
    if (i >= 0 && (mark.opacity[i] as number) > bestOpacity) {
      best = mark.meaning(i);
      bestOpacity = mark.opacity[i] as number;
    }
  }
  return best;
}

/** Whether a character may stand in an XML document. */
function legalInXml(code: number): boolean {
  if (code < 0x20) return code === 0x9 || code === 0xa || code === 0xd;
  return !(code >= 0xd800 && code <= 0xdfff) && code !== 0xfffe && code !== 0xffff;
}

/** Characters that turn the direction of what follows, beyond the text that they stand in. */
const TURNS_DIRECTION = /[\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text that can be shown anywhere: characters that XML forbids become U+FFFD, and those that
 * would turn the direction of their surroundings are named.
 */
export function printable(text: string): string {
  let out = "";
  // By code points, so that only a surrogate without its other half is a lone code.
  for (const character of text) {
    out += legalInXml(character.codePointAt(0) as number) ? character : "\uFFFD";
  }
  return out.replace(
    TURNS_DIRECTION,
    (mark) => `‹U+${(mark.codePointAt(0) as number).toString(16).toUpperCase()}›`,
  );
}

function moved(values: Float32Array, by: number): Float32Array {
  return values.map((value) => value + by);
}

/** The same marks at another place. */
export function translate(marks: Mark[], dx: number, dy: number): Mark[] {
  return marks.map((mark) => {
    switch (mark.kind) {
      case "line":
        return { ...mark, x0: mark.x0 + dx, x1: mark.x1 + dx, y0: mark.y0 + dy, y1: mark.y1 + dy };
      case "curves":
        return {
          ...mark,
          x0: moved(mark.x0, dx),
          x1: moved(mark.x1, dx),
          y0: moved(mark.y0, dy),
          y1: moved(mark.y1, dy),
        };
      case "dots":
        return {
          ...mark,
          x: moved(mark.x, dx),
          y: moved(mark.y, dy),
          area: { ...mark.area, x: mark.area.x + dx, y: mark.area.y + dy },
        };
      default:
        return { ...mark, x: mark.x + dx, y: mark.y + dy };
    }
  });
}

function scaledMark(mark: Mark, by: number): Mark {
  switch (mark.kind) {
    case "rect":
      return {
        ...mark,
        x: mark.x * by,
        y: mark.y * by,
        width: mark.width * by,
        height: mark.height * by,
        strokeWidth: (mark.strokeWidth ?? 1) * by,
        radius: (mark.radius ?? 0) * by,
      };
    case "line":
      return {
        ...mark,
        x0: mark.x0 * by,
        y0: mark.y0 * by,
        x1: mark.x1 * by,
        y1: mark.y1 * by,
        strokeWidth: (mark.strokeWidth ?? 1) * by,
      };
    case "text":
      return { ...mark, x: mark.x * by, y: mark.y * by, size: mark.size * by };
    case "image":
      return {
        ...mark,
        x: mark.x * by,
        y: mark.y * by,
        width: mark.width * by,
        height: mark.height * by,
      };
    case "curves": {
      const times = (values: Float32Array): Float32Array => values.map((value) => value * by);
      const { x0, y0, x1, y1, width } = mark;
      const [left, top, right, bottom] = [times(x0), times(y0), times(x1), times(y1)];
      return { ...mark, x0: left, y0: top, x1: right, y1: bottom, width: times(width) };
    }
    case "dots": {
      const { x, y, width, height } = mark.area;
      return {
        ...mark,
        x: mark.x.map((value) => value * by),
        y: mark.y.map((value) => value * by),
        radius: mark.radius * by,
        ...(mark.ring === undefined ? {} : { ring: mark.ring * by }),
        area: { x: x * by, y: y * by, width: width * by, height: height * by },
      };
    }
  }
}

/** The same picture in another size. */
export function scaled(scene: Scene, by: number): Scene {
  return {
    ...scene,
    width: scene.width * by,
    height: scene.height * by,
    back: scene.back.map((mark) => scaledMark(mark, by)),
    front: scene.front.map((mark) => scaledMark(mark, by)),
  };
}
