/** Functions that make token lists, selections and viewports for tests of the heat map. */

import type { StackDescription, TokenList } from "../../../src/client/protocol";
import type { HeatMapState } from "../../../src/ui/heat-map/state";
import { type Viewport, viewportOf } from "../../../src/ui/heat-map/viewport";
import { selectionOf } from "../../../src/ui/view/record";
import { stackOf } from "../../builders";
import { HEAT_MAP_DEFAULTS } from "../../defaults";

const PLAIN = new Map<number, TokenList>();

export function tokens(count: number, sequence?: (number | null)[]): TokenList {
  const cached = PLAIN.get(count);
  if (cached && !sequence) return cached;
  const text = Array.from({ length: count }, (_, i) => `t${i}`);
  const made = { text, special: [], sequence: sequence ?? text.map(() => 0) };
  if (!sequence) PLAIN.set(count, made);
  return made;
}

export function selection(
  numQueries: number,
  numKeys = numQueries,
  more: Partial<StackDescription> = {},
) {
  const stack = stackOf({
    heads_per_layer: [4],
    query_tokens: tokens(numQueries),
    key_tokens: numKeys === numQueries ? null : tokens(numKeys),
    ...more,
  });
  const description = { model: "", notes: [], stacks: [stack] };
  return selectionOf(description, { ...HEAT_MAP_DEFAULTS, heads: [1] });
}

export const ROOM = { query: 640, key: 800 };

export function viewport(
  numQueries: number,
  numKeys = numQueries,
  state: Partial<HeatMapState> = {},
  more: Partial<StackDescription> = {},
  room = ROOM,
): Viewport {
  return viewportOf(selection(numQueries, numKeys, more), { ...HEAT_MAP_DEFAULTS, ...state }, room);
}
