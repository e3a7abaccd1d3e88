/** The captions of weights over an image. Pure functions. */

import type { PatchGrid, TokenList } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import {
  capital,
  formatShare,
  formatWeight,
  pluralOf,
  type Quantity,
  quoted,
  quotedAt,
  withWay,
  written,
} from "../text/captions";
import { type Heat, type HeatQuestion, onGrid } from "./state";

/** What captions are made from. */
export interface HeatCaptionInput {
  question: HeatQuestion;
  /** The grid that the values lie on: of keys, or of queries where they are weights to a key. */
  grid: PatchGrid;
  queries: TokenList;
  keys: TokenList;
  /** What the numbers are; weights where it is left out. */
  quantity?: Quantity;
}

function sum(values: Float32Array): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Shares below this are not worth a name. */
const LEAST_NAMED = 0.01;

/** "the image", or "image 1" where there are several. */
function imageName(grid: PatchGrid, { grids = [] }: TokenList): string {
  return grids.some((each) => each.image !== grid.image) ? `image ${grid.image}` : "the image";
}

/** Where a row of weights lies: "61% on the image, 30% on “[CLS]”, 9% elsewhere". */
export function sharesInWords(heat: Heat, { grid, keys }: HeatCaptionInput): string {
  const total = sum(heat.values);
  if (total === 0) return "no weight at all";
  const of = (part: number): string => formatShare(part / total);
  const grids = keys.grids ?? [];
  const here = sum(onGrid(heat, grid));
  let rest = total - here;
  const parts = [`${of(here)} on ${imageName(grid, keys)}`];
  for (const other of grids) {
    if (other.start === grid.start) continue;
    const share = sum(onGrid(heat, other));
    rest -= share;
    parts.push(`${of(share)} on image ${other.image}`);
  }
  let best = -1;
  heat.values.forEach((value, token) => {
    const inGrid = grids.some(
      (each) => token >= each.start && token < each.start + each.rows * each.columns,
    );
    if (!inGrid && value > (heat.values[best] ?? 0)) best = token;
  });
  const strongest = heat.values[best] ?? 0;
  if (strongest / total >= LEAST_NAMED) {
    parts.push(`${of(strongest)} on ${quotedAt(keys.text, best)}`);
    rest -= strongest;
  }
  if (rest / total >= LEAST_NAMED) parts.push(`${of(rest)} elsewhere`);
  return parts.join(", ");
}

/** The strongest patch of a heat-map. */
function strongestInWords(heat: Heat, input: HeatCaptionInput): string {
  const { grid, queries, keys, question, quantity } = input;
  const values = onGrid(heat, grid);
  const best = values.indexOf(largestOf(values));
  const { text } = question.side === "key" ? queries : keys;
  const value = values[best] ?? 0;
  const number = quantity
    ? withWay(quantity, value, written(quantity, value, 3))
    : formatWeight(value, 3);
  return `${quoted(text[grid.start + best] ?? "")}, ${number}`;
}

/** What the heat-maps are. */
export function headingOf({ question, grid, queries, keys, quantity }: HeatCaptionInput): string {
  const { side, token } = question;
  const numbers = capital(pluralOf(quantity ?? { name: "weight" }));
  if (side === "query")
    return `${numbers} of ${quotedAt(queries.text, token)} on ${imageName(grid, keys)}`;
  if (side === "key") return `${numbers} on ${quotedAt(keys.text, token)} from each patch`;
  if (quantity?.signed) {
    return `Mean ${quantity.name} over all ${queries.text.length} queries, where signs may cancel`;
  }
  return `Attention received: the mean over all ${queries.text.length} queries`;
}

/** The caption below one heat map. */
export function heatInWords(heat: Heat, input: HeatCaptionInput): string {
  const { quantity } = input;
  if (quantity?.signed) return `Largest ${quantity.name}: ${strongestInWords(heat, input)}.`;
  if (input.question.side === "key") return `Most from ${strongestInWords(heat, input)}.`;
  // Maxima over heads are of no one row, and sum to no whole.
  const shares = heat.series.how === "max" ? "" : `${sharesInWords(heat, input)}. `;
  return `${shares}Most on ${strongestInWords(heat, input)}.`;
}

/** All of it, for a screen reader. */
export function heatsInWords(heats: readonly Heat[], input: HeatCaptionInput): string {
  const each = heats.map((heat) => `${heat.series.name}: ${heatInWords(heat, input)}`);
  return `${headingOf(input)}. ${each.join(" ")}`;
}
