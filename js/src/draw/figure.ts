/**
 * Figures for papers: a picture with its captions, legend and colour scale, as one list of marks.
 */

import { measureText } from "./canvas";
import {
  checkFonts,
  FigureError,
  type FigureRequest,
  figureScale,
  fontSizeOf,
  isPrinted,
  PRINT_FONT_SIZE,
} from "./figure-request";
import { fontOf, type Mark, type Scene, scaled, type TextMark, translate } from "./marks";

/** A complete figure to export, and its title for screen readers. */
export interface Figure {
  scene: Scene;
  title: string;
}

/** Colours of a figure's texts and lines. */
interface FigureColors {
  ink: string;
  muted: string;
  rule: string;
  background: string;
}

/** The texts around a picture. */
export interface Captions {
  title: string;
  subtitle: string;
  sentence: string;
  /** Caption about omitted data and the precision of the shown numbers. */
  coverage: string;
}

/** Marks in a box whose upper left corner is (0, 0). */
export interface Box {
  width: number;
  height: number;
  marks: Mark[];
}

export interface FigureParts {
  palette: FigureColors;
  captions: Captions;
  /** Return the legend above the picture for an available width. */
  legend?: (width: number) => Box;
  picture: Pick<Scene, "width" | "height" | "back" | "backOpacity" | "front">;
  /** Colour scale at the right of the captions, or below them if space is limited. */
  scale?: Box;
}

/** Text sizes and distances around a picture, in layout pixels. */
interface Spacing {
  pad: number;
  top: number;
  title: number;
  subtitle: number;
  sentence: number;
  coverage: number;
  /** Distance between lines, in addition to the text size. */
  leading: number;
  gap: number;
}

const ON_SCREEN: Spacing = {
  pad: 24,
  top: 30,
  title: 16,
  subtitle: 12.5,
  sentence: 13,
  coverage: 12,
  leading: 6,
  gap: 10,
};
/**
 * Spacing of printed figures. Margins are small because the page around a figure has its own
 * margins. All texts have the same size, except for the title.
 */
const IN_PRINT: Spacing = {
  pad: 3,
  top: 9,
  title: PRINT_FONT_SIZE * 1.2,
  subtitle: PRINT_FONT_SIZE,
  sentence: PRINT_FONT_SIZE,
  coverage: PRINT_FONT_SIZE,
  leading: 3.5,
  gap: 8,
};
/**
 * Minimum width of a figure on the screen. In a narrower figure, captions would have too many
 * lines.
 */
const MIN_SCREEN_WIDTH = 480;
/**
 * Minimum width of captions beside a colour scale. If less is available, the scale is below them.
 */
const MIN_CAPTION_WIDTH = 330;

/**
 * Return the width of the picture in layout pixels, for a figure with a requested width. Return
 * null if no width is requested.
 */
export function pictureWidth(request: FigureRequest | undefined): number | null {
  if (!request?.width) return null;
  return Math.floor(request.width / figureScale(request) - 2 * IN_PRINT.pad);
}

/** Split a word into pieces that are at most `width` wide. */
function splitWord(word: string, width: number, measure: (text: string) => number): string[] {
  if (measure(word) <= width) return [word];
  const pieces: string[] = [];
  let piece = "";
  for (const character of Array.from(word)) {
    if (piece !== "" && measure(piece + character) > width) {
      pieces.push(piece);
      piece = "";
    }
    piece += character;
  }
  return [...pieces, piece];
}

/**
 * Break a text into lines that are at most `width` wide.
 *
 * @param measure returns the width of a text.
 */
export function wrap(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ").flatMap((part) => splitWord(part, width, measure))) {
    const extended = line === "" ? word : `${line} ${word}`;
    if (line !== "" && measure(extended) > width) {
      lines.push(line);
      line = word;
    } else line = extended;
  }
  if (line !== "") lines.push(line);
  return lines;
}

/** Return a text mark in the font for ordinary text. */
export function textMark(
  text: string,
  x: number,
  y: number,
  fill: string,
  size: number,
  more: Partial<TextMark> = {},
): TextMark {
  return { kind: "text", text, x, y, fill, size, font: "text", ...more };
}

/** Lay out a legend of named colours in rows of at most `width`. */
export function namedColors(
  entries: readonly { name: string; color: string; dashed?: boolean }[],
  width: number,
  ink: string,
): Box {
  const marks: Mark[] = [];
  const rowHeight = 20;
  let x = 0;
  let y = 0;
  for (const { name, color, dashed } of entries) {
    const entryWidth = measureText(name, fontOf({ size: 12, font: "text" })) + 34;
    if (x > 0 && x + entryWidth > width) {
      x = 0;
      y += rowHeight;
    }
    // The sample of a dashed line consists of two pieces with a gap.
    for (const [offset, length] of dashed
      ? [
          [0, 6],
          [8, 6],
        ]
      : [[0, 14]]) {
      const sample = { x: x + (offset as number), y: y - 2, width: length as number, height: 4 };
      marks.push({ kind: "rect", ...sample, fill: color, radius: 2 });
    }
    marks.push(textMark(name, x + 20, y, ink, 12));
    x += entryWidth + 6;
  }
  return { width, height: y + rowHeight, marks };
}

/** Width of a colour scale in pixels. */
export const RAMP_WIDTH = 196;
/** Number of intervals between the colours of a ramp. */
const RAMP_STEPS = 24;

/** Colour scale of a legend. `rampBox` draws it in a figure, and `ColorLegend` in a view. */
export interface LegendScale {
  /** Return red, green, blue and opacity, 0 to 255, for a position from 0 (left) to 1 (right). */
  color: (position: number) => readonly [number, number, number, number];
  /** Labels below the left end, the middle and the right end. */
  labels: readonly [string, string, string];
  /** Quantity that the colours show, if the labels do not name it. */
  quantity?: string;
}

/** Return a colour scale with an outline. Its labels and quantity are below the colours. */
export function rampBox(palette: FigureColors, { color, labels, quantity }: LegendScale): Box {
  const ramp = { x: 0, y: 0, width: RAMP_WIDTH, height: 9 };
  const colors = Array.from({ length: RAMP_STEPS + 1 }, (_, i) => color(i / RAMP_STEPS));
  const label = (text: string, x: number, align: "start" | "middle" | "end"): Mark =>
    textMark(text, x, 20, palette.muted, 11, { align });
  return {
    width: RAMP_WIDTH,
    height: quantity ? 44 : 30,
    marks: [
      { kind: "rect", ...ramp, ramp: colors },
      { kind: "rect", ...ramp, stroke: palette.rule },
      label(labels[0], 0, "start"),
      label(labels[1], RAMP_WIDTH / 2, "middle"),
      label(labels[2], RAMP_WIDTH, "end"),
      ...(quantity
        ? [textMark(quantity, RAMP_WIDTH / 2, 35, palette.muted, 11, { align: "middle" })]
        : []),
    ],
  };
}

interface Sides {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function sidesOf(xs: Iterable<number>, ys: Iterable<number>): Sides {
  const sides = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  for (const x of xs) {
    sides.left = Math.min(sides.left, x);
    sides.right = Math.max(sides.right, x);
  }
  for (const y of ys) {
    sides.top = Math.min(sides.top, y);
    sides.bottom = Math.max(sides.bottom, y);
  }
  return sides;
}

/** Return the area that a mark covers, or null if it is invisible. */
function extent(mark: Mark): Sides | null {
  switch (mark.kind) {
    case "rect":
    case "image":
    case "dots": {
      if (mark.kind === "rect" && !mark.fill && !mark.stroke && !mark.ramp) return null;
      const { x, y, width, height } = mark.kind === "dots" ? mark.area : mark;
      return sidesOf([x, x + width], [y, y + height]);
    }
    case "line":
      return sidesOf([mark.x0, mark.x1], [mark.y0, mark.y1]);
    case "curves":
      return sidesOf([...mark.x0, ...mark.x1], [...mark.y0, ...mark.y1]);
    case "text": {
      const width = measureText(mark.text, fontOf(mark));
      const turn = ((mark.rotate ?? 0) * Math.PI) / 180;
      const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
      const start = { start: 0, middle: -width / 2, end: -width }[mark.align ?? "start"];
      const half = mark.size / 2;
      const corners = [start, start + width].flatMap((along) =>
        [-half, half].map((across) => [along * cos - across * sin, along * sin + across * cos]),
      ) as [number, number][];
      return sidesOf(
        corners.map(([x]) => mark.x + x),
        corners.map(([, y]) => mark.y + y),
      );
    }
  }
}

/** Return the smallest box around all visible marks, or null if all are invisible. */
export function extentOf(marks: readonly Mark[]): Sides | null {
  const extents = marks.map(extent).filter((sides) => sides !== null);
  if (extents.length === 0) return null;
  return sidesOf(
    extents.flatMap(({ left, right }) => [left, right]),
    extents.flatMap(({ top, bottom }) => [top, bottom]),
  );
}

/** Remove the blank areas at the left and right of a picture with the layout for the screen. */
function withoutSides(picture: FigureParts["picture"]): FigureParts["picture"] {
  const visible = extentOf([...picture.back, ...picture.front]);
  if (!visible) return picture;
  const left = Math.max(0, Math.floor(visible.left) - 1);
  const right = Math.min(picture.width, Math.ceil(visible.right) + 1);
  return movePicture(picture, -left, 0, { width: right - left, height: picture.height });
}

/**
 * Remove the blank areas above and below a picture with the layout for print. On the screen they
 * leave space for tooltips.
 */
function withoutEnds(picture: FigureParts["picture"]): FigureParts["picture"] {
  const visible = extentOf([...picture.back, ...picture.front]);
  if (!visible) return picture;
  const { top, bottom } = visible;
  return movePicture(picture, 0, -top, { width: picture.width, height: bottom - top });
}

function movePicture(
  picture: FigureParts["picture"],
  dx: number,
  dy: number,
  size: { width: number; height: number },
): FigureParts["picture"] {
  const { back, front } = picture;
  return {
    ...picture,
    ...size,
    back: translate(back, dx, dy),
    front: translate(front, dx, dy),
  };
}

/** Set all texts of a printed figure to the same size. Its layout leaves space for this size. */
function inOneSize(marks: Mark[]): Mark[] {
  return marks.map((mark) => (mark.kind === "text" ? { ...mark, size: PRINT_FONT_SIZE } : mark));
}

/**
 * Compose a figure: title, legend, picture, captions and colour scale.
 *
 * @param request options of a script. Without options, the figure is as on the screen.
 * @throws FigureError if the picture does not fit the requested width, or a requested font is not
 *   installed.
 */
export function composeFigure(parts: FigureParts, request?: FigureRequest): Scene {
  checkFonts(request);
  const printed = isPrinted(request);
  const spacing = printed ? IN_PRINT : ON_SCREEN;
  const { pad } = spacing;
  const { captions, scale } = parts;
  const picture = printed ? withoutEnds(parts.picture) : withoutSides(parts.picture);
  const palette = parts.palette;
  const innerWidth = request?.width
    ? request.width / figureScale(request) - 2 * pad
    : Math.max(MIN_SCREEN_WIDTH, picture.width);
  if (picture.width > Math.ceil(innerWidth)) throw tooNarrowError(request, picture.width + 2 * pad);
  const marks: Mark[] = [];
  const measureIn = (size: number, bold = false) => {
    const font = fontOf({ size, font: "text", bold });
    return (text: string): number => measureText(text, font);
  };
  /** Write the lines of a paragraph from `y`, and return the y of the next line. */
  const writeParagraph = (
    text: string,
    style: { y: number; size: number; fill: string; bold?: boolean; width?: number },
  ): number => {
    let { y } = style;
    const { size, fill, width = innerWidth, bold } = style;
    // Leave 3% of the width free, because other programs draw the same text slightly wider.
    for (const line of wrap(text, 0.97 * width, measureIn(size, bold))) {
      marks.push(textMark(line, pad, y, fill, size, bold ? { bold } : {}));
      y += size + spacing.leading;
    }
    return y;
  };
  let top = spacing.top;
  const title = request?.title ?? captions.title;
  const hasCaption = request?.caption ?? true;
  const { subtitle } = captions;
  if (title !== "") {
    const titleWidth = measureIn(spacing.title, true)(title);
    const subtitleWidth = measureIn(spacing.subtitle)(subtitle);
    // Write the subtitle beside the title if both fit into one line, else below it.
    if (titleWidth + 10 + subtitleWidth <= 0.97 * innerWidth) {
      marks.push(textMark(title, pad, top, palette.ink, spacing.title, { bold: true }));
      const x = pad + titleWidth + 10;
      marks.push(textMark(subtitle, x, top, palette.muted, spacing.subtitle));
      top += spacing.title + spacing.leading;
    } else {
      top = writeParagraph(title, { y: top, size: spacing.title, fill: palette.ink, bold: true });
      top = writeParagraph(subtitle, { y: top, size: spacing.subtitle, fill: palette.muted });
    }
    top += printed ? spacing.gap - spacing.leading : 4;
  }
  const hasLegend = request?.legend ?? true;
  const legend = hasLegend ? parts.legend?.(innerWidth) : undefined;
  if (legend) {
    marks.push(...translate(legend.marks, pad, top));
    top += legend.height;
  }
  const pictureTop = title === "" && !legend ? pad : top;
  marks.push(...translate(picture.front, pad, pictureTop));
  let bottom = pictureTop + picture.height;
  const shownScale = hasLegend ? scale : undefined;
  const paragraphs = hasCaption
    ? [
        captions.sentence,
        [title === "" ? subtitle : "", captions.coverage].filter(Boolean).join(". "),
      ]
    : [];
  if (paragraphs.length > 0 || shownScale) {
    top = bottom + spacing.gap;
    if (paragraphs.length > 0) {
      marks.push({
        kind: "line",
        x0: pad,
        y0: top,
        x1: pad + innerWidth,
        y1: top,
        stroke: palette.rule,
      });
      top += 2 * spacing.gap;
    }
    const isScaleBelow = !shownScale || innerWidth - shownScale.width - 30 < MIN_CAPTION_WIDTH;
    const width = shownScale && !isScaleBelow ? innerWidth - shownScale.width - 30 : innerWidth;
    let y = top;
    paragraphs.forEach((text, i) => {
      const size = i === 0 ? spacing.sentence : spacing.coverage;
      y = writeParagraph(text, { y, size, fill: i === 0 ? palette.ink : palette.muted, width }) + 2;
    });
    bottom = y;
    if (shownScale) {
      const scaleTop = isScaleBelow ? y + (paragraphs.length > 0 ? 4 : 0) : top - 6;
      const left = isScaleBelow ? pad : pad + innerWidth - shownScale.width;
      marks.push(...translate(shownScale.marks, left, scaleTop));
      bottom = Math.max(bottom, scaleTop + shownScale.height);
    }
  }
  const back = translate(picture.back, pad, pictureTop);
  const scene: Scene = {
    width: innerWidth + 2 * pad,
    height: bottom + (printed ? pad : 14),
    background: request?.background === "transparent" ? null : palette.background,
    back: printed ? inOneSize(back) : back,
    backOpacity: picture.backOpacity,
    front: printed ? inTitleSize(marks, title, spacing) : marks,
    // If the figure has no visible captions, its file contains them as a description.
    ...(hasCaption
      ? {}
      : { description: `${subtitle}. ${captions.sentence} ${captions.coverage}` }),
  };
  return printed ? scaled(scene, figureScale(request)) : scene;
}

/**
 * Set all texts of a printed figure to the same size, except for the lines of the title, which are
 * the first marks.
 */
function inTitleSize(marks: Mark[], title: string, spacing: Spacing): Mark[] {
  if (title === "") return inOneSize(marks);
  const isTitle = (mark: Mark): boolean =>
    mark.kind === "text" && mark.bold === true && mark.size === spacing.title;
  const firstOther = marks.findIndex((mark) => !isTitle(mark));
  return firstOther < 0
    ? marks
    : [...marks.slice(0, firstOther), ...inOneSize(marks.slice(firstOther))];
}

function tooNarrowError(request: FigureRequest | undefined, needed: number): FigureError {
  const scale = figureScale(request);
  const points = fontSizeOf(request) * 0.75;
  const mm = Math.ceil((needed * scale * 25.4) / 96);
  const fitting = Math.floor(((points * (request?.width ?? 0)) / (needed * scale)) * 10) / 10;
  const smaller = fitting >= 5 ? `, or font_size=${fitting}` : "";
  return new FigureError(
    `width is too small for this picture with text of ${Number(points.toPrecision(3))} points. ` +
      `Pass width="${mm}mm" or more${smaller}, or show fewer tokens, layers or heads.`,
  );
}
