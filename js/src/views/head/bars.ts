/**
 * Bars with numbers. Beside the keys, they show the weights of the highlighted query. Beside the
 * queries, they show the weights on the highlighted key. Each head has a column of bars. If there
 * are more than `MAX_COLOURS` heads, a single column shows the strongest weight of each token. A
 * series is the set of lines of one head, or of the mean or maximum of several heads.
 */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import { MAX_COLOURS } from "../../ui/colors/palette";
import { axisMarks, barEnd, barLength, breakMarks } from "../../ui/plot/bar-scale";
import { isTiny, quoted, written } from "../../ui/text/captions";
import { fitLabel } from "../../ui/text/labels";
import { type Column, type Layout, positionOf, type Side } from "./layout";
import { type Focus, isHovered, type LinePlot, seriesTextColor, valueColor } from "./line-plot";
import type { Series } from "./lines";

/** Minimum width in pixels of a column of bars with numbers. */
const MIN_COLUMN = 50;
/** Minimum width in pixels of a column with bars and numbers on both sides of its axis. */
const MIN_SIGNED_COLUMN = 104;
const NUMBER_SIZE = 10.5;
const TITLE_SIZE = 12.5;
/** Minimum width in pixels of a column that has "head 7" instead of "h 7" after a number. */
const MIN_LONG_NAME = 130;
/** Pixels after the longest bar for a number such as "0.68". */
const NUMBER_ROOM = 30;
/** Pixels after the longest bar for a number such as "−0.68". */
const SIGNED_NUMBER_ROOM = 37;

/** Column of bars. It shows the weights of one head, or the strongest weights of several heads. */
interface BarColumn {
  name: string;
  /** Colour of the name, which has more contrast than the colour of the lines. */
  textColor: string;
  /** Indices of the series in this column. Each bar shows the strongest weight among them. */
  seriesIndices: number[];
}

function valueIn(linePlot: LinePlot, seriesIndex: number, query: number, key: number): number {
  const { rows, columns } = linePlot.weights;
  if (query < rows[0] || query >= rows[1] || key < columns[0] || key >= columns[1]) return 0;
  const { matrix } = linePlot.lines.series[seriesIndex] as Series;
  return matrix[(query - rows[0]) * (columns[1] - columns[0]) + key - columns[0]] ?? 0;
}

function barColumns(linePlot: LinePlot): BarColumn[] {
  const { series } = linePlot.lines;
  const separateColumns = series.map((item, index) => ({
    name: item.name,
    textColor: seriesTextColor(linePlot, index),
    seriesIndices: [index],
  }));
  if (separateColumns.length <= MAX_COLOURS) return separateColumns;
  const hovered = separateColumns.filter((_, index) =>
    isHovered(linePlot, series[index]?.head ?? null),
  );
  if (hovered.length > 0 && hovered.length <= MAX_COLOURS) return hovered;
  const name = `strongest of ${separateColumns.length} heads`;
  return [
    {
      name,
      textColor: linePlot.palette.ink,
      seriesIndices: separateColumns.map((_, index) => index),
    },
  ];
}

interface Bar {
  /** Index of the token in the window. */
  tokenIndex: number;
  /** Index of the column of bars. */
  column: number;
  value: number;
  /** Index of the series that has this weight. */
  series: number;
  /** Whether the key is left out. The bar then has length 0 and a muted number. */
  faded: boolean;
}

function barsOf(linePlot: LinePlot, side: Side, token: number, columns: BarColumn[]): Bar[] {
  const [start, stop] = linePlot.layout[side].window;
  const bars: Bar[] = [];
  for (let index = start; index < stop; index++) {
    const [query, key] = side === "key" ? [token, index] : [index, token];
    columns.forEach(({ seriesIndices }, column) => {
      const faded = linePlot.leftOut[key] === 1;
      const bar = {
        tokenIndex: index - start,
        column,
        value: 0,
        series: seriesIndices[0] ?? 0,
        faded,
      };
      for (const seriesIndex of seriesIndices) {
        const value = valueIn(linePlot, seriesIndex, query, key);
        if (Math.abs(value) > Math.abs(bar.value))
          Object.assign(bar, { value, series: seriesIndex });
      }
      bars.push(bar);
    });
  }
  return bars;
}

/** Return the weight of a bar of full length. */
function endOf({ quantity, keys }: LinePlot): number {
  return barEnd(quantity.maximum, keys.text.length);
}

/** Return whether there is enough room for bars beside a column of tokens. */
function hasBars(column: Column): boolean {
  return Math.abs(column.barReach) >= 40;
}

/** Draw the bars of the highlighted query (beside the keys) and of the highlighted key. */
export function barMarks(linePlot: LinePlot, focus: Focus): Mark[] {
  const marks: Mark[] = [];
  if (focus.query !== null) marks.push(...barsBeside(linePlot, linePlot.layout.key, focus.query));
  if (focus.key !== null) marks.push(...barsBeside(linePlot, linePlot.layout.query, focus.key));
  return marks;
}

function barsBeside(linePlot: LinePlot, column: Column, tokenIndex: number): Mark[] {
  const { layout } = linePlot;
  if (!hasBars(column)) return [];
  const columns = barColumns(linePlot);
  const bars = barsOf(linePlot, column.side, tokenIndex, columns);
  const besideKeys = column.side === "key";
  const token = quoted((besideKeys ? linePlot.queries : linePlot.keys).text[tokenIndex] ?? "");
  const where = `${besideKeys ? "from" : "to"} ${token}`;
  const titles = [`${linePlot.quantity.name} ${where}`, where];
  return layout.orientation === "vertical"
    ? barsOfVerticalLayout(linePlot, column, columns, bars, titles)
    : barsOfHorizontalLayout(linePlot, column, columns, bars, titles);
}

/** Return the first text that fits into `room` pixels, or the last text if none fits. */
function fitText(texts: readonly string[], room: number, font: string): string {
  return texts.find((text) => measureText(text, font) <= room) ?? (texts.at(-1) as string);
}

/** Return the name of a bar's head, or "" if the bar's column belongs to a single head. */
function headOf(linePlot: LinePlot, columns: BarColumn[], bar: Bar, isShort: boolean): string {
  if ((columns[bar.column]?.seriesIndices.length ?? 0) < 2) return "";
  const name = linePlot.lines.series[bar.series]?.name ?? "";
  return isShort ? name.replace("head ", "h ") : name;
}

/** Weights below this one are written as "<0.01", in the muted colour. */
const MIN_WRITTEN = 0.005;

function numberMark(linePlot: LinePlot, bar: Bar, head = ""): Omit<TextMark, "x" | "y"> {
  const { palette, quantity } = linePlot;
  const minWritten = quantity.signed ? quantity.maximum / 200 : MIN_WRITTEN;
  return {
    kind: "text",
    text: `${written(quantity, bar.value)}${head === "" ? "" : `, ${head}`}`,
    fill: bar.faded || Math.abs(bar.value) < minWritten ? palette.muted : palette.ink,
    size: NUMBER_SIZE,
    font: "text",
  };
}

function barsOfVerticalLayout(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumn[],
  bars: Bar[],
  titles: string[],
): Mark[] {
  const { layout, palette } = linePlot;
  const { signed } = linePlot.quantity;
  const end = endOf(linePlot);
  const direction = Math.sign(column.barReach);
  const reach = Math.abs(column.barReach);
  // If there is room, the columns are side by side, so that numbers never overlap. Otherwise all
  // columns start at the same position. The bars of a token are then stacked, with one number.
  const minWidth = signed ? MIN_SIGNED_COLUMN : MIN_COLUMN;
  const separate = columns.length === 1 || reach / columns.length >= minWidth;
  const named = columns.some(({ seriesIndices }) => seriesIndices.length > 1);
  const columnWidth = Math.min(named ? 190 : 150, separate ? reach / columns.length : reach);
  const shortName = signed || columnWidth < MIN_LONG_NAME;
  const numberRoom = signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM;
  const textWidth = named ? numberRoom + (shortName ? 28 : 46) : numberRoom;
  // If there is room, bars of positive numbers are on one side of an axis and bars of negative
  // numbers on the other. Otherwise all bars are on the same side, and negative ones are hollow.
  const twoSided = signed && columnWidth >= MIN_SIGNED_COLUMN + (named ? 2 * 28 : 0);
  const longest = (columnWidth - 8 - (twoSided ? 2 * textWidth : textWidth)) / (twoSided ? 2 : 1);
  const marks: Mark[] = [];
  const align = direction > 0 ? "start" : "end";
  const bottom = positionOf(layout, column.labels.length - 1, column) + layout.step / 2;
  const top = layout.first - layout.step / 2;
  const startOf = (c: number): number =>
    column.barStart + direction * (separate ? c * columnWidth : 0);
  const zeroOf = (c: number): number => startOf(c) + (twoSided ? (direction * columnWidth) / 2 : 0);
  const sideOf = (bar: Bar): number => (twoSided ? Math.sign(bar.value) : direction);
  const titleWidth = direction > 0 ? layout.width - column.barStart : column.barStart;
  const titleFont = fontOf({ size: TITLE_SIZE, font: "text" });
  const title = fitText(titles, titleWidth, titleFont);
  marks.push({
    kind: "text",
    text: fitLabel(title, titleWidth, titleFont, measureText).text,
    x: startOf(0),
    y: 11,
    fill: palette.muted,
    size: TITLE_SIZE,
    font: "text",
    align,
  });
  columns.forEach((barColumn, c) => {
    if (!separate && c > 0) return;
    const x = zeroOf(c);
    const stroke = signed ? palette.muted : palette.rule;
    marks.push({ kind: "line", x0: x, y0: top, x1: x, y1: bottom, stroke });
    const signs = twoSided ? "both" : signed ? "hollow" : undefined;
    marks.push(...axisMarks({ x, y: bottom, reach: direction * longest, signs }, end, palette));
    // If "mean of 12 heads" does not fit, the heading is "mean".
    const [headName = ""] = barColumn.name.split(",");
    const single =
      columns.length > 1
        ? headName
        : fitText([headName, headName.replace(/ of .*/, "")], titleWidth, titleFont);
    const name = separate ? single : sharedName(columns.length, titleWidth, titleFont);
    marks.push({
      kind: "text",
      text:
        columns.length > 1 && separate
          ? name.replace("head ", columnWidth < 62 ? "h " : "head ")
          : name,
      x,
      y: 30,
      fill: separate ? barColumn.textColor : palette.muted,
      size: 11.5,
      font: "text",
      align: twoSided ? "middle" : align,
      ...(separate ? { bold: true } : {}),
    });
  });
  const share = separate ? 1 : columns.length;
  const thick = Math.max(1, Math.min(11, (layout.step - 3) / share));
  const numbered = numberedBars(bars, layout, separate, signed);
  const lengthOf = (bar: Bar): number => (bar.faded ? 0 : barLength(bar.value, end, longest));
  const numNeighbours = layout.step < NUMBER_SIZE ? Math.ceil(NUMBER_SIZE / 2 / layout.step) : 0;
  // A number that is higher than its row must begin after the bars of the neighbouring rows, too.
  const clearLengthOf = (bar: Bar): number => {
    let maxLength = lengthOf(bar);
    for (
      let tokenIndex = bar.tokenIndex - numNeighbours;
      tokenIndex <= bar.tokenIndex + numNeighbours;
      tokenIndex++
    ) {
      for (let c = 0; c < columns.length; c++) {
        const neighbour = bars[tokenIndex * columns.length + c];
        if (neighbour && sideOf(neighbour) === sideOf(bar) && (!separate || c === bar.column))
          maxLength = Math.max(maxLength, lengthOf(neighbour));
      }
    }
    return maxLength;
  };
  for (const bar of bars) {
    if (bar.value === 0) continue;
    const x = zeroOf(bar.column);
    const side = sideOf(bar);
    const length = lengthOf(bar);
    const color = valueColor(linePlot, bar.series, bar.value);
    const middle =
      positionOf(layout, bar.tokenIndex, column) +
      (separate ? 0 : (bar.column - (share - 1) / 2) * thick);
    const [from, high] = [middle - thick / 2, Math.max(0.75, thick - (share > 1 ? 0.5 : 0))];
    marks.push({
      kind: "rect",
      x: side > 0 ? x : x - length,
      y: from,
      width: length,
      height: high,
      ...(bar.value < 0 && !twoSided ? { stroke: color } : { fill: color }),
    });
    if (!bar.faded) {
      const drawn = { zero: x, length: side * length, from, thick: high };
      marks.push(...breakMarks(drawn, bar.value, end, palette));
    }
    if (numbered.has(bar) && !isTiny(linePlot.quantity, bar.value)) {
      marks.push({
        ...numberMark(linePlot, bar, headOf(linePlot, columns, bar, shortName)),
        x: x + side * (clearLengthOf(bar) + 5),
        y: positionOf(layout, bar.tokenIndex, column),
        align: side > 0 ? "start" : "end",
      });
    }
  }
  return marks;
}

/** Return the longest heading that fits above a column of bars that several heads share. */
function sharedName(numHeads: number, room: number, font: string): string {
  const names = [`${numHeads} heads; number: the strongest`, "number: the strongest"];
  return names.find((name) => measureText(name, font) <= room) ?? "strongest";
}

/**
 * Select the bars that get a number. Stronger bars are considered first. A bar gets no number if it
 * would overlap the number of a stronger bar.
 *
 * @param separate whether each head has a separate column.
 */
function numberedBars(bars: Bar[], layout: Layout, separate: boolean, signed: boolean): Set<Bar> {
  const numberedTokens = new Map<number, number[]>();
  const chosen = new Set<Bar>();
  const ordered = bars
    .filter((bar) => bar.value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const across = signed ? SIGNED_NUMBER_ROOM : NUMBER_ROOM + 4;
  const minDistance = layout.orientation === "vertical" ? NUMBER_SIZE + 0.5 : across;
  for (const bar of ordered) {
    const lane = separate ? bar.column : 0;
    const tokensInLane = numberedTokens.get(lane) ?? [];
    if (
      tokensInLane.some(
        (tokenIndex) => Math.abs(tokenIndex - bar.tokenIndex) * layout.step < minDistance,
      )
    )
      continue;
    tokensInLane.push(bar.tokenIndex);
    numberedTokens.set(lane, tokensInLane);
    chosen.add(bar);
  }
  return chosen;
}

function barsOfHorizontalLayout(
  linePlot: LinePlot,
  column: Column,
  columns: BarColumn[],
  bars: Bar[],
  titles: string[],
): Mark[] {
  const { layout, palette } = linePlot;
  const { signed } = linePlot.quantity;
  const end = endOf(linePlot);
  const direction = Math.sign(column.barReach);
  const named = columns.some(({ seriesIndices }) => seriesIndices.length > 1);
  const reach = Math.abs(column.barReach);
  // Bars of signed numbers start at an axis in the middle, so they have half of the length. A
  // head's name takes the room of a second line of text.
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
      x1: positionOf(layout, column.labels.length - 1, column) + layout.step / 2,
      y1: zero,
      stroke: signed ? palette.muted : palette.rule,
    },
    {
      kind: "text",
      text: fitText(titles, layout.width - 16, titleFont),
      x: 8,
      y: column.barStart + direction * (reach + 6),
      fill: palette.muted,
      size: TITLE_SIZE,
      font: "text",
    },
    ...axisMarks(
      {
        x: left - 4,
        y: zero,
        reach: direction * longest,
        standing: true,
        signs: signed ? "both" : undefined,
      },
      end,
      palette,
    ),
  ];
  const numbered = numberedBars(bars, layout, false, signed);
  for (const bar of bars) {
    if (bar.value === 0) continue;
    const side = sideOf(bar);
    const length = bar.faded ? 0 : barLength(bar.value, end, longest);
    const middle =
      positionOf(layout, bar.tokenIndex, column) + (bar.column - (columns.length - 1) / 2) * thick;
    const [from, width] = [middle - thick / 2, Math.max(0.75, thick - 0.5)];
    marks.push({
      kind: "rect",
      x: from,
      y: side > 0 ? zero : zero - length,
      width,
      height: length,
      fill: valueColor(linePlot, bar.series, bar.value),
    });
    if (!bar.faded) {
      const drawn = { zero, length: side * length, from, thick: width, standing: true };
      marks.push(...breakMarks(drawn, bar.value, end, palette));
    }
    if (numbered.has(bar) && !isTiny(linePlot.quantity, bar.value)) {
      marks.push({
        ...numberMark(linePlot, bar),
        // Centre the number on the token. `numberedBars` prevents overlaps for this position only.
        x: positionOf(layout, bar.tokenIndex, column),
        y: zero + side * (length + 8),
        align: "middle",
      });
      const head = headOf(linePlot, columns, bar, layout.step < 46);
      if (head !== "") {
        marks.push({
          ...numberMark(linePlot, bar),
          text: head,
          x: positionOf(layout, bar.tokenIndex, column),
          y: zero + side * (length + 19),
          align: "middle",
        });
      }
    }
  }
  return marks;
}
