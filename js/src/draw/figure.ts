/**
 * Exported figures: a picture with captions, legend and colour scale, as one `Scene` (a list of
 * marks with a width and a height, see `marks.ts`). A figure has the layout for print if a script
 * requests a width or a text size, otherwise the layout for the screen.
 *
 * A figure is composed in layout pixels. In print, a layout pixel is `figureScale` CSS pixels. For
 * the screen, it is one CSS pixel.
 */

import { measureText } from "./canvas";
import {
  checkFonts,
  FigureError,
  type FigureRequest,
  figureScale,
  isPrinted,
  PRINT_FONT_SIZE,
} from "./figure-request";
import { hatchMark, SAMPLE, tintMark } from "./hatch";
import {
  fontOf,
  isolatedLines,
  type Mark,
  type Scene,
  scaled,
  type TextMark,
  translate,
} from "./marks";

/** A complete figure to export, and its title for screen readers. */
export interface Figure {
  scene: Scene;
  title: string;
  /** Captions and colour scales, also if the scene does not have them. Undefined for panes. */
  parts?: { captions: Pick<Captions, "sentence" | "coverage">; scales: readonly LegendScale[] };
}

/**
 * Colours of a figure: `ink` for main texts, `muted` for less important texts, `rule` for lines.
 */
interface FigureColors {
  ink: string;
  muted: string;
  rule: string;
  background: string;
}

/** The texts around a picture. `sentence` describes what the picture shows. */
export interface Captions {
  title: string;
  subtitle: string;
  /** Words for what was changed in the run of the model. Every figure has them. "" without a change. */
  changed?: string;
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

export type Picture = Pick<Scene, "width" | "height" | "back" | "backOpacity" | "front">;

export interface FigureParts {
  palette: FigureColors;
  captions: Captions;
  /** Return the legend above the picture for an available width. */
  legend?: (width: number) => Box;
  picture: Picture;
  /** Colour scales at the right of the captions, or below them if space is limited. */
  scales?: readonly LegendScale[];
}

/**
 * Text sizes and distances around a picture, in layout pixels. `pad` is the margin at the left and
 * right, `top` the distance from the upper edge to the centre of the first line, `leading` the
 * distance between lines in addition to the text size, `gap` the distance from the picture to the
 * line above the captions, and `end` the margin at the bottom.
 */
const ON_SCREEN = {
  sizes: { title: 16, subtitle: 12.5, sentence: 13, coverage: 12 },
  ...{ pad: 24, top: 30, leading: 6, gap: 10, end: 14 },
};
/**
 * Sizes in printed figures. Margins are small because the page around a figure has its own margins.
 * All texts have the same size, except for the title.
 */
const IN_PRINT: typeof ON_SCREEN = {
  sizes: {
    title: PRINT_FONT_SIZE * 1.2,
    ...{ subtitle: PRINT_FONT_SIZE, sentence: PRINT_FONT_SIZE, coverage: PRINT_FONT_SIZE },
  },
  ...{ pad: 3, top: 9, leading: 3.5, gap: 8, end: 3 },
};
/**
 * Minimum width of a figure for the screen, without margins. In less width, captions would have too
 * many lines.
 */
const MIN_SCREEN_WIDTH = 480;
/**
 * Minimum width of captions beside a colour scale. In less space, the scale is below the captions.
 */
const MIN_CAPTION_WIDTH = 330;

/**
 * Return the width that a printed figure has for its picture, in layout pixels, or null if no width
 * is requested.
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

/** Break a text into lines that are at most `width` wide. `measure` returns a text's width. */
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
  return isolatedLines(lines);
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

/** Lay out the entries of a legend in rows of at most `width`. */
export function inRows(
  entries: readonly Pick<Box, "width" | "marks">[],
  width: number,
  gap: number,
): Box {
  const marks: Mark[] = [];
  const rowHeight = 20;
  let [x, y] = [0, 0];
  for (const entry of entries) {
    if (x > 0 && x + entry.width > width) [x, y] = [0, y + rowHeight];
    marks.push(...translate(entry.marks, x, y));
    x += entry.width + gap;
  }
  return { width, height: y + rowHeight, marks };
}

/**
 * Lay out a legend of named colours in rows of at most `width`. An entry without a colour is only a
 * text, such as the layer of the next entries.
 */
export function namedColors(
  entries: readonly { name: string; color?: string; dashed?: boolean }[],
  width: number,
  ink: string,
): Box {
  const boxes = entries.map(({ name, color, dashed }) => {
    // The sample of a dashed line consists of two pieces with a gap.
    const samples = (color === undefined ? [] : dashed ? [0, 8] : [0]).map((x): Mark => {
      const size = { width: dashed ? 6 : 14, height: 4 };
      return { kind: "rect", x, y: -2, ...size, fill: color as string, radius: 2 };
    });
    const text = textMark(name, color === undefined ? 0 : 20, 0, ink, 12);
    return { width: text.x + measureText(name, fontOf(text)) + 14, marks: [...samples, text] };
  });
  return inRows(boxes, width, 6);
}

/** Width of a colour scale in layout pixels, unless it has less room or longer words below it. */
const RAMP_WIDTH = 196;
/** Maximum width of a colour scale that is as wide as the words below it, in layout pixels. */
const MAX_RAMP_WIDTH = 240;
/** Minimum distance between the labels of a colour scale, in layout pixels. */
const LABELS_APART = 8;
/** Number of intervals between the computed colours of a colour scale. */
const RAMP_STEPS = 24;

/** Colour scale of a legend. `rampBox` draws it in a figure, and `ColorLegend` in a view. */
export interface LegendScale {
  /** Return red, green, blue and opacity, 0 to 255, for a position from 0 (left) to 1 (right). */
  color: (position: number) => readonly [number, number, number, number];
  /** Labels below the left end, the middle and the right end. */
  labels: readonly [string, string, string];
  /** Quantity that the colours show, if the labels do not name it. */
  quantity?: string;
  /** Sample below the scale, for cells whose hatching or tint is not a colour of the scale. */
  sample?: { name: string; color: string; hatched: boolean };
}

/** Draw the sample of a legend, centred at (`middle`, `y`), with its name. */
function sampleMarks(
  palette: FigureColors,
  { name, color, hatched }: NonNullable<LegendScale["sample"]>,
  middle: number,
  y: number,
): Mark[] {
  const text = textMark(name, 0, y, palette.muted, 11);
  const x = middle - (SAMPLE.width + 6 + measureText(name, fontOf(text))) / 2;
  const box = { x, y: y - SAMPLE.height / 2, ...SAMPLE };
  return [
    hatched ? hatchMark({ ...box, columns: 1, rows: 1 }, [1], color) : tintMark(box, color),
    { kind: "rect", ...box, stroke: palette.rule },
    { ...text, x: x + SAMPLE.width + 6 },
  ];
}

/**
 * Return a colour scale with an outline. Its labels and quantity are below the colours. The scale
 * is wider than `room` only if its labels need more.
 */
export function rampBox(palette: FigureColors, scale: LegendScale, room: number): Box {
  const { color, labels, quantity = "", sample } = scale;
  const widthOf = (text: string): number => measureText(text, fontOf({ size: 11, font: "text" }));
  const [start, middle, end] = labels.map(widthOf) as [number, number, number];
  const words = Math.max(widthOf(quantity), sample ? SAMPLE.width + 6 + widthOf(sample.name) : 0);
  const width = Math.max(
    2 * Math.max(start, end) + middle + 2 * LABELS_APART,
    Math.min(room, Math.max(RAMP_WIDTH, words <= MAX_RAMP_WIDTH ? words : 0)),
  );
  const ramp = { x: 0, y: 0, width, height: 9 };
  const colors = Array.from({ length: RAMP_STEPS + 1 }, (_, i) => color(i / RAMP_STEPS));
  const label = (text: string, x: number, y: number, align: "start" | "middle" | "end"): Mark =>
    textMark(text, x, y, palette.muted, 11, { align });
  const lines = wrap(quantity, width, widthOf);
  const sampleY = lines.length > 0 ? 37 + 15 * lines.length : 38;
  return {
    width,
    height: sampleY + (sample ? 9 : -8),
    marks: [
      { kind: "rect", ...ramp, ramp: colors },
      { kind: "rect", ...ramp, stroke: palette.rule },
      label(labels[0], 0, 20, "start"),
      label(labels[1], width / 2, 20, "middle"),
      label(labels[2], width, 20, "end"),
      ...lines.map((line, i) => label(line, width / 2, 35 + 15 * i, "middle")),
      ...(sample ? sampleMarks(palette, sample, width / 2, sampleY) : []),
    ],
  };
}

/** Return the edges of the smallest box around all visible marks, or null if all are invisible. */
function extentOf(marks: readonly Mark[]) {
  const sides = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const add = (x: number, y: number): void => {
    sides.left = Math.min(sides.left, x);
    sides.right = Math.max(sides.right, x);
    sides.top = Math.min(sides.top, y);
    sides.bottom = Math.max(sides.bottom, y);
  };
  for (const mark of marks) {
    if (mark.kind === "text") {
      const width = measureText(mark.text, fontOf(mark));
      const turn = ((mark.rotate ?? 0) * Math.PI) / 180;
      const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
      const start = { start: 0, middle: -width / 2, end: -width }[mark.align ?? "start"];
      for (const along of [start, start + width])
        for (const across of [-mark.size / 2, mark.size / 2])
          add(mark.x + along * cos - across * sin, mark.y + along * sin + across * cos);
    } else if (mark.kind === "line") {
      add(mark.x0, mark.y0);
      add(mark.x1, mark.y1);
    } else if (mark.kind === "curves") {
      for (let i = 0; i < mark.count; i++) {
        add(mark.x0[i] as number, mark.y0[i] as number);
        add(mark.x1[i] as number, mark.y1[i] as number);
      }
    } else if (mark.kind !== "rect" || mark.fill || mark.stroke || mark.ramp) {
      const { x, y, width, height } = mark.kind === "dots" ? mark.area : mark;
      add(x, y);
      add(x + width, y + height);
    }
  }
  return sides.left === Infinity ? null : sides;
}

/**
 * Remove blank areas of a picture. In a figure for the screen, these are the areas at the left and
 * right. In print, these are the areas above and below, for example the space that a heat map
 * reserves for longer labels.
 */
function withoutBlankAreas(picture: Picture, printed: boolean): Picture {
  const visible = extentOf([...picture.back, ...picture.front]);
  if (!visible) return picture;
  const left = printed ? 0 : Math.max(0, Math.floor(visible.left) - 1);
  const right = printed ? picture.width : Math.min(picture.width, Math.ceil(visible.right) + 1);
  const [top, bottom] = printed ? [visible.top, visible.bottom] : [0, picture.height];
  return {
    ...picture,
    width: right - left,
    height: bottom - top,
    back: translate(picture.back, -left, -top),
    front: translate(picture.front, -left, -top),
  };
}

/**
 * Give all texts of `marks` the text size of printed figures. The layout of a printed figure leaves
 * space for this size.
 */
function inOneSize(marks: Mark[]): Mark[] {
  return marks.map((mark) => (mark.kind === "text" ? { ...mark, size: PRINT_FONT_SIZE } : mark));
}

/** Place boxes beside each other or, if `beside` is false, below each other. */
export function joined(boxes: readonly Box[], gap: number, beside = false): Box {
  const all: Box = { width: 0, height: 0, marks: [] };
  boxes.forEach(({ width, height, marks }, i) => {
    const x = beside && i > 0 ? all.width + gap : 0;
    const y = !beside && i > 0 ? all.height + gap : 0;
    all.width = Math.max(all.width, x + width);
    all.height = Math.max(all.height, y + height);
    all.marks.push(...translate(marks, x, y));
  });
  return all;
}

/**
 * Compose a figure: title, legend, picture, captions and colour scale.
 *
 * @param request options of a script. Without options, the figure is as on the screen.
 * @throws FigureError if a mark does not fit the requested width, or a requested font is not
 *   installed.
 */
export function composeFigure(parts: FigureParts, request?: FigureRequest): Scene {
  checkFonts(request);
  const printed = isPrinted(request);
  const { pad, top: topMargin, leading, gap, end, sizes } = printed ? IN_PRINT : ON_SCREEN;
  const { captions, palette } = parts;
  const picture = withoutBlankAreas(parts.picture, printed);
  const innerWidth = request?.width
    ? request.width / figureScale(request) - 2 * pad
    : Math.max(MIN_SCREEN_WIDTH, picture.width);

  // Other programs may draw the same text slightly wider, so 3% of the width stays free.
  const fitting = (width: number): number => 0.97 * width;
  const widthOf = (text: string, size: number, bold = false): number =>
    measureText(text, fontOf({ size, font: "text", bold }));
  let y = topMargin;
  /** Return the lines of a paragraph that begins at `y`, and move `y` below it. */
  const paragraph = (text: string, size: number, fill: string, width: number, bold = false) =>
    wrap(text, fitting(width), (line) => widthOf(line, size, bold)).map((line) => {
      const mark = textMark(line, pad, y, fill, size, { bold });
      y += size + leading;
      return mark;
    });

  const title = request?.title ?? captions.title;
  let titleMarks: Mark[] = [];
  const marks: Mark[] = [];
  if (title !== "") {
    const { subtitle } = captions;
    const subtitleLeft = widthOf(title, sizes.title, true) + 10;
    // Write the subtitle beside the title if both fit into one line, else below it.
    const beside = subtitleLeft + widthOf(subtitle, sizes.subtitle) <= fitting(innerWidth);
    const { muted } = palette;
    if (beside) marks.push(textMark(subtitle, pad + subtitleLeft, y, muted, sizes.subtitle));
    titleMarks = paragraph(title, sizes.title, palette.ink, innerWidth, true);
    if (!beside) marks.push(...paragraph(subtitle, sizes.subtitle, muted, innerWidth));
  }
  const { changed = "" } = captions;
  // Also a figure without title and captions says that it is not of the unchanged model.
  if (changed) marks.push(...paragraph(changed, sizes.subtitle, palette.ink, innerWidth, true));
  if (title !== "" || changed) y += printed ? gap - leading : 4;
  const hasLegend = request?.legend ?? true;
  const legend = hasLegend ? parts.legend?.(innerWidth) : undefined;
  if (legend) {
    marks.push(...translate(legend.marks, pad, y));
    y += legend.height;
  }
  if (title === "" && !changed && !legend) y = pad;
  const back = translate(picture.back, pad, y);
  marks.push(...translate(picture.front, pad, y));
  y += picture.height;

  const isPart = request?.isPart ?? false;
  const hasCaption = (request?.caption ?? true) && !isPart;
  const subtitleBelow = title === "" ? `${captions.subtitle}. ` : "";
  const scales = hasLegend && !isPart ? (parts.scales ?? []) : [];
  const scale = joined(
    scales.map((ramp) => rampBox(palette, ramp, innerWidth)),
    8,
  );
  if (hasCaption) {
    y += gap;
    marks.push({
      kind: "line",
      ...{ x0: pad, y0: y, x1: pad + innerWidth, y1: y },
      stroke: palette.rule,
    });
    y += 2 * gap;
  } else if (scale.height > 0) y += gap;
  const top = y;
  const besideScale = innerWidth - scale.width - 30;
  const isScaleBelow = besideScale < MIN_CAPTION_WIDTH;
  if (hasCaption) {
    const width = isScaleBelow || scale.height === 0 ? innerWidth : besideScale;
    marks.push(...paragraph(captions.sentence, sizes.sentence, palette.ink, width));
    y += 2;
    const coverage = subtitleBelow + captions.coverage;
    marks.push(...paragraph(coverage, sizes.coverage, palette.muted, width));
    y += 2;
  }
  if (scale.height > 0) {
    const scaleTop = isScaleBelow ? y + (hasCaption ? 4 : 0) : top - 6;
    const left = isScaleBelow ? pad : pad + innerWidth - scale.width;
    marks.push(...translate(scale.marks, left, scaleTop));
    y = Math.max(y, scaleTop + scale.height);
  }
  const scene: Scene = {
    width: innerWidth + 2 * pad,
    height: y + end,
    background: request?.background === "transparent" ? null : palette.background,
    back: printed ? inOneSize(back) : back,
    backOpacity: picture.backOpacity,
    front: [...titleMarks, ...(printed ? inOneSize(marks) : marks)],
    // If the figure has no visible captions, its file contains them as a description.
    ...(request?.caption === false && {
      description: `${captions.subtitle}. ${captions.sentence} ${captions.coverage}`,
    }),
  };
  if (printed) checkWidth(scene, picture.width + 2 * pad, request);
  return printed ? scaled(scene, figureScale(request)) : scene;
}

/** Length in layout pixels by which a mark may exceed a figure, such as half the width of a line. */
const MAX_EXCESS = 1;

/**
 * Check that all marks of a figure are inside it.
 *
 * @param pictureWidth width that the layout of the picture needs, with margins.
 * @throws FigureError if a mark or the picture is wider than the figure.
 */
function checkWidth(scene: Scene, pictureWidth: number, request: FigureRequest | undefined): void {
  const { left, right } = extentOf([...scene.back, ...scene.front]) ?? { left: 0, right: 0 };
  const excess = Math.max(-left, 0) + Math.max(right - scene.width, 0);
  const needed = Math.max(pictureWidth, scene.width + excess);
  if (needed > scene.width + MAX_EXCESS) throw tooNarrowError(request, needed);
}

/** @param needed width that the figure needs, in layout pixels. */
function tooNarrowError(request: FigureRequest | undefined, needed: number): FigureError {
  const scale = figureScale(request);
  const points = PRINT_FONT_SIZE * scale * 0.75;
  const { count, gap } = request?.columns ?? { count: 1, gap: 0 };
  const width = needed * scale * count + gap * (count - 1);
  const mm = Math.ceil((width * 25.4) / 96);
  const fitting = Math.floor(((points * (request?.width ?? 0)) / (needed * scale)) * 10) / 10;
  const smaller = fitting >= 5 ? `, or font_size=${fitting}` : "";
  return new FigureError(
    `width is too small for this picture with text of ${Number(points.toPrecision(3))} points. ` +
      `Pass width="${mm}mm" or more${smaller}, or show fewer tokens, layers or heads.`,
    width,
  );
}
