/**
 * Marks of the head view: lines, tokens, image patches and headings. Pure functions.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads.
 */

import { type CurvesMark, type Mark, type TextMark, transposed } from "../../draw/marks";
import { cropOf, patchOf, pictureMark } from "../../draw/patches";
import { graphemes, type Label } from "../../ui/text/labels";
import { barMarks } from "./bars";
import { keyEffectMarks } from "./effects";
import {
  ANSWER_GAP,
  type Column,
  type Layout,
  positionOf,
  standsUpright,
  staysLevel,
} from "./layout";
import { focusOf, isHovered, type LinePlot, pointedAt, valueColor } from "./line-plot";
import type { Line } from "./lines";
import { SIDES, tokensOf } from "./state";

/**
 * Return the distance in pixels between lines of neighbouring heads that connect the same tokens.
 */
function spreadOf(linePlot: LinePlot): number {
  const count = linePlot.lines.series.length;
  if (count < 2) return 0;
  return Math.min(2.6, (linePlot.layout.step * 0.62) / count);
}

/** Lines with less opacity are one pixel wide. */
const WEAK = 0.12;
/** If tokens are closer than this many pixels, lines are one pixel wide, to cover fewer others. */
const NARROW_STEP = 6;

/**
 * Return the opacity and the width of a line.
 *
 * @param scale absolute value that is drawn with full opacity.
 * @param step distance between neighbouring tokens in pixels.
 */
export function strength(
  weight: number,
  scale: number,
  step: number,
): { opacity: number; width: number } {
  const opacity = Math.min(1, Math.abs(weight) / scale);
  // Most lines are weak, and browsers paint lines of exactly one pixel several times faster.
  const thin = opacity < WEAK || step < NARROW_STEP;
  return { opacity, width: thin ? 1 : 0.9 + 1.7 * opacity };
}

/**
 * Draw the lines of a series. Lines of negative numbers are dashed and drawn first, below the
 * others.
 *
 * @param wider pixels that are added to the width of each line.
 * @param isDrawn function that returns whether to draw a line.
 */
function curvesOf(
  linePlot: LinePlot,
  series: number,
  wider: number,
  isDrawn: (line: Line) => boolean = () => true,
): CurvesMark[] {
  const { layout, scale, lines } = linePlot;
  const drawn = lines.drawn.filter((line) => line.series === series && isDrawn(line));
  const shift = (series - (lines.series.length - 1) / 2) * spreadOf(linePlot);
  const endOf = (index: number, column: Column): number =>
    positionOf(layout, index - column.window[0], column) + shift;
  return [-1, 1].flatMap((sign) => {
    const ofSign = drawn.filter(({ weight }) => Math.sign(weight) === sign);
    if (ofSign.length === 0) return [];
    const numbers = (of: (line: Line) => number) => Float32Array.from(ofSign, of);
    const positions = {
      x0: numbers(() => layout.query.edge),
      y0: numbers(({ query }) => endOf(query, layout.query)),
      x1: numbers(() => layout.key.edge),
      y1: numbers(({ key }) => endOf(key, layout.key)),
    };
    const strengthOf = ({ weight }: Line) => strength(weight, scale, layout.step);
    return {
      kind: "curves",
      columns: layout.orientation,
      color: valueColor(linePlot, series, sign),
      dashed: sign === -1,
      count: ofSign.length,
      ...transposed(positions, isHorizontal(layout)),
      opacity: numbers((line) => strengthOf(line).opacity),
      width: numbers((line) => strengthOf(line).width + wider),
      meaning: (i) => {
        const { query, key } = ofSign[i] as Line;
        return { line: { series, query, key } };
      },
    };
  });
}

/** Draw all lines without highlights. */
export function backMarks(linePlot: LinePlot): Mark[] {
  return linePlot.lines.series.flatMap((_, index) => curvesOf(linePlot, index, 0));
}

/**
 * Return the opacity of `backMarks`, which is lower while other lines are highlighted above them.
 */
export function backOpacity(linePlot: LinePlot): number {
  if (linePlot.lines.series.some((series) => isHovered(linePlot, series.head))) return 0.12;
  const focus = focusOf(linePlot);
  if (focus.query === null && focus.key === null) return linePlot.hoveredLine ? 0.45 : 1;
  return 0.14;
}

/** Draw the highlighted lines: of the heads under the pointer, otherwise of the highlighted tokens. */
function focusCurves(linePlot: LinePlot): Mark[] {
  const { hoveredLine } = linePlot;
  const { series } = linePlot.lines;
  const focus = focusOf(linePlot);
  const hovered = [...series.keys()].filter((index) => isHovered(linePlot, series[index]?.head));
  const marks =
    hovered.length > 0
      ? hovered.flatMap((index) => curvesOf(linePlot, index, 0.2))
      : series.flatMap((_, index) =>
          curvesOf(
            linePlot,
            index,
            0.4,
            ({ query, key }) => query === focus.query || key === focus.key,
          ),
        );
  if (!hoveredLine) return marks;
  const pointed = curvesOf(
    linePlot,
    hoveredLine.series,
    1.2,
    ({ query, key }) => query === hoveredLine.query && key === hoveredLine.key,
  );
  // The tooltip describes this line, so it must be visible even if its weight is small.
  for (const mark of pointed) mark.opacity.fill(1);
  return [...marks, ...pointed];
}

function isHorizontal({ orientation }: Layout): boolean {
  return orientation === "horizontal";
}

/** Return a box beside the edge of a column, which extends from the lines outwards. */
function boxBeside(
  layout: Layout,
  column: Column,
  middle: number,
  /** Distance of the box from the anchor towards the lines, and its size across and along the plot. */
  size: { padding: number; across: number; along: number },
): Box {
  const { padding, across, along } = size;
  const x = column.side === "query" ? column.anchor + padding - across : column.anchor - padding;
  const box = { x, y: middle - along / 2, width: across, height: along };
  return transposed(box, isHorizontal(layout));
}

/** Place a text at the anchor of a column. In a horizontal layout, it is rotated unless `level`. */
function textBeside(
  layout: Layout,
  column: Column,
  at: number,
  text: Omit<TextMark, "x" | "y">,
  level = false,
): TextMark {
  const isQuery = column.side === "query";
  const { anchor: x, size } = column;
  if (!isHorizontal(layout)) return { ...text, x, y: at, align: isQuery ? "end" : "start" };
  if (!level) return { ...text, x: at, y: x, align: isQuery ? "start" : "end", rotate: -90 };
  return { ...text, x: at, y: x + (size / 2 + 1) * (isQuery ? -1 : 1), align: "middle" };
}

/** Token of a column, and its appearance. */
interface TokenLook {
  label: Label;
  index: number;
  /** Position along the plot. */
  middle: number;
  /** Whether the token is highlighted: under the pointer, pinned, or a match of the search. */
  lit: boolean;
  /** Whether the token is left out or outside the chosen text of a pair of texts. */
  faded: boolean;
  /** Whether the token is left out, so a line crosses it out. */
  struck: boolean;
}

/** Draw the tokens of one side, with their highlights and the areas that respond to the pointer. */
function columnMarks(linePlot: LinePlot, column: Column): Mark[] {
  const { layout, palette, options } = linePlot;
  const { side } = column;
  const isQuery = side === "query";
  const tokens = tokensOf(linePlot.plan, side);
  const members = isQuery ? options.pairQueries : options.pairKeys;
  const special = new Set(tokens.special);
  const pinned = isQuery ? linePlot.token : linePlot.key;
  const focus = focusOf(linePlot)[side];
  const pointed = pointedAt(linePlot);
  const ends = [linePlot.hoveredLine?.[side], pointed?.side === side ? pointed.index : null];
  const marks: Mark[] = [];
  // Texts and highlighted patches, which may be larger than their rows, are above other marks.
  const front: Mark[] = [];
  column.labels.forEach((label, offset) => {
    const index = column.window[0] + offset;
    const middle = positionOf(layout, offset, column);
    const isPinned = pinned === index;
    const isMatch = linePlot.isFound?.(tokens.text[index] ?? "") ?? false;
    const bold = isPinned || focus === index || ends.includes(index);
    const lit = bold || isMatch;
    const struck = !isQuery && options.leftOut[index] === 1;
    const faded = struck || members[index] === 0;
    const box = labelBox(layout, column, label, middle);
    if (isMatch) marks.push({ kind: "rect", ...box, fill: palette.searchMatch, radius: 4 });
    if ((isPinned || focus === index) && !label.height) {
      const border = isPinned && { stroke: palette.ink, strokeWidth: 1.4 };
      marks.push({ kind: "rect", ...box, fill: palette.raised, radius: 5, ...border });
    }
    const meaning = { token: { side, index } };
    marks.push({ kind: "rect", ...hitBox(layout, column, middle), meaning });
    if (label.height) {
      const look = { label, index, middle, lit, faded, struck };
      (lit ? front : marks).push(...patchMarks(linePlot, column, look));
      return;
    }
    if (offset % layout.every !== 0 && !lit) return;
    const text = {
      ...({ kind: "text", text: label.text, font: "token", bold, struck } as const),
      fill: (faded || special.has(index)) && !lit ? palette.muted : palette.ink,
      size: lit && layout.every > 1 ? 11 : column.size,
    };
    const level = !column.rotated || staysLevel(label, layout.step);
    if (!level && standsUpright(label.text)) front.push(...uprightText(text, middle, column));
    else front.push(textBeside(layout, column, middle, text, level));
  });
  return [...marks, ...front];
}

function uprightText(base: Omit<TextMark, "x" | "y">, middle: number, column: Column): TextMark[] {
  const characters = graphemes(base.text);
  const step = column.size + 1;
  const top =
    column.side === "query"
      ? column.anchor - (characters.length - 0.5) * step
      : column.anchor + step / 2;
  return characters.map((text, i) => ({
    ...base,
    text,
    x: middle,
    y: top + i * step,
    align: "middle" as const,
  }));
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

function labelBox(layout: Layout, column: Column, label: Label, middle: number): Box {
  const { step } = layout;
  const { width } = label;
  if (!isHorizontal(layout)) {
    const along = Math.max(12, Math.min(step, column.size + 9));
    return boxBeside(layout, column, middle, { padding: 6, across: width + 12, along });
  }
  const rotated = column.rotated && !staysLevel(label, step);
  const across = (rotated ? width : column.size + 2) + 8;
  const along = rotated ? Math.min(step, column.size + 8) : Math.min(step - 2, width + 12);
  return boxBeside(layout, column, middle, { padding: 4, across, along });
}

/**
 * Return the area of a token that responds to the pointer. It reaches from the ends of the lines to
 * the end of the bars.
 */
function hitBox(layout: Layout, column: Column, middle: number): Box {
  const end = column.barStart + column.barReach;
  const [x, width] = [Math.min(column.edge, end), Math.abs(column.edge - end)];
  const box = { x, y: middle - layout.step / 2, width, height: layout.step };
  return transposed(box, isHorizontal(layout));
}

function headingMarks(linePlot: LinePlot): Mark[] {
  const { layout, palette } = linePlot;
  const heading = (column: Column): TextMark => {
    const base = { kind: "text", text: column.side, fill: palette.muted, font: "text" } as const;
    const at = isHorizontal(layout) ? 8 : 30;
    const text = textBeside(layout, column, at, { ...base, size: 12.5 }, true);
    return isHorizontal(layout) ? { ...text, align: "start" } : text;
  };
  const columns = SIDES.map((side) => layout[side]);
  return [...columns.map(heading), ...columns.flatMap((column) => answerMarks(linePlot, column))];
}

/** Draw a rule and the word "answer" before the first token that the model generated. */
function answerMarks({ layout, palette }: LinePlot, column: Column): Mark[] {
  const { answerIndex, edge, barStart } = column;
  if (answerIndex === null) return [];
  const y = positionOf(layout, answerIndex, column) - layout.step / 2 - ANSWER_GAP + 5;
  const line = {
    kind: "line",
    x0: edge,
    y0: y,
    x1: barStart,
    y1: y,
    stroke: palette.muted,
  } as const;
  const word = { kind: "text", text: "answer", fill: palette.muted, font: "text" } as const;
  return [
    transposed(line, isHorizontal(layout)),
    textBeside(layout, column, y + 11, { ...word, size: 11.5 }),
  ];
}

/** Draw everything above `backMarks`: highlighted lines, tokens, and bars. */
export function frontMarks(linePlot: LinePlot): Mark[] {
  return [
    ...focusCurves(linePlot),
    ...headingMarks(linePlot),
    ...SIDES.flatMap((side) => columnMarks(linePlot, linePlot.layout[side])),
    ...keyEffectMarks(linePlot),
    ...barMarks(linePlot, focusOf(linePlot)),
  ];
}

/** Minimum height in pixels of a highlighted patch. */
const MIN_LIT = 22;
const FADED = 0.35;

/** Draw the patch of a token. Until its image is loaded, draw a plain rectangle. */
function patchMarks(linePlot: LinePlot, column: Column, look: TokenLook): Mark[] {
  const { layout, palette, images, plan } = linePlot;
  const { label, index, middle, lit, faded, struck } = look;
  const patch = patchOf(tokensOf(plan, column.side), index);
  const low = label.height ?? 0;
  if (!patch || low === 0) return [];
  const grow = lit ? Math.max(1, MIN_LIT / low) : 1;
  const [width, height] = [label.width * grow, low * grow];
  const [across, along] = isHorizontal(layout) ? [height, width] : [width, height];
  const box = boxBeside(layout, column, middle, { padding: 0, across, along });
  const image = images[patch.grid.image];
  const marks: Mark[] = [
    image
      ? { ...pictureMark(cropOf(image, patch), box), opacity: faded && !lit ? FADED : 1 }
      : { kind: "rect", ...box, fill: palette.raised },
  ];
  if (lit) marks.push({ kind: "rect", ...box, stroke: palette.ink, strokeWidth: 1.4 });
  const [y, x1] = [box.y + height / 2, box.x + width];
  if (struck) marks.push({ kind: "line", x0: box.x, y0: y, x1, y1: y, stroke: palette.ink });
  return marks;
}
