/** The colour scale of weights as a legend, on the page and in print. */

import { type Box, RAMP_WIDTH, rampMarks, textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import { plainNumber } from "../captions";
import { type ColorScale, colorAt, weightAt } from "../color-scales";
import { ColorLegend, fitSwitch } from "../legend";
import type { Palette, ThemeName } from "../palette";
import type { HeatMap } from "./marks";
import type { HeatMapStore } from "./store";

/** How weights are coloured: linearly or not, up to which weight, and whether some are larger. */
interface WeightScale {
  theme: ThemeName;
  scale: ColorScale;
  end: number;
  beyond?: boolean;
}

/** The weights at the ends and in the middle of a scale. */
export function scaleLabels({
  scale,
  end,
  beyond,
}: Omit<WeightScale, "theme">): [string, string, string] {
  const label = (share: number): string => plainNumber(weightAt(share, end, scale));
  return [
    scale === "log" ? `≤${label(0)}` : label(0),
    label(0.5),
    beyond ? `≥${label(1)}` : label(1),
  ];
}

/** CSS colours of weights, from the smallest to the largest. */
export function weightStops(theme: ThemeName, steps = 13): string[] {
  return Array.from({ length: steps }, (_, i) => {
    const [red, green, blue] = colorAt(theme, i / (steps - 1));
    return `rgb(${red} ${green} ${blue})`;
  });
}

/** The legend in print. */
export function scaleBox(weights: WeightScale & { palette: Palette }, quantity = "weight"): Box {
  const { palette, theme } = weights;
  const aligned = ["start", "middle", "end"] as const;
  const labels = scaleLabels(weights).map(
    (label, i): Mark =>
      textMark(label, (i / 2) * RAMP_WIDTH, 19, palette.muted, 11, { align: aligned[i] as "end" }),
  );
  return {
    width: RAMP_WIDTH,
    height: 43,
    marks: [
      ...rampMarks((share) => colorAt(theme, share), palette.rule),
      ...labels,
      textMark(quantity, RAMP_WIDTH / 2, 34, palette.muted, 11, { align: "middle" }),
    ],
  };
}

/** Whether colours end at the largest weight in sight. */
export function scaleSwitch(store: HeatMapStore, { end, grid }: HeatMap) {
  return fitSwitch("scale to the largest in sight", store.scaling, { end, maximum: grid.maximum });
}

/** The legend, whose switch sets the end of the scale. */
export function HeatMapLegend({ store, heatMap }: { store: HeatMapStore; heatMap: HeatMap }) {
  return (
    <ColorLegend
      name="av-color-legend"
      stops={weightStops(heatMap.theme)}
      labels={scaleLabels(heatMap)}
      quantity="weight"
      toggle={scaleSwitch(store, heatMap)}
    />
  );
}
