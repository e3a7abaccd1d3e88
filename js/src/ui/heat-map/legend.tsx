/** Legend of the colour scale of weights, in HTML and in figures. */

import type { LegendScale } from "../../draw/figure";
import { colorAt, rampOf, type SignColors, weightAt } from "../colors/color-scales";
import { aroundZero, plainNumber, quantityOf, signsInWords } from "../text/captions";
import { type HeatMap, hatchesCells, notChosenCells, signsOf } from "./marks";

/**
 * Colour scale of weights. `end` is the largest absolute value on the scale, and `beyond` is true
 * if some visible numbers exceed it in absolute value. `signs` has the colours of positive and
 * negative numbers, or is undefined if no number can be negative.
 */
type WeightScale = Pick<HeatMap, "theme" | "scale" | "end"> & {
  beyond?: boolean;
  signs?: SignColors | undefined;
};

/** Return the labels for the lower end, the middle and the upper end of a scale. */
export function scaleLabels({
  scale,
  end,
  beyond,
  signs,
}: Omit<WeightScale, "theme">): [string, string, string] {
  const label = (share: number): string => plainNumber(weightAt(share, end, scale));
  if (!signs) {
    const low = scale === "log" ? `≤${label(0)}` : label(0);
    return [low, label(0.5), beyond ? `≥${label(1)}` : label(1)];
  }
  const [low, , high] = aroundZero(plainNumber(end));
  const zero = scale === "log" ? `±${label(0)} and less` : "0";
  return beyond ? [`≤${low}`, zero, `≥${high}`] : [low, zero, high];
}

/**
 * Return the colours and labels with which a legend shows a colour scale of weights. `quantity` is
 * the text that says what the colours show.
 */
function weightScale(weights: WeightScale, quantity: string): LegendScale {
  const { theme, signs } = weights;
  return {
    color: signs ? rampOf(signs) : (position) => colorAt(theme, position),
    labels: scaleLabels(weights),
    quantity,
  };
}

/** Return the colours, labels and quantity for the legend of a heat map. */
export function heatMapScale(heatMap: HeatMap): LegendScale {
  const quantity = quantityOf(heatMap.layout.viewport.stack);
  const title = quantity.signed ? signsInWords(quantity) : quantity.name;
  const scale = weightScale({ ...heatMap, signs: signsOf(heatMap) }, title);
  if (!notChosenCells(heatMap)) return scale;
  const { notChosen: color } = heatMap.palette;
  return { ...scale, sample: { name: "not chosen", color, hatched: hatchesCells(heatMap.layout) } };
}
