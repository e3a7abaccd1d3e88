/** The legend of a colour scale: a ramp, and what its ends and its middle mean. */

interface ColorLegendProps {
  /** CSS colours from the left end to the right; without them, the style sheet's ramp. */
  stops?: readonly string[];
  /** Below the left end, the middle and the right end. */
  labels: readonly [string, string, string];
  /** What the colours show, where the labels do not say it. */
  quantity?: string;
  name?: string;
  /** A click changes the scale; the title says how. */
  onClick?: () => void;
  title?: string;
}

export function ColorLegend(props: ColorLegendProps) {
  const { stops, labels, quantity, name = "av-legend", onClick, title } = props;
  const content = (
    <>
      <span
        class="av-ramp"
        style={stops ? { background: `linear-gradient(to right, ${stops.join(", ")})` } : undefined}
      />
      <span class="av-ramp-words">
        <span>{labels[0]}</span>
        <span>{labels[1]}</span>
        <span>{labels[2]}</span>
      </span>
      {quantity && <span class="av-color-title">{quantity}</span>}
    </>
  );
  if (!onClick) return <div class={name}>{content}</div>;
  return (
    <button type="button" class={name} title={title} onClick={onClick}>
      {content}
    </button>
  );
}
