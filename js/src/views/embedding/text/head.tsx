/** The head view of one text of a corpus. It shares some traits with the embedding view. */

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
  /** Index of the text. The component is created again for another text. */
  text: number;
  /**
   * Height of the previous head view, kept while the next one loads so that the page does not jump.
   */
  room: { current: number };
}

/** Delay in milliseconds, so that texts passed quickly send no requests. */
const SETTLED_MS = 150;

/** Traits that both views share. */
const SHARED = ["stack", "layer", "token", "key", "theme", "leave_out", "renormalize"] as const;

/**
 * Keep two signals equal in both directions while `holds` returns true.
 *
 * @returns a function that ends it.
 */
export function linked<T>(outer: Signal<T>, inner: Signal<T>, holds: () => boolean): () => void {
  const inwards = effect(() => {
    const [value, now] = [outer.value, holds()];
    untracked(() => {
      if (now && !same(inner.value, value)) inner.value = value;
    });
  });
  // This does not follow the condition, because the outer value takes precedence when it changes.
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

/**
 * Create the head view's state for one text, linked to the embedding view while `holds` returns
 * true.
 */
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
  // Without chosen heads the embedding view shows the first, but the head view would show the mean
  // of all.
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
        // No chosen heads means all heads in the head view only.
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

/** Move the visible window of a long text to the chosen token. */
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
      // Do not apply the next text's tokens to this text before it is removed.
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
        setDrawn: (drawnId) => {
          markDrawn(element, drawnId);
          if (drawnId !== null) setDrawn(true);
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
