/** Bars of effects in HTML, and their legends. See `effects.ts` for effects. */

import { inkColor } from "../colors/color-scales";
import { ColorLegend } from "../colors/legend";
import { type Palette, rgbOf } from "../colors/palette";
import { MarkCanvas } from "../plot/mark-canvas";
import { aroundZero } from "../text/captions";
import { type EffectScale, effectMarks, endText } from "./effects";

/** Height in pixels of the bar of an effect, and of its zero line. */
const HEIGHT = { bar: 5, zero: 7 };

/**
 * Render an effect as a bar that starts at a zero line in the middle. The left edge is at −`end`,
 * and the right edge at +`end`. Without a value, render an empty space of the same size.
 */
export function EffectBar(props: {
  value: number | null;
  /** Standard error of the effect, or null if it is unknown. */
  error: number | null;
  end: number;
  width: number;
  palette: Palette;
}) {
  const { value, error, end, width, palette } = props;
  const box = { x: 0, y: (HEIGHT.zero - HEIGHT.bar) / 2, width, height: HEIGHT.bar };
  const marks = effectMarks(box, value, end, palette, error);
  return <MarkCanvas class="av-effect" aria-hidden {...{ marks, width, height: HEIGHT.zero }} />;
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
