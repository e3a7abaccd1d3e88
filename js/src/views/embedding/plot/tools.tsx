/** Above one head's plot: which head it is, its neighbours, and what dragging does. */

import type { ComponentChildren } from "preact";
import { keptHeads } from "../../../client/source";
import { headKey, neighbourOf } from "../state";
import { figuresInShort, TRUST_HELP } from "../trust";
import { leave, type PlotRoom, zoomBy } from "./keys";

export function PlotTools(props: PlotRoom) {
  const { context, model, plot } = props;
  const { state } = context;
  const head = model.head.value;
  const place = context.record.place.value;
  if (!head || !place) return null;
  const trust = model.headTrust.value;
  const plotted = state.shown.value === "plot";
  const to = (layers: number, heads: number, sign: string) => {
    const there = neighbourOf(place.stack, head, layers, heads);
    const name = `layer ${there.layer}, head ${there.head}`;
    const none = headKey(there) === headKey(head);
    return (
      <Tool
        label={none ? "no head there" : name}
        disabled={none}
        onClick={() => model.neighbour(layers, heads)}
      >
        {sign}
      </Tool>
    );
  };
  const many = place.stack.layers.some((layer) => keptHeads(place.stack, layer).length > 1);
  return (
    <div class="av-embedding-tools">
      <button
        type="button"
        class="av-chip"
        title="Back to all heads (Esc)"
        onClick={() => leave(props)}
      >
        ‹ All heads
      </button>
      <h3 class="av-embedding-name">
        Layer {head.layer}, head {head.head}
        {plotted && (
          <span class="av-muted" title={TRUST_HELP}>
            {trust ? figuresInShort(trust, "words") : ""}
          </span>
        )}
      </h3>
      <fieldset class="av-embedding-group" aria-label="Neighbouring heads">
        {many && to(0, -1, "←")}
        {many && to(0, 1, "→")}
        {to(-1, 0, "↑")}
        {to(1, 0, "↓")}
      </fieldset>
      {plotted && (
        <fieldset class="av-embedding-group" aria-label="What dragging does">
          <Tool
            label={
              state.dimensions.value === 3
                ? "Turn: dragging turns the plot"
                : "Move: dragging moves the plot"
            }
            pressed={plot.tool.value === "move"}
            onClick={() => {
              plot.tool.value = "move";
            }}
          >
            {state.dimensions.value === 3 ? "Turn" : "Move"}
          </Tool>
          <Tool
            label="Lasso: dragging draws one around points, as does Shift and dragging"
            pressed={plot.tool.value === "lasso"}
            onClick={() => {
              plot.tool.value = "lasso";
            }}
          >
            Lasso
          </Tool>
        </fieldset>
      )}
      {plotted && <ZoomTools {...props} />}
    </div>
  );
}

/** Nearer, farther, everything: not in the plot, where they would lie over points. */
function ZoomTools(props: PlotRoom) {
  return (
    <fieldset class="av-embedding-group" aria-label="Nearer and farther">
      <Tool label="Nearer" onClick={() => zoomBy(props, 1.5)}>
        +
      </Tool>
      <Tool label="Farther" onClick={() => zoomBy(props, 1 / 1.5)}>
        −
      </Tool>
      <Tool label="Fit: everything in sight" onClick={props.plot.fit}>
        Fit
      </Tool>
    </fieldset>
  );
}

function Tool(props: {
  label: string;
  pressed?: boolean;
  disabled?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}) {
  return (
    <button
      type="button"
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled ?? false}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}
