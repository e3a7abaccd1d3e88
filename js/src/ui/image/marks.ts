/**
 * Marks of the weights over an image. A patch grid has the patches of an image, which are tokens,
 * in rows and columns. All functions are pure.
 */

import type { PatchGrid } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { measureText } from "../../draw/canvas";
import { type Box, rampBox, textMark, wrap } from "../../draw/figure";
import { fontOf, type Mark, translate } from "../../draw/marks";
import { greyOf, patchIn, pictureMark } from "../../draw/patches";
import { type Ink, inkColor, signColor } from "../colors/color-scales";
import { type Palette, rgbOf } from "../colors/palette";
import { aroundZero, plainNumber, signsInWords } from "../text/captions";
import { type HeatCaptionInput, headingOf, heatInWords } from "./captions";
import { type Heat, onGrid } from "./state";

/** Everything that determines the marks of an image panel. */
export interface PanelContent {
  width: number;
  palette: Palette;
  image: RecordImage;
  /** Patch grid of the values. */
  grid: PatchGrid;
  /** Heat maps over the image. If empty, the panel shows only the image. */
  heats: readonly Heat[];
  captionInput: HeatCaptionInput | null;
  /** Absolute value that has the strongest colour. */
  end: number;
  /**
   * Highlighted patches, as indices in the grid: the patch of the token that the weights belong to,
   * and the patch of the other pinned token.
   */
  own: number | null;
  other: number | null;
  /** Patch under the pointer or the keyboard cursor. */
  hovered: number | null;
  /** Notes below the image: limitations, and the effect of a click. */
  notes: readonly string[];
}

/** Position and size of an image in the panel, in pixels. */
interface Tile {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Opacity of the largest weight. The image remains visible below it. */
export const HEAT_OPACITY = 0.82;
const MAX_HEIGHT = 300;
const GAP = 14;
const HEADING = 13;
const CAPTION = 11.5;
const LINE = 16;

function lines(text: string, width: number, size: number): string[] {
  const font = fontOf({ size, font: "text" });
  return text === "" ? [] : wrap(text, width, (part) => measureText(part, font));
}

/**
 * Return RGBA pixels of weights, in one colour or in one colour per sign. The opacity is
 * proportional to the absolute value.
 */
export function heatPixels(
  values: Float32Array,
  end: number,
  ink: Ink,
): Uint8ClampedArray<ArrayBuffer> {
  const [above, below] = [rgbOf(inkColor(ink, 1)), rgbOf(inkColor(ink, -1))];
  const pixels = new Uint8ClampedArray(4 * values.length);
  values.forEach((value, i) => {
    const share = Math.min(1, Math.abs(value) / end);
    pixels.set([...(value < 0 ? below : above), 255 * HEAT_OPACITY * share], 4 * i);
  });
  return pixels;
}

/**
 * Return the frame of a highlighted patch. A second frame in the background colour makes the first
 * visible on every image.
 */
function frameMarks(
  content: PanelContent,
  tile: Tile,
  index: number | null,
  stroke: string,
  strokeWidth: number,
): Mark[] {
  const { grid, palette } = content;
  const patch = index === null ? null : patchIn(grid, grid.start + index);
  if (!patch) return [];
  const [width, height] = [tile.width / grid.columns, tile.height / grid.rows];
  const box = {
    x: tile.x + patch.column * width,
    y: tile.y + patch.row * height,
    width,
    height,
  };
  const ground = palette.background;
  return [
    { kind: "rect", ...box, stroke: ground, strokeWidth: strokeWidth + 2 },
    { kind: "rect", ...box, stroke, strokeWidth },
  ];
}

function tileMarks(content: PanelContent, heat: Heat | null, tile: Tile): Mark[] {
  const { palette, grid, image } = content;
  const { own, other, hovered, captionInput } = content;
  const signed = captionInput?.quantity.signed;
  const marks: Mark[] = [];
  if (heat) {
    marks.push(pictureMark(greyOf(image, rgbOf(palette.background)), tile), {
      kind: "image",
      ...tile,
      pixels: heatPixels(onGrid(heat, grid), content.end, signed ? palette : heat.series.color),
      columns: grid.columns,
      rows: grid.rows,
    });
  } else {
    const whole = { pixels: image.pixels, columns: image.width, rows: image.height };
    marks.push(pictureMark(whole, tile));
  }
  marks.push(
    { kind: "rect", ...tile, stroke: palette.rule },
    ...frameMarks(content, tile, other, palette.muted, 1.2),
    ...frameMarks(content, tile, own, palette.ink, 1.8),
    ...frameMarks(content, tile, hovered, palette.ink, 1),
  );
  return marks;
}

/** Marks of a panel, and the position and size of its images. */
export interface Panel extends Box {
  tiles: Tile[];
}

/** Return the marks of a panel: heading, images with captions, colour scale and notes. */
export function panelMarks(content: PanelContent): Panel {
  const { palette, heats, captionInput, image, width } = content;
  const marks: Mark[] = [];
  const tiles: Tile[] = [];
  let y = HEADING / 2 + 2;
  const heading = captionInput ? headingOf(captionInput) : "The image";
  for (const line of lines(heading, width, HEADING)) {
    marks.push(textMark(line, 0, y, palette.ink, HEADING));
    y += LINE + 2;
  }
  const count = Math.max(1, heats.length);
  const across = Math.ceil(Math.sqrt(count));
  const room = (width - (across - 1) * GAP) / across;
  const wide = Math.min(room, (MAX_HEIGHT * image.width) / image.height);
  const high = (wide * image.height) / image.width;
  for (let first = 0; first < count; first += across) {
    let below = y;
    const row = heats.length > 0 ? heats.slice(first, first + across) : [null];
    row.forEach((heat, column) => {
      const x = column * (room + GAP);
      let top = y;
      if (heat) {
        const more = { bold: true };
        marks.push(textMark(heat.series.name, x, top + 3, heat.series.textColor, CAPTION, more));
        top += LINE;
      }
      const tile = { x, y: top, width: wide, height: high };
      tiles.push(tile);
      marks.push(...tileMarks(content, heat, tile));
      top += high + CAPTION + 1;
      const caption = heat && captionInput ? heatInWords(heat, captionInput) : "";
      for (const line of lines(caption, room, CAPTION)) {
        marks.push(textMark(line, x, top, palette.muted, CAPTION));
        top += LINE;
      }
      below = Math.max(below, top);
    });
    y = below + 6;
  }
  if (captionInput && heats[0]) {
    const end = plainNumber(Number(content.end.toPrecision(3)));
    const { quantity } = captionInput;
    const { name, signed } = quantity;
    const only = heats.length === 1 ? heats[0].series.color : palette.neutral;
    const scale = rampBox(palette, {
      color: (position) => {
        const share = signed ? 2 * position - 1 : position;
        const color = signed ? signColor(share, palette) : only;
        return [...rgbOf(color), 255 * HEAT_OPACITY * Math.abs(share)];
      },
      labels: signed ? aroundZero(end) : ["0", name, end],
      ...(signed && { quantity: signsInWords(quantity) }),
    });
    marks.push(...translate(scale.marks, 0, y));
    y += scale.height + 12;
  }
  for (const line of content.notes.flatMap((note) => lines(note, width, CAPTION))) {
    marks.push(textMark(line, 0, y, palette.muted, CAPTION));
    y += LINE;
  }
  return { width, height: Math.ceil(y), marks, tiles };
}

/**
 * Return the patch at a point, as index in the grid, and the index of the heat map. Return null
 * outside all images.
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
