/**
 * Form fields (a select, a checkbox, a slider between two buttons) and small buttons.
 */

import type { Signal } from "@preact/signals";
import type { ComponentProps } from "preact";

/** Return `value` and `onChange` for a field, so that the field shows and sets a signal. */
export function bound<T>(field: Signal<T>) {
  const onChange = (value: T): void => {
    field.value = value;
  };
  return { value: field.value, onChange };
}

/**
 * Render a select. `options` has the text for each value, as an object or as pairs (value, text).
 */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: Readonly<Record<T, string>> | Iterable<readonly [T, string]>;
  onChange: (value: T) => void;
}) {
  const { options } = props;
  const pairs = Symbol.iterator in options ? [...options] : Object.entries<string>(options);
  return (
    <label class="av-field">
      <span>{props.label}</span>
      <select
        value={props.value}
        onChange={(event) => props.onChange(event.currentTarget.value as T)}
      >
        {pairs.map(([value, text]) => (
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
  value: boolean;
  disabled?: boolean;
  onChange: (value: boolean) => void;
}) {
  return (
    <label class="av-field av-switch">
      <input
        type="checkbox"
        checked={props.value}
        disabled={props.disabled ?? false}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      <span>{props.label}</span>
    </label>
  );
}

export function NumberField(props: {
  label: string;
  title?: string;
  value: number;
  min?: number | undefined;
  max?: number;
  onChange: (value: number) => void;
}) {
  const { label, title, value, min, max, onChange } = props;
  return (
    <label class="av-field" title={title}>
      <span>{label}</span>
      <input
        type="number"
        min={min}
        max={max}
        step={1}
        value={value}
        // A change event follows the Enter key or a lost focus. Input events would set the value
        // after every typed digit, which may start a long computation.
        onChange={({ currentTarget: input }) => {
          if (input.value !== "" && input.checkValidity()) onChange(input.valueAsNumber);
          else input.value = String(value);
        }}
      />
    </label>
  );
}

/** Render a slider between two buttons, which decrease and increase its value by `step`. */
export function StepSlider(props: {
  label: string;
  /** Current value in words. Screen readers read it instead of the number. */
  valueText: string;
  /**
   * ARIA labels of the button that goes back (`back`) and of the button that goes forward (`on`).
   */
  back: string;
  on: string;
  min?: number;
  max: number;
  value: number;
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

/** Render a chip: a small button with rounded corners, for example one entry of a list. */
export function Chip(props: ComponentProps<"button">) {
  return <button type="button" class="av-chip" {...props} />;
}

/**
 * Render a button with a cross that closes or removes something. `label` is its ARIA label and, if
 * there is no `title`, its tooltip.
 */
export function CloseButton(props: { label: string; title?: string; onClick: () => void }) {
  const { label, title = label, onClick } = props;
  return (
    <button type="button" class="av-plain" aria-label={label} title={title} onClick={onClick}>
      ×
    </button>
  );
}
