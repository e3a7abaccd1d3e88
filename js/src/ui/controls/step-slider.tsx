/** A slider between two buttons that step back and on. */

export function StepSlider(props: {
  label: string;
  /** The value in words. */
  valueText: string;
  /** Names of the two buttons. */
  back: string;
  on: string;
  min?: number;
  max: number;
  value: number;
  /** How far a button leads. */
  step?: number;
  onChange: (value: number) => void;
}) {
  const { min = 0, max, value, step = 1, onChange } = props;
  const button = (name: string, sign: string, by: number, disabled: boolean) => (
    <button
      type="button"
      class="av-step"
      aria-label={name}
      disabled={disabled}
      onClick={() => onChange(Math.max(min, Math.min(max, value + by)))}
    >
      {sign}
    </button>
  );
  return (
    <>
      {button(props.back, "‹", -step, value <= min)}
      <input
        type="range"
        aria-label={props.label}
        aria-valuetext={props.valueText}
        min={min}
        max={max}
        value={value}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      {button(props.on, "›", step, value >= max)}
    </>
  );
}
