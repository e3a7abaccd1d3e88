/** Bars of effects in HTML, and their legends. See `effects.ts` for effects. */

import { inkColor } from "../colors/color-scales";
import { ColorLegend } from "../colors/legend";
import { type Palette, rgbOf } from "../colors/palette";
import { aroundZero } from "../text/captions";
import { barShares, type EffectScale, effectsInWords, endText, whiskerShares } from "./effects";

/**
 * Render an effect as a bar that starts at a zero line. Without a value, render an empty space of
 * the same size.
 */
export function EffectBar(props: {
  value: number | null;
  /** Standard error of the effect, if it is known. */
  error?: number | null;
  end: number;
  palette: Palette;
}) {
  const { value, error, end, palette } = props;
  const whisker = value !== null && error && end > 0 ? whiskerShares(value, error, end) : null;
  const { from, length } = barShares(value, end);
  const color = (value ?? 0) < 0 ? palette.negative : palette.positive;
  return (
    <span class={`av-effect${value === null ? " av-none" : ""}`} aria-hidden="true">
      <i style={`left:${100 * from}%;width:${100 * length}%;background:${color}`} />
      {whisker && (
        <b
          style={`left:${100 * whisker.from}%;width:${100 * (whisker.to - whisker.from)}%;background:${palette.ink}`}
        />
      )}
    </span>
  );
}

/** Render the legend of the bars: their two colours and the ends of the scale. */
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

/**
 * Render the sentence that explains the bars below heads. In the compact form, render only the name
 * and the value of a full bar.
 */
export function EffectNote(props: { scale: EffectScale; compact?: boolean | undefined }) {
  const { scale, compact } = props;
  const words = effectsInWords(scale, "below heads");
  return (
    <span class="av-muted av-effect-note" title={compact ? words : undefined}>
      {compact ? `${scale.name} ±${endText(scale)}` : words}
    </span>
  );
}
