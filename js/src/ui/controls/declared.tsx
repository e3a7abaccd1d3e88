/** Controls of traits, as Python declares them (see `client/traits.ts`). */

import type { Signal } from "@preact/signals";
import { RECORD_TRAITS, type Trait } from "../../client/traits";
import { type Signals, same } from "../view/state";
import { bound, Choice, NumberField, Switch } from "./fields";

/**
 * Render the controls of a group, in the order of the traits. A control is left out if all traits
 * that it depends on (`when`) have their defaults.
 */
export function Controls<S extends object>(props: {
  traits: { readonly [K in keyof S]?: Trait<unknown> };
  state: Signals<S>;
  group: string;
}) {
  const { state, group } = props;
  const traits = props.traits as Record<string, Trait<unknown>>;
  const all: typeof traits = { ...RECORD_TRAITS, ...traits };
  const differs = (name: string): boolean => !same(state[name as keyof S].value, all[name]?.value);
  return Object.entries(traits)
    .filter(([, trait]) => trait.group === group && (!trait.when || trait.when.some(differs)))
    .map(([name, trait]) => <Control key={name} trait={trait} field={state[name as keyof S]} />);
}

/** Render the control of a trait: a switch, a menu or a number field. */
export function Control(props: {
  trait: Trait<unknown>;
  field: Signal<unknown>;
  /** Strings that a menu offers. If it does not offer the value, it shows the first. */
  words?: readonly string[] | undefined;
  /** Labels that replace declared ones. */
  labels?: Readonly<Record<string, string>> | undefined;
}) {
  const { trait, field } = props;
  const { label = "", kind } = trait;
  const min = trait.min ?? (kind === "index" ? 0 : undefined);
  if (kind === "boolean") return <Switch label={label} {...bound(field as Signal<boolean>)} />;
  if (typeof kind === "string")
    return <NumberField label={label} min={min} {...bound(field as Signal<number>)} />;
  const words = props.words ?? (kind as readonly string[]);
  const labels = { ...trait.labels, ...props.labels };
  return (
    <Choice
      label={label}
      value={words.find((word) => word === field.value) ?? (words[0] as string)}
      options={words.map((word) => [word, labels[word] ?? word] as const)}
      onChange={bound(field).onChange}
    />
  );
}
