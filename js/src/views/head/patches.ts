/** Tokens of the head view that are patches: their pictures in the place of their texts. */

import type { TokenList } from "../../client/source";
import type { Mark } from "../../draw/marks";
import { cropOf, patchOf, pictureMark } from "../../draw/patches";
import type { Images } from "../../ui/image/state";
import type { Label } from "../../ui/labels";
import type { Palette } from "../../ui/palette";
import type { Column, Layout } from "./layout";

/** How a patch stands out from the others. */
export interface PatchLook {
  /** Pointed at, pinned, or found. */
  lit: boolean;
  /** Stepping back: left out, or of the other text of a pair. */
  faded: boolean;
  struck: boolean;
}

/** Lower pictures are drawn so high where they stand out. */
const LEAST_LIT = 22;
const FADED = 0.35;

/** The picture of a patch at its place in a column; without pixels yet, its ground. */
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
  const grow = look.lit ? Math.max(1, LEAST_LIT / low) : 1;
  const [width, height] = [at.label.width * grow, low * grow];
  const before = column.side === "query";
  const place =
    layout.orientation === "vertical"
      ? { x: column.anchor - (before ? width : 0), y: at.middle - height / 2, width, height }
      : { x: at.middle - width / 2, y: column.anchor - (before ? height : 0), width, height };
  const image = images[patch.grid.image];
  const marks: Mark[] = [
    image
      ? {
          ...pictureMark(cropOf(image, patch), place),
          opacity: look.faded && !look.lit ? FADED : 1,
        }
      : { kind: "rect", ...place, fill: palette.raised },
  ];
  if (look.lit) marks.push({ kind: "rect", ...place, stroke: palette.ink, strokeWidth: 1.4 });
  if (look.struck) {
    const y = place.y + height / 2;
    const x1 = place.x + width;
    marks.push({ kind: "line", x0: place.x, y0: y, x1, y1: y, stroke: palette.ink });
  }
  return marks;
}
