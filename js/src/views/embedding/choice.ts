/** Which point of a corpus is chosen: the traits `text`, `token` and `key` as one. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { ViewContext } from "../../ui/define-view";
import { assign } from "../../ui/state";
import type { Corpus } from "./client/requests";
import type { EmbeddingState } from "./state";

export interface Choice {
  chosen: ReadonlySignal<number | null>;
  choose: (point: number | null) => void;
}

export function makeChoice(
  { state, record }: ViewContext<EmbeddingState>,
  corpus: ReadonlySignal<Corpus | null>,
): Choice {
  // Of a pinned query and a pinned key the one that was set last; the query of both at once.
  const byKey = signal(false);
  let [token, key] = [state.token.peek(), state.key.peek()];
  record.live(() => {
    const [nowToken, nowKey] = [state.token.value, state.key.value];
    if (nowToken !== token) byKey.value = false;
    else if (nowKey !== key) byKey.value = true;
    [token, key] = [nowToken, nowKey];
    return undefined;
  });
  const chosen = computed(() => {
    const points = corpus.value;
    // As in Python: where no text is chosen, queries and keys are the first one's.
    const text = state.text.value ?? 0;
    if (!points) return null;
    const [query, pinned] = [state.token.value, state.key.value];
    const isKey = pinned !== null && (byKey.value || query === null);
    const position = isKey ? pinned : query;
    if (position === null) return null;
    const point = points.pointOf(isKey ? "key" : "query", text, position);
    return point < 0 ? null : point;
  });
  const choose = (point: number | null): void => {
    const points = corpus.peek();
    if (!points || point === null) {
      assign(state, { text: null, token: null, key: null });
      return;
    }
    const [text, position] = [points.textOf(point), points.positionOf(point)];
    // Never both, so that the traits alone say which it is.
    const pin = points.isKey(point)
      ? { token: null, key: position }
      : { token: position, key: null };
    // Tokens that are left out are left out of their own text: in another they would be others.
    const leave_out = state.leave_out.peek().filter((each) => typeof each === "string");
    const moved = text !== state.text.peek();
    assign(state, { text, ...pin, ...(moved && { leave_out }) });
  };
  return { chosen, choose };
}
