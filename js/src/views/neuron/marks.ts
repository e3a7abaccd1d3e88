/** Marks of the neuron view. Pure functions. */

import { fontOf, type Mark, printable, type TextMark } from "../../draw/marks";
import { signColor } from "../../ui/colors/color-scales";
import { type Palette, rgbOf } from "../../ui/colors/palette";
import { AXIS_HEIGHT, axisMarks, type BarScale, barEnd, barMarks } from "../../ui/plot/bars";
import { formatWeight } from "../../ui/text/captions";
import { formatSigned, scaleInWords } from "./captions";
import { type CellRow, cellRowWidth, type Hit, type Layout, type LinePosition } from "./layout";
import { type Dimensions, type Row, type Scale, sumOf, type Table, weightElsewhere } from "./table";

/** Everything that determines the drawn marks: numbers, texts, layout and colours. */
export interface DrawnTable {
  layout: Layout;
  palette: Palette;
  table: Table;
  dimensions: Dimensions;
  queryText: string;
  /** Texts of all keys of the stack, including keys that are not displayed. */
  keyTexts: readonly string[];
  /** Indices of special tokens among the keys. Their texts are muted. */
  special: ReadonlySet<number>;
  /** Index of the first key that the model generated, or null if it generated no text. */
  answer: number | null;
  measure: (text: string, font: string) => number;
}

const TOKEN_SIZE = 13;
const HEAD_SIZE = 12;

/** Return the opacity of a number's colour, from 0 to 1. */
export function strengthOf(value: number, scale: Scale): number {
  return Math.min(1, Math.abs(value) / scale.limit);
}

function text(
  content: string,
  x: number,
  y: number,
  fill: string,
  more: Partial<TextMark> = {},
): TextMark {
  return { kind: "text", text: content, x, y, fill, size: TOKEN_SIZE, font: "token", ...more };
}

/** Shorten a token with an ellipsis until it fits into `width` pixels. */
export function cutToken(
  content: string,
  width: number,
  measure: DrawnTable["measure"],
  bold = false,
  size = TOKEN_SIZE,
): string {
  const font = fontOf({ size, font: "token", bold });
  const complete = printable(content);
  if (measure(complete, font) <= width) return complete;
  const characters = Array.from(complete);
  while (characters.length > 1 && measure(`${characters.join("")}…`, font) > width) {
    characters.pop();
  }
  return `${characters.join("")}…`;
}

/**
 * Draw a row of cells. Cells with gaps are rectangles. Cells without gaps are the pixels of one
 * image.
 *
 * @param faint factor of the opacity.
 */
function cellRowMarks(
  drawn: DrawnTable,
  strip: CellRow,
  values: readonly number[],
  scale: Scale,
  faint = 1,
): Mark[] {
  const { layout, palette } = drawn;
  if (layout.gap > 0) {
    return values.map((value, index) => ({
      kind: "rect",
      x: strip.x + index * layout.cell,
      y: strip.y,
      width: layout.cell - layout.gap,
      height: strip.height,
      fill: signColor(value, palette),
      opacity: strengthOf(value, scale) * faint,
    }));
  }
  const pixels = new Uint8ClampedArray(values.length * 4);
  values.forEach((value, index) => {
    const rgb = rgbOf(signColor(value, palette));
    pixels.set([...rgb, 255 * strengthOf(value, scale) * faint], index * 4);
  });
  const width = values.length * layout.cell;
  const { x, y, height } = strip;
  return [{ kind: "image", x, y, width, height, pixels, columns: values.length, rows: 1 }];
}

/** Draw the shared cell: the sum of the products of all dimensions without a separate cell. */
function otherMarks(drawn: DrawnTable, row: Row, strip: CellRow): Mark[] {
  const { other } = drawn.layout;
  if (!other) return [];
  const value = sumOf(row.cells, drawn.dimensions.others);
  const box = { x: strip.x + other.x, y: strip.y, width: other.width, height: strip.height };
  const fill = signColor(value, drawn.palette);
  const opacity = strengthOf(value, drawn.table.cellScale);
  return [
    { kind: "rect", ...box, fill, opacity },
    { kind: "rect", ...box, stroke: drawn.palette.rule },
  ];
}

/** Return the sum, the capped sum, the bias and the logit: "+5.20 → +3.44 − 0.30 = +3.14". */
function equationText(drawn: DrawnTable, row: Row): string {
  const { header } = drawn.table.vectors;
  if (header.softcap === null && !header.has_bias) return formatSigned(row.logit);
  const cap = header.softcap === null ? "" : ` → ${formatSigned(row.capped)}`;
  const bias = header.has_bias
    ? ` ${row.bias < 0 ? "−" : "+"} ${formatSigned(Math.abs(row.bias)).slice(1)} = ${formatSigned(row.logit)}`
    : "";
  return `${formatSigned(row.sum)}${cap}${bias}`;
}

const NUMBER_OF = {
  sum: (row: Row) => row.sum,
  capped: (row: Row) => row.capped,
  bias: (row: Row) => row.bias,
  logit: (row: Row) => row.logit,
};

function numberMarks(drawn: DrawnTable, position: LinePosition, row: Row, bold: boolean): Mark[] {
  const { layout, palette } = drawn;
  const size = layout.stacked ? 12 : TOKEN_SIZE;
  if (layout.stacked) {
    const right = layout.numbers[0]?.right ?? 0;
    const content = equationText(drawn, row);
    return [text(content, right, position.middle, palette.ink, { align: "end", bold, size })];
  }
  const last = layout.numbers.length - 1;
  return layout.numbers.map(({ column, right }, i) =>
    text(
      formatSigned(NUMBER_OF[column](row)),
      right,
      position.middle,
      // The last number is the logit. The others are intermediate results, so they are muted.
      i === last ? palette.ink : palette.muted,
      { align: "end", bold: bold && i === last, size },
    ),
  );
}

function barScaleOf({ layout, keyTexts }: DrawnTable): BarScale {
  return { zero: layout.bar.x, reach: layout.bar.width, end: barEnd(1, keyTexts.length) };
}

function weightMarks(
  drawn: DrawnTable,
  position: LinePosition,
  weight: number,
  bold = false,
): Mark[] {
  const { layout, palette } = drawn;
  const thick = layout.stacked ? 12 : Math.min(16, position.height - 8);
  const bar = {
    ...{ value: weight, thick, color: palette.neutral },
    from: position.middle - thick / 2,
  };
  const [rect, ...others] = barMarks(barScaleOf(drawn), bar, palette);
  const end = rect.x + rect.width;
  return [
    { ...rect, radius: Math.min(2, rect.width / 2), opacity: 0.85 },
    ...others,
    text(formatWeight(weight), end + 9, position.middle, palette.ink, { bold }),
  ];
}

/** Draw a note in a line, such as "masked" for a key without numbers. */
function noteMark(drawn: DrawnTable, position: LinePosition, content: string): Mark {
  const { layout, palette } = drawn;
  const more = { font: "text" as const, size: HEAD_SIZE };
  return layout.stacked
    ? text(content, layout.bar.x + layout.bar.width + BAR_END, position.middle, palette.muted, {
        ...more,
        align: "end",
      })
    : text(content, layout.cellsLeft, position.middle, palette.muted, more);
}

const BAR_END = 48;

function keyMarks(
  drawn: DrawnTable,
  position: LinePosition,
  row: Row,
  highlighted: boolean,
): Mark[] {
  const { layout, palette, table, dimensions } = drawn;
  const marks: Mark[] = [];
  if (highlighted) {
    marks.push({
      kind: "rect",
      x: 0.5,
      y: position.y + 0.5,
      width: layout.width - 1,
      height: position.height - 1,
      fill: palette.raised,
      stroke: palette.rule,
      radius: 5,
    });
  }
  const isMuted = drawn.special.has(row.key) || !row.allowed;
  const content = drawn.keyTexts[row.key] ?? "";
  const cut = cutToken(content, layout.tokenWidth, drawn.measure, highlighted, layout.size);
  const ink = isMuted && !highlighted ? palette.muted : palette.ink;
  marks.push(text(cut, layout.left, position.middle, ink, { bold: highlighted }));
  const { shown } = dimensions;
  const values = shown.map((dimension) => row.vector[dimension] as number);
  marks.push(
    ...cellRowMarks(drawn, position.keys, values, table.vectorScale, row.allowed ? 1 : 0.3),
  );
  if (!row.allowed) {
    marks.push(noteMark(drawn, position, "masked"));
    return marks;
  }
  const cells = shown.map((dimension) => row.cells[dimension] as number);
  marks.push(...cellRowMarks(drawn, position.cells, cells, table.cellScale));
  marks.push(...otherMarks(drawn, row, position.cells));
  marks.push(...numberMarks(drawn, position, row, highlighted));
  marks.push(...weightMarks(drawn, position, row.weight, highlighted));
  return marks;
}

/**
 * Pixels between a key and the rule above it in a stacked layout, in which the cells are below the
 * tokens.
 */
const STACKED_RULE = 6;

/** Draw a rule and the word "answer" above the first key that the model generated. */
function answerMarks({ layout, palette }: DrawnTable, { y }: LinePosition): Mark[] {
  const above = layout.stacked ? y - STACKED_RULE : y;
  const name = { font: "text", size: 11 } as const;
  return [
    { kind: "line", x0: 0, y0: above, x1: layout.width, y1: above, stroke: palette.muted },
    layout.stacked
      ? text("answer", layout.left, y, palette.muted, name)
      : text("answer", layout.width - 2, y + 8, palette.muted, { ...name, align: "end" }),
  ];
}

function lineMarks(drawn: DrawnTable, position: LinePosition): Mark[] {
  const { layout, palette, table } = drawn;
  const { line } = position;
  if (line.kind === "key") {
    const row = table.rows[line.index] as Row;
    const marks = keyMarks(drawn, position, row, line.index === table.highlighted);
    return row.key === drawn.answer ? [...answerMarks(drawn, position), ...marks] : marks;
  }
  const { sink } = table.vectors.header;
  const named = (name: string): Mark =>
    text(name, layout.left, position.middle, palette.muted, { font: "text", size: HEAD_SIZE });
  if (line.kind === "elsewhere") {
    const weight = weightElsewhere(table.vectors);
    const count = drawn.keyTexts.length - table.rows.length;
    const marks = [
      named(`${count} other ${count === 1 ? "key" : "keys"}`),
      ...weightMarks(drawn, position, weight),
    ];
    return layout.stacked ? marks : [...marks, noteMark(drawn, position, "not shown, together")];
  }
  if (!sink) return [];
  const right = layout.numbers[layout.numbers.length - 1]?.right ?? 0;
  const size = layout.stacked ? 12 : TOKEN_SIZE;
  const marks = [
    named("sink"),
    text(formatSigned(sink.logit), right, position.middle, palette.ink, { align: "end", size }),
    ...weightMarks(drawn, position, sink.weight),
  ];
  return layout.stacked
    ? marks
    : [...marks, noteMark(drawn, position, "a learned logit of this head")];
}

const COLUMN_NAMES = { sum: "sum", capped: "capped", bias: "+ bias", logit: "= logit" };

/** Draw the headings of the columns, the query's text, and the rule below the query. */
function headMarks(drawn: DrawnTable): Mark[] {
  const { layout, palette, table } = drawn;
  const { header } = table.vectors;
  const words = (content: string, x: number, y: number, more: Partial<TextMark> = {}): Mark =>
    text(content, x, y, palette.muted, { font: "text", size: HEAD_SIZE, ...more });
  const query = cutToken(drawn.queryText, layout.tokenWidth, drawn.measure, true, layout.size);
  const product = `q × k${scaleInWords(header.scale)}`;
  const rule: Mark = {
    kind: "line",
    x0: 0,
    y0: Math.floor(layout.rule) + 0.5,
    x1: layout.width,
    y1: Math.floor(layout.rule) + 0.5,
    stroke: palette.rule,
  };
  if (layout.stacked) {
    const terms = [
      `q·k${scaleInWords(header.scale)}`,
      ...(header.softcap === null ? [] : ["→ capped"]),
      ...(header.has_bias ? ["+ bias = logit"] : []),
    ];
    const right = layout.numbers[0]?.right ?? 0;
    const name = "q, the query of";
    const nameWidth = drawn.measure(name, fontOf({ size: HEAD_SIZE, font: "text" }));
    return [
      words(name, layout.left, 12),
      text(query, layout.left + nameWidth + 6, 12, palette.ink, { bold: true }),
      rule,
      words(`key: k above, ${product} below`, layout.left, layout.head - 2),
      words(terms.join(" "), right, layout.head + 14, { align: "end" }),
      words("softmax", layout.bar.x, layout.head + 14),
    ];
  }
  return [
    words("query", layout.left, 14),
    text(query, layout.left, layout.query.y + layout.query.height / 2 + 3, palette.ink, {
      bold: true,
    }),
    words(`q, the query of “${query}”`, layout.keysLeft, 10),
    rule,
    words("key", layout.left, layout.head),
    words("k, each key", layout.keysLeft, layout.head),
    words(
      // A narrow column has room for the formula only.
      cellRowWidth(layout) < 260 ? product : `${product}, dimension by dimension`,
      layout.cellsLeft,
      layout.head,
    ),
    ...(layout.other
      ? [
          words(
            `+ ${drawn.dimensions.others.length}`,
            layout.cellsLeft + layout.other.x + layout.other.width,
            layout.head,
            { align: "end", size: 11 },
          ),
        ]
      : []),
    ...layout.numbers.map(({ column, right }, i) => {
      const only = layout.numbers.length === 1;
      const last = i === layout.numbers.length - 1;
      const name = only ? "sum" : last && column === "capped" ? "= capped" : COLUMN_NAMES[column];
      return words(name, right, layout.head, { align: "end" });
    }),
    words("softmax", layout.bar.x, layout.head),
  ];
}

/** Draw the picture without the outlines of the cells under the pointer. */
export function backMarks(drawn: DrawnTable): Mark[] {
  const { layout, table, dimensions } = drawn;
  const query = dimensions.shown.map((dimension) => table.query[dimension] as number);
  return [
    ...headMarks(drawn),
    ...cellRowMarks(drawn, layout.query, query, table.vectorScale),
    ...layout.lines.flatMap((position) => lineMarks(drawn, position)),
    ...axisMarks(barScaleOf(drawn), layout.height - AXIS_HEIGHT - 2, drawn.palette),
  ];
}

/** Outline the dimension under the pointer: its cells in q, in k and in the products. */
export function frontMarks(drawn: DrawnTable, hit: Hit | null): Mark[] {
  const { layout, palette } = drawn;
  if (!hit) return [];
  const position = hit.line === null ? null : layout.lines[hit.line];
  const outline = (strip: CellRow, x: number, width: number): Mark => ({
    kind: "rect",
    x: x - 0.5,
    y: strip.y - 1,
    width: Math.max(3, width + 1),
    height: strip.height + 2,
    stroke: palette.ink,
    strokeWidth: 1.5,
  });
  if (hit.others && layout.other && position) {
    return [outline(position.cells, position.cells.x + layout.other.x, layout.other.width)];
  }
  if (hit.column === null) return [];
  const across = hit.column * layout.cell;
  const strips = [layout.query, ...(position ? [position.keys, position.cells] : [])];
  return strips.map((strip) => outline(strip, strip.x + across, layout.cell - layout.gap));
}
