/** The small plots of all heads: where each stands, how it is drawn and how faint. Pure functions. */

import type { StackDescription } from "../../../client/source";
import { DOTS_PAINTER } from "../../../draw/dots";
import type { DotsMark } from "../../../draw/marks";
import { type Grid, galleryGrid, layerGrid, offeredHeads, rankedCells } from "../../model/state";
import type { HeadTrust, OverviewHead } from "../client/requests";
import { formatCorrelation, LITTLE } from "../phrases";
import { type HeadPlace, headKey } from "../state";

/** By what heads are ordered: by their number, or by how far their plots can be trusted. */
export type TileOrder = "number" | "correlation" | "recall";

/** Trust by `headKey`. */
export type TrustMap = ReadonlyMap<string, HeadTrust | null>;

/** The figures of a tile: over keys that may be attended to, or else over all. */
export function figuresOf(trust: HeadTrust | null | undefined): {
  correlation: number | null;
  recall: number | null;
  /** Whether one of them had to be taken over all pairs. */
  ofAll: { correlation: boolean; recall: boolean };
} {
  const { allowed = null, all_pairs = null } = trust?.plot ?? {};
  const { recall_allowed = null, recall_all = null } = trust ?? {};
  return {
    correlation: allowed ?? all_pairs,
    recall: recall_allowed ?? recall_all,
    ofAll: {
      correlation: allowed === null && all_pairs !== null,
      recall: recall_allowed === null && recall_all !== null,
    },
  };
}

/** What stands behind a figure that is over all pairs. */
const OF_ALL = "*";

/** A share of small plots: "42%". */
function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** "r −0.83 · 42%", in short "−0.83", over all pairs "r −0.83*"; "…" of a head that is not measured yet. */
export function figuresInShort(
  trust: HeadTrust | null | undefined,
  words: TileLayout["figures"],
): string {
  if (trust === undefined) return "…";
  const { correlation, recall, ofAll } = figuresOf(trust);
  const named = words === "words" ? "r " : "";
  const marked = (figure: string, all: boolean): string => `${figure}${all ? OF_ALL : ""}`;
  const parts = [
    correlation === null
      ? ""
      : `${named}${marked(formatCorrelation(correlation), ofAll.correlation)}`,
    recall === null || words === "least" ? "" : marked(percent(recall), ofAll.recall),
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(" · ") : "no figure";
}

/** "correlation −0.83, recall 42%", for who cannot see it. */
export function figuresSpoken(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "not measured yet";
  const { correlation, recall, ofAll } = figuresOf(trust);
  const over = (all: boolean): string => (all ? " over all pairs" : "");
  const parts = [
    correlation === null
      ? ""
      : `correlation ${formatCorrelation(correlation)}${over(ofAll.correlation)}`,
    recall === null ? "" : `recall ${percent(recall)}${over(ofAll.recall)}`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "no trust figure";
}

/** What recall would be by chance, in the middle of the heads: " (about 31% by chance)", or "". */
export function chanceInWords(trust: TrustMap): string {
  const chances = [...trust.values()]
    .flatMap(
      (each) => (each?.recall_allowed === null ? each.chance_all : each?.chance_allowed) ?? [],
    )
    .sort((a, b) => a - b);
  const middle = chances[chances.length >> 1];
  if (middle === undefined) return "";
  return middle < 0.005 ? " (less than 1% by chance)" : ` (about ${percent(middle)} by chance)`;
}

/**
 * What stands below the plots, and why some are faint.
 *
 * @param figures which of them there is room for.
 */
export function keyInWords(trust: TrustMap, figures: TileLayout["figures"] = "words"): string {
  const least = figures === "least";
  const shown = [...trust.values()].map(figuresOf);
  const correlated = shown.some(({ correlation }) => correlation !== null);
  const recalled = !least && (shown.length === 0 || shown.some(({ recall }) => recall !== null));
  const ofAll = shown.some((each) => each.ofAll.correlation || (!least && each.ofAll.recall));
  const told = [
    ...(correlated || !recalled ? ["r of distance with q·k (−1 is best)"] : []),
    ...(recalled
      ? [
          `how many of a query’s ten strongest keys are among its ten nearest${chanceInWords(trust)}`,
        ]
      : []),
  ].join(", and ");
  const all = ofAll ? ` ${OF_ALL} Over all pairs: queries may attend to too few keys.` : "";
  return `Below each plot: ${told}.${all} The fainter a plot, the less its r is below 0.`;
}

/** Whether distances of a plot say so little of q·k that it has to be said. */
export function saysLittle(trust: HeadTrust | null | undefined): boolean {
  const { correlation } = figuresOf(trust);
  return correlation !== null && correlation > LITTLE;
}

/** Why a head has no plot, as far as a tile has room to say so. */
export function problemInShort(problem: string, cell: number): string {
  return problem.length * 90 > cell * cell ? "no plot" : problem;
}

/** From this correlation on a plot is as strong as it gets; from `LITTLE` on as faint. */
const STRONG_AT = -0.5;
const FAINTEST = 0.3;

/**
 * How strongly a head's plot is drawn, 0 to 1: one whose distances say little of q·k steps back,
 * so that its shapes are not taken for attention.
 */
export function strengthOf(trust: HeadTrust | null | undefined): number {
  const { correlation } = figuresOf(trust);
  if (correlation === null) return trust === undefined ? 0.75 : FAINTEST;
  const share = (correlation - LITTLE) / (STRONG_AT - LITTLE);
  return FAINTEST + (1 - FAINTEST) * Math.max(0, Math.min(1, share));
}

/** Heads by layer, or all of them by a figure, the most trusted first. */
export function tileGrid(
  stack: StackDescription,
  order: TileOrder,
  trust: TrustMap,
  perRow: number,
): Grid {
  const offered = offeredHeads(stack, null);
  if (order === "number") return layerGrid(stack, offered);
  const scores = stack.layers.map((layer, at) => {
    const row: (number | null)[] = [];
    for (const head of offered[at] ?? []) {
      const figures = figuresOf(trust.get(headKey({ layer, head })));
      const value = figures[order];
      row[head] = value === null ? null : order === "correlation" ? -value : value;
    }
    return row;
  });
  return galleryGrid(stack, offered, rankedCells(stack, offered, scores, null), order, perRow);
}

/** Pixels of the tiles and of what stands around them. */
export interface TileLayout {
  /** The side of a plot. */
  cell: number;
  /** From one to the next. */
  across: number;
  down: number;
  /** Of the labels on the left and above. */
  left: number;
  top: number;
  /** How much of the figures there is room for. */
  figures: "words" | "short" | "least";
  /** Whether each tile has its head's name, because columns mean nothing. */
  named: boolean;
  columns: number;
  width: number;
  height: number;
  boxWidth: number;
  boxHeight: number;
}

const LEAST_CELL = 40;
const SMALL_CELL = 78;
const MOST_CELL = 220;
/** A gallery's plots have this side: its rows are of any length. */
const GALLERY_CELL = 104;
const LEAST_GAP = 6;
const FIGURE_HEIGHT = 15;
const NAME_HEIGHT = 15;
const SCROLLBAR = 15;
/** So much is shown without a box of its own that scrolls. */
const WHOLE_HEIGHT = 1400;

function labelWidth(width: number): number {
  return width < 560 ? 26 : 62;
}

/** Tiles of a gallery in one row. */
export function tilesInRow(width: number): number {
  const cell = width < 560 ? 76 : GALLERY_CELL;
  return Math.max(1, Math.floor((width - SCROLLBAR) / (cell + LEAST_GAP)));
}

/** Lays out tiles in a width; where they would be too small, they scroll. */
export function layOutTiles(options: {
  columns: number;
  rows: number;
  named: boolean;
  width: number;
  /** Of the box, where there is more than is shown at once. */
  mostHeight: number;
}): TileLayout {
  const { columns, rows, named, width, mostHeight } = options;
  const left = named ? 1 : labelWidth(width);
  const top = named ? 1 : 22;
  const at = (room: number): TileLayout => {
    const pitch = Math.floor((room - left) / Math.max(1, columns));
    const gap = pitch > 110 ? 12 : LEAST_GAP;
    const below = FIGURE_HEIGHT + 2 + (named ? NAME_HEIGHT : 0);
    // Smaller than the width allows where all are then seen at once, unless they were too small.
    const high = Math.floor((WHOLE_HEIGHT - SCROLLBAR - top) / rows) - gap - below;
    const most = high >= SMALL_CELL && !named ? Math.min(MOST_CELL, high) : MOST_CELL;
    const cell = Math.max(LEAST_CELL, Math.min(most, pitch - gap));
    const across = named ? Math.max(pitch, cell + gap) : cell + gap;
    const down = cell + gap + below;
    const whole = { width: left + columns * across, height: top + rows * down };
    const sideways = whole.width > room;
    const needed = whole.height + (sideways ? SCROLLBAR : 0);
    const boxHeight = needed <= WHOLE_HEIGHT ? needed : Math.min(needed, mostHeight);
    const upright = needed > boxHeight;
    return {
      cell,
      across,
      down,
      left,
      top,
      figures: cell >= 78 ? "words" : cell >= 57 ? "short" : "least",
      named,
      columns,
      ...whole,
      boxWidth: Math.min(whole.width + (upright ? SCROLLBAR : 0), width),
      boxHeight,
    };
  };
  const free = at(width);
  return free.height > free.boxHeight ? at(width - SCROLLBAR) : free;
}

/** Rows in sight, from a first to before a last. */
export function rowsInSight(layout: TileLayout, rows: number, scrollTop: number): [number, number] {
  const first = Math.floor((scrollTop - layout.top) / layout.down);
  const last = Math.ceil((scrollTop + layout.boxHeight) / layout.down);
  return [Math.max(0, first), Math.min(rows, last + 1)];
}

/** What points look like on all tiles: of each point of the overview, every `stride`-th of all. */
export interface TileLook {
  /** Of each place in the order in which they are drawn. */
  order: Uint32Array;
  color: Uint8Array;
  shape: Uint8Array;
  colors: readonly string[];
  /** How many at the end of the order stand out; 0 where none does, and nothing steps back. */
  standing: number;
  /** Whether something is sought or chosen, though it may be none of these points. */
  seeking: boolean;
}

/**
 * The points of an overview in their order, those that stand out last.
 *
 * @param order points of the overview, mixed.
 * @param index of all points of the corpus, which colour each has.
 * @param standsOut null where nothing is sought.
 */
export function tileLook(options: {
  order: Uint32Array;
  stride: number;
  numQueries: number;
  index: Uint8Array;
  colors: readonly string[];
  standsOut: Uint8Array | null;
}): TileLook {
  const { stride, numQueries, index, colors, standsOut } = options;
  const count = options.order.length;
  const order = new Uint32Array(count);
  let [back, front] = [0, count];
  for (const point of options.order) {
    if (standsOut && standsOut[point * stride] === 1) order[--front] = point;
    else order[back++] = point;
  }
  const color = new Uint8Array(count);
  const shape = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const point = (order[i] as number) * stride;
    color[i] = index[point] as number;
    shape[i] = point >= numQueries ? 1 : 0;
  }
  return { order, color, shape, colors, standing: count - front, seeking: standsOut !== null };
}

/** Pixels between a tile's edge and the edge of its outermost points. */
const INSET = 4;
const SMALLEST_DOT = 0.62;
const LARGEST_DOT = 2.6;

/** The radius of a tile's dots. */
function dotOf(room: number, count: number): number {
  const apart = Math.sqrt((room * room) / Math.max(1, count));
  return Math.max(SMALLEST_DOT, Math.min(LARGEST_DOT, 0.6 * apart));
}

/** A tile's corner and side, in pixels. */
export interface Square {
  x: number;
  y: number;
  side: number;
}

/** A typical point's neighbours on a tile, in a square of a sixteenth of its side. */
function crowdOf(coordinates: Uint8Array): number {
  const counts = new Uint16Array(256);
  for (let at = 0; at < coordinates.length; at += 2) {
    const cell = ((coordinates[at + 1] as number) & 0xf0) | ((coordinates[at] as number) >> 4);
    counts[cell] = Math.min(65535, (counts[cell] as number) + 1);
  }
  const sorted = counts.filter((each) => each > 0).sort();
  let passed = 0;
  for (const each of sorted) {
    passed += each;
    if (passed * 4 >= coordinates.length) return each;
  }
  return 0;
}

/** The points of a head's tile: what steps back, and over it what stands out. */
export function tileDots(
  head: OverviewHead,
  look: TileLook,
  square: Square,
  strength: number,
): DotsMark[] {
  const { coordinates } = head;
  const { order, color, shape, colors, standing } = look;
  const count = order.length;
  const inset = INSET + dotOf(square.side, count);
  const room = square.side - 2 * inset;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const left = square.x + inset;
  const top = square.y + inset;
  const scale = room / 255;
  for (let i = 0; i < count; i++) {
    const point = order[i] as number;
    x[i] = left + (coordinates[2 * point] as number) * scale;
    y[i] = top + (255 - (coordinates[2 * point + 1] as number)) * scale;
  }
  const radius = dotOf(room, count);
  const onEachOther = (crowdOf(coordinates) / (room / 16) ** 2) * Math.PI * radius ** 2;
  const opacity = Math.max(0.26, Math.min(0.85, 1.6 / (1 + 0.6 * onEachOther)));
  const area = { x: square.x, y: square.y, width: square.side, height: square.side };
  const part = (start: number, stop: number) => ({
    kind: "dots" as const,
    painter: DOTS_PAINTER,
    count: stop - start,
    x: x.subarray(start, stop),
    y: y.subarray(start, stop),
    color: color.subarray(start, stop),
    shape: shape.subarray(start, stop),
    colors,
    area,
  });
  const back = count - standing;
  const marks: DotsMark[] = [
    { ...part(0, back), radius, opacity: opacity * strength * (look.seeking ? 0.35 : 1) },
  ];
  if (standing > 0) {
    const emphasis = Math.max(opacity, Math.min(0.95, 60 / standing));
    marks.push({
      ...part(back, count),
      radius: Math.max(1.3, radius * 1.3),
      opacity: emphasis * Math.max(strength, 0.6),
    });
  }
  return marks;
}

/** Columns of a row up to its last head. */
export function usedColumns(cells: readonly (HeadPlace | null)[]): number {
  let count = cells.length;
  while (count > 0 && !cells[count - 1]) count--;
  return count;
}

/** Whether two places are of the same head. */
export function sameHead(a: HeadPlace | null, b: HeadPlace | null): boolean {
  return a?.layer === b?.layer && a?.head === b?.head;
}
