/** Form fields: a select, a switch, and a slider between two buttons. */

export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <label class="av-field">
      <span>{props.label}</span>
      <select
        value={props.value}
        onChange={(event) => props.onChange(event.currentTarget.value as T)}
      >
        {props.options.map(([value, text]) => (
          <option key={value} value={value} selected={value === props.value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Switch(props: {
  label: string;
  on: boolean;
  disabled?: boolean;
  onChange: (on: boolean) => void;
}) {
  return (
    <label class="av-field av-switch">
      <input
        type="checkbox"
        checked={props.on}
        disabled={props.disabled ?? false}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      <span>{props.label}</span>
    </label>
  );
}

/** Render a slider between two buttons, which select the previous and the next value. */
export function StepSlider(props: {
  label: string;
  /** Current value as screen readers read it. */
  valueText: string;
  /** ARIA labels of the buttons for the previous and the next value. */
  back: string;
  on: string;
  min?: number;
  max: number;
  value: number;
  /** Change per click on a button. */
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
