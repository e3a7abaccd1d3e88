/** Tokens of the matrix view that are patches: their pictures in the place of their texts. */

import type { Mark } from "../../draw/marks";
import { cropOf, patchOf, pictureMark } from "../../draw/patches";
import { GAP, type Layout, middleOf, tokenStep } from "./layout";
import type { Picture } from "./marks";

type Side = "query" | "key";

/** Beside low rows a picture that stands out is so large. */
const LIFTED = 24;
/** A strip of patches beside cells that are too small for labels. */
const STRIP = 5;

function labelsOf(layout: Layout, side: Side) {
  return side === "query" ? layout.queryLabels : layout.keyLabels;
}

/**
 * A patch's picture as a label, `size` along its longer side; nothing for a token of text.
 *
 * @param frame the colour of what stands out; null for what does not.
 */
export function patchLabel(
  picture: Picture,
  side: Side,
  token: number,
  frame: string | null,
  size = labelsOf(picture.layout, side).picture,
): Mark[] | null {
  const { layout, images, palette } = picture;
  const patch = patchOf(side === "query" ? picture.queries : picture.keys, token);
  const image = patch && images[patch.grid.image];
  if (!patch || size === 0) return null;
  const middle = middleOf(layout, side === "query" ? "rows" : "columns", token);
  const shape = image ? (image.width / patch.grid.columns) * (patch.grid.rows / image.height) : 1;
  const [width, height] = [size * Math.min(1, shape), size / Math.max(1, shape)];
  const place =
    side === "query"
      ? { x: layout.left - GAP - width, y: middle - height / 2, width, height }
      : { x: middle - width / 2, y: layout.top - GAP - height, width, height };
  const marks: Mark[] = [
    image
      ? pictureMark(cropOf(image, patch), place)
      : { kind: "rect", ...place, fill: palette.raised },
  ];
  if (frame) marks.push({ kind: "rect", ...place, stroke: frame, strokeWidth: 1.6 });
  return marks;
}

/** A larger one, for what stands out where labels have no room. */
export function liftedPatch(picture: Picture, side: Side, token: number, frame: string) {
  return patchLabel(picture, side, token, frame, LIFTED);
}

/** Patches as a strip along the cells, where labels have no room. */
export function stripMarks(picture: Picture, side: Side): Mark[] {
  const { layout, images } = picture;
  const across = side === "key";
  const axis = across ? layout.plan.columns : layout.plan.rows;
  const tokens = across ? picture.keys : picture.queries;
  const step = tokenStep(layout.plan, across ? "columns" : "rows");
  if (labelsOf(layout, side).picture === 0 || step < 2) return [];
  const marks: Mark[] = [];
  for (let token = axis.window[0]; token < axis.window[1]; token++) {
    const patch = patchOf(tokens, token);
    const image = patch && images[patch.grid.image];
    if (!image) continue;
    const along = (token - axis.window[0]) * step;
    const place = across
      ? { x: layout.left + along, y: layout.top - STRIP - 1, width: step, height: STRIP }
      : { x: layout.left - STRIP - 1, y: layout.top + along, width: STRIP, height: step };
    marks.push(pictureMark(cropOf(image, patch), place));
  }
  return marks;
}
