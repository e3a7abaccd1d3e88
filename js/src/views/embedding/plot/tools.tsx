/** The row above an enlarged head: its name and trust figures, and buttons. */

import type { ComponentProps } from "preact";
import { Chip } from "../../../ui/controls/fields";
import { isSameHead } from "../../../ui/head-grid/grid";
import { capital, headName } from "../../../ui/text/captions";
import { assign } from "../../../ui/view/state";
import { figuresInShort, TRUST_HELP } from "../trust";
import { type PlotProps, ZOOM } from "./plot";

export function PlotTools({ context: { state }, store, plot }: PlotProps) {
  const { tool } = plot;
  const head = store.head.value;
  if (!head) return null;
  const trust = store.headTrust.value;
  const to = (layers: number, heads: number, sign: string) => {
    const neighbour = store.neighbourOf(layers, heads);
    const none = isSameHead(neighbour, head);
    const label = none || !neighbour ? "no head" : headName(neighbour);
    const show = () => store.neighbour(layers, heads);
    return <Tool label={label} disabled={none} onClick={show} sign={sign} />;
  };
  const dragging = (kind: typeof tool.value, name: string, effect: string) => {
    const choose = () => {
      tool.value = kind;
    };
    const props = { label: `${name}: dragging ${effect}`, "aria-pressed": tool.value === kind };
    return <Tool {...props} onClick={choose} sign={name} />;
  };
  return (
    <div class="av-wrapping av-embedding-tools">
      <Chip title="Back to all heads (Esc)" onClick={() => assign(state, { enlarged: false })}>
        ‹ All heads
      </Chip>
      <h3 class="av-pane-title">
        {capital(headName(head))}
        <span class="av-muted" title={TRUST_HELP}>
          {trust ? figuresInShort(trust, "words") : ""}
        </span>
      </h3>
      <fieldset class="av-segments" aria-label="Neighbouring heads">
        {to(0, -1, "←")}
        {to(0, 1, "→")}
        {to(-1, 0, "↑")}
        {to(1, 0, "↓")}
      </fieldset>
      <fieldset class="av-segments" aria-label="Effect of dragging">
        {state.dimensions.value === 3
          ? dragging("move", "Turn", "turns the plot")
          : dragging("move", "Move", "moves the plot")}
        {dragging("lasso", "Lasso", "selects points, as Shift-drag does")}
      </fieldset>
      {/* The zoom buttons are outside of the plot, because they would hide points. */}
      <fieldset class="av-segments" aria-label="Zoom">
        <Tool label="Zoom in" onClick={() => plot.zoomBy(ZOOM)} sign="+" />
        <Tool label="Zoom out" onClick={() => plot.zoomBy(1 / ZOOM)} sign="−" />
        <Tool label="Fit: show all points" onClick={plot.fit} sign="Fit" />
      </fieldset>
    </div>
  );
}

/** Button with a sign, and with its effect as the name. */
function Tool({ label, sign, ...props }: { label: string; sign: string } & ButtonProps) {
  return (
    <button type="button" aria-label={label} title={label} {...props}>
      {sign}
    </button>
  );
}

type ButtonProps = ComponentProps<"button">;
