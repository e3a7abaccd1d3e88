/**
 * Marks of the weights over an image. A patch grid has the patches of an image, which are tokens,
 * in rows and columns. A tile is the rectangle in which the image is drawn once: with one heat map
 * over it, or without heat maps. All functions are pure.
 */

import type { PatchGrid } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { measureText } from "../../draw/canvas";
import { type Box, rampBox, textMark, wrap } from "../../draw/figure";
import { type Area, fontOf, type Mark, translate } from "../../draw/marks";
import { greyOf, patchIn, pictureMark } from "../../draw/patches";
import { type Ink, inkAt, rampOf } from "../colors/color-scales";
import { type Palette, rgbOf } from "../colors/palette";
import { aroundZero, plainNumber, quantityOf, signsInWords } from "../text/captions";
import { type CaptionedHeat, headingOf, heatInWords } from "./captions";
import { type Heat, type HeatQuestion, onGrid } from "./state";

interface Frame {
  /** Token of the patch. No frame is drawn for null, and for tokens outside the patch grid. */
  token: number | null;
  stroke: string;
  strokeWidth: number;
}

/** Everything that determines the marks and captions of an image panel. */
export interface PanelContent extends Omit<CaptionedHeat, "question"> {
  /** Request for the shown weights, or null if no weights are shown. */
  question: HeatQuestion | null;
  width: number;
  palette: Palette;
  image: RecordImage;
  /** Heat maps over the image. If empty, the panel shows only the image. */
  heats: readonly Heat[];
  /** Absolute value that has the strongest colour. */
  end: number;
  frames: readonly Frame[];
  /** Sentence below the image, or "" without a note. */
  note: string;
}

/**
 * Opacity of the strongest colour of a heat map. It is below 1, so that the image remains visible.
 */
export const HEAT_OPACITY = 0.82;
const MAX_HEIGHT = 300;
const GAP = 14;
const HEADING = 13;
const CAPTION = 11.5;
const LINE = 16;

function heatOpacity(size: number): number {
  return HEAT_OPACITY * size;
}

/** Return one RGBA pixel per value. `end` is the absolute value that has the strongest colour. */
export function heatPixels(
  values: Float32Array,
  end: number,
  ink: Ink,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * values.length);
  values.forEach((value, i) => void pixels.set(inkAt(value / end, ink, heatOpacity), 4 * i));
  return pixels;
}

/** Return the rectangle of a patch in a tile. `patch` is the index of the patch in the grid. */
export function patchBox({ rows, columns }: PatchGrid, tile: Area, patch: number): Area {
  const [width, height] = [tile.width / columns, tile.height / rows];
  const [row, column] = [Math.floor(patch / columns), patch % columns];
  return { x: tile.x + column * width, y: tile.y + row * height, width, height };
}

/**
 * Return the frame of a highlighted patch. A wider frame in the background colour is below it and
 * makes it visible on every image.
 */
function frameMarks({ grid, palette }: PanelContent, tile: Area, frame: Frame): Mark[] {
  const { token, stroke, strokeWidth } = frame;
  if (token === null || !patchIn(grid, token)) return [];
  const box = { kind: "rect", ...patchBox(grid, tile, token - grid.start) } as const;
  return [
    { ...box, stroke: palette.background, strokeWidth: strokeWidth + 2 },
    { ...box, stroke, strokeWidth },
  ];
}

function tileMarks(content: PanelContent, heat: Heat | null, tile: Area): Mark[] {
  const { palette, grid, image, selection, end, frames } = content;
  const whole = { pixels: image.pixels, columns: image.width, rows: image.height };
  const marks: Mark[] = [
    pictureMark(heat ? greyOf(image, rgbOf(palette.background)) : whole, tile),
  ];
  if (heat) {
    const ink = selection.stack.signed ? palette : heat.series.color;
    const pixels = heatPixels(onGrid(heat, grid), end, ink);
    marks.push({ kind: "image", ...tile, pixels, columns: grid.columns, rows: grid.rows });
  }
  return [
    ...marks,
    { kind: "rect", ...tile, stroke: palette.rule },
    ...frames.flatMap((frame) => frameMarks(content, tile, frame)),
  ];
}

/** Marks and tiles of an image panel. */
export interface Panel extends Box {
  tiles: Area[];
}

/**
 * Return the marks of a panel: heading, images with captions, colour scale and notes.
 *
 * @param advice sentence that says what a click on a patch does, or "" for a figure.
 */
export function panelMarks(content: PanelContent, advice = ""): Panel {
  const { palette, heats, question, selection, image, width } = content;
  const captioned = question && { ...content, question };
  const tiles: Area[] = [];
  const marks: Mark[] = [];
  /** Add a text at (x, y), in lines of at most `most` pixels, and return the y below the text. */
  const write = (text: string, x: number, y: number, most = width, heading = false): number => {
    const [size, color] = heading ? [HEADING, palette.ink] : [CAPTION, palette.muted];
    const font = fontOf({ size, font: "text" });
    const lines = text === "" ? [] : wrap(text, most, (part) => measureText(part, font));
    const step = heading ? LINE + 2 : LINE;
    marks.push(...lines.map((line, i) => textMark(line, x, y + i * step, color, size)));
    return y + lines.length * step;
  };
  const heading = captioned ? headingOf(captioned) : "The image";
  let y = write(heading, 0, HEADING / 2 + 2, width, true);
  const count = Math.max(1, heats.length);
  const across = Math.ceil(Math.sqrt(count));
  const room = (width - (across - 1) * GAP) / across;
  const wide = Math.min(room, (MAX_HEIGHT * image.width) / image.height);
  const high = (wide * image.height) / image.width;
  for (let first = 0; first < count; first += across) {
    const row = heats.length > 0 ? heats.slice(first, first + across) : [null];
    const ends = row.map((heat, column) => {
      const x = column * (room + GAP);
      const top = heat ? y + LINE : y;
      if (heat) {
        const { name, textColor } = heat.series;
        marks.push(textMark(name, x, y + 3, textColor, CAPTION, { bold: true }));
      }
      const tile = { x, y: top, width: wide, height: high };
      tiles.push(tile);
      marks.push(...tileMarks(content, heat, tile));
      const caption = heat && captioned ? heatInWords(heat, captioned) : "";
      return write(caption, x, top + high + CAPTION + 1, room);
    });
    y = Math.max(...ends) + 6;
  }
  if (heats[0]) {
    const end = plainNumber(Number(content.end.toPrecision(3)));
    const quantity = quantityOf(selection.stack);
    const only = heats.length === 1 ? heats[0].series.color : palette.neutral;
    const scale = rampBox(palette, {
      color: rampOf(quantity.signed ? palette : only, heatOpacity),
      labels: quantity.signed ? aroundZero(end) : ["0", quantity.name, end],
      ...(quantity.signed && { quantity: signsInWords(quantity) }),
    });
    marks.push(...translate(scale.marks, 0, y));
    y += scale.height + 12;
  }
  for (const note of [content.note, advice]) y = write(note, 0, y);
  return { width, height: Math.ceil(y), marks, tiles };
}

/**
 * Return the index in the grid of the patch at a point, and the index of the tile at this point.
 * Return null outside all tiles.
 */
export function patchUnder(
  { tiles }: Panel,
  grid: PatchGrid,
  x: number,
  y: number,
): { patch: number; tile: number } | null {
  for (const [tile, { x: left, y: top, width, height }] of tiles.entries()) {
    const column = Math.floor(((x - left) / width) * grid.columns);
    const row = Math.floor(((y - top) / height) * grid.rows);
    const inside = column >= 0 && column < grid.columns && row >= 0 && row < grid.rows;
    if (inside) return { patch: row * grid.columns + column, tile };
  }
  return null;
}
