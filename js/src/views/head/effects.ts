/** Effect bars of the keys. They are between the labels of the keys and the bars of weights. */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, transposed } from "../../draw/marks";
import { effectMarks, endText } from "../../ui/effects/effects";
import { fitLabel } from "../../ui/text/labels";
import { positionOf } from "./layout";
import type { LinePlot } from "./line-plot";

const HEADING_SIZE = 11.5;
const AXIS_SIZE = 10;
const THICK = 9;

/** Draw the effect bars of the keys in the window, with their heading and scale. */
export function keyEffectMarks(linePlot: LinePlot): Mark[] {
  const { layout, palette, effects } = linePlot;
  const column = layout.key;
  if (!effects || !layout.effects) return [];
  const { start, size } = layout.effects;
  const standing = layout.orientation === "horizontal";
  const thick = Math.max(1, Math.min(THICK, layout.step - 3));
  const font = fontOf({ size: HEADING_SIZE, font: "text" });
  const name = fitLabel(effects.name, standing ? 62 : size + 16, font, measureText).text;
  const base = { kind: "text", text: name, fill: palette.muted, font: "text" } as const;
  const end = { ...base, text: `±${endText(effects)}`, size: AXIS_SIZE };
  const middle = start + size / 2;
  const below = positionOf(layout, column.labels.length - 1, column) + layout.step / 2 + 8;
  const marks: Mark[] = standing
    ? [
        { ...base, size: HEADING_SIZE, x: 8, y: middle - 7 },
        { ...end, x: 8, y: middle + 7 },
      ]
    : [
        { ...base, size: HEADING_SIZE, x: middle, y: 30, align: "middle" },
        { ...end, x: middle, y: below, align: "middle" },
      ];
  for (let index = 0; index < column.labels.length; index++) {
    const edge = positionOf(layout, index, column) - thick / 2;
    const lying = { x: start, y: edge, width: size, height: thick };
    const box = { ...transposed(lying, standing), standing };
    const value = effects.values[column.window[0] + index] ?? null;
    marks.push(...effectMarks(box, value, effects.end, palette));
  }
  return marks;
}
