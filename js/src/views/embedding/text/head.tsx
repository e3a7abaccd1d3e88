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
  /** Index of the text. A change of the text creates a new component. */
  text: number;
  /**
   * Height of the previous head view in pixels. The next one has at least this height until it is
   * drawn, so that the page does not jump.
   */
  room: { current: number };
}

/**
 * Delay in milliseconds before the head view is created, so that a text that is chosen only briefly
 * sends no requests.
 */
const SETTLED_MS = 150;

/** Traits that the embedding view and the head view share. */
const SHARED = ["stack", "layer", "token", "key", "theme", "leave_out", "renormalize"] as const;

/**
 * Keep two signals equal while `holds` returns true: a change of one is copied to the other. When
 * `holds` becomes true, `outer` is copied to `inner`.
 *
 * @returns a function that ends the connection.
 */
export function linked<T>(outer: Signal<T>, inner: Signal<T>, holds: () => boolean): () => void {
  const inwards = effect(() => {
    const [value, now] = [outer.value, holds()];
    untracked(() => {
      if (now && !same(inner.value, value)) inner.value = value;
    });
  });
  // This effect does not subscribe to `holds`. Otherwise it could overwrite `outer` when `holds`
  // becomes true.
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
 * Create the state of a head view for one text. While `holds` returns true, it is linked to the
 * state of the embedding view.
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
  // If no heads are chosen, the embedding view shows the first head, but a head view shows the mean
  // of all heads. Choose the first head in the head view.
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
        // In the head view, no chosen heads means all heads. The embedding view cannot show this,
        // so do not copy it.
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

/** Move the window of visible tokens to the chosen token, if the text is longer than the window. */
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
      // When another text is chosen, this component is removed a moment later. Until then, do not
      // apply the positions in the other text to this one.
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
