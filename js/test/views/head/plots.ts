/** Functions that make weights, lines and plots of the head view for texts of any size. */

import type { Range } from "../../../src/client/protocol";
import { PALETTES } from "../../../src/ui/colors/palette";
import type { Quantity } from "../../../src/ui/text/captions";
import { type Layout, type LayoutInput, layOut } from "../../../src/views/head/layout";
import type { LinePlot } from "../../../src/views/head/line-plot";
import {
  computeLines,
  type LineOptions,
  type Lines,
  shownMatrices,
  type Weights,
} from "../../../src/views/head/lines";
import { tokensOf } from "../../builders";

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
export function optionsOf(size: number, more: Partial<LineOptions> = {}): LineOptions {
  const all = new Uint8Array(size).fill(1);
  return {
    ...{ combine: "separate", topK: null, threshold: 0, renormalize: false },
    ...{ leftOut: new Uint8Array(size), pairQueries: all, pairKeys: all },
    ...{ queryWindow: [0, size], keyWindow: [0, size], ...more },
  };
}

export function linesOf(weights: Weights, options: LineOptions, noneChosen = false): Lines {
  return computeLines(weights, options, shownMatrices(weights, options.combine, noneChosen));
}

/** Return the layout of a plot whose queries and keys are the same text. */
function layoutOf(texts: readonly string[], more: Partial<LayoutInput> = {}): Layout {
  const window: Range = [0, texts.length];
  return layOut({
    ...{ orientation: "vertical", width: 900, queryTexts: texts, keyTexts: texts },
    ...{ queryWindow: window, keyWindow: window, barSides: ["query", "key"] },
    measure: (text) => 7 * text.length,
    ...more,
  });
}

interface PlotInput {
  /** Weights, indexed by [head][query][key]. */
  heads: number[][][];
  window?: Range;
  quantity?: Quantity;
  orientation?: LayoutInput["orientation"];
}

/** Return a plot with the lines of all weights. */
export function plotOf(input: PlotInput, more: Partial<LinePlot> = {}): LinePlot {
  const { heads, quantity = { name: "weight", signed: false, maximum: 1 } } = input;
  const { window = [0, heads[0]?.length ?? 0], orientation = "vertical" } = input;
  const tokens = tokensOf((heads[0] ?? []).map((_, i) => `t${i}`));
  const { signed, maximum } = quantity;
  const weights = weightsOf(heads, { normalized: !signed, maximum });
  const windows = { queryWindow: window, keyWindow: window };
  const options = optionsOf(tokens.text.length, windows);
  const { leftOut, pairQueries, pairKeys } = options;
  return {
    layout: layoutOf(tokens.text, { ...windows, orientation, width: 1000, signed }),
    ...{ palette: PALETTES.light, queries: tokens, keys: tokens, images: [], weights, quantity },
    ...{ lines: linesOf(weights, options), scale: maximum, token: null, key: null },
    ...{ hovered: null, hoveredLine: null, hoveredHeads: [], cursor: null, renormalized: false },
    ...{ leftOut, pairQueries, pairKeys, strongest: null, isFound: null, ...more },
  };
}
