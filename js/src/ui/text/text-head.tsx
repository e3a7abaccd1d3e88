/**
 * The head view of one text of a corpus, with state of its own beside what both share. The view is
 * given: it stands above this folder.
 */

import {
  computed,
  effect,
  type ReadonlySignal,
  type Signal,
  signal,
  untracked,
} from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Range } from "../../client/protocol";
import type { Source } from "../../client/source";
import type { HeadIndex } from "../head-grid/grid";
import { type AttnvizElement, markDrawn, type ViewContext } from "../view/define-view";
import { createRecordStore, type Place, type RecordState } from "../view/record";
import { assign, makeSignals, type Signals, same, valuesOf } from "../view/state";

/** State of a view of one text of which a part is in sight. */
interface TextState extends RecordState {
  query_window: Range | null;
  key_window: Range | null;
}

/** State of a view of many texts. */
export interface CorpusState extends RecordState {
  text: number | null;
}

/** The windows of a state in which a token is in sight. */
type WindowsWith<S extends TextState> = (
  place: Place,
  windows: Pick<TextState, "query_window" | "key_window">,
  token: number,
  side: "query" | "key",
) => Partial<S>;

export interface TextHeadProps<S extends TextState> {
  // biome-ignore lint/suspicious/noExplicitAny: views of corpora differ in what else their state has.
  context: ViewContext<any>;
  view: ComponentType<{ context: ViewContext<S> }>;
  defaults: S;
  /** Traits that both have beside those that any views have together. */
  shared?: readonly (keyof S & string)[];
  windows: WindowsWith<S>;
  /** The head that the corpus's view is at. */
  head: ReadonlySignal<HeadIndex | null>;
  /** What is asked about a text. */
  source: (text: number) => Source;
  /** Of one text as long as it is there: another text's has a key of its own. */
  text: number;
  /** The height of the last one: what is below is not to jump while the next comes. */
  room: { current: number };
}

/** A text that is passed quickly on the way through points asks nothing. */
const SETTLED_MS = 150;

/** Traits that a text's view and any view of its corpus have together. */
const SHARED = ["stack", "layer", "token", "key", "theme"];

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

/** A view's state for one text: some of it the corpus's view's, as long as that shows this text. */
function textState<S extends TextState>(
  { context, head, defaults, shared = [] }: TextHeadProps<S>,
  holds: () => boolean,
): { state: Signals<S>; stop: () => void } {
  const state = context.state as Signals<CorpusState>;
  const outer = context.state as Readonly<Record<string, Signal<unknown>>>;
  const own = makeSignals<S>(defaults);
  const stops = [...SHARED, ...shared].map((name) =>
    linked(outer[name] as Signal<unknown>, own[name as keyof S] as Signal<unknown>, holds),
  );
  // Where no head is chosen the corpus's view shows the first, and the head view would their mean.
  const shown = (chosen: number[], first: number | undefined): number[] =>
    chosen.length > 0 || first === undefined ? chosen : [first];
  stops.push(
    effect(() => {
      const [heads, now] = [shown(state.heads.value, head.value?.head), holds()];
      untracked(() => {
        if (now && !same(own.heads.value, heads)) own.heads.value = heads;
      });
    }),
    effect(() => {
      const heads = own.heads.value;
      untracked(() => {
        const had = shown(state.heads.value, head.value?.head);
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
export function revealChosen<S extends TextState>(
  place: Place | null,
  state: Signals<S>,
  windows: WindowsWith<S>,
): void {
  const { token = null, key = null } = place ?? {};
  const chosen = token ?? key;
  if (!place || chosen === null) return;
  const side = token !== null || place.stack.key_tokens === null ? "query" : "key";
  assign(state, windows(place, valuesOf(state), chosen, side));
}

export function TextHead<S extends TextState>(props: TextHeadProps<S>) {
  const { context, view: View, text, room } = props;
  const root = useRef<HTMLDivElement>(null);
  const [pane, setPane] = useState<ViewContext<S> | null>(null);
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
      const holds = (): boolean =>
        ((context.state as Signals<CorpusState>).text.value ?? text) === text;
      const made = textState(props, holds);
      stop = made.stop;
      const source = props.source(text);
      const common = made.state as unknown as Signals<RecordState>;
      const record = createRecordStore(source, common, controller.signal);
      const chosen = computed(() => {
        const { stack, token, key } = record.place.value ?? {};
        return JSON.stringify([stack?.name, token, key]);
      });
      record.live(() => {
        chosen.value;
        untracked(() => revealChosen(record.place.value, made.state, props.windows));
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
      } as ViewContext<S>);
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
      {pane && <View context={pane} />}
    </div>
  );
}
