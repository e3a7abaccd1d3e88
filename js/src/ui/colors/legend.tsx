/**
 * Legend of a colour scale: a ramp, which is the gradient of the colours, the values at its ends
 * and middle, and an optional switch.
 */

import type { ComponentChildren } from "preact";
import type { LegendScale } from "../../draw/figure";
import { hatchLines, hatchMark, SAMPLE, TINT_OPACITY } from "../../draw/hatch";

/** Number of intervals between the colours of a ramp. */
const STEPS = 64;

interface ColorLegendProps {
  scale: LegendScale;
  /** Element above the ramp. */
  title?: ComponentChildren;
  /** Switch below the ramp that changes the type of the scale. */
  toggle?: { label: string; title: string; on: boolean; onChange: () => void };
}

/** Render the sample of a legend as a figure shows it. */
function Sample({ name, color, hatched }: NonNullable<LegendScale["sample"]>) {
  const box = { x: 0, y: 0, ...SAMPLE };
  const { stroke, opacity, ...hatch } = hatchMark({ ...box, columns: 1, rows: 1 }, [1], color);
  const path = hatchLines({ stroke, ...hatch }).map(
    ([x0, y0, x1, y1]) => `M${x0} ${y0}L${x1} ${y1}`,
  );
  return (
    <span class="av-ramp-sample">
      <svg {...SAMPLE} aria-hidden="true">
        {hatched ? (
          <path d={path.join("")} stroke={stroke} opacity={opacity} />
        ) : (
          <rect {...SAMPLE} fill={color} opacity={TINT_OPACITY} />
        )}
      </svg>
      {name}
    </span>
  );
}

/** Render the ramp of a scale with its labels. */
export function ColorLegend({ scale, title: above, toggle }: ColorLegendProps) {
  const colors = Array.from({ length: STEPS + 1 }, (_, i) => {
    const [red, green, blue, opacity] = scale.color(i / STEPS);
    return `rgb(${red} ${green} ${blue} / ${opacity / 255})`;
  });
  const backgroundImage = `linear-gradient(to right, ${colors.join(", ")})`;
  const content = (
    <>
      {above}
      <span class="av-ramp" style={{ backgroundImage }} />
      <span class="av-ramp-words">
        {scale.labels.map((label, i) => (
          <span key={i}>{label}</span>
        ))}
      </span>
      {scale.quantity && <span class="av-color-title">{scale.quantity}</span>}
      {scale.sample && <Sample {...scale.sample} />}
    </>
  );
  if (!toggle) return <div class="av-legend">{content}</div>;
  const { label, title, on, onChange } = toggle;
  return (
    // The label contains the ramp, so a click on the ramp also changes the switch.
    <label class="av-legend av-legend-switch" title={title}>
      {content}
      <span class="av-legend-choice">
        <input
          type="checkbox"
          role="switch"
          aria-label={label}
          aria-checked={on}
          checked={on}
          onChange={onChange}
        />
        {label}
      </span>
    </label>
  );
}
