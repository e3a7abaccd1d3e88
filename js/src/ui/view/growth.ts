/** A generation that a view follows: the tokens so far, and whether the reader stays at the newest. */

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { decodeReply } from "../../client/codec";
import {
  atLength,
  type Generating,
  type GrowingDescription,
  type GrownMessage,
  growingStack,
  withoutLength,
  withToken,
} from "../../client/growth";
import type { Source } from "../../client/source";
import { queryOf } from "../generated-token/state";
import { assign, type Signals } from "./state";

/** Where a reader is, as far as the newest token moves it. */
interface Position {
  token: number | null;
  prediction: number | null;
  as_query: boolean;
  query_window?: readonly [number, number] | null;
  key_window?: readonly [number, number] | null;
}

export interface Growth {
  /** How far the generation is; null where there is none. */
  generating: ReadonlySignal<Generating | null>;
  /** The record so far: with each token, or with all that came in a while. */
  description: ReadonlySignal<GrowingDescription | null>;
  /** The same, which changes once in a while at most; null where nothing grows. */
  calm: ReadonlySignal<GrowingDescription | null>;
  /** Whether the view stays at the newest token. */
  following: ReadonlySignal<boolean>;
  follow: () => void;
  stop: () => void;
}

/** What a bundle is for (`define-view.tsx`): a page has no kernel where anything could grow. */
declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Traits that stay in the view while it follows: the kernel need not hear of every token. */
const HELD = ["token", "prediction", "query_window", "key_window"] as const;
/** Milliseconds in which tokens that come are shown together. */
const TOGETHER_MS = 30;
/** The same of pictures that are asked for as a whole. */
const CALM_MS = 1000;

/**
 * @param described what the kernel has described.
 * @param again asks for that once more.
 * @param held traits that are not written to the kernel.
 * @param calm whether the picture is asked for as a whole.
 */
export function createGrowth(
  source: Source,
  state: Signals<Position>,
  described: ReadonlySignal<GrowingDescription | null>,
  again: () => void,
  live: (run: () => (() => void) | undefined) => void,
  ended: AbortSignal,
  held: Signal<readonly string[]>,
  isCalm: boolean,
): Growth {
  const { carrier } = source;
  const hear = carrier.hear?.bind(carrier);
  if ((typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "page") || !hear) {
    return {
      generating: signal(null),
      description: described,
      calm: signal(null),
      following: signal(false),
      follow: () => {},
      stop: () => {},
    };
  }
  const latest = signal<GrowingDescription | null>(null);
  const calm = signal<GrowingDescription | null>(null);
  const generating = signal<Generating | null>(null);
  const following = signal(false);
  let waiting: [GrownMessage, ArrayBufferView | ArrayBuffer | null][] = [];
  let timer: ReturnType<typeof setTimeout> | null = null;
  let asked = false;
  let newest: Position | null = null;
  let begun = false;

  const predictionsOf = (description: GrowingDescription) =>
    description.stacks.find((each) => each.query_tokens.predictions)?.query_tokens.predictions ??
    [];
  const setFollowing = (on: boolean): void => {
    following.value = on;
    held.value = on ? HELD : [];
  };
  /** Whether the reader is where the newest token was shown. */
  const isThere = (): boolean => {
    const [query, window] = [newest?.token ?? null, state.query_window?.peek() ?? null];
    const seen = !window || query === null || (query >= window[0] && query < window[1]);
    return state.prediction.peek() === (newest?.prediction ?? null) && seen;
  };
  const goToNewest = (): void => {
    const description = latest.peek();
    const predictions = description ? predictionsOf(description) : [];
    const last = predictions.at(-1);
    if (!last) return;
    const prediction = predictions.length - 1;
    newest = { token: queryOf(last, false), prediction, as_query: false };
    assign(state, { prediction, token: newest.token, as_query: false });
  };

  const apply = async (): Promise<void> => {
    timer = null;
    const messages = waiting;
    waiting = [];
    let now = latest.peek();
    for (const [message, data] of messages) {
      if (!now || !message.stack) continue;
      const count = growingStack(now, message.stack)?.count ?? 0;
      if (message.count <= count) continue;
      const next = withToken(now, message);
      if (!next) {
        // Some were missed.
        if (!asked) again();
        asked = true;
        break;
      }
      if (message.header && message.layer !== undefined && data) {
        const values = await decodeReply(message.header, data);
        const [from, to] = [atLength(message.stack, count), atLength(message.stack, count + 1)];
        source.grow(from, to, message.layer, values, message.header);
      }
      now = next;
    }
    if (ended.aborted || asked || !now) return;
    if (following.peek() && !isThere()) setFollowing(false);
    batch(() => {
      latest.value = now;
      if (following.peek()) goToNewest();
    });
    const stack = now.stacks.find((each) => withoutLength(each.name) !== each.name);
    if (stack) carrier.tell?.({ attnviz: "grown seen", count: stack.query_tokens.text.length });
  };

  hear((message, data) => {
    generating.value = message.generating;
    if (message.generating.state === "running") {
      waiting.push([message, data]);
      timer ??= setTimeout(() => void apply(), isCalm ? CALM_MS : TOGETHER_MS);
    } else if (message.generating.state !== "failed") again();
  }, ended);
  live(() => {
    const now = described.value;
    if (!now) return undefined;
    asked = false;
    const runs = now.generating?.state === "running";
    batch(() => {
      generating.value = now.generating ?? null;
      // What came while it was described is known to it.
      latest.value = now;
      calm.value = runs ? now : null;
      if (!begun && runs) setFollowing(state.token.peek() === null);
      begun = true;
      if (following.peek()) goToNewest();
      if (!runs) setFollowing(false);
    });
    return undefined;
  });
  // Pictures of the whole follow from time to time.
  live(() => {
    if (generating.value?.state !== "running") return undefined;
    const each = setInterval(() => {
      calm.value = latest.peek();
    }, CALM_MS);
    return () => clearInterval(each);
  });
  ended.addEventListener("abort", () => {
    if (timer !== null) clearTimeout(timer);
  });
  return {
    generating,
    description: computed(() => latest.value ?? described.value),
    calm,
    following,
    follow: () => {
      batch(() => {
        setFollowing(true);
        goToNewest();
      });
    },
    stop: () => carrier.tell?.({ attnviz: "stop generating" }),
  };
}
