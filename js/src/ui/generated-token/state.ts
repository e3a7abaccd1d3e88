/**
 * Which of the tokens that a model produced a view shows: one position, in three traits.
 *
 * The same as `attnviz.views.generated_token` in Python, for pages without a kernel; both are held
 * against `tests/fixtures/generated_token.json`.
 */

import type { Prediction, TokenList } from "../../client/protocol";
import { formatProbability, quoted } from "../text/captions";

/** Which token is shown, and by which row. */
export interface Cursor {
  /** The pinned query. */
  token: number | null;
  /** Which of the tokens that were produced. */
  prediction: number | null;
  /** Whether it is shown where it is itself the query. */
  as_query: boolean;
}

/** The query whose row shows a token that was produced. */
export function queryOf(each: Prediction, asQuery: boolean): number {
  return (asQuery ? each.row : null) ?? each.query;
}

/**
 * Lets the others follow what was set.
 *
 * Where pin and prediction were both set, and differ, the pin counts.
 */
export function settled(
  predictions: readonly Prediction[],
  before: Cursor | null,
  now: Cursor,
): Cursor {
  const each = now.prediction === null ? undefined : predictions[now.prediction];
  const as_query = now.as_query && each?.row !== null;
  const was = before ?? { token: null, prediction: null, as_query: false };
  if (now.token === was.token) {
    if (each && (now.prediction !== was.prediction || now.as_query !== was.as_query)) {
      return { token: queryOf(each, as_query), prediction: now.prediction, as_query };
    }
    if (now.prediction === null && was.prediction !== null) return { ...now, token: null };
  }
  if (each && queryOf(each, as_query) === now.token) return { ...now, as_query };
  const rows = predictions.map((other) => (now.as_query ? other.row : other.query));
  const found = now.token === null ? -1 : rows.indexOf(now.token);
  return { ...now, prediction: found < 0 ? null : found };
}

/** Where the text that the model produced begins among the tokens; null where no other is before it. */
export function answerStart({ predictions = [], special }: TokenList): number | null {
  const first = predictions[0] ? predictions[0].query + 1 : 0;
  const before = Array.from({ length: first }, (_, index) => index);
  return before.every((index) => special.includes(index)) ? null : first;
}

/** What a query predicted: `, predicting “street” (0.62),`; "" where it did not. */
export function predictingInWords(
  selection: { queries: TokenList; asQuery?: boolean },
  query: number,
): string {
  const found = selection.asQuery
    ? undefined
    : selection.queries.predictions?.find((each) => each.query === query);
  return found
    ? `, predicting ${quoted(found.token.text)} (${formatProbability(found.token.probability)}),`
    : "";
}
