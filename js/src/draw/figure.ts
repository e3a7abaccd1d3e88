/** A figure for a paper: a picture with its captions and its scale, as one list of marks. */

import { measureText } from "./canvas";
import { fontOf, type Mark, type Scene, type TextMark, translate } from "./marks";

/** A picture to export, with the words that a screen reader reads out. */
export interface Figure {
  scene: Scene;
  title: string;
}

/** Colours of a figure's own texts and rules. */
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
  /** What is left out, and how exact the rest is. */
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
  /** Above the picture, made for the width that there is. */
  legend?: (width: number) => Box;
  picture: Pick<Scene, "width" | "height" | "back" | "backOpacity" | "front">;
  /** What colours mean, at the lower right. */
  scale?: Box;
}

const PAD = 24;
const LEAST_WIDTH = 360;

/** Breaks a text into lines no wider than `width`. */
export function wrap(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (line !== "" && measure(longer) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  if (line !== "") lines.push(line);
  return lines;
}

/** One line of the figure's own type. */
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

/** Named colours in rows that fit. */
export function namedColors(
  entries: readonly { name: string; color: string }[],
  width: number,
  ink: string,
): Box {
  const marks: Mark[] = [];
  const row = 20;
  let x = 0;
  let y = 0;
  for (const { name, color } of entries) {
    const wide = measureText(name, fontOf({ size: 12, font: "text" })) + 34;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += row;
    }
    marks.push({ kind: "rect", x, y: y - 2, width: 14, height: 4, fill: color, radius: 2 });
    marks.push(textMark(name, x + 20, y, ink, 12));
    x += wide + 6;
  }
  return { width, height: y + row, marks };
}

/** Width of a colour scale. */
export const RAMP_WIDTH = 196;

/**
 * A colour scale with labels below it.
 *
 * @param color red, green, blue and opacity, 0 to 255 each, for a share of the way, 0 to 1.
 */
export function rampBox(
  palette: FigureColors,
  color: (share: number) => readonly [number, number, number, number],
  labels: readonly [string, string, string],
): Box {
  const steps = 60;
  const pixels = new Uint8ClampedArray(steps * 4);
  for (let i = 0; i < steps; i++) pixels.set(color(i / (steps - 1)), i * 4);
  const ramp = { x: 0, y: 0, width: RAMP_WIDTH, height: 9 };
  const label = (text: string, x: number, align: "start" | "middle" | "end"): Mark =>
    textMark(text, x, 20, palette.muted, 11, { align });
  return {
    width: RAMP_WIDTH,
    height: 30,
    marks: [
      { kind: "image", ...ramp, pixels, columns: steps, rows: 1 },
      { kind: "rect", ...ramp, stroke: palette.rule },
      label(labels[0], 0, "start"),
      label(labels[1], RAMP_WIDTH / 2, "middle"),
      label(labels[2], RAMP_WIDTH, "end"),
    ],
  };
}

/** The whole figure. */
export function composeFigure(parts: FigureParts): Scene {
  const { palette, captions, picture, scale } = parts;
  const inner = Math.max(LEAST_WIDTH, picture.width);
  const front: Mark[] = [];
  let top = 30;
  front.push(textMark(captions.title, PAD, top, palette.ink, 16, { bold: true }));
  const titleWidth = measureText(captions.title, fontOf({ size: 16, font: "text", bold: true }));
  const subtitleWidth = measureText(captions.subtitle, fontOf({ size: 12.5, font: "text" }));
  // Beside the title where both fit, else below it.
  const beside = titleWidth + 10 + subtitleWidth <= inner;
  if (!beside) top += 22;
  const subtitleLeft = PAD + (beside ? titleWidth + 10 : 0);
  front.push(textMark(captions.subtitle, subtitleLeft, top, palette.muted, 12.5));
  top += 26;
  const legend = parts.legend?.(inner);
  if (legend) {
    front.push(...translate(legend.marks, PAD, top));
    top += legend.height;
  }
  const pictureTop = top;
  front.push(...translate(picture.front, PAD, pictureTop));
  top += picture.height + 10;
  front.push({ kind: "line", x0: PAD, y0: top, x1: PAD + inner, y1: top, stroke: palette.rule });
  top += 20;
  const beneath = inner < 560;
  const room = scale && !beneath ? inner - scale.width - 30 : inner;
  const paragraphs: [string, number, string][] = [
    [captions.sentence, 13, palette.ink],
    [captions.coverage, 12, palette.muted],
  ];
  let y = top;
  for (const [text, size, fill] of paragraphs) {
    const measure = (part: string): number => measureText(part, fontOf({ size, font: "text" }));
    for (const line of wrap(text, room, measure)) {
      front.push(textMark(line, PAD, y, fill, size));
      y += size + 6;
    }
    y += 2;
  }
  let bottom = y;
  if (scale) {
    const scaleTop = beneath ? y + 4 : top - 6;
    front.push(...translate(scale.marks, PAD + inner - scale.width, scaleTop));
    bottom = Math.max(bottom, scaleTop + scale.height);
  }
  return {
    width: inner + 2 * PAD,
    height: bottom + 14,
    background: palette.background,
    back: translate(picture.back, PAD, pictureTop),
    backOpacity: picture.backOpacity,
    front,
  };
}
