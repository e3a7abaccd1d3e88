/**
 * Marks of the head view: lines, tokens, image patches and headings. Pure functions.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads.
 */

import type { TokenList } from "../../client/protocol";
import type { CurvesMark, Mark, TextMark } from "../../draw/marks";
import { cropOf, patchOf, pictureMark } from "../../draw/patches";
import type { Palette } from "../../ui/colors/palette";
import type { Images } from "../../ui/image/state";
import type { Label } from "../../ui/text/labels";
import { barMarks } from "./bars";
import { keyEffectMarks } from "./effects";
import {
  ANSWER_GAP,
  type Column,
  charactersOf,
  type Layout,
  positionOf,
  standsUpright,
  staysLevel,
} from "./layout";
import { focusOf, isHovered, type LinePlot, pointedAt, valueColor } from "./line-plot";
import type { Series } from "./lines";

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
 */
function curvesOf(
  linePlot: LinePlot,
  seriesIndex: number,
  /** Return whether to draw a line. Null for all lines. */
  filter: ((query: number, key: number) => boolean) | null,
  wider: number,
): CurvesMark[] {
  const signs = linePlot.quantity.signed ? ([-1, 1] as const) : [null];
  return signs
    .map((sign) => curvesOfSign(linePlot, seriesIndex, filter, wider, sign))
    .filter((mark) => mark !== null);
}

/** Draw the lines of one sign, or of any sign if `sign` is null. Return null if there are none. */
function curvesOfSign(
  linePlot: LinePlot,
  seriesIndex: number,
  filter: ((query: number, key: number) => boolean) | null,
  wider: number,
  sign: 1 | -1 | null,
): CurvesMark | null {
  const { layout, scale } = linePlot;
  const series = linePlot.lines.series[seriesIndex] as Series;
  const numLines = series.query.length;
  const picked = new Int32Array(numLines);
  let count = 0;
  for (let i = 0; i < numLines; i++) {
    if (sign !== null && Math.sign(series.weight[i] as number) !== sign) continue;
    if (!filter || filter(series.query[i] as number, series.key[i] as number)) picked[count++] = i;
  }
  if (count === 0) return null;
  const shift = (seriesIndex - (linePlot.lines.series.length - 1) / 2) * spreadOf(linePlot);
  const from = new Float32Array(count);
  const to = new Float32Array(count);
  const opacity = new Float32Array(count);
  const width = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const line = picked[i] as number;
    const query = (series.query[line] as number) - layout.query.window[0];
    const key = (series.key[line] as number) - layout.key.window[0];
    from[i] = positionOf(layout, query, layout.query) + shift;
    to[i] = positionOf(layout, key, layout.key) + shift;
    const style = strength(series.weight[line] as number, scale, layout.step);
    opacity[i] = style.opacity;
    width[i] = style.width + wider;
  }
  const start = new Float32Array(count).fill(layout.query.edge);
  const end = new Float32Array(count).fill(layout.key.edge);
  const standing = layout.orientation === "vertical";
  return {
    kind: "curves",
    columns: layout.orientation,
    color: valueColor(linePlot, seriesIndex, sign ?? 1),
    ...(sign === -1 && { dashed: true }),
    count,
    x0: standing ? start : from,
    y0: standing ? from : start,
    x1: standing ? end : to,
    y1: standing ? to : end,
    opacity,
    width,
    meaning: (i) => {
      const line = picked[i] as number;
      return { line: { series: seriesIndex, query: series.query[line], key: series.key[line] } };
    },
  };
}

/** Draw all lines without highlights. */
export function backMarks(linePlot: LinePlot): Mark[] {
  return linePlot.lines.series.flatMap((_, index) => curvesOf(linePlot, index, null, 0));
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

function focusCurves(linePlot: LinePlot): Mark[] {
  const { series } = linePlot.lines;
  const focus = focusOf(linePlot);
  const marks: Mark[] = [];
  const isAnyHovered = series.some((item) => isHovered(linePlot, item.head));
  series.forEach((item, index) => {
    if (isHovered(linePlot, item.head)) {
      marks.push(...curvesOf(linePlot, index, null, 0.2));
    } else if (focus.query !== null || focus.key !== null) {
      if (!isAnyHovered) {
        marks.push(
          ...curvesOf(
            linePlot,
            index,
            (query, key) => query === focus.query || key === focus.key,
            0.4,
          ),
        );
      }
    }
  });
  const line = linePlot.hoveredLine;
  if (line && series[line.series]) {
    const lines = curvesOf(
      linePlot,
      line.series,
      (query, key) => query === line.query && key === line.key,
      1.2,
    );
    for (const mark of lines) {
      // The tooltip describes this line, so it must be visible even if its weight is small.
      mark.opacity.fill(1);
      marks.push(mark);
    }
  }
  return marks;
}

/** Draw the tokens of one side, with their highlights and the areas that respond to the pointer. */
function columnMarks(linePlot: LinePlot, column: Column): Mark[] {
  const { layout, palette } = linePlot;
  const query = column.side === "query";
  const tokens = query ? linePlot.queries : linePlot.keys;
  const members = query ? linePlot.pairQueries : linePlot.pairKeys;
  const special = new Set(tokens.special);
  const pinned = query ? linePlot.token : linePlot.key;
  const focus = focusOf(linePlot);
  const pointed = pointedAt(linePlot);
  const standing = layout.orientation === "vertical";
  const marks: Mark[] = [];
  const texts: Mark[] = [];
  column.labels.forEach((label, offset) => {
    const index = column.window[0] + offset;
    const middle = positionOf(layout, offset, column);
    const isPinned = pinned === index;
    const isFocus = (query ? focus.query : focus.key) === index;
    const line = linePlot.hoveredLine;
    const isEnd =
      (line !== null && (query ? line.query : line.key) === index) ||
      (pointed?.side === column.side && pointed.index === index);
    const isMatch = linePlot.isFound?.(tokens.text[index] ?? "") ?? false;
    const lit = isPinned || isFocus || isEnd || isMatch;
    const box = labelBox(layout, column, label.width, middle);
    if (isMatch) marks.push({ kind: "rect", ...box, fill: palette.searchMatch, radius: 4 });
    if ((isPinned || isFocus) && !label.height) {
      marks.push({
        kind: "rect",
        ...box,
        fill: palette.raised,
        radius: 5,
        ...(isPinned ? { stroke: palette.ink, strokeWidth: 1.4 } : {}),
      });
    }
    marks.push({
      kind: "rect",
      ...hitBox(layout, column, middle),
      meaning: { token: { side: column.side, index } },
    });
    const isLeftOut = !query && linePlot.leftOut[index] === 1;
    const isOtherText = members[index] === 0;
    if (label.height) {
      const style = { lit, faded: isLeftOut || isOtherText, struck: isLeftOut };
      // A highlighted patch may be larger than its row. Draw it later, above its neighbours.
      const pile = lit ? texts : marks;
      pile.push(...patchMarks({ ...linePlot, tokens }, column, { label, index, middle }, style));
      return;
    }
    if (offset % column.every !== 0 && !lit) return;
    const faded = special.has(index) || isLeftOut || isOtherText;
    const base = {
      kind: "text" as const,
      text: label.text,
      fill: faded && !lit ? palette.muted : palette.ink,
      size: lit && column.every > 1 ? 11 : column.size,
      font: "token" as const,
      ...(isPinned || isFocus || isEnd ? { bold: true } : {}),
      ...(isLeftOut ? { struck: true } : {}),
    };
    if (standing) {
      texts.push({ ...base, x: column.anchor, y: middle, align: query ? "end" : "start" });
    } else if (!column.rotated || staysLevel(label, layout.step)) {
      const shift = (column.size / 2 + 1) * (query ? -1 : 1);
      texts.push({ ...base, x: middle, y: column.anchor + shift, align: "middle" });
    } else if (standsUpright(label.text)) {
      texts.push(...uprightText(base, middle, column));
    } else {
      texts.push({
        ...base,
        x: middle,
        y: column.anchor,
        align: query ? "start" : "end",
        rotate: -90,
      });
    }
  });
  return [...marks, ...texts];
}

function uprightText(base: Omit<TextMark, "x" | "y">, middle: number, column: Column): TextMark[] {
  const characters = charactersOf(base.text);
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

function labelBox(layout: Layout, column: Column, width: number, middle: number): Box {
  const query = column.side === "query";
  if (layout.orientation === "vertical") {
    const height = Math.max(12, Math.min(layout.step, column.size + 9));
    const wide = width + 12;
    const x = query ? column.anchor - wide + 6 : column.anchor - 6;
    return { x, y: middle - height / 2, width: wide, height };
  }
  const rotated = column.rotated && width > Math.min(24, layout.step - 4);
  const length = (rotated ? width : column.size + 2) + 8;
  const wide = rotated
    ? Math.min(layout.step, column.size + 8)
    : Math.min(layout.step - 2, width + 12);
  const y = query ? column.anchor - length + 4 : column.anchor - 4;
  return { x: middle - wide / 2, y, width: wide, height: length };
}

/**
 * Return the area of a token that responds to the pointer. It reaches from the ends of the lines to
 * the end of the bars.
 */
function hitBox(layout: Layout, column: Column, middle: number): Box {
  const end = column.barStart + column.barReach;
  const low = Math.min(column.edge, end);
  const span = Math.abs(column.edge - end);
  return layout.orientation === "vertical"
    ? { x: low, y: middle - layout.step / 2, width: span, height: layout.step }
    : { x: middle - layout.step / 2, y: low, width: layout.step, height: span };
}

function headingMarks(linePlot: LinePlot): Mark[] {
  const { layout, palette } = linePlot;
  const heading = (column: Column): TextMark => {
    const base = {
      kind: "text" as const,
      text: column.side,
      fill: palette.muted,
      size: 12.5,
      font: "text" as const,
    };
    if (layout.orientation === "vertical") {
      return { ...base, x: column.anchor, y: 30, align: column.side === "query" ? "end" : "start" };
    }
    const shift = (column.size / 2 + 1) * (column.side === "query" ? -1 : 1);
    return { ...base, x: 8, y: column.anchor + shift };
  };
  return [
    heading(layout.query),
    heading(layout.key),
    ...answerMarks(linePlot, layout.query),
    ...answerMarks(linePlot, layout.key),
  ];
}

/** Draw a rule and the word "answer" before the first token that the model generated. */
function answerMarks(linePlot: LinePlot, column: Column): Mark[] {
  const { layout, palette } = linePlot;
  if (column.answerIndex === null) return [];
  const query = column.side === "query";
  const start = positionOf(layout, column.answerIndex, column) - layout.step / 2 - ANSWER_GAP;
  const base = { kind: "text", text: "answer", fill: palette.muted, font: "text" } as const;
  const [from, to] = [column.edge, column.barStart];
  if (layout.orientation === "vertical") {
    const y = start + 5;
    const align = query ? ("end" as const) : ("start" as const);
    return [
      { kind: "line", x0: from, y0: y, x1: to, y1: y, stroke: palette.muted },
      { ...base, size: 11.5, x: column.anchor, y: y + 11, align },
    ];
  }
  const x = start + 5;
  const align = query ? ("start" as const) : ("end" as const);
  return [
    { kind: "line", x0: x, y0: from, x1: x, y1: to, stroke: palette.muted },
    { ...base, size: 11.5, x: x + 11, y: column.anchor, align, rotate: -90 },
  ];
}

/** Draw everything above `backMarks`: highlighted lines, tokens, and bars. */
export function frontMarks(linePlot: LinePlot): Mark[] {
  return [
    ...focusCurves(linePlot),
    ...headingMarks(linePlot),
    ...columnMarks(linePlot, linePlot.layout.query),
    ...columnMarks(linePlot, linePlot.layout.key),
    ...keyEffectMarks(linePlot),
    ...barMarks(linePlot, focusOf(linePlot)),
  ];
}

/** Appearance of an image patch. */
export interface PatchLook {
  /** Whether the patch is highlighted: under the pointer, pinned, or a match of the search. */
  lit: boolean;
  /** Whether the patch is left out or outside the chosen text of a pair of texts. */
  faded: boolean;
  /** Whether to draw a line through the patch, because the key is left out. */
  struck: boolean;
}

/** Minimum height in pixels of a highlighted patch. */
const MIN_LIT = 22;
const FADED = 0.35;

/** Draw the patch of a token. Until its image is loaded, draw a plain rectangle. */
export function patchMarks(
  of: { layout: Layout; palette: Palette; images: Images; tokens: TokenList },
  column: Column,
  at: { label: Label; index: number; middle: number },
  look: PatchLook,
): Mark[] {
  const { layout, palette, images } = of;
  const patch = patchOf(of.tokens, at.index);
  const low = at.label.height ?? 0;
  if (!patch || low === 0) return [];
  const grow = look.lit ? Math.max(1, MIN_LIT / low) : 1;
  const [width, height] = [at.label.width * grow, low * grow];
  const isQuery = column.side === "query";
  const box =
    layout.orientation === "vertical"
      ? { x: column.anchor - (isQuery ? width : 0), y: at.middle - height / 2, width, height }
      : { x: at.middle - width / 2, y: column.anchor - (isQuery ? height : 0), width, height };
  const image = images[patch.grid.image];
  const marks: Mark[] = [
    image
      ? {
          ...pictureMark(cropOf(image, patch), box),
          opacity: look.faded && !look.lit ? FADED : 1,
        }
      : { kind: "rect", ...box, fill: palette.raised },
  ];
  if (look.lit) marks.push({ kind: "rect", ...box, stroke: palette.ink, strokeWidth: 1.4 });
  if (look.struck) {
    const y = box.y + height / 2;
    const x1 = box.x + width;
    marks.push({ kind: "line", x0: box.x, y0: y, x1, y1: y, stroke: palette.ink });
  }
  return marks;
}
