/**
 * Many curves as pixels, without a call of the canvas for each.
 *
 * Canvases paint a curve in some microseconds, which adds up to seconds where there are hundreds of
 * thousands. Here every curve is laid over each column of pixels in two to three multiplications.
 * What a pixel lets through of curves of one colour is the product of what each lets through, in
 * floating point, so that faint curves add up as they should: none is left out, and the order of
 * curves of one colour does not matter.
 *
 * "Along" is the direction in which tokens follow each other, "across" the way from one column of
 * tokens to the other. All curves share both ends across, and so where they are after a share of
 * their way.
 */

import { type CurvesMark, OPACITY_STEPS, opacityStep, riseAfter } from "./marks";

/** Curves that are painted in one way, in pixels from the part's start. */
interface Batch {
  count: number;
  /** Where each begins along, and how far it rises. */
  from: Float32Array;
  rise: Float32Array;
  opacity: Float32Array;
  /** Pixels each. */
  width: Float32Array;
}

/** Curves no wider than a pixel, in groups that are painted alike. */
interface Thin extends Omit<Batch, "width"> {
  /** For each group, ascending: its first curve, and behind the last group all curves. */
  starts: Uint32Array;
}

/** Curves of one colour that lie in a part of the picture. */
interface Pile {
  red: number;
  green: number;
  blue: number;
  /** No wider than a pixel. */
  thin: Thin;
  wide: Batch;
}

function rgbOf(color: string): [number, number, number] {
  const rgb = Number.parseInt(color.slice(1), 16);
  return [rgb >> 16, (rgb >> 8) & 255, rgb & 255];
}

function batchOf(most: number): Batch {
  const none = (): Float32Array => new Float32Array(most);
  return { count: 0, from: none(), rise: none(), opacity: none(), width: none() };
}

/** An empty batch with room for so many: the same one where it has that. */
function withRoom(batch: Batch, most: number): Batch {
  batch.count = 0;
  return batch.from.length < most ? batchOf(most) : batch;
}

/** The curves by themselves, so that others can be written over the batch. */
function copyOf({ count, from, rise, opacity, width }: Batch): Batch {
  const own = (of: Float32Array): Float32Array => of.slice(0, count);
  return { count, from: own(from), rise: own(rise), opacity: own(opacity), width: own(width) };
}

/**
 * Groups of thin curves: by how far they rise, and of those by how much a pixel changes from column to
 * column. So the loops over a group do the same for each of its curves.
 */
const RISES = 24;
const SHIFTS = 80;
/** Each group reaches the fourth root of 2 farther; of a shift from this. */
const LEAST_SHIFT = 2 ** -8;
const GROUPS_OF_TWO = 4;

const RISE_ENDS = Float64Array.from({ length: RISES }, (_, at) =>
  at < RISES - 1 ? 2 ** (at / GROUPS_OF_TWO) : Number.POSITIVE_INFINITY,
);
const SHIFT_ENDS = Float64Array.from({ length: SHIFTS }, (_, at) =>
  at < SHIFTS - 1 ? LEAST_SHIFT * 2 ** (at / GROUPS_OF_TWO) : Number.POSITIVE_INFINITY,
);

/** The first of so many groups that reaches a size. */
function groupOf(size: number, least: number, most: number): number {
  if (size <= least) return 0;
  return Math.min(most - 1, Math.ceil(GROUPS_OF_TWO * Math.log2(size / least) - 1e-9));
}

/** The curves, in groups. */
function grouped(batch: Batch, gentle: number): Thin {
  const { count, from, rise, opacity } = batch;
  const groups = new Uint16Array(count);
  const starts = new Uint32Array(RISES * SHIFTS + 1);
  for (let i = 0; i < count; i++) {
    const size = Math.abs(rise[i] as number);
    const high = groupOf(size, gentle, RISES);
    const shift = groupOf(size * (opacity[i] as number), LEAST_SHIFT, SHIFTS);
    const group = high * SHIFTS + shift;
    groups[i] = group;
    starts[group + 1] = (starts[group + 1] as number) + 1;
  }
  for (let group = 0; group < RISES * SHIFTS; group++)
    starts[group + 1] = (starts[group + 1] as number) + (starts[group] as number);
  const next = starts.slice();
  const out: Thin = {
    ...{ count, starts },
    from: new Float32Array(count),
    rise: new Float32Array(count),
    opacity: new Float32Array(count),
  };
  for (let i = 0; i < count; i++) {
    const group = groups[i] as number;
    const at = next[group] as number;
    next[group] = at + 1;
    out.from[at] = from[i] as number;
    out.rise[at] = rise[i] as number;
    out.opacity[at] = opacity[i] as number;
  }
  return out;
}

/** Pixels before and behind a part, so that curves that lie half in it need no look at its ends. */
const MARGIN = 64;

/** Where curves are in a column of pixels: their share of the rise, the slope, how much they cross. */
interface Column {
  rise: number;
  slope: number;
  crossed: number;
}

/** A part of the picture while it is painted, and how many curves lie in it. */
export interface Part {
  start: number;
  stop: number;
  count: number;
  pixels: Uint8ClampedArray<ArrayBuffer>;
}

/** Curves that `CurveRaster` can lay over pixels. */
export interface Rasterable {
  vertical: boolean;
  marks: readonly CurvesMark[];
  count: number;
}

/** Marks as curves that share their ends across; null where they are something else. */
export function rasterable(marks: readonly { kind: string }[]): Rasterable | null {
  const curves = marks as readonly CurvesMark[];
  const [first] = curves;
  if (first?.kind !== "curves" || first.count === 0) return null;
  const vertical = first.columns === "vertical";
  const [start, end] = vertical ? [first.x0[0], first.x1[0]] : [first.y0[0], first.y1[0]];
  if (start === undefined || end === undefined || !(end > start)) return null;
  for (const mark of curves) {
    if (mark.kind !== "curves" || mark.dashed || mark.columns !== first.columns) return null;
    if (!/^#[0-9a-f]{6}$/i.test(mark.color)) return null;
    const [starts, ends] = vertical ? [mark.x0, mark.x1] : [mark.y0, mark.y1];
    for (let i = 0; i < mark.count; i++) if (starts[i] !== start || ends[i] !== end) return null;
  }
  const count = curves.reduce((all, mark) => all + mark.count, 0);
  return { vertical, marks: curves, count };
}

function byColor(marks: readonly CurvesMark[]): [string, CurvesMark[]][] {
  const colors: [string, CurvesMark[]][] = [];
  for (const mark of marks) {
    const last = colors.at(-1);
    if (last?.[0] === mark.color) last[1].push(mark);
    else colors.push([mark.color, [mark]]);
  }
  return colors;
}

/** Columns that are painted together, each by itself and in blocks of two, four and all eight. */
interface Run {
  count: number;
  /** The largest slope in it; and where no blocks of columns are painted, infinity. */
  steepest: number;
  slope: number;
  /** For each block, the single columns first: its rise, its slope, and how much it crosses. */
  rises: Float64Array;
  slopes: Float64Array;
  crossed: Float64Array;
}

const RUN = 8;
/** Where the blocks of 1, 2, 4 and 8 columns begin among all. */
const BLOCKS = [0, 8, 12, 14, 15] as const;
/**
 * A curve is painted once for a block of columns if no pixel is off by more than this: half of what
 * a screen can show. As much of it is too high on one side of the block as is too low on the other,
 * so that the errors of many curves cancel out.
 */
const SAME = 0.5 / 255;

function runOf(columns: readonly Column[]): Run {
  const count = columns.length;
  const blocks = Array.from({ length: 2 * RUN - 1 }, (_, at) => {
    const level = BLOCKS.filter((start) => start <= at).length - 1;
    const size = 1 << level;
    const first = (at - (BLOCKS[level] as number)) * size;
    return columns.slice(first, first + size);
  });
  const mean = (of: (column: Column) => number): Float64Array =>
    Float64Array.from(blocks, (block) =>
      block.length > 0 ? block.reduce((sum, each) => sum + of(each), 0) / block.length : 0,
    );
  const steepest = Math.max(...columns.map(({ slope }) => slope));
  const whole = count === RUN && columns.every(({ crossed }) => crossed >= 1);
  return {
    ...{ count, steepest },
    // Of a run that is cut short no blocks are painted.
    slope: whole ? steepest : Number.POSITIVE_INFINITY,
    rises: mean(({ rise }) => rise),
    slopes: mean(({ slope }) => slope),
    crossed: mean(({ crossed }) => crossed),
  };
}

/** How large the blocks are in which a curve is painted: 0 for single columns to 3 for all. */
function levelOf(shift: number): number {
  // From the middle of a block to that of its last column are 0.5, 1.5 and 3.5 columns.
  if (0.5 * shift >= SAME) return 0;
  if (1.5 * shift >= SAME) return 1;
  return 3.5 * shift >= SAME ? 2 : 3;
}

/** The columns of pixels from a start to an end, the first at `Math.floor(start)`. */
function columnsOf(start: number, end: number): Column[] {
  const first = Math.floor(start);
  const after = (place: number): number =>
    riseAfter(Math.max(0, Math.min(1, (place - start) / (end - start))));
  return Array.from({ length: Math.ceil(end) - first }, (_, i) => {
    const from = Math.max(start, first + i);
    const to = Math.min(end, first + i + 1);
    const slope = to > from ? (after(to) - after(from)) / (to - from) : 0;
    return { rise: after((from + to) / 2), slope, crossed: to - from };
  });
}

/** The picture of many curves, part by part. */
export class CurveRaster {
  readonly vertical: boolean;
  /** Pixels across: the first, and how many. */
  readonly left: number;
  readonly across: number;
  /** Where curves are along, in pixels. */
  readonly start: number;
  readonly stop: number;
  /** How many curves were laid over pixels so far, each once for every part that it lies in. */
  painted = 0;
  /** Colours with their marks, of neighbouring marks of one colour once. */
  readonly #colors: readonly (readonly [string, readonly CurvesMark[]])[];
  readonly #scale: number;
  readonly #gentle: number;
  readonly #runs: readonly Run[];
  /** To collect curves in. */
  #thin = batchOf(0);
  #wide = batchOf(0);

  constructor({ vertical, marks }: Rasterable, scale: number) {
    this.vertical = vertical;
    this.#colors = byColor(marks);
    this.#scale = scale;
    const first = marks[0] as CurvesMark;
    const ends = vertical ? [first.x0[0], first.x1[0]] : [first.y0[0], first.y1[0]];
    const [left, right] = ends.map((each) => (each as number) * scale) as [number, number];
    const columns = columnsOf(left, right);
    this.left = Math.floor(left);
    this.across = columns.length;
    // The slope is largest in the middle.
    this.#gentle = 1 / Math.max(...columns.map(({ slope }) => slope));
    this.#runs = Array.from({ length: Math.ceil(this.across / RUN) }, (_, at) =>
      runOf(columns.slice(at * RUN, (at + 1) * RUN)),
    );
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    for (const { count, width, ...places } of marks) {
      const from = vertical ? places.y0 : places.x0;
      const to = vertical ? places.y1 : places.x1;
      for (let i = 0; i < count; i++) {
        const a = from[i] as number;
        const b = to[i] as number;
        const half = (width[i] as number) / 2;
        const least = (a < b ? a : b) - half;
        const most = (a < b ? b : a) + half;
        if (least < low) low = least;
        if (most > high) high = most;
      }
    }
    this.start = Math.floor(low * scale) - 1;
    this.stop = Math.ceil(high * scale) + 1;
  }

  /** The opacity that about `most` of the curves in a part of the picture reach. */
  opacityOfStrongest(start: number, stop: number, most: number): number {
    const counts = new Uint32Array(257);
    for (const mark of this.#colors.flatMap(([, marks]) => marks)) {
      this.#eachIn(mark, start, stop, 0, (_, __, opacity) => {
        const at = Math.ceil(Math.min(1, opacity) * 256);
        counts[at] = (counts[at] as number) + 1;
      });
    }
    let sum = 0;
    for (let at = 256; at > 0; at--) {
      sum += counts[at] as number;
      if (sum > most) return at / 256;
    }
    return 0;
  }

  /** The curves of a mark that lie in a part, also by half of their width, of at least an opacity. */
  #eachIn(
    { count, width, opacity, ...places }: CurvesMark,
    start: number,
    stop: number,
    least: number,
    see: (from: number, to: number, opacity: number, width: number) => void,
  ): void {
    const scale = this.#scale;
    const from = this.vertical ? places.y0 : places.x0;
    const to = this.vertical ? places.y1 : places.x1;
    for (let i = 0; i < count; i++) {
      const strength = opacity[i] as number;
      if (strength < least) continue;
      const a = (from[i] as number) * scale;
      const b = (to[i] as number) * scale;
      const wide = (width[i] as number) * scale;
      const room = wide + 1;
      if ((a < b ? a : b) - room < stop && (a < b ? b : a) + room > start)
        see(a, b, strength, wide);
    }
  }

  /** The curves in a part, of at least an opacity; marks of one colour that follow each other together. */
  #piles(start: number, stop: number, least: number): Pile[] {
    const piles: Pile[] = [];
    for (const [color, marks] of this.#colors) {
      const most = marks.reduce((sum, { count }) => sum + count, 0);
      // Of all that is painted, the arrays are made once.
      this.#thin = withRoom(this.#thin, most);
      this.#wide = withRoom(this.#wide, most);
      const [thin, wide] = [this.#thin, this.#wide];
      for (const mark of marks) {
        this.#eachIn(mark, start, stop, least, (from, to, strength, width) => {
          const kind = width > 1 ? wide : thin;
          const at = kind.count++;
          kind.from[at] = from - start + MARGIN;
          kind.rise[at] = to - from;
          // One of less than a pixel is drawn as wide, and the fainter.
          kind.opacity[at] = (opacityStep(strength) / OPACITY_STEPS) * Math.min(1, width);
          kind.width[at] = width;
        });
      }
      if (thin.count + wide.count === 0) continue;
      const [red, green, blue] = rgbOf(color);
      piles.push({ red, green, blue, thin: grouped(thin, this.#gentle), wide: copyOf(wide) });
    }
    return piles;
  }

  /**
   * Paints a part of the picture, from `start` to before `stop` along; of the curves those of at
   * least an opacity. Yields after every column of pixels, when the caller may do something else.
   */
  *paint(start: number, stop: number, least = 0): Generator<void, Part> {
    const piles = this.#piles(start, stop, least);
    const length = stop - start;
    const pixels = new Uint8ClampedArray(4 * length * this.across);
    const size = length + 2 * MARGIN;
    const through = new Float64Array((2 * RUN - 1) * size);
    const sums = Array.from({ length: RUN }, () => new Float64Array(4 * length));
    const [next, step] = this.vertical ? [this.across, 1] : [1, length];
    let count = 0;
    for (const { thin, wide } of piles) count += thin.count + wide.count;
    this.painted += count;
    for (let column = 0; column < this.across && count > 0; column += RUN) {
      const run = this.#runs[column / RUN] as Run;
      for (const each of sums) each.fill(0);
      for (const pile of piles) {
        through.fill(1);
        layThin(pile.thin, this.#gentle, through, size, run);
        layWide(pile.wide, through, size, run);
        for (let i = 0; i < run.count; i++) cover(sums[i] as Float64Array, through, size, i, pile);
      }
      // Pixels of a canvas have colours that their opacity does not darken.
      for (let j = 0; j < run.count; j++) {
        const own = sums[j] as Float64Array;
        for (let i = 0, at = 4 * (column + j) * step; i < length; i++, at += 4 * next) {
          const alpha = own[4 * i + 3] as number;
          if (alpha === 0) continue;
          pixels[at] = (own[4 * i] as number) / alpha;
          pixels[at + 1] = (own[4 * i + 1] as number) / alpha;
          pixels[at + 2] = (own[4 * i + 2] as number) / alpha;
          pixels[at + 3] = 255 * alpha;
        }
      }
      yield;
    }
    return { start, stop, count, pixels };
  }
}

/** What a generator gives at its end. */
export function finished<T>(work: Generator<unknown, T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}

// Each of these multiplies what the pixels of a run let through with what each curve lets through
// there. They run for every curve in every run of columns.

/** Group by group: in blocks of columns, column by column, or as what is steep. */
function layThin(thin: Thin, gentle: number, through: Float64Array, size: number, run: Run): void {
  const { starts } = thin;
  for (let high = 0; high < RISES; high++) {
    const first = high * SHIFTS;
    const begin = starts[first] as number;
    const end = starts[first + SHIFTS] as number;
    if (begin === end) continue;
    if (gentle * (RISE_ENDS[high] as number) * run.steepest > 1) {
      laySteep(thin, begin, end, through, size, run);
      continue;
    }
    // Neighbouring groups of one level are painted together.
    let from = begin;
    let last = 0;
    for (let shift = 0; shift < SHIFTS; shift++) {
      const at = starts[first + shift] as number;
      if (at === starts[first + shift + 1]) continue;
      const level = levelOf((SHIFT_ENDS[shift] as number) * run.slope);
      if (at > from && level !== last) {
        layFlat(thin, from, at, last, through, size, run);
        from = at;
      }
      last = level;
    }
    layFlat(thin, from, end, last, through, size, run);
  }
}

/** The two nearest pixels share a thin curve by its distance from their middles. */
function layFlat(
  { from, rise, opacity }: Thin,
  begin: number,
  end: number,
  level: number,
  through: Float64Array,
  size: number,
  { rises, crossed, count: columns }: Run,
): void {
  const last = size - 2;
  const first = BLOCKS[level] as number;
  const stop = level === 0 ? columns : (BLOCKS[level + 1] as number);
  const one = rises[first] as number;
  const other = rises[stop - 1] as number;
  for (let i = begin; i < end; i++) {
    const start = (from[i] as number) - 0.5;
    const by = rise[i] as number;
    const alpha = opacity[i] as number;
    const a = start + by * one;
    const b = start + by * other;
    if (a < 0 || b < 0 || a > last || b > last) {
      // Only a part of it is in sight, if any.
      if ((a < 0 && b < 0) || (a > last && b > last)) continue;
      for (let c = first; c < stop; c++) {
        const at = start + by * (rises[c] as number);
        if (at < 0 || at > last) continue;
        const base = Math.floor(at);
        const own = alpha * (crossed[c] as number);
        const second = own * (at - base);
        const pixel = c * size + base;
        through[pixel] = (through[pixel] as number) * (1 - own + second);
        through[pixel + 1] = (through[pixel + 1] as number) * (1 - second);
      }
      continue;
    }
    for (let c = first; c < stop; c++) {
      const at = start + by * (rises[c] as number);
      const base = at | 0;
      const own = alpha * (crossed[c] as number);
      const second = own * (at - base);
      const pixel = c * size + base;
      through[pixel] = (through[pixel] as number) * (1 - own + second);
      through[pixel + 1] = (through[pixel + 1] as number) * (1 - second);
    }
  }
}

/** Where a thin curve is steep, pixels share it by their distance across. */
function laySteep(
  { from, rise, opacity }: Thin,
  begin: number,
  end: number,
  through: Float64Array,
  size: number,
  { rises, slopes, crossed, count: columns, steepest }: Run,
): void {
  const last = size - 1;
  const one = rises[0] as number;
  const other = rises[columns - 1] as number;
  for (let i = begin; i < end; i++) {
    const by = rise[i] as number;
    const start = (from[i] as number) - 0.5;
    const a = start + by * one;
    const b = start + by * other;
    const most = Math.max(1, Math.abs(by) * steepest);
    if ((a < b ? b : a) + most < 0 || (a < b ? a : b) - most > last) continue;
    for (let c = 0; c < columns; c++) {
      const at = start + by * (rises[c] as number);
      const reach = Math.max(1, Math.abs(by * (slopes[c] as number)));
      if (at + reach < 0 || at - reach > last) continue;
      const alpha = (opacity[i] as number) * (crossed[c] as number);
      const first = Math.max(0, Math.ceil(at - reach));
      const stop = Math.min(last, Math.floor(at + reach));
      const per = alpha / reach;
      const base = c * size;
      for (let j = first; j <= stop; j++)
        through[base + j] = (through[base + j] as number) * (1 - alpha + per * Math.abs(j - at));
    }
  }
}

/** The area of a band with straight edges in each pixel. */
function layWide(
  { count, from, rise, opacity, width }: Batch,
  through: Float64Array,
  size: number,
  { rises, slopes, crossed, slope, count: columns }: Run,
): void {
  for (let i = 0; i < count; i++) {
    const begin = from[i] as number;
    const by = rise[i] as number;
    const length = Math.abs(by);
    const wide = width[i] as number;
    const alpha = opacity[i] as number;
    const level = levelOf(length * slope * alpha);
    const stop = level === 0 ? columns : (BLOCKS[level + 1] as number);
    for (let c = BLOCKS[level] as number; c < stop; c++) {
      const steep = length * (slopes[c] as number);
      const high = wide * Math.sqrt(1 + steep * steep);
      const middle = begin + by * (rises[c] as number);
      const reach = high + steep;
      if (middle + reach < 0 || middle - reach > size) continue;
      const own = alpha * (crossed[c] as number);
      const base = c * size;
      // The edges of a band count as level if pixels differ by less than that: by an eighth.
      const level = own * steep < 8 * SAME && middle > high && middle + high < size;
      if (level) layLevel(through, base + middle, high, own);
      else layBand(through, base, base + size, middle, high, own, steep);
    }
  }
}

function layLevel(through: Float64Array, middle: number, high: number, alpha: number): void {
  const low = middle - high / 2;
  const top = low + high;
  const first = low | 0;
  const last = top | 0;
  if (last === first) {
    through[first] = (through[first] as number) * (1 - alpha * high);
    return;
  }
  through[first] = (through[first] as number) * (1 - alpha * (first + 1 - low));
  const rest = 1 - alpha;
  for (let j = first + 1; j < last; j++) through[j] = (through[j] as number) * rest;
  through[last] = (through[last] as number) * (1 - alpha * (top - last));
}

function layBand(
  through: Float64Array,
  base: number,
  end: number,
  middle: number,
  high: number,
  alpha: number,
  steep: number,
): void {
  const low = base + middle - (high + steep) / 2;
  const first = Math.max(base, Math.floor(low));
  const stop = Math.min(end, Math.ceil(low + high + steep));
  let before = first > low ? bandBelow(first - low, steep, high) : 0;
  for (let j = first; j < stop; j++) {
    const below = bandBelow(j + 1 - low, steep, high);
    through[j] = (through[j] as number) * (1 - alpha * (below - before));
    before = below;
  }
}

/** The area of a band below a height over its lowest place; the band is so high, and so steep. */
function bandBelow(height: number, steep: number, high: number): number {
  return edgeBelow(height, steep) - edgeBelow(height - high, steep);
}

function edgeBelow(height: number, steep: number): number {
  if (height <= 0) return 0;
  return height < steep ? (height * height) / (2 * steep) : height - steep / 2;
}

/** Lays a colour over what lies below in a column: red, green, blue times opacity, and the opacity. */
function cover(
  sums: Float64Array,
  through: Float64Array,
  size: number,
  column: number,
  { red, green, blue }: Pile,
): void {
  const [single, two, four, all] = BLOCKS.map(
    (start, level) => (start + (column >> level)) * size + MARGIN,
  ) as [number, number, number, number];
  for (let i = 0, at = 0; at < sums.length; i++, at += 4) {
    const rest =
      (through[single + i] as number) *
      (through[two + i] as number) *
      (through[four + i] as number) *
      (through[all + i] as number);
    if (rest === 1) continue;
    const own = 1 - rest;
    sums[at] = (sums[at] as number) * rest + red * own;
    sums[at + 1] = (sums[at + 1] as number) * rest + green * own;
    sums[at + 2] = (sums[at + 2] as number) * rest + blue * own;
    sums[at + 3] = (sums[at + 3] as number) * rest + own;
  }
}
