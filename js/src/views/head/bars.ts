/** Bars with numbers: the weights of the query or key that stands out, head by head. */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import { MOST_COLOURS } from "../../ui/colors/palette";
import { isTiny, quoted, written, writtenSmall } from "../../ui/text/captions";
import { fitLabel } from "../../ui/text/labels";
import { along, type Column, type Layout, type Side } from "./layout";
import { type Focus, isHovered, type LinePlot, seriesTextColor, valueColor } from "./line-plot";
import { hasWholeRows, type Series } from "./lines";
import { strongestKeys } from "./strongest";

/** Narrower columns hold no number beside a bar; of signed numbers, none on both sides. */
const LEAST_COLUMN = 50;
const LEAST_SIGNED_COLUMN = 104;
const NUMBER_SIZE = 10.5;
const TITLE_SIZE = 12.5;
/** Narrower columns write "h 7" behind a number, not "head 7". */
const LEAST_LONG_NAME = 130;
/** Room for "0.68" behind the longest bar, and for "−0.68". */
const NUMBER_ROOM = 30;
const SIGNED_NUMBER_ROOM = 37;

/** One column of bars: a head's, or the strongest of many. */
interface BarColumn {
  name: string;
  /** The same for text, which needs more contrast. */
  textColor: string;
  /** Places of the series that it shows: of several, the strongest. */
  places: number[];
}

function valueIn(linePlot: LinePlot, place: number, query: number, key: number): number {
  const { rows, columns } = linePlot.weights;
  if (query < rows[0] || query >= rows[1] || key < columns[0] || key >= columns[1]) return 0;
  const { matrix } = linePlot.lines.series[place] as Series;
  return matrix[(query - rows[0]) * (columns[1] - columns[0]) + key - columns[0]] ?? 0;
}

function barColumns(linePlot: LinePlot): BarColumn[] {
  const { series } = linePlot.lines;
  const each = series.map((one, place) => ({
    name: one.name,
    textColor: seriesTextColor(linePlot, place),
    places: [place],
  }));
  if (each.length <= MOST_COLOURS) return each;
  const hovered = each.filter((_, place) => isHovered(linePlot, series[place]?.head ?? null));
  if (hovered.length > 0 && hovered.length <= MOST_COLOURS) return hovered;
  const name = `strongest of ${each.length} heads`;
  return [{ name, textColor: linePlot.palette.ink, places: each.map((_, place) => place) }];
}

interface Bar {
  /** Place of the token in its column. */
  place: number;
  column: number;
  value: number;
  /** Of which series it is. */
  series: number;
  faded: boolean;
}

/** The largest weight that the bars of a token could show, of either sign, and where it is. */
export interface Longest {
  value: number;
  series: number;
  query: number;
  key: number;
  inSight: boolean;
}

/** What the longest bar there can be stands for. */
interface BarScale {
  end: number;
  /** null where not all weights of the row, or of the column, are in hand. */
  longest: Longest | null;
}

function barsOf(linePlot: LinePlot, side: Side, of: number, columns: BarColumn[]): Bar[] {
  const [start, stop] = linePlot.layout[side].window;
  const bars: Bar[] = [];
  for (let index = start; index < stop; index++) {
    const [query, key] = side === "key" ? [of, index] : [index, of];
    columns.forEach(({ places }, column) => {
      const faded = linePlot.leftOut[key] === 1;
      const bar = { place: index - start, column, value: 0, series: places[0] ?? 0, faded };
      for (const place of places) {
        const value = valueIn(linePlot, place, query, key);
        if (Math.abs(value) > Math.abs(bar.value)) Object.assign(bar, { value, series: place });
      }
      bars.push(bar);
    });
  }
  return bars;
}

/** The largest number that the bars of the pins stand for. */
export function barEnd(linePlot: LinePlot): number {
  const columns = barColumns(linePlot);
  const ends = (["key", "query"] as const).map((side) => {
    const of = side === "key" ? linePlot.token : linePlot.key;
    if (of === null) return 0;
    return ownScaleOf(linePlot, side, of, columns, barsOf(linePlot, side, of, columns)).end;
  });
  return Math.max(...ends);
}

/** How long bars are: of a pin as in the pictures beside this one. */
function scaleOf(...of: Parameters<typeof ownScaleOf>): BarScale & { common: boolean } {
  const own = ownScaleOf(...of);
  const [{ barsTo = 0, token, key }, side] = of;
  const pinned = of[2] === (side === "key" ? token : key);
  if (!pinned || barsTo <= own.end) return { ...own, common: false };
  return { end: barsTo, longest: own.longest?.inSight ? own.longest : null, common: true };
}

/**
 * How long bars are: by the largest weight of the whole row or column, in sight or not, so that a
 * small weight never looks like a large one. What is left out has no bar.
 */
function ownScaleOf(
  linePlot: LinePlot,
  side: Side,
  of: number,
  columns: BarColumn[],
  bars: Bar[],
): BarScale {
  const { weights, layout, lines } = linePlot;
  const [start, stop] = layout[side].window;
  let longest: Longest | null = null;
  const consider = (series: number, index: number, value: number): void => {
    if (Math.abs(value) <= Math.abs(longest?.value ?? 0)) return;
    const [query, key] = side === "key" ? [of, index] : [index, of];
    longest = { value, series, query, key, inSight: index >= start && index < stop };
  };
  for (const bar of bars) if (!bar.faded) consider(bar.series, start + bar.place, bar.value);
  const inSight = Math.abs((longest as Longest | null)?.value ?? 0);
  const places = columns.flatMap((each) => each.places);
  if (side === "key") {
    const strongest = strongestKeys(linePlot.strongest, of, linePlot.renormalized);
    if (hasWholeRows(weights)) {
      for (let key = 0; key < weights.numReached; key++) {
        if (linePlot.leftOut[key] || !linePlot.pairKeys[key]) continue;
        for (const place of places) consider(place, key, valueIn(linePlot, place, of, key));
      }
    } else if (strongest) {
      for (const each of strongest)
        if (places.includes(each.series)) consider(each.series, each.key, each.value);
    } else return { end: Math.max(inSight, weights.maximum), longest: null };
  } else if (stop - start < linePlot.queries.text.length) {
    const [first, last] = weights.rows;
    // Rows out of sight are not renormalised; those of a long text are not in hand.
    if (last - first < linePlot.queries.text.length || linePlot.renormalized)
      return { end: Math.max(inSight, lines.largest) || 1, longest: null };
    for (let query = first; query < last && linePlot.leftOut[of] !== 1; query++)
      for (const place of places) consider(place, query, valueIn(linePlot, place, query, of));
  }
  return { end: Math.abs((longest as Longest | null)?.value ?? 1), longest };
}

/** Whether a column has room for bars. */
function hasBars(column: Column): boolean {
  return Math.abs(column.barReach) >= 40;
}

/**
 * What the longest bar of each side stands for, where it cannot be seen: "A full bar is 0.98, from
 * “it” (7) to “animal” (412), out of sight."; "" where the bars say it themselves.
 */
export function barsInWords(linePlot: LinePlot, focus: Focus): string {
  const { layout, queries, keys, lines, weights, quantity } = linePlot;
  const columns = barColumns(linePlot);
  const words = (side: Side, of: number | null): string[] => {
    if (of === null || !hasBars(layout[side])) return [];
    const bars = barsOf(linePlot, side, of, columns);
    const { end, longest, common } = scaleOf(linePlot, side, of, columns, bars);
    // Nothing is known yet, or nothing is drawn.
    if (bars.every(({ value, faded }) => faded || value === 0)) return [];
    if (longest?.inSight) return [];
    if (common)
      return [`A full bar is ${writtenSmall(quantity, end)}, the largest beside each other.`];
    if (!longest) {
      const what =
        end > lines.largest && end >= weights.maximum
          ? `the largest ${quantity.name} there can be`
          : `the largest ${quantity.name} drawn; queries out of sight are not looked at`;
      return [`A full bar is ${writtenSmall({ ...quantity, signed: false }, end)}, ${what}.`];
    }
    const from = `${quoted(queries.text[longest.query] ?? "")} (${longest.query})`;
    const to = `${quoted(keys.text[longest.key] ?? "")} (${longest.key})`;
    const head = lines.series.length > 1 ? ` in ${lines.series[longest.series]?.name}` : "";
    const full = writtenSmall(quantity, longest.value);
    return [`A full bar is ${full}, from ${from} to ${to}${head}, out of sight.`];
  };
  return [...words("key", focus.query), ...words("query", focus.key)].join(" ");
}

/** Bars for the query that stands out beside the keys, and for the key beside the queries. */
export function barMarks(linePlot: LinePlot, focus: Focus): Mark[] {
  const marks: Mark[] = [];
  if (focus.query !== null) marks.push(...barsBeside(linePlot, linePlot.layout.key, focus.query));
  if (focus.key !== null) marks.push(...barsBeside(linePlot, linePlot.layout.query, focus.key));
  return marks;
}

function barsBeside(linePlot: LinePlot, column: Column, of: number): Mark[] {
  const { layout } = linePlot;
  if (!hasBars(column)) return [];
  const columns = barColumns(linePlot);
  const bars = barsOf(linePlot, column.side, of, columns);
  const { end, longest } = scaleOf(linePlot, column.side, of, columns, bars);
  const besideKeys = column.side === "key";
  const tokens = besideKeys ? linePlot.queries : linePlot.keys;
  const others = besideKeys ? linePlot.keys : linePlot.queries;
  const { quantity } = linePlot;
  const titles = [
    `${quantity.name} ${besideKeys ? "from" : "to"} ${quoted(tokens.text[of] ?? "")}`,
  ];
  if (longest && !longest.inSight) {
    const index = besideKeys ? longest.key : longest.query;
    const where = `${besideKeys ? "to" : "from"} ${quoted(others.text[index] ?? "")} (${index})`;
    const number = writtenSmall(quantity, longest.value);
    const full = `${titles[0]}; a full bar is ${number}`;
    const short = `${titles[0]}, full bar ${number}`;
    titles.unshift(`${full}, ${where}, out of sight`, `${full}, out of sight`, short);
  }
  return layout.orientation === "vertical"
    ? standingBars(linePlot, column, columns, bars, end, titles)
    : lyingBars(linePlot, column, columns, bars, end, titles);
}

/** The first of some texts that fits, else the last of them. */
function fitting(texts: readonly string[], room: number, font: string): string {
  return texts.find((text) => measureText(text, font) <= room) ?? (texts.at(-1) as string);
}

/** Of which head a bar is, where its column is of several. */
function headOf(linePlot: LinePlot, columns: BarColumn[], bar: Bar, short: boolean): string {
  if ((columns[bar.column]?.places.length ?? 0) < 2) return "";
  const name = linePlot.lines.series[bar.series]?.name ?? "";
  return short ? name.replace("head ", "h ") : name;
}

/** Weights below this are written as smaller than twice it, in a colour that steps back. */
const LEAST_WRITTEN = 0.005;

function numberMark(linePlot: LinePlot, bar: Bar, head = ""): Omit<TextMark, "x" | "y"> {
  const { palette, quantity } = linePlot;
  const least = quantity.signed ? quantity.maximum / 200 : LEAST_WRITTEN;
  return {
    kind: "text",
    text: `${written(quantity, bar.value)}${head === "" ? "" : `, ${head}`}`,
    fill: bar.faded || Math.abs(bar.value) < least ? palette.muted : palette.ink,
    size: NUMBER_SIZE,
    font: "text",
  };
}

function standingBars(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumn[],
  bars: Bar[],
  end: number,
  titles: string[],
): Mark[] {
  const { layout, palette } = linePlot;
  const { signed } = linePlot.quantity;
  const direction = Math.sign(column.barReach);
  const reach = Math.abs(column.barReach);
  // A column of its own for every head where there is room, so that numbers never collide;
  // else the heads' bars share a row and the longest has the number.
  const apart = reach / columns.length >= (signed ? LEAST_SIGNED_COLUMN : LEAST_COLUMN);
  const named = columns.some(({ places }) => places.length > 1);
  const wide = Math.min(named ? 190 : 150, apart ? reach / columns.length : reach);
  const shortName = signed || wide < LEAST_LONG_NAME;
  const numberRoom = signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM;
  const behind = named ? numberRoom + (shortName ? 28 : 46) : numberRoom;
  // Numbers above zero go to the right of a line and those below it to the left, where there is
  // room for both; else all go one way, and those below zero are hollow.
  const both = signed && wide >= LEAST_SIGNED_COLUMN + (named ? 2 * 28 : 0);
  const longest = (wide - 8 - (both ? 2 * behind : behind)) / (both ? 2 : 1);
  const marks: Mark[] = [];
  const align = direction > 0 ? "start" : "end";
  const bottom = along(layout, column.labels.length - 1, column) + layout.step / 2;
  const top = layout.first - layout.step / 2;
  const startOf = (c: number): number => column.barStart + direction * (apart ? c * wide : 0);
  const zeroOf = (c: number): number => startOf(c) + (both ? (direction * wide) / 2 : 0);
  const sideOf = (bar: Bar): number => (both ? Math.sign(bar.value) : direction);
  const free = direction > 0 ? layout.width - column.barStart : column.barStart;
  const titleFont = fontOf({ size: TITLE_SIZE, font: "text" });
  const title = titles.at(-1) as string;
  const shortest = title.replace(`${linePlot.quantity.name} `, "");
  const chosen = fitting([...titles, shortest], free, titleFont);
  marks.push({
    kind: "text",
    text: fitLabel(chosen, free, titleFont, measureText).text,
    x: startOf(0),
    y: 11,
    fill: palette.muted,
    size: TITLE_SIZE,
    font: "text",
    align,
  });
  columns.forEach((each, c) => {
    if (!apart && c > 0) return;
    const x = zeroOf(c);
    const stroke = signed ? palette.muted : palette.rule;
    marks.push({ kind: "line", x0: x, y0: top, x1: x, y1: bottom, stroke });
    // The caption below has the whole name, with the heads that a mean is of.
    const [own = ""] = each.name.split(",");
    const single =
      columns.length > 1 ? own : fitting([own, own.replace(/ of .*/, "")], free, titleFont);
    const name = apart ? single : sharedName(columns.length, free, titleFont);
    marks.push({
      kind: "text",
      text: columns.length > 1 && apart ? name.replace("head ", wide < 62 ? "h " : "head ") : name,
      x,
      y: 30,
      fill: apart ? each.textColor : palette.muted,
      size: 11.5,
      font: "text",
      align: both ? "middle" : align,
      ...(apart ? { bold: true } : {}),
    });
  });
  const share = apart ? 1 : columns.length;
  const thick = Math.max(1, Math.min(11, (layout.step - 3) / share));
  const numbered = numberedBars(bars, layout, apart, signed);
  const lengthOf = (bar: Bar): number =>
    bar.faded || bar.value === 0 ? 0 : Math.max(0.75, (Math.abs(bar.value) / end) * longest);
  const near = layout.step < NUMBER_SIZE ? Math.ceil(NUMBER_SIZE / 2 / layout.step) : 0;
  // Where rows are lower than a number, it stands clear of its neighbours' bars as well.
  const clearOf = (bar: Bar): number => {
    let most = lengthOf(bar);
    for (let place = bar.place - near; place <= bar.place + near; place++) {
      for (let c = 0; c < columns.length; c++) {
        const other = bars[place * columns.length + c];
        if (other && sideOf(other) === sideOf(bar) && (!apart || c === bar.column))
          most = Math.max(most, lengthOf(other));
      }
    }
    return most;
  };
  for (const bar of bars) {
    if (bar.value === 0) continue;
    const x = zeroOf(bar.column);
    const side = sideOf(bar);
    const length = lengthOf(bar);
    const color = valueColor(linePlot, bar.series, bar.value);
    const middle =
      along(layout, bar.place, column) + (apart ? 0 : (bar.column - (share - 1) / 2) * thick);
    marks.push({
      kind: "rect",
      x: side > 0 ? x : x - length,
      y: middle - thick / 2,
      width: length,
      height: Math.max(0.75, thick - (share > 1 ? 0.5 : 0)),
      ...(bar.value < 0 && !both ? { stroke: color } : { fill: color }),
    });
    if (numbered.has(bar) && !isTiny(linePlot.quantity, bar.value)) {
      marks.push({
        ...numberMark(linePlot, bar, headOf(linePlot, columns, bar, shortName)),
        x: x + side * (clearOf(bar) + 5),
        y: along(layout, bar.place, column),
        align: side > 0 ? "start" : "end",
      });
    }
  }
  return marks;
}

/** What numbers beside bars of several heads are, in as many words as there is room for. */
function sharedName(numHeads: number, room: number, font: string): string {
  const names = [`${numHeads} heads; number: the strongest`, "number: the strongest"];
  return names.find((name) => measureText(name, font) <= room) ?? "strongest";
}

/** The bars that get their number: strongest first, none too near to another of its column. */
function numberedBars(bars: Bar[], layout: Layout, apart: boolean, signed: boolean): Set<Bar> {
  const taken = new Map<number, number[]>();
  const chosen = new Set<Bar>();
  const ordered = bars
    .filter((bar) => bar.value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const across = signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM + 4;
  const least = layout.orientation === "vertical" ? NUMBER_SIZE + 0.5 : across;
  for (const bar of ordered) {
    const lane = apart ? bar.column : 0;
    const places = taken.get(lane) ?? [];
    if (places.some((place) => Math.abs(place - bar.place) * layout.step < least)) continue;
    places.push(bar.place);
    taken.set(lane, places);
    chosen.add(bar);
  }
  return chosen;
}

function lyingBars(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumn[],
  bars: Bar[],
  end: number,
  titles: string[],
): Mark[] {
  const { layout, palette } = linePlot;
  const { signed } = linePlot.quantity;
  const direction = Math.sign(column.barReach);
  const named = columns.some(({ places }) => places.length > 1);
  // The head's name stands behind its number.
  const reach = Math.abs(column.barReach);
  // Numbers above zero stand above a line in the middle.
  const longest = reach / (signed ? 2 : 1) - (named ? 24 : 14);
  const zero = column.barStart + (signed ? column.barReach / 2 : 0);
  const sideOf = (bar: Bar): number => (signed ? -Math.sign(bar.value) : direction);
  const titleFont = fontOf({ size: TITLE_SIZE, font: "text" });
  const thick = Math.max(1, Math.min(14, (layout.step - 6) / columns.length));
  const left = layout.first - layout.step / 2;
  const marks: Mark[] = [
    {
      kind: "line",
      x0: left,
      y0: zero,
      x1: along(layout, column.labels.length - 1, column) + layout.step / 2,
      y1: zero,
      stroke: signed ? palette.muted : palette.rule,
    },
    {
      kind: "text",
      text: fitting(titles, layout.width - 16, titleFont),
      x: 8,
      y: column.barStart + direction * (reach + 6),
      fill: palette.muted,
      size: TITLE_SIZE,
      font: "text",
    },
  ];
  const numbered = numberedBars(bars, layout, false, signed);
  for (const bar of bars) {
    if (bar.value === 0) continue;
    const side = sideOf(bar);
    const length = bar.faded ? 0 : Math.max(0.75, (Math.abs(bar.value) / end) * longest);
    const middle =
      along(layout, bar.place, column) + (bar.column - (columns.length - 1) / 2) * thick;
    marks.push({
      kind: "rect",
      x: middle - thick / 2,
      y: side > 0 ? zero : zero - length,
      width: Math.max(0.75, thick - 0.5),
      height: length,
      fill: valueColor(linePlot, bar.series, bar.value),
    });
    if (numbered.has(bar) && !isTiny(linePlot.quantity, bar.value)) {
      marks.push({
        ...numberMark(linePlot, bar),
        // Under the token and not the bar, so that neighbours' numbers keep their distance.
        x: along(layout, bar.place, column),
        y: zero + side * (length + 8),
        align: "middle",
      });
      const head = headOf(linePlot, columns, bar, layout.step < 46);
      if (head !== "") {
        marks.push({
          ...numberMark(linePlot, bar),
          text: head,
          x: along(layout, bar.place, column),
          y: zero + side * (length + 19),
          align: "middle",
        });
      }
    }
  }
  return marks;
}
