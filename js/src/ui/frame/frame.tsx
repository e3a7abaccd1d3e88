/** The frame that all views share: header, connection, controls, picture, status, keys. */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Connection } from "../../client/source";
import { Menu, type MenuEntry } from "../controls/menu";

export interface FrameProps {
  /** The model's name. */
  title: string;
  /** The stack, its tokens and the precision, in words. */
  subtitle: string;
  notes: readonly string[];
  connection: Connection;
  error: string | null;
  onRetry: () => void;
  exports: MenuEntry[];
  /** Keys and what they do. */
  keys: readonly (readonly [string, string])[];
  controls: ComponentChildren;
  children: ComponentChildren;
  footer: ComponentChildren;
}

/** Says how the view stands with its source, where there is something to say. */
function Standing({
  connection,
  error,
  onRetry,
}: Pick<FrameProps, "connection" | "error" | "onRetry">) {
  const text =
    error !== null
      ? error
      : connection === "unanswered"
        ? "The kernel does not answer: it is busy or gone. What is drawn stays."
        : connection === "waiting"
          ? "Waiting for the kernel …"
          : null;
  return (
    <div role="status" class="av-standing-place">
      {text !== null && (
        <div class={`av-standing${error !== null ? " av-error" : ""}`}>
          <span>{text}</span>
          {(error !== null || connection === "unanswered") && (
            <button type="button" onClick={onRetry}>
              Try again
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/** Hears "?", and keeps what is typed into a field from the notebook's shortcuts. */
function keysOf(helping: Signal<boolean>): (event: KeyboardEvent) => void {
  return (event) => {
    const typing = (event.composedPath()[0] as Element | undefined)?.matches?.(
      "input, select, textarea",
    );
    if (event.key === "?" && !typing) {
      helping.value = !helping.value;
      event.stopPropagation();
      event.preventDefault();
    } else if (typing && !event.metaKey && !event.ctrlKey && event.key !== "Tab") {
      event.stopPropagation();
    }
  };
}

/** The button for the keys, and the export menu. */
function Actions(props: { helping: Signal<boolean>; exports: MenuEntry[] }) {
  const { helping } = props;
  return (
    <div class="av-actions">
      <button
        type="button"
        class="av-plain"
        aria-expanded={helping.value}
        aria-label="Keys"
        title="Keys"
        onClick={() => {
          helping.value = !helping.value;
        }}
      >
        ?
      </button>
      <Menu label="Export" entries={props.exports} />
    </div>
  );
}

function Keys({ keys }: { keys: FrameProps["keys"] }) {
  return (
    <dl class="av-keys">
      {keys.map(([key, meaning]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{meaning}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A view that stands among others, in one frame with them. */
export function PaneFrame(
  props: Pick<FrameProps, "exports" | "keys" | "controls" | "children" | "footer"> & {
    name: string;
  },
) {
  const helping = useSignal(false);
  return (
    <section class="av-frame" aria-label={props.name} onKeyDown={keysOf(helping)}>
      <header class="av-header">
        <h2 class="av-pane-title">{props.name}</h2>
        <Actions helping={helping} exports={props.exports} />
      </header>
      {helping.value && <Keys keys={props.keys} />}
      {props.controls}
      {props.children}
      {props.footer}
    </section>
  );
}

export function Frame(props: FrameProps) {
  const helping = useSignal(false);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: hears the keys of the controls inside.
    <div class="av-frame" onKeyDown={keysOf(helping)}>
      <header class="av-header">
        <div class="av-headline">
          <span class="av-title">{props.title}</span>{" "}
          <span class="av-subtitle">{props.subtitle}</span>
        </div>
        <Actions helping={helping} exports={props.exports} />
      </header>
      {helping.value && <Keys keys={props.keys} />}
      {props.notes.map((note) => (
        <p class="av-note" key={note}>
          {note}
        </p>
      ))}
      <Standing connection={props.connection} error={props.error} onRetry={props.onRetry} />
      {props.controls}
      {props.children}
      {props.footer}
    </div>
  );
}

/** A named select of a few values. */
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

/** A named switch. */
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
