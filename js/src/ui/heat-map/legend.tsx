/** Legend of the colour scale of weights, in HTML and in figures. */

import type { LegendScale } from "../../draw/figure";
import {
  type ColorScale,
  colorAt,
  type SignColors,
  signColorAt,
  weightAt,
} from "../colors/color-scales";
import { ColorLegend, fitSwitch } from "../colors/legend";
import type { ThemeName } from "../colors/palette";
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

/** Return the legend of a colour scale of weights. */
export function weightScale(weights: WeightScale, quantity: string): LegendScale {
  const { theme, signs } = weights;
  return {
    color: (position) => (signs ? signColorAt(2 * position - 1, signs) : colorAt(theme, position)),
    labels: scaleLabels(weights),
    quantity,
  };
}

/** Return the legend of the colour scale of a heat map. */
export function heatMapScale(heatMap: HeatMap): LegendScale {
  return weightScale({ ...heatMap, signs: signsOf(heatMap) }, quantityInWords(heatMap));
}

/**
 * Return the title of the colour scale: "weight", or "less ← difference → more" for signed numbers.
 */
function quantityInWords({ layout }: HeatMap): string {
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
  return <ColorLegend scale={heatMapScale(heatMap)} toggle={scaleSwitch(store, heatMap)} />;
}
