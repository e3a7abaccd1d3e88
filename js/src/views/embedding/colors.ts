/**
 * Colours of points. Pure functions.
 *
 * Categories have the colours that other views use for selected heads, and numbers have the colour
 * scale for numbers. People with any kind of colour vision can distinguish the colours
 * (js/test/views/embedding/colors.test.ts). The shape of a point shows its kind in every colouring:
 * queries are discs and keys are squares.
 */

import type { LegendScale } from "../../draw/figure";
import { NUMBER_STEPS, numberColors } from "../../ui/colors/color-scales";
import { MAX_COLOURS, type Palette, rgbOf, type ThemeName } from "../../ui/colors/palette";
import { counted, formatNumber, quoted, several } from "../../ui/text/captions";
import type { Corpus } from "./client/requests";
import type { EmbeddingState } from "./state";

/** A named colour or shape of the legend. */
export interface LegendEntry {
  label: string;
  color: string;
  /** Number of points, or null if the legend does not give it. */
  count: number | null;
  shape: "dot" | "square" | "patch";
}

/** A colour for every point. */
export interface Coloring {
  name: string;
  /** Index into `palette` for each point. */
  index: Uint8Array;
  palette: string[];
  /** Colour scale of numbers, or null if the colours are categories. */
  scale: LegendScale | null;
  /** Colours of the categories, or the colour of points whose number is unknown. */
  entries: LegendEntry[];
  /** Caption about the colours, such as the number of points with an unknown value, or "". */
  note: string;
  /** Return the category or number that determines the colour of a point, or null if unknown. */
  labelOf: (point: number) => string | number | null;
}

/** Built-in colourings, and their labels. */
export const COLORINGS: readonly (readonly [name: string, label: string])[] = [
  ["type", "query or key"],
  ["position", "position"],
  ["position mod 5", "position mod 5"],
  ["norm", "vector length"],
  ["frequency", "token frequency"],
  ["punctuation", "punctuation"],
  ["text", "text"],
];

/**
 * Return the colours and shapes of points for their dots.
 *
 * @param order indices of points in drawing order. The index i stands for the point i * `stride` of
 *   the corpus.
 */
export function lookOf(
  order: Uint32Array,
  { isKey }: Pick<Corpus, "isKey">,
  { index, palette }: Pick<Coloring, "index" | "palette">,
  stride = 1,
) {
  const [color, shape] = [new Uint8Array(order.length), new Uint8Array(order.length)];
  order.forEach((point, i) => {
    color[i] = index[point * stride] ?? 0;
    shape[i] = isKey(point * stride) ? 1 : 0;
  });
  return { color, shape, colors: palette as readonly string[] };
}

export type Look = ReturnType<typeof lookOf>;

/**
 * Return the entries of the legend: first the shapes of the drawn kinds of points, then the colours.
 */
export function legendEntries(
  { name, entries }: Coloring,
  points: EmbeddingState["points"],
  palette: Palette,
): LegendEntry[] {
  const shapes = (["queries", "keys"] as const)
    .filter((kind) => points === "both" || points === kind)
    .map((kind): LegendEntry => {
      const shape = kind === "keys" ? "square" : "dot";
      const colored = name === "type" ? entries.find(({ label }) => label === kind) : undefined;
      return { label: kind, color: palette.neutral, count: null, ...colored, shape };
    });
  return name === "type" ? shapes : [...shapes, ...entries];
}

/**
 * Colour of points whose number is unknown: a grey that people with any kind of colour vision can
 * distinguish from the colour scale.
 */
export const UNKNOWN: Record<ThemeName, string> = { light: "#8d939d", dark: "#828d9c" };

/** Inputs of a colouring in addition to the corpus. */
export interface ColorRoom {
  palette: Palette;
  theme: ThemeName;
  /** Length of the vector of each point in one head, or null until the lengths are loaded. */
  norms: { lengths: Float32Array; head: string } | null;
}

function unknownNote(name: string, count: number): string {
  return count > 0 ? `${quoted(name)} is unknown for ${several(count, "point")}.` : "";
}

/**
 * Colour points by category. The first `MAX_COLOURS` categories have separate colours, or those
 * with the most points if `ranked` is true. All other categories and unknown ones share one colour.
 *
 * @param kindOf index of a point's category in `labels`, or a number outside of `labels` if
 *   unknown.
 */
function byKind(
  name: string,
  corpus: Corpus,
  palette: Palette,
  labels: readonly string[],
  kindOf: (point: number) => number,
  ranked: boolean,
): Coloring {
  const kindOfPoint = Array.from({ length: corpus.count }, (_, point) => kindOf(point));
  const counts = new Float64Array(labels.length);
  // A typed array ignores the assignment to an index outside of it.
  for (const kind of kindOfPoint) counts[kind] = (counts[kind] as number) + 1;
  const unknown = counts.reduce((left, count) => left - count, corpus.count);
  const kinds = labels.map((_, kind) => kind).filter((kind) => !ranked || counts[kind] !== 0);
  if (ranked) kinds.sort((a, b) => (counts[b] as number) - (counts[a] as number) || a - b);
  const own = kinds.slice(0, MAX_COLOURS);
  const others = kinds.slice(MAX_COLOURS);
  const colorIndexOf = new Uint8Array(labels.length).fill(own.length);
  const entries = own.map((kind, colorIndex): LegendEntry => {
    colorIndexOf[kind] = colorIndex;
    const color = palette.heads[colorIndex] as string;
    return { label: labels[kind] as string, color, count: counts[kind] as number, shape: "patch" };
  });
  const colors = entries.map(({ color }) => color);
  const index = new Uint8Array(corpus.count);
  kindOfPoint.forEach((kind, point) => {
    index[point] = colorIndexOf[kind] ?? own.length;
  });
  const rest = others.reduce((sum, kind) => sum + (counts[kind] as number), unknown);
  if (rest > 0) {
    const label = others.length === 0 ? "unknown" : unknown > 0 ? "other or unknown" : "other";
    entries.push({ label, color: palette.neutral, count: rest, shape: "patch" });
  }
  const shared =
    others.length > 0
      ? `The ${own.length} with most points have separate colours. The other ${counted(others.length)} share one.`
      : "";
  return {
    name,
    index,
    palette: [...colors, palette.neutral],
    scale: null,
    entries,
    note: [shared, unknownNote(name, unknown)].filter(Boolean).join(" "),
    labelOf: (point) => labels[kindOf(point)] ?? null,
  };
}

/**
 * Colour points by number, on a scale from the lowest to the highest number. Unknown numbers are
 * grey.
 *
 * @param log whether the scale is logarithmic.
 */
function byNumber(
  name: string,
  count: number,
  { theme }: ColorRoom,
  numberOf: (point: number) => number,
  log: boolean,
): Coloring {
  const scaled = (value: number): number => (log ? Math.log(value) : value);
  const values = Array.from({ length: count }, (_, point) => numberOf(point));
  const known = values.filter((value) => Number.isFinite(scaled(value)));
  const unknown = count - known.length;
  const floor = Number(log);
  const low = known.reduce((a, b) => Math.min(a, b), known[0] ?? floor);
  const high = known.reduce((a, b) => Math.max(a, b), known[0] ?? floor);
  const stops = numberColors(theme);
  const range = scaled(high) - scaled(low);
  const index = Uint8Array.from(values, (value) => {
    const share = range > 0 ? (scaled(value) - scaled(low)) / range : 0;
    return Number.isFinite(scaled(value)) ? Math.round(share * (NUMBER_STEPS - 1)) : NUMBER_STEPS;
  });
  const gray = UNKNOWN[theme];
  return {
    name,
    index,
    palette: [...stops, gray],
    scale: {
      color: (position) => [
        ...rgbOf(stops[Math.round(position * (NUMBER_STEPS - 1))] as string),
        255,
      ],
      labels: [formatNumber(low), log ? `${name}, logarithmic` : name, formatNumber(high)],
    },
    entries: unknown > 0 ? [{ label: "unknown", color: gray, count: unknown, shape: "patch" }] : [],
    note: unknownNote(name, unknown),
    labelOf: (point) => (Number.isFinite(numberOf(point)) ? numberOf(point) : null),
  };
}

/**
 * Return the colours of points by the name of a built-in colouring or of a column.
 *
 * If norms are not loaded or no column has this name, the colours distinguish queries and keys, and
 * the note states the reason.
 */
export function coloring(corpus: Corpus, name: string, room: ColorRoom): Coloring {
  const { norms } = room;
  const { count, positions, tokens, facts, special, punctuation } = corpus;
  const kinds = (
    labels: readonly string[],
    kindOf: (point: number) => number,
    ranked = false,
  ): Coloring => byKind(name, corpus, room.palette, labels, kindOf, ranked);
  const numbers = (numberOf: (point: number) => number, log = false): Coloring =>
    byNumber(name, count, room, numberOf, log);
  // A column takes precedence over a built-in colouring of the same name.
  const column = corpus.columns.find((candidate) => candidate.name === name);
  const numberOf = (point: number): number => column?.values[point] ?? Number.NaN;
  if (column?.categories) return kinds(column.categories, numberOf, true);
  if (column) return numbers(numberOf);
  const tokenOf = (point: number): number => tokens[point] as number;
  switch (name) {
    case "position":
      return numbers((point) => positions[point] as number);
    case "position mod 5":
      return kinds(["0", "1", "2", "3", "4"], (point) => (positions[point] as number) % 5);
    case "norm": {
      if (!norms) return { ...coloring(corpus, "type", room), note: "Loading vector lengths." };
      // A norm was sent as a 16-bit code, which has the precision of five digits.
      const normOf = (point: number): number => norms.lengths[point] as number;
      const rounded = (point: number): number => Number(normOf(point).toPrecision(5));
      const colors = numbers(normOf);
      const note = `Lengths of the vectors of ${norms.head}. ${colors.note}`.trim();
      return { ...colors, note, labelOf: rounded };
    }
    case "frequency":
      return numbers((point) => facts.frequency[tokenOf(point)] ?? Number.NaN, true);
    case "punctuation":
      return kinds(["words and parts of words", "punctuation", "special tokens"], (point) =>
        special[tokenOf(point)] === 1 ? 2 : (punctuation[tokenOf(point)] as number),
      );
    case "text":
      return kinds(facts.names, (point) => corpus.textOf(point), true);
    default: {
      const colors = kinds(["queries", "keys"], (point) => (corpus.isKey(point) ? 1 : 0));
      if (name === "type") return colors;
      return { ...colors, name: "type", note: `There is no column ${quoted(name)}.` };
    }
  }
}
