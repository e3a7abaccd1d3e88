/**
 * Bars with numbers. Beside the keys, they show the weights of the highlighted query. Beside the
 * queries, they show the weights on the highlighted key. Each head has a column of bars. If there
 * are more than `MAX_COLOURS` heads, a single column shows the strongest weight of each token. A
 * series is the set of lines of one head, or of the mean or maximum of several heads.
 */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark } from "../../draw/marks";
import { MAX_COLOURS } from "../../ui/colors/palette";
import type { Focus } from "../../ui/image/state";
import { type BarScale, barEnd, barGroupMarks, NUMBER_SIZE } from "../../ui/plot/bars";
import { quoted } from "../../ui/text/captions";
import { fitLabel } from "../../ui/text/labels";
import { type Column, positionOf } from "./layout";
import { drawnValue, isHovered, type LinePlot, seriesTextColor, valueColor } from "./line-plot";

/** Minimum room in pixels for bars beside a column of tokens. */
const MIN_ROOM = 40;
/** Minimum length in pixels of a full bar, even if its number does not fit. */
const MIN_LENGTH = 8;
/** Minimum width in pixels of a column of bars with numbers. */
const MIN_COLUMN = 50;
/** Minimum width in pixels of a column with bars and numbers on both sides of its axis. */
const MIN_SIGNED_COLUMN = 104;
/** Minimum width in pixels of a column that has "head 7" instead of "h 7" after a number. */
const MIN_LONG_NAME = 130;
/** Minimum distance between tokens for "head 7" instead of "h 7" at standing bars. */
const MIN_LONG_NAME_STEP = 46;
/** Pixels after the longest bar for a number such as "0.68". */
const NUMBER_ROOM = 30;
/** Pixels after the longest bar for a number such as "−0.68". */
const SIGNED_NUMBER_ROOM = 37;
/** Weights below this one have muted numbers. */
const MIN_PROMINENT = 0.005;
const TITLE_SIZE = 12.5;
const TITLE_FONT = fontOf({ size: TITLE_SIZE, font: "text" });

/** Column of bars. It shows the weights of one head, or the strongest weights of several heads. */
interface BarColumn {
  name: string;
  /** Colour of the name, which has more contrast than the colour of the lines. */
  textColor: string;
  /** Indices of the series in this column. Each bar shows the strongest weight among them. */
  series: number[];
}

function barColumns(linePlot: LinePlot): BarColumn[] {
  const columns = linePlot.lines.series.map(({ name, head }, index) => {
    return { name, head, textColor: seriesTextColor(linePlot, index), series: [index] };
  });
  if (columns.length <= MAX_COLOURS) return columns;
  const hovered = columns.filter(({ head }) => isHovered(linePlot, head));
  if (hovered.length > 0 && hovered.length <= MAX_COLOURS) return hovered;
  const name = `strongest of ${columns.length} heads`;
  const series = columns.map((_, index) => index);
  return [{ name, textColor: linePlot.palette.ink, series }];
}

/** Division of the room beside the tokens among the columns of bars. */
interface Room {
  /**
   * Whether each column has its own zero line. Otherwise all columns have the same zero line, and
   * the bars of a token share the room of the token.
   */
  separate: boolean;
  columnWidth: number;
  /** Zero line of the first column, and distance from one column to the next. */
  zero: number;
  distance: number;
  /** Length of a full bar. Its sign is that of `BarScale.reach`. */
  reach: number;
  signs: BarScale["signs"];
  /** Whether to write "h 7" instead of "head 7". */
  short: boolean;
  /** Thickness of a bar with its gap to the next one, and without. */
  pitch: number;
  thick: number;
}

/** Divide the room of lying bars, in a vertical layout. */
function lyingRoom({ layout, quantity }: LinePlot, column: Column, columns: BarColumn[]): Room {
  const { signed } = quantity;
  const direction = Math.sign(column.barReach);
  const room = Math.abs(column.barReach);
  const named = columns.some(({ series }) => series.length > 1);
  const minWidth = signed ? MIN_SIGNED_COLUMN : MIN_COLUMN;
  const separate = columns.length === 1 || room / columns.length >= minWidth;
  const columnWidth = Math.min(named ? 190 : 150, separate ? room / columns.length : room);
  const short = signed || columnWidth < MIN_LONG_NAME;
  const numberRoom = (signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM) + (named ? (short ? 28 : 46) : 0);
  // If there is room, bars of positive numbers are on one side of an axis and bars of negative
  // numbers on the other. Otherwise all bars are on the same side, and negative ones are hollow.
  const twoSided = signed && columnWidth >= MIN_SIGNED_COLUMN + (named ? 2 * 28 : 0);
  const sides = twoSided ? 2 : 1;
  const length = Math.max(MIN_LENGTH, (columnWidth - 8) / sides - numberRoom);
  const share = separate ? 1 : columns.length;
  const pitch = Math.max(1, Math.min(11, (layout.step - 3) / share));
  return {
    ...{ separate, columnWidth, short, pitch },
    distance: direction * columnWidth,
    zero: column.barStart + (twoSided ? (direction * columnWidth) / 2 : 0),
    reach: twoSided ? length : direction * length,
    signs: twoSided ? "both" : signed ? "hollow" : undefined,
    thick: Math.max(0.75, pitch - (share > 1 ? 0.5 : 0)),
  };
}

/**
 * Divide the room of standing bars, in a horizontal layout. All columns have the same zero line.
 * The bars of a token are next to each other, one for each column.
 */
function standingRoom({ layout, quantity }: LinePlot, column: Column, columns: BarColumn[]): Room {
  const { signed } = quantity;
  const { barStart: start, barReach } = column;
  const named = columns.some(({ series }) => series.length > 1);
  // A head's name takes the room of a second line of text.
  const longest = Math.abs(barReach) / (signed ? 2 : 1) - (named ? 24 : 14);
  const pitch = Math.max(1, Math.min(14, (layout.step - 6) / columns.length));
  return {
    ...{ separate: false, columnWidth: 0, distance: 0, pitch },
    short: layout.step < MIN_LONG_NAME_STEP,
    zero: start + (signed ? barReach / 2 : 0),
    // Bars of signed numbers extend upwards for positive numbers, beside queries and beside keys.
    // Other bars extend away from the lines.
    reach: signed ? -longest : Math.sign(barReach) * longest,
    signs: signed ? "both" : undefined,
    thick: Math.max(0.75, pitch - 0.5),
  };
}

/** Draw the bars of the highlighted query (beside the keys) and of the highlighted key. */
export function barMarks(linePlot: LinePlot, focus: Focus): Mark[] {
  const { layout } = linePlot;
  return [
    ...(focus.query === null ? [] : barsBeside(linePlot, layout.key, focus.query)),
    ...(focus.key === null ? [] : barsBeside(linePlot, layout.query, focus.key)),
  ];
}

function barsBeside(linePlot: LinePlot, column: Column, focus: number): Mark[] {
  const { layout, palette, quantity } = linePlot;
  if (Math.abs(column.barReach) < MIN_ROOM) return [];
  const { first, step } = layout;
  const standing = layout.orientation === "horizontal";
  const columns = barColumns(linePlot);
  const room = (standing ? standingRoom : lyingRoom)(linePlot, column, columns);
  const { signs, reach, pitch, thick } = room;
  const line = [
    first - step / 2,
    positionOf(layout, column.labels.length - 1, column) + step / 2,
  ] as const;
  const end = barEnd(quantity.maximum, linePlot.plan.keys.text.length);
  const numberRoom = quantity.signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM + 4;
  const groups = room.separate ? columns.map((one) => [one]) : [columns];
  const marks = groups.flatMap((group, g) =>
    barGroupMarks({
      scale: { zero: room.zero + g * room.distance, reach, end, signs, standing },
      bars: column.labels.flatMap((_, token) => {
        const middle = positionOf(layout, token, column);
        return group.map(({ series }, lane) => {
          const bar = strongestBar(linePlot, column, focus, token, series);
          const from = middle + (lane - (group.length - 1) / 2) * pitch - pitch / 2;
          const name = linePlot.lines.series[bar.series]?.name ?? "";
          const note = room.short ? name.replace("head ", "h ") : name;
          return { token, middle, from, thick, ...bar, ...(series.length > 1 && { note }) };
        });
      }),
      ...{ line, axisAt: standing ? line[0] - 4 : line[1], step, quantity, palette },
      apart: standing ? numberRoom : NUMBER_SIZE + 0.5,
      minProminent: quantity.signed ? quantity.maximum / 200 : MIN_PROMINENT,
    }),
  );
  return [...headingMarks(linePlot, column, columns, room, focus), ...marks];
}

/** Return the strongest number of a token in several series, with its colour. */
function strongestBar(
  linePlot: LinePlot,
  column: Column,
  focus: number,
  token: number,
  allSeries: readonly number[],
) {
  const index = column.window[0] + token;
  const [query, key] = column.side === "key" ? [focus, index] : [index, focus];
  let [value, series] = [0, allSeries[0] ?? 0];
  for (const candidate of allSeries) {
    const number = drawnValue(linePlot, candidate, query, key);
    if (Math.abs(number) > Math.abs(value)) [value, series] = [number, candidate];
  }
  const faded = linePlot.options.leftOut[key] === 1;
  return { value, series, faded, color: valueColor(linePlot, series, value) };
}

/** Return the first text that fits into `room` pixels, or the last text if none fits. */
function fitText(texts: readonly string[], room: number): string {
  const last = texts.at(-1) as string;
  return texts.find((text) => measureText(text, TITLE_FONT) <= room) ?? last;
}

/** Draw the title of the bars and, above lying bars, the names of the columns. */
function headingMarks(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumn[],
  room: Room,
  focus: number,
): Mark[] {
  const { plan, layout, palette, quantity } = linePlot;
  const { barStart, barReach } = column;
  const besideKeys = column.side === "key";
  const token = quoted((besideKeys ? plan.queries : plan.keys).text[focus] ?? "");
  const where = `${besideKeys ? "from" : "to"} ${token}`;
  const titles = [`${quantity.name} ${where}`, where];
  const title = { kind: "text", fill: palette.muted, size: TITLE_SIZE, font: "text" } as const;
  if (layout.orientation === "horizontal") {
    const y = barStart + barReach + 6 * Math.sign(barReach);
    return [{ ...title, text: fitText(titles, layout.width - 16), x: 8, y }];
  }
  const width = besideKeys ? layout.width - barStart : barStart;
  const align = besideKeys ? "start" : "end";
  const text = fitLabel(fitText(titles, width), width, TITLE_FONT, measureText).text;
  const name = ({ name: full }: BarColumn): string => {
    if (!room.separate) {
      const names = [`${columns.length} heads; number: the strongest`, "number: the strongest"];
      return fitText([...names, "strongest"], width);
    }
    // If "mean of 12 heads" does not fit, the heading is "mean".
    const [head = ""] = full.split(",");
    if (columns.length === 1) return fitText([head, head.replace(/ of .*/, "")], width);
    return room.columnWidth < 62 ? head.replace("head ", "h ") : head;
  };
  const { separate, signs } = room;
  return [
    { ...title, text, x: barStart, y: 11, align },
    ...columns.slice(0, separate ? undefined : 1).map((barColumn, c): Mark => {
      const look = { text: name(barColumn), x: room.zero + c * room.distance, y: 30, size: 11.5 };
      const both = signs === "both" ? "middle" : align;
      const named = separate && { fill: barColumn.textColor, bold: true };
      return { ...title, ...look, align: both, ...named };
    }),
  ];
}
