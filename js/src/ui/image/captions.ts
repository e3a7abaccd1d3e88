/** What is said of weights that lie over an image. Pure functions. */

import type { PatchGrid, TokenList } from "../../client/source";
import { formatShare, formatWeight, quoted, quotedAt } from "../captions";
import { type Heat, type HeatQuestion, onGrid } from "./state";

/** What the words need to know. */
export interface HeatSaid {
  question: HeatQuestion;
  /** The grid that the values lie on: of keys, or of queries where they are weights to a key. */
  grid: PatchGrid;
  queries: TokenList;
  keys: TokenList;
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
export function sharesInWords(heat: Heat, { grid, keys }: HeatSaid): string {
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
function strongestInWords(heat: Heat, { grid, queries, keys, question }: HeatSaid): string {
  const values = onGrid(heat, grid);
  const best = values.indexOf(Math.max(...values));
  const { text } = question.side === "key" ? queries : keys;
  return `${quoted(text[grid.start + best] ?? "")}, ${formatWeight(values[best] ?? 0, 3)}`;
}

/** What the heat-maps are. */
export function headingOf({ question, grid, queries, keys }: HeatSaid): string {
  const { side, token } = question;
  if (side === "query")
    return `Weights of ${quotedAt(queries.text, token)} on ${imageName(grid, keys)}`;
  if (side === "key") return `Weights on ${quotedAt(keys.text, token)} from each patch`;
  return `Attention received: the mean over all ${queries.text.length} queries`;
}

/** What is said below one heat-map. */
export function heatInWords(heat: Heat, said: HeatSaid): string {
  if (said.question.side === "key") return `Most from ${strongestInWords(heat, said)}.`;
  // Maxima over heads are of no one row, and sum to no whole.
  const shares = heat.series.how === "max" ? "" : `${sharesInWords(heat, said)}. `;
  return `${shares}Most on ${strongestInWords(heat, said)}.`;
}

/** All of it, for who cannot see it. */
export function heatsInWords(heats: readonly Heat[], said: HeatSaid): string {
  const each = heats.map((heat) => `${heat.series.name}: ${heatInWords(heat, said)}`);
  return `${headingOf(said)}. ${each.join(" ")}`;
}
