/**
 * Cursor of a generated answer: the chosen token, stored in three traits (see `Cursor`). The answer
 * is the text that the model produced.
 *
 * Python has the same code in `attnviz.views.generated_token`. Exported pages use this file,
 * because they have no kernel. `tests/fixtures/generated_token.json` tests both implementations.
 */

import type { Prediction, TokenList } from "../../client/protocol";
import { formatProbability, quoted } from "../text/captions";
import type { Feature } from "../view/record";
import { assign, valuesOf } from "../view/state";

/**
 * Chosen token of the answer, and the query whose row of weights the view shows for it. This query
 * is either the token that predicted the chosen token, or the chosen token itself.
 */
export interface Cursor {
  /** Pinned query, whose row the view shows, or null. */
  token: number | null;
  /** Index of the chosen token among the tokens that the model produced, or null. */
  prediction: number | null;
  /**
   * Whether the shown row is the row of the chosen token as a query. Otherwise it is the row of the
   * query that predicted the token.
   */
  as_query: boolean;
}

/**
 * Return the query whose row of weights is shown for a token of the answer: the token itself if
 * `asQuery` is true and the model read the token, otherwise the query that predicted the token.
 */
export function queryOf(prediction: Prediction, asQuery: boolean): number {
  return (asQuery ? prediction.row : null) ?? prediction.query;
}

/**
 * Return the cursor `now` with fields that agree with each other (see `queryOf`). `before` is the
 * cursor before the last change, or null if there was none.
 *
 * A new `prediction` or `as_query` changes `token`. A new `token` changes `prediction`, which is
 * null if the row of this query shows no token of the answer. If `token` and `prediction` are new
 * and disagree, `token` has priority.
 */
export function settled(
  predictions: readonly Prediction[],
  before: Cursor | null,
  now: Cursor,
): Cursor {
  const chosen = now.prediction === null ? undefined : predictions[now.prediction];
  const as_query = now.as_query && chosen?.row !== null;
  const was = before ?? { token: null, prediction: null, as_query: false };
  if (now.token === was.token) {
    if (chosen && (now.prediction !== was.prediction || now.as_query !== was.as_query)) {
      return { token: queryOf(chosen, as_query), prediction: now.prediction, as_query };
    }
    if (now.prediction === null && was.prediction !== null) return { ...now, token: null };
  }
  if (chosen && queryOf(chosen, as_query) === now.token) return { ...now, as_query };
  const rows = predictions.map((other) => (now.as_query ? other.row : other.query));
  const index = now.token === null ? -1 : rows.indexOf(now.token);
  return { ...now, prediction: index < 0 ? null : index };
}

/**
 * Return the index of the first token of the answer. Return null without an answer, or if all
 * tokens before it are special tokens.
 */
export function answerStart({ predictions = [], special }: TokenList): number | null {
  const first = predictions[0] ? predictions[0].query + 1 : 0;
  return special.filter((index) => index < first).length === first ? null : first;
}

/**
 * Describe the prediction of a query: `, predicting “street” (0.62),`. Return "" if the query
 * predicted no token of the answer. Also return "" if `asQuery` is true, because the view then
 * shows the chosen token as a query, not the query that predicted it.
 */
export function predictingInWords(
  selection: { queries: TokenList; asQuery?: boolean },
  query: number,
): string {
  const prediction = selection.asQuery
    ? undefined
    : selection.queries.predictions?.find((other) => other.query === query);
  return prediction
    ? `, predicting ${quoted(prediction.token.text)} (${formatProbability(prediction.token.probability)}),`
    : "";
}

/** Feature of views that keeps the fields of the cursor in agreement (see `settled`). */
export const GENERATED_TOKEN: Feature = {
  start: ({ state, selection, live, ended }) => {
    const { token, prediction, as_query } = state;
    let cursor: Cursor | null = null;
    const settleCursor = (): void => {
      const current = selection.peek();
      if (!current || ended.aborted) return;
      const now = valuesOf({ token, prediction, as_query });
      cursor = settled(current.queries.predictions ?? [], cursor, now);
      assign(state, cursor);
    };
    live(() => {
      for (const dependency of [selection, state.token, state.prediction, state.as_query])
        dependency.value;
      // A change of `as_query` moves the pinned query, `token`. A linked view must receive `as_query`
      // before `token`, so set `token` in a microtask, which runs after all listeners of the first
      // change.
      queueMicrotask(settleCursor);
      return undefined;
    });
    return {};
  },
};
