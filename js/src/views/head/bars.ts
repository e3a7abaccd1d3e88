/** Bars with numbers: the weights of the query or key that stands out, head by head. */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import { formatWeight, quoted } from "../../ui/captions";
import { fitLabel } from "../../ui/labels";
import { MOST_COLOURS } from "../../ui/palette";
import { along, type Column, type Layout } from "./layout";
import { type Focus, type LinePlot, seriesColor, seriesTextColor } from "./line-plot";
import type { Series } from "./lines";

/** Narrower columns hold no number beside a bar. */
const LEAST_COLUMN = 50;
const NUMBER_SIZE = 10.5;
const TITLE_SIZE = 12.5;
/** Room for "0.68" behind the longest bar. */
const NUMBER_ROOM = 30;

/** One column of bars: a head's, or the strongest of many. */
interface BarColumn {
  name: string;
  color: string;
  /** The same for text, which needs more contrast. */
  textColor: string;
  value: (query: number, key: number) => number;
}

function valueIn(linePlot: LinePlot, series: Series): (query: number, key: number) => number {
  const { rows, columns } = linePlot.weights;
  const width = columns[1] - columns[0];
  return (query, key) => {
    if (query < rows[0] || query >= rows[1] || key < columns[0] || key >= columns[1]) return 0;
    return series.matrix[(query - rows[0]) * width + key - columns[0]] ?? 0;
  };
}

function barColumns(linePlot: LinePlot): BarColumn[] {
  const { series } = linePlot.lines;
  const each = series.map((one, place) => ({
    name: one.name,
    color: seriesColor(linePlot, place),
    textColor: seriesTextColor(linePlot, place),
    value: valueIn(linePlot, one),
  }));
  if (each.length <= MOST_COLOURS) return each;
  const hovered = each[series.findIndex((one) => one.head === linePlot.hoveredHead)];
  if (hovered) return [hovered];
  return [
    {
      name: `strongest of ${each.length} heads`,
      color: linePlot.palette.neutral,
      textColor: linePlot.palette.neutral,
      value: (query, key) => each.reduce((most, one) => Math.max(most, one.value(query, key)), 0),
    },
  ];
}

interface Bar {
  /** Place of the token in its column. */
  place: number;
  column: number;
  value: number;
  faded: boolean;
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
  if (Math.abs(column.barReach) < 40) return [];
  const columns = barColumns(linePlot);
  const [start, stop] = column.window;
  const besideKeys = column.side === "key";
  const bars: Bar[] = [];
  let most = 0;
  for (let index = start; index < stop; index++) {
    columns.forEach((each, c) => {
      const value = besideKeys ? each.value(of, index) : each.value(index, of);
      const out = linePlot.leftOut[besideKeys ? index : of] === 1;
      if (!out) most = Math.max(most, value);
      bars.push({ place: index - start, column: c, value, faded: out });
    });
  }
  // What is left out has its number and no bar: it may be the longest by far.
  const end = most > 0 ? most : 1;
  const tokens = besideKeys ? linePlot.queries : linePlot.keys;
  const title = `weight ${besideKeys ? "from" : "to"} ${quoted(tokens.text[of] ?? "")}`;
  return layout.orientation === "vertical"
    ? standingBars(linePlot, column, columns, bars, end, title)
    : lyingBars(linePlot, column, columns, bars, end, title);
}

function numberMark(linePlot: LinePlot, bar: Bar): Omit<TextMark, "x" | "y"> {
  return {
    kind: "text",
    text: formatWeight(bar.value),
    fill: bar.faded ? linePlot.palette.muted : linePlot.palette.ink,
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
  title: string,
): Mark[] {
  const { layout, palette } = linePlot;
  const direction = Math.sign(column.barReach);
  const reach = Math.abs(column.barReach);
  // A column of its own for every head where there is room, so that numbers never collide;
  // else the heads' bars share a row and the longest has the number.
  const apart = reach / columns.length >= LEAST_COLUMN;
  const wide = Math.min(150, apart ? reach / columns.length : reach);
  const longest = wide - NUMBER_ROOM - 8;
  const marks: Mark[] = [];
  const align = direction > 0 ? "start" : "end";
  const bottom = along(layout, column.labels.length - 1, column) + layout.step / 2;
  const top = layout.first - layout.step / 2;
  const startOf = (c: number): number => column.barStart + direction * (apart ? c * wide : 0);
  const free = direction > 0 ? layout.width - column.barStart : column.barStart;
  const titleFont = fontOf({ size: TITLE_SIZE, font: "text" });
  const label = fitLabel(title, free, titleFont, measureText);
  const short = fitLabel(title.replace("weight ", ""), free, titleFont, measureText);
  marks.push({
    kind: "text",
    text: label.cut ? short.text : label.text,
    x: startOf(0),
    y: 11,
    fill: palette.muted,
    size: TITLE_SIZE,
    font: "text",
    align,
  });
  columns.forEach((each, c) => {
    if (!apart && c > 0) return;
    const x = startOf(c);
    marks.push({ kind: "line", x0: x, y0: top, x1: x, y1: bottom, stroke: palette.rule });
    // The caption below has the whole name, with the heads that a mean is of.
    const [own = ""] = each.name.split(",");
    const name = apart ? own : sharedName(columns.length, free, titleFont);
    marks.push({
      kind: "text",
      text: columns.length > 1 && apart ? name.replace("head ", wide < 62 ? "h " : "head ") : name,
      x,
      y: 30,
      fill: apart ? each.textColor : palette.muted,
      size: 11.5,
      font: "text",
      align,
      ...(apart ? { bold: true } : {}),
    });
  });
  const share = apart ? 1 : columns.length;
  const thick = Math.max(1, Math.min(11, (layout.step - 3) / share));
  const numbered = numberedBars(bars, layout, apart);
  const lengthOf = (bar: Bar): number =>
    bar.faded || bar.value <= 0 ? 0 : Math.max(0.75, (bar.value / end) * longest);
  const near = layout.step < NUMBER_SIZE ? Math.ceil(NUMBER_SIZE / 2 / layout.step) : 0;
  // Where rows are lower than a number, it stands clear of its neighbours' bars as well.
  const clearOf = (bar: Bar): number => {
    let most = lengthOf(bar);
    for (let place = bar.place - near; place <= bar.place + near; place++) {
      for (let c = 0; c < columns.length; c++) {
        const other = bars[place * columns.length + c];
        if (other && (!apart || c === bar.column)) most = Math.max(most, lengthOf(other));
      }
    }
    return most;
  };
  for (const bar of bars) {
    if (bar.value <= 0) continue;
    const x = startOf(bar.column);
    const length = lengthOf(bar);
    const middle =
      along(layout, bar.place, column) + (apart ? 0 : (bar.column - (share - 1) / 2) * thick);
    marks.push({
      kind: "rect",
      x: direction > 0 ? x : x - length,
      y: middle - thick / 2,
      width: length,
      height: Math.max(0.75, thick - (share > 1 ? 0.5 : 0)),
      fill: (columns[bar.column] as BarColumn).color,
    });
    if (numbered.has(bar)) {
      marks.push({
        ...numberMark(linePlot, bar),
        x: x + direction * (clearOf(bar) + 5),
        y: along(layout, bar.place, column),
        align,
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
function numberedBars(bars: Bar[], layout: Layout, apart: boolean): Set<Bar> {
  const taken = new Map<number, number[]>();
  const chosen = new Set<Bar>();
  const ordered = bars
    .filter((bar) => bar.value >= (layout.step < NUMBER_SIZE ? 0.02 : 0.005))
    .sort((a, b) => b.value - a.value);
  const least = layout.orientation === "vertical" ? NUMBER_SIZE + 0.5 : NUMBER_ROOM - 3;
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
  title: string,
): Mark[] {
  const { layout, palette } = linePlot;
  const direction = Math.sign(column.barReach);
  const longest = Math.abs(column.barReach) - 14;
  const thick = Math.max(1, Math.min(14, (layout.step - 6) / columns.length));
  const left = layout.first - layout.step / 2;
  const marks: Mark[] = [
    {
      kind: "line",
      x0: left,
      y0: column.barStart,
      x1: along(layout, column.labels.length - 1, column) + layout.step / 2,
      y1: column.barStart,
      stroke: palette.rule,
    },
    {
      kind: "text",
      text: title,
      x: 8,
      y: column.barStart + direction * (Math.abs(column.barReach) + 6),
      fill: palette.muted,
      size: 12.5,
      font: "text",
    },
  ];
  const numbered = numberedBars(bars, layout, false);
  for (const bar of bars) {
    if (bar.value <= 0) continue;
    const length = bar.faded ? 0 : Math.max(0.75, (bar.value / end) * longest);
    const middle =
      along(layout, bar.place, column) + (bar.column - (columns.length - 1) / 2) * thick;
    marks.push({
      kind: "rect",
      x: middle - thick / 2,
      y: direction > 0 ? column.barStart : column.barStart - length,
      width: Math.max(0.75, thick - 0.5),
      height: length,
      fill: (columns[bar.column] as BarColumn).color,
    });
    if (numbered.has(bar)) {
      marks.push({
        ...numberMark(linePlot, bar),
        // Under the token and not the bar, so that neighbours' numbers keep their distance.
        x: along(layout, bar.place, column),
        y: column.barStart + direction * (length + 8),
        align: "middle",
      });
    }
  }
  return marks;
}
