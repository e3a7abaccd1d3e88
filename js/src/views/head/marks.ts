/**
 * Marks (shapes to draw) of the head view: lines, tokens, image patches and headings. Pure
 * functions.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads.
 */

import type { CurvesMark, Mark, TextMark } from "../../draw/marks";
import { cropOf, patchOf, pictureMark } from "../../draw/patches";
import { exclusionOf, pinsOf, SIDES } from "../../ui/axis";
import { barMarks, keyEffectMarks } from "./bars";
import {
  ANSWER_GAP,
  type Column,
  HEADING_SIZE,
  type Layout,
  labelOf,
  type TokenLabel,
} from "./layout";
import { focusOf, hoveredSeries, type LinePlot, pointedAt, valueColor } from "./line-plot";
import type { Line } from "./lines";

/** Lines with an opacity below this one are one pixel wide. */
const WEAK = 0.12;
/** If tokens are closer than this many pixels, lines are one pixel wide, to cover fewer others. */
const NARROW_STEP = 6;

/** Return the opacity and the width of a line. */
function strength({ scale, layout }: LinePlot, { weight }: Line) {
  const opacity = Math.min(1, Math.abs(weight) / scale);
  // Most lines are weak, and browsers paint lines of exactly one pixel several times faster.
  const thin = opacity < WEAK || layout.step < NARROW_STEP;
  return { opacity, width: thin ? 1 : 0.9 + 1.7 * opacity };
}

/**
 * Draw the lines of all series. In each series, lines of negative numbers are dashed and drawn
 * first, below the others.
 *
 * @param wider pixels that are added to the width of each line.
 * @param isDrawn function that returns whether to draw a line.
 */
function curves(linePlot: LinePlot, wider: number, isDrawn: (line: Line) => boolean): CurvesMark[] {
  const { layout, lines } = linePlot;
  const count = lines.series.length;
  // Distance between lines of neighbouring heads that connect the same tokens.
  const spread = count < 2 ? 0 : Math.min(2.6, (layout.step * 0.62) / count);
  const drawn = lines.drawn.filter(isDrawn);
  const curvesOf = (series: number, sign: number): CurvesMark[] => {
    const own = drawn.filter((line) => line.series === series && Math.sign(line.weight) === sign);
    if (own.length === 0) return [];
    const numbers = (of: (line: Line) => number) => Float32Array.from(own, of);
    const endOf = (token: number, column: Column): number =>
      labelOf(column, token).middle + (series - (count - 1) / 2) * spread;
    const positions = {
      x0: numbers(() => layout.query.edge),
      y0: numbers(({ query }) => endOf(query, layout.query)),
      x1: numbers(() => layout.key.edge),
      y1: numbers(({ key }) => endOf(key, layout.key)),
    };
    const mark: CurvesMark = {
      kind: "curves",
      color: valueColor(linePlot, series, sign),
      dashed: sign === -1,
      count: own.length,
      ...positions,
      opacity: numbers((line) => strength(linePlot, line).opacity),
      width: numbers((line) => strength(linePlot, line).width + wider),
      meaning: (i) => {
        const { query, key } = own[i] as Line;
        return { line: { series, query, key } };
      },
    };
    return [mark];
  };
  return lines.series.flatMap((_, series) => [...curvesOf(series, -1), ...curvesOf(series, 1)]);
}

/** Draw all lines without highlights. */
export function backMarks(linePlot: LinePlot): Mark[] {
  return curves(linePlot, 0, () => true);
}

/**
 * Return the opacity of the lines of `backMarks`. It is lower while highlighted lines are drawn
 * above them.
 */
export function backOpacity(linePlot: LinePlot): number {
  if (hoveredSeries(linePlot).length > 0) return 0.12;
  const focus = focusOf(linePlot);
  if (focus.query === null && focus.key === null) return linePlot.hoveredLine ? 0.45 : 1;
  return 0.14;
}

/**
 * Draw the highlighted lines: those of the heads under the pointer, otherwise those of the
 * highlighted tokens. The line under the pointer is drawn on top.
 */
function focusCurves(linePlot: LinePlot): Mark[] {
  const { hoveredLine } = linePlot;
  const focus = focusOf(linePlot);
  const hovered = hoveredSeries(linePlot);
  const marks =
    hovered.length > 0
      ? curves(linePlot, 0.2, ({ series }) => hovered.includes(series))
      : curves(linePlot, 0.4, ({ query, key }) => query === focus.query || key === focus.key);
  if (!hoveredLine) return marks;
  const pointed = curves(
    linePlot,
    1.2,
    ({ series, query, key }) =>
      series === hoveredLine.series && query === hoveredLine.query && key === hoveredLine.key,
  );
  // The tooltip describes this line, so it must be visible even if its weight is small.
  for (const mark of pointed) mark.opacity.fill(1);
  return [...marks, ...pointed];
}

/**
 * Return a box at the anchor of a column, which is the position of its labels. The box extends away
 * from the lines.
 */
function boxBeside(
  column: Column,
  middle: number,
  /** Distance of the box from the anchor towards the lines, and its size across and along the plot. */
  size: { padding: number; across: number; along: number },
) {
  const { padding, across, along } = size;
  const x = column.side === "query" ? column.anchor + padding - across : column.anchor - padding;
  return { x, y: middle - along / 2, width: across, height: along };
}

/** Return the box around a label. */
function labelBox({ step }: Layout, column: Column, { middle, width }: TokenLabel) {
  const along = Math.max(12, Math.min(step, column.size + 9));
  return boxBeside(column, middle, { padding: 6, across: width + 12, along });
}

/** Write a text at the anchor of a column. */
function textBeside(column: Column, y: number, text: Omit<TextMark, "x" | "y">): TextMark {
  return { ...text, x: column.anchor, y, align: column.side === "query" ? "end" : "start" };
}

/** Draw the tokens of one side, with their highlights and the areas that respond to the pointer. */
function columnMarks(linePlot: LinePlot, column: Column): Mark[] {
  const { layout, palette, hoveredLine } = linePlot;
  const { side, edge, tokens } = column;
  const special = new Set(tokens.special);
  const pinned = pinsOf(linePlot.plan)[side];
  const focus = focusOf(linePlot)[side];
  const pointed = pointedAt(linePlot);
  const ends = [hoveredLine?.[side], pointed?.side === side ? pointed.index : null];
  const marks: Mark[] = [];
  // Texts and highlighted patches, which may be larger than their rows, are above other marks.
  const front: Mark[] = [];
  for (const label of column.labels) {
    const { middle, token: index } = label;
    const isPinned = pinned === index;
    const isMatch = linePlot.isFound?.(tokens.text[index] ?? "") ?? false;
    const bold = isPinned || focus === index || ends.includes(index);
    const lit = bold || isMatch;
    const exclusion = exclusionOf(column, index);
    const struck = exclusion?.look === "struck";
    const faded = exclusion !== undefined && !lit;
    const box = labelBox(layout, column, label);
    if (isMatch) marks.push({ kind: "rect", ...box, fill: palette.searchMatch, radius: 4 });
    if ((isPinned || focus === index) && !label.height) {
      const border = isPinned && { stroke: palette.ink, strokeWidth: 1.4 };
      marks.push({ kind: "rect", ...box, fill: palette.raised, radius: 5, ...border });
    }
    // The area that responds to the pointer reaches from the lines to the end of the bars.
    const end = column.barStart + column.barReach;
    const row = { y: middle - layout.step / 2, height: layout.step };
    const area = { x: Math.min(edge, end), width: Math.abs(edge - end), ...row };
    const meaning = { token: { side, index } };
    marks.push({ kind: "rect", ...area, meaning });
    if (label.height) {
      const drawn = patchMarks(linePlot, column, { label, lit, faded, struck });
      (lit ? front : marks).push(...drawn);
    } else if (column.named?.has(index) !== false || lit) {
      const isMuted = faded || (special.has(index) && !lit);
      const text = {
        ...({ kind: "text", text: label.text, font: "token", bold, struck } as const),
        fill: isMuted ? palette.muted : palette.ink,
        size: lit && column.named ? 11 : column.size,
      };
      front.push(textBeside(column, middle, text));
    }
  }
  return [...marks, ...front];
}

/** Draw the heading of a column. */
function headingMark({ palette }: LinePlot, column: Column): Mark {
  const look = { text: column.side, fill: palette.muted, size: 12.5 };
  return textBeside(column, 30, { kind: "text", font: "text", ...look });
}

/** Draw a rule and a heading before the answer of the model, and before each group of tokens. */
function sectionMarks({ layout, palette }: LinePlot, column: Column): Mark[] {
  const { headings, edge, barStart } = column;
  const { muted } = palette;
  return headings.flatMap(({ position, text }): Mark[] => {
    const { middle } = column.labels[position] as TokenLabel;
    const y = middle - layout.step / 2 - ANSWER_GAP + 5;
    const line = { kind: "line", x0: edge, y0: y, x1: barStart, y1: y, stroke: muted } as const;
    const word = { kind: "text", text, fill: muted, font: "text", size: HEADING_SIZE } as const;
    return text ? [line, textBeside(column, y + 11, word)] : [line];
  });
}

/** Draw everything above `backMarks`: highlighted lines, tokens, and bars. */
export function frontMarks(linePlot: LinePlot): Mark[] {
  const columns = SIDES.map((side) => linePlot.layout[side]);
  return [
    ...focusCurves(linePlot),
    ...columns.map((column) => headingMark(linePlot, column)),
    ...columns.flatMap((column) => sectionMarks(linePlot, column)),
    ...columns.flatMap((column) => columnMarks(linePlot, column)),
    ...keyEffectMarks(linePlot),
    ...barMarks(linePlot),
  ];
}

/** Minimum height in pixels of a highlighted patch. */
const MIN_LIT = 22;
const FADED = 0.35;

/** Draw the patch of a token. Until its image is loaded, draw a plain rectangle. */
function patchMarks(
  linePlot: LinePlot,
  column: Column,
  look: { label: TokenLabel; lit: boolean; faded: boolean; struck: boolean },
): Mark[] {
  const { palette, images } = linePlot;
  const { label, lit, faded, struck } = look;
  const patch = patchOf(column.tokens, label.token);
  if (!patch || !label.height) return [];
  const grow = lit ? Math.max(1, MIN_LIT / label.height) : 1;
  const [width, height] = [label.width * grow, label.height * grow];
  const box = boxBeside(column, label.middle, { padding: 0, across: width, along: height });
  const image = images[patch.grid.image];
  const marks: Mark[] = [
    image
      ? { ...pictureMark(cropOf(image, patch), box), opacity: faded ? FADED : 1 }
      : { kind: "rect", ...box, fill: palette.raised },
  ];
  if (lit) marks.push({ kind: "rect", ...box, stroke: palette.ink, strokeWidth: 1.4 });
  const [y, x1] = [box.y + height / 2, box.x + width];
  if (struck) marks.push({ kind: "line", x0: box.x, y0: y, x1, y1: y, stroke: palette.ink });
  return marks;
}
