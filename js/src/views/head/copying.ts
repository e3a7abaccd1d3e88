/** What the head view copies: the weights of a query in each series that is drawn. */

import { meantBy } from "../../client/requests/strongest";
import {
  type Copying,
  copiedRow,
  copiedValue,
  firstPair,
  firstQuery,
  type PairAt,
  type QueryRow,
} from "../../ui/exports/copying";
import { pairOf } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import type { TokenAt } from "./line-plot";
import { computeLines, errorsOf, shownMatrices } from "./lines";
import { type HeadState, isTogether, leftOutOf, type Plan } from "./state";
import type { HeadStore } from "./store";

/** A query's weights to all keys, as exact as the source knows them, as the view combines them. */
async function rowOf(
  { source, state }: ViewContext<HeadState>,
  plan: Plan,
  query: number,
  ended: AbortSignal,
): Promise<QueryRow> {
  const { stack, layer, heads, keys } = plan;
  const rows: [number, number] = [query, query + 1];
  const columns: [number, number] = [0, keys.text.length];
  const request = { stack: stack.name, layer, heads, rows, columns };
  const piece = await source.block({ ...request, precision: "float32" }, ended);
  const weights = {
    ...{ heads, rows, columns, matrices: piece.matrices, numKeys: keys.text.length },
    ...{ normalized: stack.normalized, maximum: piece.maximum, error: piece.error },
    ranges: piece.ranges,
  };
  const combine = state.combine.peek();
  const options = {
    ...{ combine, topK: null, threshold: 0 },
    renormalize: state.renormalize.peek() && !stack.signed,
    ...meantBy(plan, leftOutOf(plan, state.leave_out.peek()), pairOf(plan, state.pair.peek())),
    ...{ queryWindow: rows, keyWindow: columns },
  };
  const shown = shownMatrices(weights, combine, isTogether(plan), plan);
  const { series } = computeLines(weights, options, shown);
  const errorsIn = errorsOf(weights, options);
  const errors = series.map(({ head, matrix }) => {
    const ofRow = errorsIn(head, query);
    return (key: number) => ofRow(key, matrix[key] as number);
  });
  return {
    query,
    series: series.map(({ name, matrix }) => ({ name, weights: matrix })),
    error: piece.error,
    errors,
  };
}

/** Under the pointer, else the keyboard, else what is pinned. */
export function headCopying(context: ViewContext<HeadState>, store: HeadStore): Copying {
  const planNow = (): Plan => {
    const plan = store.plan.peek();
    if (!plan) throw new Error("Nothing is drawn yet, so there is nothing to copy.");
    return plan;
  };
  const places = ({ token, key }: Plan): PairAt[] => {
    const pins = { query: token, key };
    const withPins = (at: TokenAt | null): PairAt[] => {
      if (!at) return [];
      return [at.side === "query" ? { ...pins, query: at.index } : { ...pins, key: at.index }];
    };
    const line = store.hoveredLine.peek();
    const [hovered, cursor] = [store.hovered.peek(), store.cursor.peek()];
    return [...(line ? [line] : []), ...withPins(hovered), ...withPins(cursor), pins];
  };
  return {
    value: async (ended) => {
      const plan = planNow();
      const { query, key } = firstPair(places(plan));
      return copiedValue(plan, await rowOf(context, plan, query, ended), key);
    },
    row: async (ended) => {
      const plan = planNow();
      return copiedRow(plan, await rowOf(context, plan, firstQuery(places(plan)), ended));
    },
  };
}
