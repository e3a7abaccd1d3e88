/** Legend of the colour scale of weights, in HTML and in figures. */

import { type Box, RAMP_WIDTH, rampMarks, textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import {
  type ColorScale,
  colorAt,
  type SignColors,
  signColorAt,
  weightAt,
} from "../colors/color-scales";
import { ColorLegend, fitSwitch } from "../colors/legend";
import type { Palette, ThemeName } from "../colors/palette";
import { aroundZero, plainNumber, quantityOf, signsInWords } from "../text/captions";
import { type HeatMap, signsOf } from "./marks";
import type { HeatMapStore } from "./store";

/** Colour scale: its type, its end, and whether some visible weights exceed the end. */
interface WeightScale {
  theme: ThemeName;
  scale: ColorScale;
  end: number;
  beyond?: boolean;
  signs?: SignColors | undefined;
}

/** Return the labels for the lower end, the middle and the upper end of a scale. */
export function scaleLabels({
  scale,
  end,
  beyond,
  signs,
}: Omit<WeightScale, "theme">): [string, string, string] {
  if (signs) {
    const endLabel = plainNumber(end);
    const [low, , high] = aroundZero(endLabel);
    const zero = scale === "log" ? `±${plainNumber(weightAt(0, end, scale))} and less` : "0";
    return beyond ? [`≤${low}`, zero, `≥${high}`] : [low, zero, high];
  }
  const label = (share: number): string => plainNumber(weightAt(share, end, scale));
  return [
    scale === "log" ? `≤${label(0)}` : label(0),
    label(0.5),
    beyond ? `≥${label(1)}` : label(1),
  ];
}

/**
 * Return CSS colours from the smallest to the largest weight or, for signed numbers, from the
 * smallest to the largest number.
 */
export function weightStops(theme: ThemeName, steps = 13, signs?: SignColors): string[] {
  if (signs) return [signs.negative, "transparent", signs.positive];
  return Array.from({ length: steps }, (_, i) => {
    const [red, green, blue] = colorAt(theme, i / (steps - 1));
    return `rgb(${red} ${green} ${blue})`;
  });
}

/** Return the legend of the colour scale for a figure. */
export function scaleBox(weights: WeightScale & { palette: Palette }, quantity = "weight"): Box {
  const { palette, theme, signs } = weights;
  const aligned = ["start", "middle", "end"] as const;
  const labels = scaleLabels(weights).map(
    (label, i): Mark =>
      textMark(label, (i / 2) * RAMP_WIDTH, 19, palette.muted, 11, { align: aligned[i] as "end" }),
  );
  return {
    width: RAMP_WIDTH,
    height: 43,
    marks: [
      ...rampMarks(
        (share) => (signs ? signColorAt(2 * share - 1, signs) : colorAt(theme, share)),
        palette.rule,
      ),
      ...labels,
      textMark(quantity, RAMP_WIDTH / 2, 34, palette.muted, 11, { align: "middle" }),
    ],
  };
}

/**
 * Return the title of the colour scale: "weight", or "less ← difference → more" for signed numbers.
 */
export function quantityInWords({ layout }: HeatMap): string {
  const quantity = quantityOf(layout.viewport.stack);
  return quantity.signed ? signsInWords(quantity) : quantity.name;
}

/** Return the switch for the end of the colour scale. */
export function scaleSwitch(store: HeatMapStore, { end, grid, layout }: HeatMap) {
  const { name } = quantityOf(layout.viewport.stack);
  const scale = { end, maximum: grid.maximum };
  return fitSwitch("scale to the largest in sight", store.scaling, scale, name);
}

export function HeatMapLegend({ store, heatMap }: { store: HeatMapStore; heatMap: HeatMap }) {
  return (
    <ColorLegend
      name="av-color-legend"
      stops={weightStops(heatMap.theme, undefined, signsOf(heatMap))}
      labels={scaleLabels({ ...heatMap, signs: signsOf(heatMap) })}
      quantity={quantityInWords(heatMap)}
      toggle={scaleSwitch(store, heatMap)}
    />
  );
}
