/**
 * The head view: tokens in two columns, and between them what the chosen heads of a layer
 * attend to.
 */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { toPng } from "../draw/canvas";
import { toSvg } from "../draw/svg";
import { Choice, Frame, OpacityLegend } from "../ui/frame";
import { HeadStrip, toggleHead } from "../ui/head-strip";
import { Layers } from "../ui/layers";
import { download, type MenuEntry } from "../ui/menu";
import { defineView, type ViewContext } from "../ui/mount";
import { headColor, MOST_COLOURS } from "../ui/palette";
import { assign, follow, valuesOf } from "../ui/state";
import headCss from "./head.css";
import { captionOf, stackName, subtitleOf } from "./head-caption";
import { LineControls, toggleLeaveOut, WindowControls } from "./head-controls";
import { HEAD_DEFAULTS, HEAD_HASH, type HeadState } from "./head-data";
import { figure, toCsv } from "./head-figure";
import { isPair } from "./head-lines";
import type { Picture } from "./head-marks";
import { type HeadModel, makeHeadModel } from "./head-model";
import { HeadPlot } from "./head-plot";

const KEYS = [
  ["↑ ↓", "previous, next token"],
  ["← →", "queries, keys"],
  ["Enter", "pin the token, or take the pin away"],
  ["Esc", "clear pins"],
  ["[ ]", "previous, next layer"],
  ["0 … 9", "choose a head, or not"],
  ["n", "no head chosen: the mean"],
  ["x", "leave out the key, or take it back"],
  ["f", "find a token"],
  ["double-click", "on a head: it alone, and back"],
  ["Alt-click", "on a key: leave it out"],
  ["?", "show or hide these keys"],
] as const;

/** The figure of what is shown now, without what the pointer is on. */
function figureNow(model: HeadModel, state: ViewContext<HeadState>["state"]) {
  const picture = model.still();
  const loaded = model.loaded.peek();
  if (!picture || !loaded) throw new Error("Nothing is drawn yet, so there is no picture to take.");
  // The pins as they are now, though the weights may be those of a moment ago.
  const plan = {
    ...loaded.plan,
    token: model.plan.peek()?.token ?? null,
    key: model.plan.peek()?.key ?? null,
  };
  const caption = captionOf(plan, picture, valuesOf(state), false);
  caption.title = model.description.peek()?.model || "attention";
  return { picture, plan, caption, scene: figure(picture, caption) };
}

function HeadView({ context }: { context: ViewContext<HeadState> }) {
  const { state, root, source, width } = context;
  const model = useMemo(() => makeHeadModel(context), []);
  const beforeSolo = useRef<number[]>([]);
  const exporting = useSignal<string | null>(null);

  useEffect(() => {
    root.attnviz = {
      svg: () => {
        const { scene, caption } = figureNow(model, state);
        return toSvg(scene, `${caption.title}, ${caption.sentence}`);
      },
      png: (scale) => toPng(figureNow(model, state).scene, scale),
      csv: () => {
        const { picture, plan } = figureNow(model, state);
        return toCsv(picture, plan.stack.name, plan.layer);
      },
    };
  }, []);

  const error = model.error.value;
  const standing = error !== null ? "error" : model.connection.value;
  useEffect(() => root.setAttribute("data-attnviz-state", standing), [standing]);

  const record = model.description.value;
  const plan = model.plan.value;
  const loaded = model.loaded.value;

  const fileName = (ending: string): string =>
    `head-view-${plan?.stack.name ?? "self"}-layer-${plan?.layer ?? 0}.${ending}`;
  const attempt = (run: () => Promise<void> | void): void => {
    Promise.resolve()
      .then(run)
      .catch((reason: unknown) => {
        model.error.value = reason instanceof Error ? reason.message : String(reason);
      })
      .finally(() => {
        exporting.value = null;
      });
  };
  const exports: MenuEntry[] = [
    {
      label: "Picture, SVG",
      run: () =>
        attempt(() =>
          download(
            fileName("svg"),
            new Blob([root.attnviz?.svg() ?? ""], { type: "image/svg+xml" }),
          ),
        ),
    },
    {
      label: "Picture, PNG",
      run: () =>
        attempt(async () => download(fileName("png"), (await root.attnviz?.png(2)) ?? new Blob())),
    },
    {
      label: "Lines drawn, CSV",
      run: () =>
        attempt(() =>
          download(fileName("csv"), new Blob([root.attnviz?.csv() ?? ""], { type: "text/csv" })),
        ),
    },
  ];
  if (source.carrier.makesPages) {
    exports.push({
      label: "Page, HTML",
      run: () => {
        exporting.value = "Making the page …";
        attempt(async () => {
          const file = await source.page(valuesOf(state), context.ended);
          download(file.name, new Blob([file.bytes], { type: "text/html" }));
        });
      },
    });
  }

  const leaveOut = (key: number): void =>
    assign(state, { leave_out: toggleLeaveOut(state.leave_out.peek(), key) });

  const solo = (head: number): void => {
    const chosen = state.heads.peek();
    if (chosen.length === 1 && chosen[0] === head) {
      assign(state, { heads: beforeSolo.current });
    } else {
      beforeSolo.current = [...chosen];
      assign(state, { heads: [head] });
    }
  };

  return (
    <Frame
      title={record?.model || "attention"}
      subtitle={plan ? subtitleOf(plan, loaded?.weights.error ?? null, follow(state)) : ""}
      notes={record?.notes ?? []}
      connection={model.connection.value}
      error={error}
      onRetry={model.retry}
      exports={exports}
      keys={KEYS}
      controls={
        plan &&
        record && (
          <div class="av-controls">
            {record.stacks.length > 1 && (
              <div class="av-row">
                <Choice
                  label="Stack"
                  value={plan.stack.name}
                  options={record.stacks.map(
                    (stack) => [stack.name, stackName(stack.name)] as const,
                  )}
                  onChange={(stack) => {
                    const next = record.stacks.find((each) => each.name === stack);
                    const layer = next?.layers.includes(plan.layer)
                      ? plan.layer
                      : (next?.layers[0] ?? 0);
                    const pair =
                      next &&
                      isPair(next.query_tokens) &&
                      isPair(next.key_tokens ?? next.query_tokens);
                    // Another stack has other tokens: pins, windows and left out keys would point
                    // elsewhere.
                    assign(state, {
                      stack,
                      layer,
                      token: null,
                      key: null,
                      query_window: null,
                      key_window: null,
                      leave_out: state.leave_out.peek().filter((each) => typeof each === "string"),
                      ...(pair ? {} : { pair: "all" }),
                    });
                  }}
                />
              </div>
            )}
            <Layers
              layers={plan.stack.layers}
              layer={plan.layer}
              width={width.value}
              onChange={(layer) => assign(state, { layer })}
            />
            <HeadStrip
              count={plan.numHeads}
              chosen={plan.chosen}
              maps={model.maps.value}
              palette={context.palette.value}
              width={width.value}
              // From the state and not from what was rendered: a double click is two clicks.
              onToggle={(head) => assign(state, { heads: toggleHead(state.heads.peek(), head) })}
              onAll={() =>
                assign(state, { heads: Array.from({ length: plan.numHeads }, (_, head) => head) })
              }
              onNone={() => assign(state, { heads: [] })}
              onSolo={solo}
              onHover={(head) => {
                model.hoveredHead.value = head;
              }}
            />
            <LineControls context={context} model={model} plan={plan} />
            <WindowControls context={context} plan={plan} />
          </div>
        )
      }
      footer={<HeadFooter model={model} busy={exporting.value} />}
    >
      <HeadPlot context={context} model={model} onLeaveOut={leaveOut} />
    </Frame>
  );
}

/** What is said of the picture, and its legends. Apart, because it follows the pointer. */
function HeadFooter({ model, busy }: { model: HeadModel; busy: string | null }) {
  const caption = model.caption.value;
  const picture = model.picture.value;
  if (!caption || !picture) return null;
  return (
    <footer class="av-footer">
      <div class="av-words">
        <p class="av-sentence" aria-live="polite">
          {caption.sentence}
        </p>
        <p class="av-muted">{busy ?? caption.coverage}</p>
      </div>
      <div class="av-legends">
        <HeadLegend picture={picture} />
        <OpacityLegend
          maximum={caption.scale}
          note={caption.scaleNote}
          title="Full opacity: click for the largest weight drawn, or for the largest there can be"
          onToggle={() => {
            const fitted = picture.scale < picture.weights.maximum;
            model.scaling.value = fitted ? "whole" : "largest";
          }}
        />
      </div>
    </footer>
  );
}

/** The names of what is drawn, in its colours. */
function HeadLegend({ picture }: { picture: Picture }) {
  const { series } = picture.lines;
  const many = series.length > MOST_COLOURS;
  const only = series[0];
  const entries = many
    ? [{ name: `${series.length} heads`, color: picture.palette.neutral }]
    : series.map((each, place) => ({
        name: each.name,
        color:
          only?.head === null
            ? picture.palette.neutral
            : headColor(picture.palette, place, series.length),
      }));
  return (
    <span class="av-head-legend">
      {entries.map((entry) => (
        <span key={entry.name}>
          <span class="av-dash" style={{ background: entry.color }} />
          {entry.name}
        </span>
      ))}
    </span>
  );
}

const view = defineView<HeadState>({
  name: "head",
  defaults: HEAD_DEFAULTS,
  hash: HEAD_HASH,
  css: headCss,
  component: HeadView,
});

export const openPage = view.openPage;
export default view.widget;
