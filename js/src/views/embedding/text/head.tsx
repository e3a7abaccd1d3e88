/** The head view of one text of a corpus, with state of its own beside what both share. */

import { computed, effect, type Signal, signal, untracked } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type AttnvizElement, markDrawn, type ViewContext } from "../../../ui/view/define-view";
import { createRecordStore, type RecordState, type Selection } from "../../../ui/view/record";
import { assign, makeSignals, type Signals, same, valuesOf } from "../../../ui/view/state";
import { HEAD_DEFAULTS, type HeadState, HeadView, windowsWith } from "../../head";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";

export interface TextHeadProps {
  context: ViewContext<EmbeddingState>;
  store: Pick<EmbeddingStore, "head" | "textSource">;
  /** Of one text as long as it is there: another text's has a key of its own. */
  text: number;
  /** The height of the last one: what is below is not to jump while the next comes. */
  room: { current: number };
}

/** A text that is passed quickly on the way through points asks nothing. */
const SETTLED_MS = 150;

/** Traits that the head view and the embedding view have together. */
const SHARED = ["stack", "layer", "token", "key", "theme", "leave_out", "renormalize"] as const;

/**
 * Keeps an inner signal and an outer one alike, both ways, while a condition holds.
 *
 * @returns what ends it.
 */
export function linked<T>(outer: Signal<T>, inner: Signal<T>, holds: () => boolean): () => void {
  const inwards = effect(() => {
    const [value, now] = [outer.value, holds()];
    untracked(() => {
      if (now && !same(inner.value, value)) inner.value = value;
    });
  });
  // Not when the condition changes: what comes from outside goes first.
  const outwards = effect(() => {
    const { value } = inner;
    untracked(() => {
      if (holds() && !same(outer.value, value)) outer.value = value;
    });
  });
  return () => {
    inwards();
    outwards();
  };
}

/** The head view's state for one text: some of it the embedding view's, as long as that shows this text. */
function textState(
  { context, store }: TextHeadProps,
  holds: () => boolean,
): { state: Signals<HeadState>; stop: () => void } {
  const { state } = context;
  const outer = state as Readonly<Record<string, Signal<unknown>>>;
  const own = makeSignals<HeadState>(HEAD_DEFAULTS);
  const stops = SHARED.map((name) =>
    linked(outer[name] as Signal<unknown>, own[name] as Signal<unknown>, holds),
  );
  // Where no head is chosen the embedding view shows the first, and the head view would their mean.
  const shown = (chosen: number[], first: number | undefined): number[] =>
    chosen.length > 0 || first === undefined ? chosen : [first];
  stops.push(
    effect(() => {
      const [heads, now] = [shown(state.heads.value, store.head.value?.head), holds()];
      untracked(() => {
        if (now && !same(own.heads.value, heads)) own.heads.value = heads;
      });
    }),
    effect(() => {
      const heads = own.heads.value;
      untracked(() => {
        const had = shown(state.heads.value, store.head.value?.head);
        // None chosen is the head view's own way of seeing all.
        if (holds() && heads.length > 0 && !same(heads, had)) state.heads.value = heads;
      });
    }),
  );
  return {
    state: own,
    stop: () => {
      for (const stop of stops) stop();
    },
  };
}

/** Of a long text a part is in sight: the one around the chosen token. */
export function revealChosen(selection: Selection | null, state: Signals<HeadState>): void {
  const { token = null, key = null } = selection ?? {};
  const chosen = token ?? key;
  if (!selection || chosen === null) return;
  const side = token !== null || selection.stack.key_tokens === null ? "query" : "key";
  assign(state, windowsWith(selection, valuesOf(state), chosen, side));
}

export function TextHead(props: TextHeadProps) {
  const { context, text, room } = props;
  const root = useRef<HTMLDivElement>(null);
  const [pane, setPane] = useState<ViewContext<HeadState> | null>(null);
  const [drawn, setDrawn] = useState(false);

  useEffect(() => {
    const element = root.current as AttnvizElement | null;
    if (!element) return;
    const controller = new AbortController();
    const end = (): void => controller.abort();
    context.ended.addEventListener("abort", end);
    const width = signal(element.clientWidth || 600);
    const observer = new ResizeObserver((entries) => {
      const inner = entries[0]?.contentRect.width ?? 0;
      if (inner > 0) width.value = Math.floor(inner);
    });
    observer.observe(element);
    let stop = (): void => {};
    const timer = setTimeout(() => {
      // A text that is left is not moved to the tokens of the next before it is gone.
      const holds = (): boolean => (context.state.text.value ?? text) === text;
      const made = textState(props, holds);
      stop = made.stop;
      const source = props.store.textSource(text);
      const common = made.state as unknown as Signals<RecordState>;
      const record = createRecordStore(source, common, controller.signal);
      const chosen = computed(() => {
        const { stack, token, key } = record.selection.value ?? {};
        return JSON.stringify([stack?.name, token, key]);
      });
      record.live(() => {
        chosen.value;
        untracked(() => revealChosen(record.selection.value, made.state));
        return undefined;
      });
      setPane({
        ...context,
        root: element,
        source,
        state: made.state,
        common,
        record,
        width,
        embedded: true,
        ownImage: true,
        setDrawn: (place) => {
          markDrawn(element, place);
          if (place !== null) setDrawn(true);
        },
        ended: controller.signal,
      });
    }, SETTLED_MS);
    return () => {
      room.current = element.offsetHeight;
      clearTimeout(timer);
      controller.abort();
      context.ended.removeEventListener("abort", end);
      observer.disconnect();
      stop();
    };
  }, []);
  const error = pane?.record.error.value ?? null;
  return (
    <div class="av-text-head" ref={root} style={drawn ? {} : { minHeight: `${room.current}px` }}>
      {error !== null && (
        <div role="status" class="av-standing av-error">
          <span>{error}</span>
          <button type="button" onClick={() => pane?.record.retry()}>
            Try again
          </button>
        </div>
      )}
      {pane && <HeadView context={pane} />}
    </div>
  );
}
