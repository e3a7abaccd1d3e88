/** Functions that make weights, lines and plots of the head view for texts of any size. */

import type { Range, StackDescription } from "../../../src/client/protocol";
import { combineHeads } from "../../../src/client/signs";
import type { WeightBlock } from "../../../src/client/source";
import { type Exclusion, type Pins, tokenAxis } from "../../../src/ui/axis";
import { PALETTES } from "../../../src/ui/colors/palette";
import { quantityOf } from "../../../src/ui/text/captions";
import { selectionOf } from "../../../src/ui/view/record";
import { layOut } from "../../../src/views/head/layout";
import { type LinePlot, NO_HIGHLIGHTS } from "../../../src/views/head/line-plot";
import {
  computeLines,
  type LineOptions,
  type Lines,
  type LinesPlan,
} from "../../../src/views/head/lines";
import { combineOf, type LeaveOut, type Plan, planOf } from "../../../src/views/head/state";
import { stackOf, tokensOf } from "../../builders";
import { HEAD_DEFAULTS } from "../../defaults";

/** Weights, and the part of a plan that says which ones they are. */
export type Weights = Pick<WeightBlock, "matrices" | "maximum" | "error"> & {
  normalized: boolean;
} & Omit<LinesPlan, "stack" | "axes">;

/** Options of the lines, and the windows, the left-out keys and the texts of a pair. */
export interface Options extends LineOptions {
  queryWindow: Range;
  keyWindow: Range;
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
}

/** Return exact weights. `matrices` is indexed by [head][query][key]. */
export function weightsOf(matrices: number[][][], more: Partial<Weights> = {}): Weights {
  const count = matrices[0]?.length ?? 0;
  return {
    heads: matrices.map((_, head) => head),
    matrices: matrices.map((matrix) => Float32Array.from(matrix.flat())),
    ...{ rows: [0, count], columns: [0, count], numReached: count },
    ...{ normalized: true, maximum: 1, error: 0, ...more },
  };
}

/** Return an array with 1 at `indices`, and 0 at other indices. */
export function marked(size: number, ...indices: number[]): Uint8Array {
  return Uint8Array.from({ length: size }, (_, index) => Number(indices.includes(index)));
}

/** Return line options. By default, they draw all lines. */
export function optionsOf(size: number, more: Partial<Options> = {}): Options {
  const all = new Uint8Array(size).fill(1);
  return {
    ...{ combine: "separate", top_k: null, threshold: 0, renormalize: false },
    ...{ leftOut: new Uint8Array(size), pairQueries: all, pairKeys: all },
    ...{ queryWindow: [0, size], keyWindow: [0, size], ...more },
  };
}

/** Compute the lines of weights of single heads, which are first combined as a view requests it. */
function combinedLines(
  plan: LinesPlan & Pick<Plan, "chosen">,
  weights: Weights,
  options: LineOptions,
): Lines {
  const combine = combineOf(plan, options.combine);
  const { matrices } = weights;
  const loaded = combine === "separate" ? matrices : [combineHeads(matrices, combine)];
  return computeLines(plan, { ...weights, matrices: loaded }, { ...options, combine });
}

export function linesOf(weights: Weights, options: Options, noneChosen = false): Lines {
  const { queryWindow, keyWindow, leftOut, pairQueries, pairKeys } = options;
  const tokens = tokensOf(Array.from(leftOut, (_, i) => `t${i}`));
  const otherText = (members: Uint8Array): Exclusion => {
    return { words: "the other text", look: "muted", flags: members.map((member) => 1 - member) };
  };
  const struck: Exclusion = { words: "left out", look: "struck", flags: leftOut };
  const axes = {
    query: tokenAxis("query", tokens, queryWindow, [otherText(pairQueries)]),
    key: tokenAxis("key", tokens, keyWindow, [struck, otherText(pairKeys)]),
  };
  const chosen = noneChosen ? [] : weights.heads;
  const stack = { normalized: weights.normalized };
  return combinedLines({ ...weights, axes, chosen, stack }, weights, options);
}

interface PlotInput {
  /** Weights, indexed by [head][query][key]. */
  heads: number[][][];
  window?: Range;
  stack?: Partial<StackDescription>;
  options?: Partial<LineOptions>;
  leaveOut?: LeaveOut[];
}

/** Return a plot with the lines of all weights. */
export function plotOf(
  input: PlotInput,
  { token = null, key = null, ...more }: Partial<LinePlot> & Partial<Pins> = {},
): LinePlot {
  const { heads, leaveOut = [] } = input;
  const tokens = tokensOf((heads[0] ?? []).map((_, i) => `t${i}`));
  const stack = stackOf({
    ...{ query_tokens: tokens, layers: [0], heads_per_layer: [heads.length], ...input.stack },
  });
  const window = input.window ?? null;
  const state = { ...HEAD_DEFAULTS, query_window: window, key_window: window, leave_out: leaveOut };
  const chosen = { heads: heads.map((_, head) => head) };
  const selection = selectionOf({ model: "", notes: [], stacks: [stack] }, { ...state, ...chosen });
  const plan = { ...planOf(selection, state), token, key };
  const { signed = false, maximum } = stack;
  const weights = weightsOf(heads, { normalized: !signed, maximum });
  const options = optionsOf(tokens.text.length, input.options);
  return {
    ...{ plan, weights, options, lines: combinedLines(plan, weights, options) },
    layout: layOut({
      ...{
        plan,
        width: 1000,
        barSides: ["query", "key"],
        description: null,
      },
      ...{ effects: false, printed: false },
      measure: (text) => 7 * text.length,
    }),
    ...{ palette: PALETTES.light, images: [], quantity: quantityOf(stack), scale: maximum },
    ...{ strongest: null, effects: null, ...NO_HIGHLIGHTS, ...more },
  };
}
