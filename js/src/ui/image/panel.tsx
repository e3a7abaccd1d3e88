/** Panel that shows an input image of the model with attention weights over it. */

import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { RECORD_TRAITS } from "../../client/traits";
import { sceneOf } from "../../draw/marks";
import type { Side } from "../axis";
import { Control } from "../controls/declared";
import { Choice } from "../controls/fields";
import { type KeyActions, runKey, type Shortcut } from "../controls/keys";
import { type Hint, pointIn, ScenePlot } from "../plot/plot";
import { formatWeight, quoted } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { assign } from "../view/state";
import { areSmall, patchBox, patchUnder } from "./marks";
import { onGrid, type WithImages } from "./state";
import type { HoveredPatch, ImagePanel } from "./store";

interface PanelProps<S extends RecordState> {
  context: WithImages<ViewContext<S>>;
  panel: ImagePanel;
}

/** Return the row about the image for the keyboard help, or no row if the image is not shown. */
export function imageShortcuts<S extends RecordState>({
  image,
}: WithImages<ViewContext<S>>): Shortcut[] {
  const meaning = "arrows move over patches, Enter or a click chooses one";
  return image?.shown.value ? [["on the image", meaning]] : [];
}

/** Render the plot of a view, with the image and its weights beside or below it. */
export function WithImage<S extends RecordState>(
  props: PanelProps<S> & { children: ComponentChildren },
) {
  const room = props.context.image;
  const shown = room?.shown.value ?? false;
  return (
    <div class={shown ? `av-with-image${room?.beside.value ? " av-beside" : ""}` : ""}>
      {props.children}
      {shown && <ImagePlot context={props.context} panel={props.panel} />}
    </div>
  );
}

/** Render the image panel with pointer and keyboard control and a tooltip. */
function ImagePlot<S extends RecordState>({ context, panel }: PanelProps<S>) {
  const plot = useRef<HTMLDivElement>(null);
  const scene = useComputed(() => {
    const now = panel.drawn.value;
    return now && sceneOf(now, [], now.marks);
  });
  const sign = useComputed(() => (panel.current.value ? "image" : null));
  const hint = useComputed<Hint | null>(() => {
    const [at, now] = [panel.hovered.value, panel.content.value];
    const tile = at && panel.drawn.value?.tiles[at.tile];
    if (!at || !tile || !now) return null;
    const { query, key } = panel.tokensAt(at);
    const name = (side: Side, token: number | null): string[] =>
      token === null ? [] : [`${quoted(now.axes[side].tokens.text[token] ?? "")} (${token})`];
    const names = [...name("query", query), ...name("key", key)];
    const heats = areSmall(now.heats) ? now.heats.slice(at.tile, at.tile + 1) : now.heats;
    const rows = heats.map((heat) => ({
      color: heat.series.color,
      text: `${heat.series.name}  ${formatWeight(onGrid(heat, now.grid)[at.patch] ?? 0, 3)}`,
      meant: heat === now.heats[at.tile] && heats.length > 1,
    }));
    // The tooltip is at the lower right corner of the patch.
    const patch = patchBox(now.grid, tile, at.patch);
    const [x, y] = [patch.x + patch.width, patch.y + patch.height];
    return { title: names.join(" → "), rows, x, y };
  });

  const patchAt = (event: MouseEvent): HoveredPatch | null => {
    const [now, drawn] = [panel.content.peek(), panel.drawn.peek()];
    const { x, y } = pointIn(plot.current, event);
    return now && drawn && patchUnder(drawn, now.grid, x, y);
  };
  const leave = (): void => panel.point(null);
  const move = (down: number, across: number) => () => {
    const { grid, heats = [] } = panel.content.peek() ?? {};
    if (!grid) return false;
    const now = panel.hovered.peek();
    // The first press of an arrow key only shows the cursor.
    const from = now?.patch ?? panel.start();
    const step = (index: number, change: number, count: number): number =>
      Math.max(0, Math.min(count - 1, index + (now ? change : 0)));
    if (areSmall(heats)) {
      panel.point({ patch: from, tile: step(now?.tile ?? 0, down + across, heats.length) });
      return true;
    }
    const row = step(Math.floor(from / grid.columns), down, grid.rows);
    const column = step(from % grid.columns, across, grid.columns);
    panel.point({ patch: row * grid.columns + column, tile: now?.tile ?? 0 });
    return true;
  };
  const choose = (to: HoveredPatch | null): void => {
    if (to) panel.choose(to);
  };
  const chooseHovered = (): void => choose(panel.hovered.peek());
  const width = context.image?.panelWidth.value ?? 0;
  const actions: KeyActions = {
    ArrowUp: move(-1, 0),
    ArrowDown: move(1, 0),
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    Enter: chooseHovered,
    " ": chooseHovered,
    Escape: () => {
      leave();
      assign(context.common, { token: null, key: null });
    },
  };
  const kinds = panel.kinds.value;
  const grids = panel.grids.value;
  const names = grids.map(({ image, rows, columns, name = `${image}` }, i): [string, string] => {
    const twice = grids.some((other, j) => j !== i && other.image === image);
    return [String(i), `${name}${twice ? `, ${rows} × ${columns}` : ""}`];
  });
  const at = hint.value;
  const spoken = at ? [`${at.title}: ${at.rows.map((row) => row.text).join(", ")}.`] : [];
  return (
    <div class="av-image" style={{ width: `${width}px` }}>
      {kinds.length > 1 && (
        <Control trait={RECORD_TRAITS.maps} field={context.common.maps} words={kinds} />
      )}
      {grids.length > 1 && (
        <Choice
          label="Image"
          value={String(panel.shownGrid.value)}
          options={names}
          onChange={(value) => {
            panel.picked.value = Number(value);
          }}
        />
      )}
      <ScenePlot
        scene={scene}
        drawnId={sign}
        onDrawn={(drawnId) => {
          if (context.image) context.image.drawn.value = drawnId !== null;
        }}
        kind="image with weights over it"
        label={[panel.caption.value || "Image", ...spoken].join(" ")}
        plot={plot}
        hint={at}
        width={width}
        events={{
          onPointerMove: (event: PointerEvent) => panel.point(patchAt(event)),
          onPointerLeave: leave,
          onClick: (event: MouseEvent) => choose(patchAt(event)),
          onBlur: leave,
          onKeyDown: (event: KeyboardEvent) => runKey(event, actions),
        }}
      />
    </div>
  );
}
