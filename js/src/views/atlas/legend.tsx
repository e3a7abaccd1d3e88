/** Legend of the heads' colours: roles with letters and counts, or a scale of numbers. */

import { ColorLegend } from "../../ui/colors/legend";
import { RoleLetter } from "../../ui/head-grid/head-roles";
import { aroundZero, counted, plainNumber } from "../../ui/text/captions";
import { unitInWords } from "./captions";
import type { NumberScale, RoleEntry } from "./coloring";
import type { AtlasProps } from "./controls";

const STEPS = 13;

/** Return three labels of a scale: its lower end, its middle and its upper end. */
export function scaleLabels({ low, end }: NumberScale): [string, string, string] {
  return low < 0 ? aroundZero(plainNumber(end)) : ["0", plainNumber(end / 2), plainNumber(end)];
}

/** Return the name of a scale with its unit, if it has one: "entropy, bits". */
export function scaleName({ name, unit }: NumberScale): string {
  const words = unitInWords(unit).trim();
  return words === "" ? name : `${name}, ${words}`;
}

/** Describe the ▲ mark at the median baseline. Return "" if the statistic has no baseline. */
export function baselineInWords({ baseline }: NumberScale): string {
  return baseline === null
    ? ""
    : `▲ baseline ${plainNumber(Number(baseline.toPrecision(2)))}, the median of heads`;
}

export function AtlasLegend({ context, store }: AtlasProps) {
  const coloring = store.coloring.value;
  if (!coloring) return null;
  const { legend } = coloring;
  if (legend.kind === "roles") return <Roles store={store} entries={legend.entries} />;
  const stops = Array.from({ length: STEPS }, (_, i) => {
    const [red, green, blue, opacity] = legend.color(i / (STEPS - 1));
    return `rgb(${red} ${green} ${blue} / ${opacity / 255})`;
  });
  const { low, end, baseline } = legend;
  const share = baseline === null ? null : (baseline - low) / (end - low);
  return (
    <div class="av-atlas-scale" data-theme={context.theme.value}>
      <ColorLegend
        name="av-atlas-color-legend"
        stops={stops}
        labels={scaleLabels(legend)}
        quantity={scaleName(legend)}
      />
      {share !== null && (
        <>
          <span
            class="av-atlas-baseline"
            aria-hidden="true"
            style={{ left: `${100 * Math.max(0, Math.min(1, share))}%` }}
          />
          <p class="av-color-title">{baselineInWords(legend)}</p>
        </>
      )}
    </div>
  );
}

/** Buttons of the roles. A click highlights the heads with this role until the next click. */
function Roles({ store, entries }: Pick<AtlasProps, "store"> & { entries: RoleEntry[] }) {
  const chosen = store.role.value;
  return (
    <fieldset class="av-atlas-roles" aria-label="Roles">
      {entries.map(({ role, name, sign, color, count }) => (
        <button
          type="button"
          key={name}
          aria-pressed={chosen === role}
          title={chosen === role ? "Show all heads" : `Highlight these heads: ${name}`}
          onClick={() => {
            store.role.value = chosen === role ? undefined : role;
          }}
        >
          <RoleLetter sign={sign} color={color} />
          {name}
          <span class="av-muted">{counted(count)}</span>
        </button>
      ))}
    </fieldset>
  );
}
