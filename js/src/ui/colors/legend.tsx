/** The legend of a colour scale: a ramp, what its ends and its middle mean, and its switch. */

import type { Signal } from "@preact/signals";
import type { Scaling } from "./color-scales";

interface ColorLegendProps {
  /** CSS colours from the left end to the right; without them, the style sheet's ramp. */
  stops?: readonly string[];
  /** Below the left end, the middle and the right end. */
  labels: readonly [string, string, string];
  /** What the colours show, where the labels do not say it. */
  quantity?: string;
  name?: string;
  /** What of the scale can be switched. */
  toggle?: LegendSwitch;
}

/** A switch of a scale: where it ends, or how it runs. */
interface LegendSwitch {
  /** What the scale is where it is on. */
  label: string;
  /** What it is on and off, in words. */
  title: string;
  on: boolean;
  onChange: () => void;
}

/**
 * The switch of where a scale of weights ends.
 *
 * @param scale as it is now: "auto" may mean either.
 */
export function fitSwitch(
  label: string,
  scaling: Signal<Scaling>,
  scale: { end: number; maximum: number },
  quantity = "weight",
): LegendSwitch {
  const auto = scaling.value === "auto";
  const on = auto ? scale.end < scale.maximum : scaling.value === "largest";
  return {
    label,
    title: `On: the scale ends at about the largest ${quantity} ${label.replace("scale to the largest ", "")}. Off: at the largest there can be.`,
    on,
    onChange: () => {
      scaling.value = on ? "whole" : "largest";
    },
  };
}

export function ColorLegend(props: ColorLegendProps) {
  const { stops, labels, quantity, name = "av-legend", toggle } = props;
  const content = (
    <>
      <span
        class="av-ramp"
        style={
          stops ? { backgroundImage: `linear-gradient(to right, ${stops.join(", ")})` } : undefined
        }
      />
      <span class="av-ramp-words">
        <span>{labels[0]}</span>
        <span>{labels[1]}</span>
        <span>{labels[2]}</span>
      </span>
      {quantity && <span class="av-color-title">{quantity}</span>}
    </>
  );
  if (!toggle) return <div class={name}>{content}</div>;
  return (
    // A click on the ramp switches as well.
    <label class={`${name} av-legend-switch`} title={toggle.title}>
      {content}
      <span class="av-legend-choice">
        <input
          type="checkbox"
          role="switch"
          aria-label={toggle.label}
          aria-checked={toggle.on}
          checked={toggle.on}
          onChange={toggle.onChange}
        />
        {toggle.label}
      </span>
    </label>
  );
}
