/**
 * What stands for the tokens outside the window: at both ends of a column a strip, on which the
 * keys' side shows how much weight goes where. Pure functions.
 */

import { type Strongest, wholeSum } from "../../client/requests/strongest";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import type { Palette } from "../../ui/colors/palette";
import { counted, formatShare, pluralOf, type Quantity } from "../../ui/text/captions";
import type { Measure } from "../../ui/text/labels";
import { alongToken, type Column, type Layout, type Strip, tokenIn } from "./layout";
import type { LineOptions, Weights } from "./lines";

/** How the weight of some queries is spread over the keys outside the window. */
export interface Spread {
  /** The one query that is meant; null: those in sight. */
  query: number | null;
  binSize: number;
  /** For each bin its share of the weight; of the bins that the window cuts, what lies outside. */
  bins: Float64Array;
  before: number;
  after: number;
  /** The share of the answer that has come. */
  done: number;
}

/** Keys in one bin: few enough of a long text, and no more than the window's, which may cut it. */
export function binSizeOf(numKeys: number, window: readonly [number, number]): number {
  const atMost = 2 ** Math.floor(Math.log2(window[1] - window[0]));
  return Math.min(atMost, 2 ** Math.max(0, Math.ceil(Math.log2(numKeys / 2048))));
}

/** Of a float's sum so much may be rounding. */
const ROUNDED = 1e-5;

/**
 * The shares of the weight along the keys outside the window.
 *
 * @param weights of the window, which tell how much of the bins that it cuts lies inside.
 */
export function spreadOf(
  strongest: Strongest,
  weights: Pick<Weights, "rows" | "columns">,
  matrices: readonly Float32Array[],
  options: Pick<LineOptions, "keyWindow" | "leftOut" | "pairQueries" | "pairKeys">,
  query: number | null,
): Spread {
  const { rows, binSize, matrices: found, done } = strongest;
  const [start, stop] = options.keyWindow;
  const bins = new Float64Array(found[0]?.spread.length ?? 0);
  let total = 0;
  for (const each of found) {
    each.spread.forEach((value, bin) => {
      bins[bin] = (bins[bin] as number) + value;
    });
    for (let row = rows[0]; row < rows[1]; row++) {
      if (options.pairQueries[row]) total += wholeSum(each, row - rows[0]) || 0;
    }
  }
  const [left, right] = weights.columns;
  const width = right - left;
  const inside = (matrix: Float32Array, key: number): number => {
    if (key < left || key >= right || options.leftOut[key] || !options.pairKeys[key]) return 0;
    let sum = 0;
    for (let row = rows[0]; row < rows[1]; row++) {
      const at = (row - weights.rows[0]) * width + key - left;
      if (options.pairQueries[row]) sum += Math.abs(matrix[at] ?? 0);
    }
    return sum;
  };
  const [first, last] = [Math.floor(start / binSize), Math.floor(stop / binSize)];
  // Only the two bins that the window cuts are looked at key by key.
  for (const bin of new Set([first, last])) {
    const end = Math.min(stop, (bin + 1) * binSize);
    const whole = bins[bin] as number;
    let rest = whole;
    for (let key = Math.max(start, bin * binSize); key < end; key++) {
      for (const matrix of matrices) rest -= inside(matrix, key);
    }
    // What is left of numbers that were rounded is nothing.
    bins[bin] = rest > ROUNDED * whole ? rest : 0;
  }
  bins.fill(0, first + (start % binSize ? 1 : 0), last);
  let [before, after] = [0, 0];
  bins.forEach((value, bin) => {
    bins[bin] = total > 0 ? value / total : 0;
    if (bin * binSize < start) before += bins[bin] as number;
    else after += bins[bin] as number;
  });
  return { query, binSize, bins, before, after, done };
}

/** Pixels of a strip that show one number, and how far its longest bar reaches. */
const SLOT = 2;
const DEPTH = 46;
const TRACK = 5;
const SIZE = 12;
/** Beside the longest bar a smaller share of it is nothing. */
const LEAST = 1e-5;
/** A pinned query's name is written where it is no wider. */
const PINNED = 110;

/** Shares along a strip, a number for every few pixels. */
function slotsOf(strip: Strip, spread: Spread): Float64Array {
  const slots = new Float64Array(Math.floor((strip.stop - strip.start) / SLOT));
  const [first, stop] = strip.tokens;
  const { bins, binSize } = spread;
  const end = Math.min(bins.length, Math.ceil(stop / binSize));
  for (let bin = Math.floor(first / binSize); bin < end; bin++) {
    const key = Math.max(first, Math.min(stop - 1, (bin + 0.5) * binSize));
    const slot = Math.floor(((key - first) / (stop - first)) * slots.length);
    slots[slot] = (slots[slot] as number) + (bins[bin] as number);
  }
  return slots;
}

/** The hint for the tokens under a position on a strip. */
export function stripWords(
  strip: Strip,
  at: number,
  column: Column,
  { spread, quantity }: { spread: Spread | null; quantity: Pick<Quantity, "name" | "signed"> },
): string {
  const [first, last] = [tokenIn(strip, at - SLOT / 2), tokenIn(strip, at + SLOT / 2)];
  const range = first === last ? counted(first) : `${counted(first)}–${counted(last)}`;
  if (column.side === "query" || !spread) return `${column.side} ${range}`;
  const slots = slotsOf(strip, spread);
  const slot = Math.max(0, Math.min(slots.length - 1, Math.floor((at - strip.start) / SLOT)));
  const whole = quantity.signed ? `all ${pluralOf(quantity)} by size` : `the ${quantity.name}`;
  return `key ${range}: ${formatShare(slots[slot] as number)} of ${whole}`;
}

interface Drawn {
  layout: Layout;
  palette: Palette;
  spread: Spread | null;
  /** The pinned query in words. */
  pinned: string;
  /** Of signed numbers no share is written. */
  signed: boolean;
  /** Tokens of the column that are marked in its strips: pins, and what was found. */
  marked: { index: number; color: string }[];
}

/** The strips of one column. */
export function stripMarks(drawn: Drawn, column: Column, measure: Measure): Mark[] {
  const { layout, palette, spread } = drawn;
  const standing = layout.orientation === "vertical";
  const key = column.side === "key";
  const outwards = key ? 1 : -1;
  const strips = [column.before, column.after].filter((each) => each !== null);
  const slots = strips.map((strip) => (key && spread ? slotsOf(strip, spread) : null));
  const most = Math.max(1e-9, ...slots.flatMap((each) => (each ? [...each] : [])));
  const marks: Mark[] = [];
  /** A box from the column's edge outwards, wherever the columns stand. */
  const box = (start: number, stop: number, reach: number, from = 0) => {
    const low = column.edge + (key ? from : -from - reach);
    return standing
      ? { x: low, y: start, width: reach, height: stop - start }
      : { x: start, y: low, width: stop - start, height: reach };
  };
  strips.forEach((strip, which) => {
    const before = strip === column.before;
    marks.push({
      kind: "rect",
      ...box(strip.start, strip.stop, TRACK),
      fill: palette.raised,
      stroke: palette.rule,
      radius: 2,
    });
    slots[which]?.forEach((value, slot) => {
      if (value < LEAST * most) return;
      const start = strip.start + slot * SLOT;
      // By the root, as in the small maps, so that a little beside much is seen.
      const reach = Math.max(0.75, Math.sqrt(value / most) * DEPTH);
      marks.push({
        kind: "rect",
        ...box(start, start + SLOT - 0.5, reach),
        fill: palette.neutral,
      });
    });
    for (const { index, color } of drawn.marked) {
      if (index < strip.tokens[0] || index >= strip.tokens[1]) continue;
      const at = alongToken(layout, column, index);
      marks.push({ kind: "rect", ...box(at - 1, at + 1, TRACK + 5), fill: color });
    }
    const look = { kind: "text", fill: palette.muted, size: SIZE, font: "text" } as const;
    const name = before ? "before" : "after";
    const count = counted(strip.tokens[1] - strip.tokens[0]);
    const share = spread && (before ? spread.before : spread.after);
    const known = share !== null && !drawn.signed;
    const shown = spread && spread.done < 1 ? "…" : known ? formatShare(share) : "";
    const pinned = `of ${drawn.pinned}`;
    const short = standing || measure(pinned, fontOf(look)) < PINNED;
    const of = spread?.query == null ? `${count} keys` : short ? pinned : "of the pinned query";
    const words = key && shown ? [`${shown} ${name}`, of] : [`${count} ${name}`];
    const bold = { ...look, fill: palette.ink };
    if (standing) {
      const room = key ? layout.width - column.edge : column.edge;
      const whole = words.join(", ");
      const fits = measure(whole, fontOf(look)) <= room;
      const label = fits ? whole : (words[0] as string);
      const wide = measure(label, fontOf(look));
      const text: TextMark = {
        ...(key ? bold : look),
        text: label,
        x: key ? Math.min(column.edge, layout.width - wide) : Math.max(column.edge, wide),
        y: before ? strip.start - 10 : strip.stop + 10,
        align: key ? "start" : "end",
      };
      marks.push(text);
    } else {
      words.forEach((text, i) => {
        marks.push({
          ...(key && i === 0 ? bold : look),
          text,
          // Away from the tokens, which may stand on end beside it.
          x: before ? strip.stop : strip.start,
          y: column.edge + outwards * ((key ? DEPTH : TRACK) + 12 + i * 15),
          align: before ? "end" : "start",
        });
      });
    }
    marks.push({
      kind: "rect",
      ...box(strip.start, strip.stop, key ? DEPTH + 8 : 30),
      meaning: { strip: { side: column.side, before } },
    });
  });
  return marks;
}
