/** Legend of the heads' colours: roles with letters and counts, or a scale of numbers. */

import type { LegendScale } from "../../draw/figure";
import { ColorLegend } from "../../ui/colors/legend";
import { RoleLegend } from "../../ui/head-grid/head-roles";
import { aroundZero, plainNumber } from "../../ui/text/captions";
import { unitInWords } from "./captions";
import type { NumberScale } from "./coloring";
import type { AtlasProps } from "./controls";

/** Return the legend of a scale of numbers. It names the number and its unit: "entropy, bits". */
export function legendScale({ name, unit, low, end, color }: NumberScale): LegendScale {
  const words = unitInWords(unit).trim();
  return {
    color,
    labels: low < 0 ? aroundZero(plainNumber(end)) : ["0", plainNumber(end / 2), plainNumber(end)],
    quantity: words === "" ? name : `${name}, ${words}`,
  };
}

export function AtlasLegend({ context, store }: AtlasProps) {
  const coloring = store.coloring.value;
  if (!coloring) return null;
  const { legend } = coloring;
  return (
    <>
      {legend.kind === "roles" ? (
        <RoleLegend signs={legend.entries} />
      ) : (
        <Scale context={context} legend={legend} />
      )}
      {store.hasKinds.value && legend.kind === "scale" && (
        <p class="av-muted">
          One kind of layer is coloured at a time, because their numbers have different scales.
        </p>
      )}
    </>
  );
}

function Scale({ context, legend }: Pick<AtlasProps, "context"> & { legend: NumberScale }) {
  const { low, end, baseline } = legend;
  return (
    <div class="av-atlas-scale" data-theme={context.theme.value}>
      <ColorLegend scale={legendScale(legend)} />
      {baseline !== null && (
        <>
          <span
            class="av-atlas-baseline"
            aria-hidden="true"
            style={{ left: `${100 * Math.max(0, Math.min(1, (baseline - low) / (end - low)))}%` }}
          />
          <p class="av-color-title">
            ▲ baseline {plainNumber(Number(baseline.toPrecision(2)))}, the median of heads
          </p>
        </>
      )}
    </div>
  );
}
