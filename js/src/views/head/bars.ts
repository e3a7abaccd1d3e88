/**
 * Bars with numbers beside the tokens. Bars beside the keys show the weights of the highlighted
 * query. Bars beside the queries show the weights on the highlighted key.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. Each series
 * has a column of bars. If there are more than `MAX_COLOURS` series, only the heads whose button or
 * legend entry is under the pointer have columns. Without such heads, or if they are too many, a
 * single column shows the strongest weight of each token over all heads.
 *
 * The effect of a key is a signed number. It is drawn as an effect bar, between the label of the
 * key and the bars of weights.
 */

import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import { isCounted, otherSide, type Side } from "../../ui/axis";
import { MAX_COLOURS } from "../../ui/colors/palette";
import { effectMarks, effectNumbers, endText } from "../../ui/effects/effects";
import { type BarScale, barEnd, barGroupMarks } from "../../ui/plot/bars";
import { quoted } from "../../ui/text/captions";
import { fitLabel } from "../../ui/text/labels";
import type { Column } from "./layout";
import {
  drawnValue,
  focusOf,
  hoveredSeries,
  type LinePlot,
  seriesTextColor,
  valueColor,
} from "./line-plot";

/** Minimum room in pixels for bars beside a column of tokens. */
const MIN_ROOM = 40;
/** Minimum length in pixels of a full bar, even if its number does not fit. */
const MIN_LENGTH = 8;
/** Minimum width in pixels of a column of bars with numbers. Narrower bars could not be compared. */
const MIN_COLUMN = 80;
/** Maximum width in pixels of a column of bars with numbers. */
const MAX_COLUMN = 190;
/** Minimum width in pixels of a column with bars and numbers on both sides of its axis. */
const MIN_SIGNED_COLUMN = 104;
/** Minimum width in pixels of a column of bars for the name "head 7" instead of "h 7". */
const MIN_LONG_NAME = 130;
/** Pixels after the longest bar for a number such as "0.68". */
const NUMBER_ROOM = 30;
/** Pixels after the longest bar for a number such as "−0.68". */
const SIGNED_NUMBER_ROOM = 37;
/** Weights below this one have numbers in the muted text colour. Not used for signed numbers. */
const MIN_PROMINENT = 0.005;
const TITLE_SIZE = 12.5;
const TITLE_FONT = fontOf({ size: TITLE_SIZE, font: "text" });

/**
 * Return the columns of bars. `series` has the indices of the series of a column. Each bar of the
 * column shows the strongest weight of these series.
 */
function barColumns(linePlot: LinePlot) {
  const { lines, palette } = linePlot;
  const all = [...lines.series.keys()];
  const isOneEach = ({ length }: number[]): boolean => length > 0 && length <= MAX_COLOURS;
  const shown = [all, hoveredSeries(linePlot)].find(isOneEach);
  if (!shown)
    return [{ series: all, name: `strongest of ${all.length} heads`, color: palette.ink }];
  return shown.map((index) => {
    const name = lines.series[index]?.name ?? "";
    return { series: [index], name, color: seriesTextColor(linePlot, index) };
  });
}

type BarColumns = ReturnType<typeof barColumns>;

/**
 * Divide the room beside a column of tokens among the columns of bars, and return their sizes.
 */
function divideRoom({ layout, quantity }: LinePlot, column: Column, columns: BarColumns) {
  const { signed } = quantity;
  const room = Math.abs(column.barReach);
  const outwards = Math.sign(column.barReach);
  const named = columns.some(({ series }) => series.length > 1);
  const minWidth = signed ? MIN_SIGNED_COLUMN : MIN_COLUMN;
  // Whether each column has its own zero line. Otherwise all columns have the same zero line, and
  // the bars of a token share the room of the token.
  const separate = columns.length === 1 || room / columns.length >= minWidth;
  const width = Math.min(MAX_COLUMN, separate ? room / columns.length : room);
  const short = signed || width < MIN_LONG_NAME;
  // If there is room, bars of positive numbers are on one side of an axis and bars of negative
  // numbers on the other. Otherwise all bars are on the same side, and negative ones are hollow.
  const twoSided = signed && width >= MIN_SIGNED_COLUMN + (named ? 2 * 28 : 0);
  const sides = twoSided ? 2 : 1;
  // If a bar shows the strongest of several heads, it has the name of this head, too, after the
  // number.
  const length =
    (width - 8) / sides -
    (signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM) -
    (named ? (short ? 28 : 46) : 0);
  // Positive numbers extend to the right, or away from the lines if all are positive.
  const direction = twoSided ? 1 : outwards;
  const share = separate ? 1 : columns.length;
  const pitch = Math.max(1, Math.min(11, (layout.step - 3) / share));
  return {
    separate,
    width,
    /** Position of the zero line of the first column. */
    zero: column.barStart + (twoSided ? (outwards * width) / 2 : 0),
    /** Distance from one column to the next. */
    distance: outwards * width,
    /** Length of a full bar. Its sign is the direction of the bar, as in `BarScale.reach`. */
    reach: direction * Math.max(MIN_LENGTH, length),
    signs: (twoSided ? "both" : signed ? "hollow" : undefined) as BarScale["signs"],
    /** Whether to write "h 7" instead of "head 7". */
    short,
    /** Thickness of a bar plus the gap to the next bar. */
    pitch,
    /** Thickness of a bar. */
    thick: Math.max(0.75, pitch - (share > 1 ? 0.5 : 0)),
  };
}

type Room = ReturnType<typeof divideRoom>;

/**
 * Draw the bars of the highlighted query (beside the keys) and of the highlighted key (beside the
 * queries).
 */
export function barMarks(linePlot: LinePlot): Mark[] {
  const { query, key } = focusOf(linePlot);
  return [
    ...(query === null ? [] : barsBeside(linePlot, linePlot.layout.key, query)),
    ...(key === null ? [] : barsBeside(linePlot, linePlot.layout.query, key)),
  ];
}

function barsBeside(linePlot: LinePlot, column: Column, focus: number): Mark[] {
  const { layout, palette, quantity, lines } = linePlot;
  if (Math.abs(column.barReach) < MIN_ROOM) return [];
  const { step } = layout;
  const { signed, maximum } = quantity;
  const columns = barColumns(linePlot);
  const room = divideRoom(linePlot, column, columns);
  const { zero, signs, reach, pitch, thick } = room;
  const line = column.extent;
  const end = barEnd(maximum, linePlot.plan.keys.text.length);
  const groups = room.separate ? columns.map((one) => [one]) : [columns];
  const marks = groups.flatMap((group, g) =>
    barGroupMarks({
      scale: { zero: zero + g * room.distance, reach, end, signs },
      bars: column.labels.flatMap(({ middle, token }, position) => {
        return group.map(({ series }, lane) => {
          const bar = strongestBar(linePlot, column.side, focus, token, series);
          const from = middle + (lane - group.length / 2) * pitch;
          const name = lines.series[bar.series]?.name ?? "";
          const note = room.short ? name.replace("head ", "h ") : name;
          return { position, middle, from, thick, ...bar, ...(series.length > 1 && { note }) };
        });
      }),
      ...{ line, axisAt: line[1], step, quantity, palette },
      minProminent: signed ? maximum / 200 : MIN_PROMINENT,
    }),
  );
  return [...headingMarks(linePlot, column, columns, room, focus), ...marks];
}

/**
 * Return the number of a token with the largest absolute value in several series, its series and
 * its colour. `faded` is true if the key does not count.
 */
function strongestBar(
  linePlot: LinePlot,
  side: Side,
  focus: number,
  token: number,
  allSeries: readonly number[],
) {
  const [query, key] = side === "key" ? [focus, token] : [token, focus];
  let [value, series] = [0, allSeries[0] ?? 0];
  for (const candidate of allSeries) {
    const number = drawnValue(linePlot, candidate, query, key);
    if (Math.abs(number) > Math.abs(value)) [value, series] = [number, candidate];
  }
  const faded = !isCounted(linePlot.plan.axes.key, key);
  return { value, series, faded, color: valueColor(linePlot, series, value) };
}

/** Return the first text that fits into `room` pixels, or the last text if none fits. */
function fitText(texts: readonly string[], room: number): string {
  const last = texts.at(-1) as string;
  return texts.find((text) => measureText(text, TITLE_FONT) <= room) ?? last;
}

/** Draw the title of the bars and the names of their columns. */
function headingMarks(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumns,
  room: Room,
  focus: number,
): Mark[] {
  const { plan, layout, palette, quantity } = linePlot;
  const { barStart } = column;
  const besideKeys = column.side === "key";
  const token = quoted(plan.axes[otherSide(column.side)].tokens.text[focus] ?? "");
  const where = `${besideKeys ? "from" : "to"} ${token}`;
  const titles = [`${quantity.name} ${where}`, where, token];
  const width = besideKeys ? layout.width - barStart : barStart;
  const align = besideKeys ? "start" : "end";
  const title = fitLabel(fitText(titles, width), width, TITLE_FONT, measureText).text;
  const shared = [`${columns.length} heads; number: the strongest`, "number: the strongest"];
  // If "mean of 12 heads" does not fit, the heading is "mean".
  const shortened = (name: string): string => fitText([name, name.replace(/ of .*/, "")], width);
  const names = room.separate
    ? columns.map(({ name, color }) => ({ name: shortened(name), color }))
    : [{ name: fitText([...shared, "strongest"], width), color: palette.muted }];
  const look = { align: room.signs === "both" ? "middle" : align, bold: room.separate } as const;
  return [
    textMark(title, barStart, 11, palette.muted, TITLE_SIZE, { align }),
    ...names.map(({ name, color }, c) =>
      textMark(name, room.zero + c * room.distance, 30, color, 11.5, look),
    ),
  ];
}

const EFFECT_HEADING_SIZE = 11.5;
const EFFECT_AXIS_SIZE = 10;
const EFFECT_THICK = 9;

/**
 * Draw the effect bars of the keys in the window, with their heading, scale and numbers. The
 * numbers form a column after the bars.
 */
export function keyEffectMarks(linePlot: LinePlot): Mark[] {
  const { layout, palette, effects } = linePlot;
  const column = layout.key;
  if (!effects || !layout.effects) return [];
  const { start, size, numbers } = layout.effects;
  const thick = Math.max(1, Math.min(EFFECT_THICK, layout.step - 3));
  const font = fontOf({ size: EFFECT_HEADING_SIZE, font: "text" });
  const name = fitLabel(effects.name, size + 16, font, measureText).text;
  const [x, bottom] = [start + size / 2, column.extent[1] + 8];
  const look: Partial<TextMark> = { align: "middle" };
  const bars = column.labels.map(({ middle, token }) => {
    return { middle, value: effects.values[token] ?? null };
  });
  const at = start + size + numbers;
  return [
    textMark(name, x, 30, palette.muted, EFFECT_HEADING_SIZE, look),
    textMark(`±${endText(effects)}`, x, bottom, palette.muted, EFFECT_AXIS_SIZE, look),
    ...bars.flatMap(({ middle, value }) => {
      const box = { x: start, y: middle - thick / 2, width: size, height: thick };
      return effectMarks(box, value, effects.end, palette);
    }),
    ...effectNumbers(effects, bars, "lying", { at, limit: layout.width }, palette),
  ];
}
