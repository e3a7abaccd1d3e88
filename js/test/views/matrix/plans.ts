/** Plans of matrices of any size, for the tests of the matrix view. */

import type { StackDescription, TokenList } from "../../../src/client/source";
import { placeOf } from "../../../src/ui/record";
import {
  MATRIX_DEFAULTS,
  type MatrixState,
  type Plan,
  planOf,
} from "../../../src/views/matrix/state";

const PLAIN = new Map<number, TokenList>();

export function tokens(count: number, sequence?: (number | null)[]): TokenList {
  const known = PLAIN.get(count);
  if (known && !sequence) return known;
  const text = Array.from({ length: count }, (_, i) => `t${i}`);
  const made = { text, special: [], sequence: sequence ?? text.map(() => 0) };
  if (!sequence) PLAIN.set(count, made);
  return made;
}

export function place(
  numQueries: number,
  numKeys = numQueries,
  more: Partial<StackDescription> = {},
) {
  const stack: StackDescription = {
    name: "self",
    layers: [0],
    heads_per_layer: [4],
    query_tokens: tokens(numQueries),
    key_tokens: numKeys === numQueries ? null : tokens(numKeys),
    normalized: true,
    maximum: 1,
    causal: false,
    vectors: false,
    patterns: [],
    ...more,
  };
  const description = { model: "", notes: [], stacks: [stack] };
  return placeOf(description, { ...MATRIX_DEFAULTS, heads: [1] });
}

export const ROOM = { width: 800, height: 640 };

export function plan(
  numQueries: number,
  numKeys = numQueries,
  state: Partial<MatrixState> = {},
  more: Partial<StackDescription> = {},
  room = ROOM,
): Plan {
  return planOf(place(numQueries, numKeys, more), { ...MATRIX_DEFAULTS, ...state }, room);
}
