/** Effect bars of the keys. They are between the labels of the keys and the bars of weights. */

import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, transposed } from "../../draw/marks";
import { effectMarks, endText } from "../../ui/effects/effects";
import { fitLabel } from "../../ui/text/labels";
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
  const standing = layout.horizontal;
  const thick = Math.max(1, Math.min(THICK, layout.step - 3));
  const font = fontOf({ size: HEADING_SIZE, font: "text" });
  const name = fitLabel(effects.name, standing ? 62 : size + 16, font, measureText).text;
  const base = { kind: "text", text: name, fill: palette.muted, font: "text" } as const;
  const end = { ...base, text: `±${endText(effects)}`, size: AXIS_SIZE };
  const middle = start + size / 2;
  const below = column.extent[1] + 8;
  const marks: Mark[] = standing
    ? [
        { ...base, size: HEADING_SIZE, x: 8, y: middle - 7 },
        { ...end, x: 8, y: middle + 7 },
      ]
    : [
        { ...base, size: HEADING_SIZE, x: middle, y: 30, align: "middle" },
        { ...end, x: middle, y: below, align: "middle" },
      ];
  for (const [index, { middle }] of column.labels.entries()) {
    const lying = { x: start, y: middle - thick / 2, width: size, height: thick };
    const box = { ...transposed(lying, standing), standing };
    const value = effects.values[column.window[0] + index] ?? null;
    marks.push(...effectMarks(box, value, effects.end, palette));
  }
  return marks;
}
