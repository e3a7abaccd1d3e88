/**
 * Cursor of a generated answer: the chosen token, stored in three traits (see `Cursor`).
 *
 * Python has the same code in `attnviz.views.generated_token`. Pages use this file, because they
 * have no kernel. `tests/fixtures/generated_token.json` tests both implementations.
 */

import type { Prediction, TokenList } from "../../client/protocol";
import { formatProbability, quoted } from "../text/captions";

/**
 * Chosen token of the generated text, and the query whose row of weights the view shows for it: the
 * query that predicted the token, or the token itself.
 */
export interface Cursor {
  /** Pinned query, or null. */
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
 * Return the query whose row shows a produced token: the token itself if `asQuery` and the model
 * read it, otherwise the query that predicted it.
 */
export function queryOf(prediction: Prediction, asQuery: boolean): number {
  return (asQuery ? prediction.row : null) ?? prediction.query;
}

/**
 * Return the cursor `now` with consistent fields. Fields that are the same as in `before` are
 * adapted to the changed field.
 *
 * If both `token` and `prediction` changed and disagree, `token` has priority.
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
 * Return the index of the first token of the answer. Return null without an answer, or if only
 * special tokens precede it.
 */
export function answerStart({ predictions = [], special }: TokenList): number | null {
  const first = predictions[0] ? predictions[0].query + 1 : 0;
  return special.filter((index) => index < first).length === first ? null : first;
}

/**
 * Describe the prediction of a query: `, predicting “street” (0.62),`. Return "" if the query
 * predicted no token of the answer, or if tokens are shown as queries.
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
