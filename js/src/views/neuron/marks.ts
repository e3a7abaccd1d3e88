/**
 * Marks (shapes to draw) of the neuron view. Pure functions. Each line of the table shows a key,
 * the sink, or all keys that have no separate line. A stacked layout has the cells of a line below
 * its token.
 */

import type { Range } from "../../client/protocol";
import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { fontOf, isolated, type Mark, type TextMark } from "../../draw/marks";
import { sectionsOf } from "../../ui/axis";
import { inkColor } from "../../ui/colors/color-scales";
import { type Palette, rgbOf } from "../../ui/colors/palette";
import { answerStart } from "../../ui/generated-token/state";
import { AXIS_HEIGHT, axisMarks, type BarScale, barEnd, barMarks } from "../../ui/plot/bars";
import { formatWeight } from "../../ui/text/captions";
import { fitLabel } from "../../ui/text/labels";
import { axisLabel } from "../../ui/text/places";
import { formatSigned, queryGateInWords, scaleInWords } from "./captions";
import {
  type CellRow,
  cellRowWidth,
  type Hit,
  type Layout,
  LEFT,
  type LinePosition,
} from "./layout";
import { type Dimensions, type Row, type Scale, sumOf, type Table, weightElsewhere } from "./table";

/** Everything that determines the drawn marks: numbers, texts, layout and colours. */
export interface DrawnTable {
  layout: Layout;
  palette: Palette;
  table: Table;
  dimensions: Dimensions;
}

const TOKEN_SIZE = 13;
const HEAD_SIZE = 12;

/** Return a text in the font of tokens. */
function text(content: string, x: number, y: number, fill: string, more: Partial<TextMark> = {}) {
  return textMark(content, x, y, fill, TOKEN_SIZE, { font: "token", ...more });
}

/** Return a text in the font and size of headings and notes. */
function words(content: string, x: number, y: number, fill: string, more: Partial<TextMark> = {}) {
  return textMark(content, x, y, fill, HEAD_SIZE, more);
}

/** Return the label of a token, shortened to the width of the column of tokens. */
function tokenLabel({ layout }: DrawnTable, content: string, bold: boolean): string {
  const font = fontOf({ size: layout.size, font: "token", bold });
  return fitLabel(content, layout.tokenWidth, font, measureText).text;
}

/**
 * Draw a row of cells, one for each dimension with a separate cell. They are rectangles if there
 * are gaps between them, otherwise the pixels of one image. The larger the absolute value of a
 * number, the more opaque is its cell.
 */
function cellRowMarks(
  { layout, palette, dimensions }: DrawnTable,
  { x, y, height }: CellRow,
  numbers: Float32Array | Float64Array,
  { limit }: Scale,
  opacityFactor = 1,
): Mark[] {
  const cells = dimensions.shown.map((dimension) => {
    const value = numbers[dimension] as number;
    const opacity = Math.min(1, Math.abs(value) / limit) * opacityFactor;
    return { fill: inkColor(palette, value), opacity };
  });
  const { cell, gap } = layout;
  if (gap > 0) {
    const size = { y, width: cell - gap, height };
    return cells.map((style, i) => ({ kind: "rect", x: x + i * cell, ...size, ...style }));
  }
  const colors = cells.flatMap(({ fill, opacity }) => [...rgbOf(fill), 255 * opacity]);
  const pixels = Uint8ClampedArray.from(colors);
  const size = { width: cells.length * cell, height, columns: cells.length, rows: 1 };
  return [{ kind: "image", x, y, ...size, pixels }];
}

/**
 * Draw the shared cell: the sum of the products of all dimensions without a separate cell. Draw
 * nothing if every dimension has a separate cell.
 */
function sharedCellMarks(drawn: DrawnTable, row: Row, products: CellRow): Mark[] {
  const { layout, palette, table, dimensions } = drawn;
  if (!layout.other) return [];
  const value = sumOf(row.cells, dimensions.others);
  const box = { ...products, x: products.x + layout.other.x, width: layout.other.width };
  const opacity = Math.min(1, Math.abs(value) / table.cellScale.limit);
  return [
    { kind: "rect", ...box, fill: inkColor(palette, value), opacity },
    { kind: "rect", ...box, stroke: palette.rule },
  ];
}

/**
 * Return the sum of the products, the capped sum, the bias and the logit, for example "+5.20 →
 * +3.44 − 0.30 = +3.14". Steps that the layer does not have are omitted.
 */
function equationText({ table }: DrawnTable, { sum, capped, bias, logit }: Row): string {
  const { softcap, has_bias } = table.vectors.header;
  if (softcap === null && !has_bias) return formatSigned(logit);
  const cap = softcap === null ? "" : ` → ${formatSigned(capped)}`;
  if (!has_bias) return `${formatSigned(sum)}${cap}`;
  const size = formatSigned(Math.abs(bias)).slice(1);
  return `${formatSigned(sum)}${cap} ${bias < 0 ? "−" : "+"} ${size} = ${formatSigned(logit)}`;
}

function numberMarks(drawn: DrawnTable, { middle }: LinePosition, row: Row, bold: boolean): Mark[] {
  const { layout, palette } = drawn;
  const align = "end";
  return layout.numbers.map(({ column, right }, i) => {
    if (layout.stacked) {
      const equation = equationText(drawn, row);
      return text(equation, right, middle, palette.ink, { align, bold, size: HEAD_SIZE });
    }
    // The last number is the logit. The others are intermediate results, so they are muted.
    const isLogit = i === layout.numbers.length - 1;
    const fill = isLogit ? palette.ink : palette.muted;
    return text(formatSigned(row[column]), right, middle, fill, { align, bold: bold && isLogit });
  });
}

function barScaleOf({ layout, table }: DrawnTable): BarScale {
  const numKeys = table.selection.keys.text.length;
  return { zero: layout.bar.x, reach: layout.bar.width, end: barEnd(1, numKeys) };
}

function weightMarks(
  drawn: DrawnTable,
  { middle, height }: LinePosition,
  weight: number,
  bold = false,
): Mark[] {
  const { layout, palette } = drawn;
  const thick = layout.stacked ? 12 : Math.min(16, height - 8);
  const bar = { value: weight, thick, color: palette.neutral, from: middle - thick / 2 };
  const [rect, ...others] = barMarks(barScaleOf(drawn), bar, palette);
  return [
    { ...rect, radius: Math.min(2, rect.width / 2), opacity: 0.85 },
    ...others,
    text(formatWeight(weight), rect.x + rect.width + 9, middle, palette.ink, { bold }),
  ];
}

function keyMarks(drawn: DrawnTable, position: LinePosition, row: Row): Mark[] {
  const { layout, palette, table } = drawn;
  const { keys } = table.selection;
  const highlighted = row === table.highlighted;
  const marks: Mark[] = [];
  const heading = row.key === answerStart(keys) ? "answer" : sectionAt(table, row.key);
  if (heading) marks.push(...headingMarks(drawn, position, heading));
  if (highlighted) {
    marks.push({
      kind: "rect",
      ...{ x: 0.5, y: position.y + 0.5, width: layout.width - 1, height: position.height - 1 },
      ...{ fill: palette.raised, stroke: palette.rule, radius: 5 },
    });
  }
  const isMuted = !highlighted && (keys.special.includes(row.key) || !row.allowed);
  const label = tokenLabel(drawn, axisLabel(keys, row.key), highlighted);
  const ink = isMuted ? palette.muted : palette.ink;
  marks.push(text(label, LEFT, position.middle, ink, { bold: highlighted }));
  const faint = row.allowed ? 1 : 0.3;
  marks.push(...cellRowMarks(drawn, position.keys, row.vector, table.vectorScale, faint));
  if (!row.allowed) {
    const { bar, productsLeft } = layout;
    const note = layout.stacked
      ? words(row.unscored, bar.x + bar.width + 48, position.middle, palette.muted, {
          align: "end",
        })
      : words(row.unscored, productsLeft, position.middle, palette.muted);
    return [...marks, note];
  }
  return [
    ...marks,
    ...cellRowMarks(drawn, position.products, row.cells, table.cellScale),
    ...sharedCellMarks(drawn, row, position.products),
    ...numberMarks(drawn, position, row, highlighted),
    ...weightMarks(drawn, position, row.weight, highlighted),
  ];
}

/** Pixels between a key and the rule above it in a stacked layout. */
const STACKED_RULE = 6;

/** Return the name of the group of tokens that begins with a key in the table, or undefined. */
function sectionAt({ selection: { keys }, rows }: Table, key: number): string | undefined {
  const window: Range = [rows[0]?.key ?? 0, keys.text.length];
  return sectionsOf({ tokens: keys, window }).find(({ tokens }) => tokens[0] === key)?.name;
}

/**
 * Draw a rule and a heading above a key: the name of a group of tokens, or "answer" above the first
 * key of the text that the model generated or that was given as its target.
 */
function headingMarks(
  { layout, palette }: DrawnTable,
  { y }: LinePosition,
  heading: string,
): Mark[] {
  const above = layout.stacked ? y - STACKED_RULE : y;
  // In a stacked table, the rule above the first key would cross the headings of the columns.
  const isCrossing = layout.stacked && y === layout.lines[0]?.y;
  const ends = { x0: 0, y0: above, x1: layout.width, y1: above };
  return [
    ...(isCrossing ? [] : [{ kind: "line", ...ends, stroke: palette.muted } as const]),
    layout.stacked
      ? words(heading, LEFT, y, palette.muted, { size: 11 })
      : words(heading, layout.width - 2, y + 8, palette.muted, { size: 11, align: "end" }),
  ];
}

function lineMarks(drawn: DrawnTable, position: LinePosition): Mark[] {
  const { layout, palette, table } = drawn;
  const { line, middle } = position;
  if (typeof line !== "string") return keyMarks(drawn, position, line);
  const { sink } = table.vectors.header;
  const count = table.selection.keys.text.length - table.rows.length;
  const isSink = line === "sink";
  const name = isSink ? "sink" : `${count} other ${count === 1 ? "key" : "keys"}`;
  const note = isSink ? "a learned logit of this head" : "not shown, together";
  const marks: Mark[] = [words(name, LEFT, middle, palette.muted)];
  if (isSink) {
    const style = { align: "end", size: layout.stacked ? HEAD_SIZE : TOKEN_SIZE } as const;
    const right = layout.numbers.at(-1)?.right ?? 0;
    marks.push(text(formatSigned(sink?.logit ?? 0), right, middle, palette.ink, style));
  }
  const weight = isSink ? (sink?.weight ?? 0) : weightElsewhere(table.vectors);
  marks.push(...weightMarks(drawn, position, weight));
  if (!layout.stacked) marks.push(words(note, layout.productsLeft, middle, palette.muted));
  return marks;
}

const COLUMN_NAMES = { sum: "sum", capped: "capped", bias: "+ bias", logit: "= logit" };

/** Draw the headings of the columns, the query's text, and the rule below the query. */
function headMarks(drawn: DrawnTable): Mark[] {
  const { layout, palette, table, dimensions } = drawn;
  const { productsLeft, other, head, numbers, bar, query } = layout;
  const { header } = table.vectors;
  const { queries, token } = table.selection;
  const heading = (content: string, x: number, y: number, more: Partial<TextMark> = {}): Mark =>
    words(content, x, y, palette.muted, more);
  const label = tokenLabel(drawn, queries.text[token] ?? "", true);
  const scale = scaleInWords(header.scale);
  const ruleY = Math.floor(layout.rule) + 0.5;
  const ends = { x0: 0, y0: ruleY, x1: layout.width, y1: ruleY };
  const rule: Mark = { kind: "line", ...ends, stroke: palette.rule };
  const gate = queryGateInWords(table);
  if (layout.stacked) {
    const cap = header.softcap === null ? "" : " → capped";
    const bias = header.has_bias ? " + bias = logit" : "";
    const name = "q, the query of";
    const nameWidth = measureText(name, fontOf({ size: HEAD_SIZE, font: "text" }));
    return [
      heading(name, LEFT, 12),
      text(label, LEFT + nameWidth + 6, 12, palette.ink, { bold: true }),
      ...(gate ? [words(gate, layout.width - LEFT, 12, palette.ink, { align: "end" })] : []),
      rule,
      heading(`key: k above, q × k${scale} below`, LEFT, head - 2),
      heading(`q·k${scale}${cap}${bias}`, numbers[0]?.right ?? 0, head + 14, { align: "end" }),
      heading("softmax", bar.x, head + 14),
    ];
  }
  // A narrow column has room for the formula only.
  const each = cellRowWidth(layout) < 260 ? "" : ", dimension by dimension";
  const marks = [
    heading("query", LEFT, 14),
    text(label, LEFT, query.y + query.height / 2 + 3, palette.ink, { bold: true }),
    heading(`q, the query of “${isolated(label)}”`, query.x, 10),
    ...(gate ? [words(gate, productsLeft, query.y + query.height / 2, palette.ink)] : []),
    rule,
    heading("key", LEFT, head),
    heading("k, each key", query.x, head),
    heading(`q × k${scale}${each}`, productsLeft, head),
  ];
  if (other) {
    const right = productsLeft + other.x + other.width;
    marks.push(heading(`+ ${dimensions.others.length}`, right, head, { align: "end", size: 11 }));
  }
  for (const { column, right } of numbers) {
    // Without a bias, the capped sum is the logit.
    const name = column === "capped" && !header.has_bias ? "= capped" : COLUMN_NAMES[column];
    marks.push(heading(name, right, head, { align: "end" }));
  }
  return [...marks, heading("softmax", bar.x, head)];
}

/** Draw the picture without the outlines of the cells under the pointer. */
export function backMarks(drawn: DrawnTable): Mark[] {
  const { layout, table, palette } = drawn;
  return [
    ...headMarks(drawn),
    ...cellRowMarks(drawn, layout.query, table.vectors.query, table.vectorScale),
    ...layout.lines.flatMap((position) => lineMarks(drawn, position)),
    ...axisMarks(barScaleOf(drawn), layout.height - AXIS_HEIGHT - 2, palette),
  ];
}

/**
 * Outline the dimension under the pointer: its cells in q, in k and in the products. If the pointer
 * is at the shared cell of the other dimensions, outline only this cell.
 */
export function frontMarks({ layout, palette }: DrawnTable, hit: Hit | null): Mark[] {
  if (!hit || hit.cell === null) return [];
  const position = hit.line === null ? undefined : layout.lines[hit.line];
  const outline = (row: CellRow, x: number, width: number): Mark => ({
    kind: "rect",
    ...{ x: row.x + x - 0.5, y: row.y - 1, width: Math.max(3, width + 1), height: row.height + 2 },
    ...{ stroke: palette.ink, strokeWidth: 1.5 },
  });
  const { other, cell, gap, query } = layout;
  if (hit.cell === "others")
    return position && other ? [outline(position.products, other.x, other.width)] : [];
  const x = hit.cell * cell;
  const rows = [query, ...(position ? [position.keys, position.products] : [])];
  return rows.map((row) => outline(row, x, cell - gap));
}
