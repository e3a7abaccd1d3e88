/** Bars of effects in HTML, and their legends. See `effects.ts` for effects. */

import { inkColor } from "../colors/color-scales";
import { ColorLegend } from "../colors/legend";
import { type Palette, rgbOf } from "../colors/palette";
import { aroundZero } from "../text/captions";
import { type EffectScale, endText, positionOn } from "./effects";

/**
 * Render an effect as a bar that starts at a zero line in the middle. The left edge is at −`end`,
 * and the right edge at +`end`. Without a value, render an empty space of the same size.
 */
export function EffectBar(props: {
  value: number | null;
  /** Standard error of the effect, or null if it is unknown. */
  error: number | null;
  end: number;
  palette: Palette;
}) {
  const { value, error, end, palette } = props;
  const at = (number: number): number => 100 * positionOn(end, number);
  const span = (from: number, to: number, color: string): string =>
    `left:${at(from)}%;width:${at(to) - at(from)}%;background:${color}`;
  const signed = value ?? 0;
  const color = signed < 0 ? palette.negative : palette.positive;
  return (
    <span class={`av-effect${value === null ? " av-none" : ""}`} aria-hidden="true">
      <i style={span(Math.min(0, signed), Math.max(0, signed), color)} />
      {value !== null && error !== null && error > 0 && end > 0 && (
        <b style={span(value - error, value + error, palette.ink)} />
      )}
    </span>
  );
}

/**
 * Render the legend of the bars: their two colours and the ends of their scale. `where` says where
 * the bars are, for example "below heads".
 */
export function EffectLegend(props: { scale: EffectScale; palette: Palette; where: string }) {
  const { scale, palette, where } = props;
  const quantity = `bars ${where}: ${scale.name}`;
  const colorAt = (position: number): string =>
    position === 0.5 ? palette.muted : inkColor(palette, position - 0.5);
  return (
    <ColorLegend
      scale={{
        color: (position) => [...rgbOf(colorAt(position)), 255],
        labels: aroundZero(endText(scale)),
        quantity,
      }}
    />
  );
}
