/** The head that is open, in detail: beside the grid, and never over it. */

import { computed, effect, type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { OpacityLegend } from "../ui/frame";
import type { ViewContext } from "../ui/mount";
import type { Place, RecordState } from "../ui/record";
import type { Signals } from "../ui/state";
import { HEAD_DEFAULTS, type HeadState } from "./head-data";
import { makeHeadModel } from "./head-model";
import { HeadPlot } from "./head-plot";
import type { ModelState } from "./model-data";
import type { ModelModel } from "./model-model";
import { cellName } from "./model-words";

/** From so many tokens on, all lines together are only ink. */
const TOKENS_WITH_ALL_LINES = 32;

/** The sentence below the picture, and what is read out. */
export interface Said {
  sentence: string;
  summary: string;
}

export interface DetailProps {
  context: ViewContext<ModelState>;
  model: ModelModel;
  /** Whether the detail is drawn. */
  drawn: Signal<boolean>;
  /** What it says of the head, which it knows more exactly than a thumbnail does. */
  said: Signal<Said | null>;
  onClose: () => void;
}

/** The place with the opened head alone, whatever else is chosen. */
function onlyFirst(place: Place | null): Place | null {
  return place && { ...place, chosen: place.chosen.slice(0, 1), heads: place.chosen.slice(0, 1) };
}

/** What the plot of another view needs, for the opened head and the width that there is. */
function detailContext<S extends RecordState>(
  { context, model, drawn }: DetailProps,
  state: Signals<S>,
): ViewContext<S> {
  const { record } = context;
  return {
    ...context,
    state,
    common: state as unknown as Signals<RecordState>,
    // An object of its own, so that nothing of the view's is changed.
    record: { ...record, place: computed(() => onlyFirst(record.place.value)) },
    width: model.detailWidth,
    setDrawn: (place) => {
      drawn.value = place !== null;
    },
  };
}

export function Detail(props: DetailProps) {
  const { context, model, drawn } = props;
  const lines = useMemo(() => {
    const place = model.place.peek();
    const longest = Math.max(place?.queries.text.length ?? 0, place?.keys.text.length ?? 0);
    const state = {
      combine: signal(HEAD_DEFAULTS.combine),
      top_k: signal(longest > TOKENS_WITH_ALL_LINES ? 3 : null),
      threshold: signal(0),
      leave_out: signal<HeadState["leave_out"]>([]),
      renormalize: signal(false),
      orientation: signal(HEAD_DEFAULTS.orientation),
      ...context.state,
      heads: signal(context.state.heads.peek().slice(0, 1)),
    } as unknown as Signals<HeadState>;
    const inner = detailContext(props, state);
    return { context: inner, model: makeHeadModel(inner) };
  }, []);
  useEffect(() => {
    const stop = effect(() => {
      lines.context.state.heads.value = context.state.heads.value.slice(0, 1);
      const caption = lines.model.caption.value;
      const summary = lines.model.summary.value;
      props.said.value = caption && { sentence: caption.sentence, summary };
    });
    return () => {
      stop();
      props.said.value = null;
      // The next detail is not drawn until it says so.
      drawn.value = false;
    };
  }, []);
  const onKeyDown = (event: KeyboardEvent): void => {
    const place = model.place.peek();
    const plain = !event.metaKey && !event.ctrlKey && !event.altKey;
    const typing = (event.target as Element).matches("input, select");
    if (!place || !plain || typing) return;
    const pinned = place.token !== null || place.key !== null;
    if (event.key === "Escape" && !pinned) props.onClose();
    else if (/^\d$/.test(event.key)) {
      if (Number(event.key) < place.numHeads)
        model.open({ layer: place.layer, head: Number(event.key) });
    } else if (event.key !== "n") return;
    // One head is open here: the plot's own keys would choose several, or none.
    event.preventDefault();
    event.stopPropagation();
  };
  const opened = model.opened.value;
  const caption = lines.model.caption.value;
  if (!opened) return null;
  const name = cellName(opened, null);
  return (
    <section
      class="av-model-detail"
      aria-label={name}
      style={{ width: `${model.detailWidth.value}px` }}
      onKeyDownCapture={onKeyDown}
    >
      <header>
        <h3>{name}</h3>
        <button
          type="button"
          class="av-plain"
          aria-label="Close the detail"
          title="Close (Esc)"
          onClick={props.onClose}
        >
          ✕
        </button>
      </header>
      <HeadPlot context={lines.context} model={lines.model} onLeaveOut={() => {}} />
      {caption && (
        <div class="av-model-said">
          <p class="av-muted">{caption.coverage}</p>
          <OpacityLegend
            maximum={caption.scale}
            note={caption.scaleNote}
            title="Full opacity: click for the largest weight drawn, or for the largest there can be"
            onToggle={() => {
              const scaling = lines.model.scaling;
              scaling.value = scaling.peek() === "whole" ? "largest" : "whole";
            }}
          />
        </div>
      )}
    </section>
  );
}
