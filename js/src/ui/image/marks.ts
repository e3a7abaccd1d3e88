/**
 * Marks of the weights over an image. A patch grid has the patches of an image, which are tokens,
 * in rows and columns. A tile is the rectangle in which the image is drawn once: with one heat map
 * over it, or without heat maps. All functions are pure.
 */

import type { PatchGrid } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { measureText } from "../../draw/canvas";
import { type Box, type LegendScale, rampBox, textMark, wrap } from "../../draw/figure";
import { type Area, fontOf, type Mark, type TextMark, translate } from "../../draw/marks";
import { greyOf, pictureMark } from "../../draw/patches";
import { groupsOf } from "../axis";
import { type Ink, inkAt, rampOf } from "../colors/color-scales";
import { type Palette, rgbOf } from "../colors/palette";
import { aroundZero, plainNumber, quantityOf, signsInWords } from "../text/captions";
import { type CaptionedHeat, headingOf, heatInWords, mapsInWords, sinksOf } from "./captions";
import { type Heat, type HeatQuestion, onGrid } from "./state";

interface Frame {
  /** Index of the patch in the grid, or null for no frame. */
  patch: number | null;
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
  /** Heat maps with a frame, which the reader has chosen. */
  chosen?: readonly Heat[];
  /** Absolute value that has the strongest colour. */
  end: number;
  frames: readonly Frame[];
  /** Sentence below the image, or "" without a note. */
  note: string;
}

/**
 * Opacity of the strongest colour of a heat map. It is below 1, so that the image remains visible.
 */
export const HEAT_OPACITY = 0.9;
/** Maximum height of an image. A portrait of 2 by 3 still has the minimum width of a panel. */
const MAX_HEIGHT = 600;
/** Maximum width of an image beside or below a plot, which it should not outweigh. */
const MAX_WIDTH_IN_PANEL = 480;
/** Minimum width of small images in one row. If they do not fit, there are more rows. */
const MIN_WIDTH_IN_ROW = 60;
/** Longer side of the image in its own colours, beside or below the colour scale. */
const PHOTO_SIZE = 96;
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
  const { patch, stroke, strokeWidth } = frame;
  if (patch === null) return [];
  const box = { kind: "rect", ...patchBox(grid, tile, patch) } as const;
  return [
    { ...box, stroke: palette.background, strokeWidth: strokeWidth + 2 },
    { ...box, stroke, strokeWidth },
  ];
}

/** Return the image in its own colours. */
function photoMark({ image }: PanelContent, tile: Area): Mark {
  const { pixels, width: columns, height: rows } = image;
  return pictureMark({ pixels, columns, rows }, tile);
}

function tileMarks(content: PanelContent, heat: Heat | null, tile: Area): Mark[] {
  const { palette, grid, image, stack, end, frames, chosen = [] } = content;
  const marks: Mark[] = [
    heat ? pictureMark(greyOf(image, rgbOf(palette.background)), tile) : photoMark(content, tile),
  ];
  if (heat) {
    const ink = stack.signed ? palette : heat.series.color;
    const pixels = heatPixels(onGrid(heat, grid), end, ink);
    marks.push({ kind: "image", ...tile, pixels, columns: grid.columns, rows: grid.rows });
  }
  const isChosen = heat !== null && chosen.includes(heat);
  const frame = isChosen ? { stroke: palette.ink, strokeWidth: 2 } : { stroke: palette.rule };
  return [
    ...marks,
    { kind: "rect", ...tile, ...frame },
    ...(heat && !areSmall(content.heats) ? sinksOf(heat, content) : []).flatMap((patch) =>
      frameMarks(content, tile, { patch, stroke: palette.muted, strokeWidth: 1.2 }),
    ),
    ...frames.flatMap((frame) => frameMarks(content, tile, frame)),
  ];
}

/** Marks and tiles of an image panel. */
export interface Panel extends Box {
  tiles: Area[];
}

/** Return a text in lines of at most `most` pixels. The first line is centred at y. */
function paragraph(text: string, x: number, y: number, most: number, style: Partial<TextMark>) {
  const { size = CAPTION, fill = "", bold = false } = style;
  const font = fontOf({ size, font: "text", bold });
  const lines = text === "" ? [] : wrap(text, most, (part) => measureText(part, font));
  const step = size > CAPTION ? LINE + 2 : LINE;
  const marks = lines.map((line, i) => textMark(line, x, y + i * step, fill, size, { bold }));
  return { marks, height: lines.length * step };
}

/** Return whether maps are small: one of each layer, head or word. */
export function areSmall(heats: readonly Heat[]): boolean {
  return heats[0]?.series.choice !== undefined;
}

/**
 * Arrange images without captions in rows. Maps with another `row` begin a new row, and each row of
 * small maps begins with the image in its own colours.
 */
export function smallImages(content: PanelContent): Panel {
  const { heats, width } = content;
  const rows = new Set(heats.map(({ series }) => series.row));
  const groups = [...rows].map((row) => [
    ...(areSmall(heats) ? [null] : []),
    ...heats.filter(({ series }) => series.row === row),
  ]);
  const longest = Math.max(...groups.map((group) => group.length));
  const fitting = Math.max(1, Math.floor((width + GAP) / (MIN_WIDTH_IN_ROW + GAP)));
  const across = Math.ceil(longest / Math.ceil(longest / fitting));
  return imagesBox(content, groups, across, Infinity, null);
}

/**
 * Arrange the images in rows of `across`, with the names of the heads above them. Each group begins
 * a new row. For null, and without groups, there is the image in its own colours.
 *
 * @param caption caption below each image, or null for none.
 */
function imagesBox(
  content: PanelContent,
  groups: readonly (readonly (Heat | null)[])[],
  across: number,
  maxWidth: number,
  caption: ((heat: Heat) => string) | null,
): Panel {
  const { heats, image, width, palette } = content;
  const [tiles, marks]: [Area[], Mark[]] = [[], []];
  const room = (width - (across - 1) * GAP) / across;
  const wide = Math.min(room, maxWidth, (MAX_HEIGHT * image.width) / image.height);
  const high = (wide * image.height) / image.width;
  const rows = groups.flatMap((group) =>
    groupsOf([0, group.length], across).map((range) => group.slice(...range)),
  );
  let y = 0;
  for (const row of rows.length > 0 ? rows : [[null]]) {
    /** Write a text for each heat map, centred at `top`. Return the largest height. */
    const write = (top: number, textOf: (heat: Heat) => string, bold = false): number => {
      const texts = row.map((heat, i) => {
        if (!heat) return null;
        const fill = bold ? heat.series.textColor : palette.muted;
        return paragraph(textOf(heat), i * (room + GAP), top, room, { fill, bold });
      });
      marks.push(...texts.flatMap((text) => text?.marks ?? []));
      return Math.max(...texts.map((text) => text?.height ?? 0));
    };
    y += write(y + 3, ({ series }) => series.name, true);
    row.forEach((heat, i) => {
      const tile = { x: i * (room + GAP), y, width: wide, height: high };
      if (heat || heats.length === 0) tiles.push(tile);
      marks.push(...tileMarks(content, heat, tile));
    });
    y += high + (caption ? CAPTION + 1 : LINE);
    if (caption) y += write(y, caption) + 6;
  }
  return { width, height: y, marks, tiles };
}

/** Return the colour scale of all images, or null if no weights are shown. */
export function heatScale(content: PanelContent): LegendScale | null {
  const { heats, palette, stack } = content;
  if (!heats[0]) return null;
  const end = plainNumber(Number(content.end.toPrecision(3)));
  const quantity = quantityOf(stack);
  const [color, ...others] = new Set(heats.map(({ series }) => series.color));
  const only = others.length === 0 && color ? color : palette.neutral;
  return {
    color: rampOf(quantity.signed ? palette : only, heatOpacity),
    labels: quantity.signed ? aroundZero(end) : ["0", quantity.name, end],
    ...(quantity.signed && { quantity: signsInWords(quantity) }),
  };
}

/**
 * Return the marks of a panel: heading, images with captions, colour scale and notes.
 *
 * @param advice sentence that says what a click on a patch does, or "" for a figure.
 */
export function panelMarks(content: PanelContent, advice = ""): Panel {
  const { palette, question, width, heats, image } = content;
  const captioned = question && { ...content, question };
  const marks: Mark[] = [];
  let y = HEADING / 2 + 2;
  const write = (text: string, fill: string, size: number): void => {
    const { marks: lines, height } = paragraph(text, 0, y, width, { fill, size });
    marks.push(...lines);
    y += height;
  };
  write(captioned ? headingOf(captioned) : "The image", palette.ink, HEADING);
  // Up to three images have the full width, so that details are visible.
  const across = Math.max(1, Math.floor(Math.sqrt(heats.length)));
  const caption = (heat: Heat): string => (captioned ? heatInWords(heat, captioned) : "");
  const images = areSmall(heats)
    ? smallImages(content)
    : imagesBox(content, [heats], across, MAX_WIDTH_IN_PANEL, caption);
  marks.push(...translate(images.marks, 0, y));
  const tiles = images.tiles.map((tile) => ({ ...tile, y: tile.y + y }));
  y += images.height;
  const scale = heatScale(content);
  if (scale) {
    const box = rampBox(palette, scale, width);
    marks.push(...translate(box.marks, 0, y));
    const size = areSmall(heats) ? 0 : PHOTO_SIZE / Math.max(image.width, image.height);
    const [wide, high] = [image.width * size, image.height * size];
    const isBeside = width - box.width - GAP >= wide;
    const at = { x: isBeside ? width - wide : 0, y: isBeside ? y : y + box.height + 4 };
    if (size) marks.push(photoMark(content, { ...at, width: wide, height: high }));
    y = Math.max(y + box.height, at.y + high) + 12;
  }
  const words = captioned && areSmall(heats) ? mapsInWords(heats, captioned) : "";
  for (const note of [words, content.note, advice]) write(note, palette.muted, CAPTION);
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
