/** Controls of the atlas: colour of the heads, and their order. */

import type { Signal } from "@preact/signals";
import { bound, Choice } from "../../ui/controls/fields";
import type { ViewContext } from "../../ui/view/define-view";
import type { AtlasState } from "./state";
import type { AtlasStore } from "./store";

export interface AtlasProps {
  context: ViewContext<AtlasState>;
  store: AtlasStore;
}

export function AtlasControls({ context, store }: AtlasProps) {
  const { state } = context;
  const stack = store.stack.value;
  if (!stack) return null;
  const colors = ["role", ...stack.statistics.map(({ name }) => name)];
  /** Render a select. Another stack may lack the statistic that was chosen. */
  const choice = (label: string, field: Signal<string>, names: readonly string[]) => (
    <Choice
      label={label}
      {...bound(field)}
      value={names.includes(field.value) ? field.value : (names[0] ?? "")}
      options={names.map((name) => [name, name])}
    />
  );
  return (
    <div class="av-row av-options">
      {choice("Colour", state.color, colors)}
      {choice("Heads by", state.order, ["number", ...colors])}
    </div>
  );
}
