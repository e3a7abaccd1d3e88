/** The head view as a figure for a paper and as a table: the same marks, with all that is said. */

import { measureText } from "../draw/canvas";
import { fontOf, type Mark, type Scene, type TextMark, translate } from "../draw/marks";
import { rgbOf } from "../ui/palette";
import { backMarks, backOpacity, frontMarks, type Picture, seriesColor } from "./head-marks";

/** What is written around the picture. */
export interface Caption {
  title: string;
  subtitle: string;
  sentence: string;
  coverage: string;
  /** The end of the scale of opacity. */
  scale: string;
  scaleNote: string;
}

const PAD = 24;
const RAMP_WIDTH = 196;

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

function textMark(
  text: string,
  x: number,
  y: number,
  fill: string,
  size: number,
  more: Partial<TextMark> = {},
): TextMark {
  return { kind: "text", text, x, y, fill, size, font: "text", ...more };
}

/** Head names in their colours, in rows that fit. */
function headLegend(
  picture: Picture,
  width: number,
  top: number,
): { marks: Mark[]; height: number } {
  const marks: Mark[] = [];
  let x = 0;
  let y = top;
  const row = 20;
  picture.lines.series.forEach((series, place) => {
    const wide = measureText(series.name, fontOf({ size: 12, font: "text" })) + 34;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += row;
    }
    marks.push({
      kind: "rect",
      x,
      y: y - 2,
      width: 14,
      height: 4,
      fill: seriesColor(picture, place),
      radius: 2,
    });
    marks.push(textMark(series.name, x + 20, y, picture.palette.ink, 12));
    x += wide + 6;
  });
  return { marks, height: y - top + row };
}

function rampMarks(picture: Picture, caption: Caption, right: number, top: number): Mark[] {
  const { palette } = picture;
  const steps = 60;
  const [red, green, blue] = rgbOf(palette.neutral);
  const pixels = new Uint8ClampedArray(steps * 4);
  for (let i = 0; i < steps; i++) pixels.set([red, green, blue, (255 * i) / (steps - 1)], i * 4);
  const left = right - RAMP_WIDTH;
  const words = (text: string, x: number, align: "start" | "middle" | "end"): Mark =>
    textMark(text, x, top + 20, palette.muted, 11, { align });
  return [
    {
      kind: "image",
      x: left,
      y: top,
      width: RAMP_WIDTH,
      height: 9,
      pixels,
      columns: steps,
      rows: 1,
    },
    { kind: "rect", x: left, y: top, width: RAMP_WIDTH, height: 9, stroke: palette.rule },
    words("0", left, "start"),
    words(caption.scaleNote, (left + right) / 2, "middle"),
    words(caption.scale, right, "end"),
  ];
}

/** The whole figure. What the pointer is on is not part of it. */
export function figure(picture: Picture, caption: Caption): Scene {
  const still = {
    ...picture,
    hovered: null,
    hoveredLine: null,
    hoveredHead: null,
    cursor: null,
    search: "",
  };
  const { palette, layout } = picture;
  const inner = Math.max(360, layout.width);
  const front: Mark[] = [];
  const titleWidth = measureText(caption.title, fontOf({ size: 16, font: "text", bold: true }));
  let top = 30;
  front.push(textMark(caption.title, PAD, top, palette.ink, 16, { bold: true }));
  const subtitleWidth = measureText(caption.subtitle, fontOf({ size: 12.5, font: "text" }));
  // Beside the title where both fit, else below it.
  const beside = titleWidth + 10 + subtitleWidth <= inner;
  if (!beside) top += 22;
  front.push(
    textMark(caption.subtitle, PAD + (beside ? titleWidth + 10 : 0), top, palette.muted, 12.5),
  );
  top += 26;
  const legend = headLegend(still, inner, top);
  front.push(...translate(legend.marks, PAD, 0));
  top += legend.height;
  const plotTop = top;
  front.push(...translate(frontMarks(still), PAD, plotTop));
  top += layout.height + 10;
  front.push({ kind: "line", x0: PAD, y0: top, x1: PAD + inner, y1: top, stroke: palette.rule });
  top += 20;
  const beneath = inner < 560;
  const room = beneath ? inner : inner - RAMP_WIDTH - 30;
  const sizes: [string, number, string][] = [
    [caption.sentence, 13, palette.ink],
    [caption.coverage, 12, palette.muted],
  ];
  let y = top;
  for (const [text, size, fill] of sizes) {
    for (const line of wrap(text, room, (part) =>
      measureText(part, fontOf({ size, font: "text" })),
    )) {
      front.push(textMark(line, PAD, y, fill, size));
      y += size + 6;
    }
    y += 2;
  }
  const rampTop = beneath ? y + 4 : top - 6;
  front.push(...rampMarks(still, caption, PAD + inner, rampTop));
  return {
    width: inner + 2 * PAD,
    height: Math.max(y, rampTop + 30) + 14,
    background: palette.background,
    back: translate(backMarks(still), PAD, plotTop),
    backOpacity: backOpacity(still),
    front,
  };
}

function cell(value: string | number): string {
  return typeof value === "number" ? String(value) : `"${value.replaceAll('"', '""')}"`;
}

/** The lines that are drawn, one a row. */
export function toCsv(picture: Picture, stack: string, layer: number): string {
  const rows: (string | number)[][] = [];
  for (const series of picture.lines.series) {
    for (let i = 0; i < series.count; i++) {
      const query = series.query[i] as number;
      const key = series.key[i] as number;
      const weight = Math.round((series.weight[i] as number) * 1e6) / 1e6;
      rows.push([
        stack,
        layer,
        series.head ?? series.name,
        query,
        picture.queries.text[query] ?? "",
        key,
        picture.keys.text[key] ?? "",
        weight,
      ]);
    }
  }
  const header = "stack,layer,head,query,query_token,key,key_token,weight";
  return [header, ...rows.map((row) => row.map(cell).join(","))].join("\r\n");
}
