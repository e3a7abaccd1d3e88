/**
 * Captions of the heat maps that are drawn over an image. A heat map shows the weights of one head,
 * or of several heads combined. A patch grid has the patches of an image, which are tokens, in rows
 * and columns. All functions are pure.
 */

import type { PatchGrid, StackDescription, TokenList } from "../../client/protocol";
import { topKeys } from "../../client/requests/strongest";
import { largestOf } from "../../client/signs";
import { SINK_WEIGHT } from "../../client/traits";
import { isTime, patchOf, patchToken } from "../../draw/patches";
import { type BySide, type Countable, isCounted, sizeOf } from "../axis";
import {
  capital,
  formatShare,
  pluralOf,
  quantityOf,
  quoted,
  quotedAt,
  withWay,
  written,
} from "../text/captions";
import { type Heat, type HeatQuestion, onGrid } from "./state";

/** Request for the weights that the captions describe, and the tokens to which they belong. */
export interface CaptionedHeat {
  question: HeatQuestion;
  /**
   * Patches over which the weights are drawn. These are keys or, if the weights of all queries on
   * one key are shown, queries.
   */
  grid: PatchGrid;
  stack: StackDescription;
  axes: BySide<Countable>;
}

/**
 * Smallest share of the weight that a caption names for the strongest key that is not a patch, and
 * for all remaining keys together ("elsewhere"). Shares of images are always named.
 */
const MIN_NAMED_SHARE = 0.01;

/**
 * Return the name of the image of a grid: its own, "the frame at 0.5 s", or "the image", or
 * "image 1" if the tokens contain several images.
 */
function imageName(grid: PatchGrid, { grids = [] }: TokenList): string {
  if (grid.name && isTime(grid.name)) return `the frame at ${grid.name}`;
  const several = grids.some((other) => other.image !== grid.image);
  return grid.name ?? (several ? `image ${grid.image}` : "the image");
}

/**
 * Describe which shares of the weight are on the images, on the strongest other key that counts, on
 * the other keys that do not count, and on all other keys: "61% on the image, 30% on “[CLS]”, 9%
 * elsewhere". The weight is that of one query or the mean over queries.
 */
export function sharesInWords(heat: Heat, { grid, axes }: CaptionedHeat): string {
  const keys = axes.key.tokens;
  const sum = (values: Float32Array): number => values.reduce((total, value) => total + value, 0);
  const total = sum(heat.values);
  if (total === 0) return "no weight at all";
  const images = (keys.grids ?? []).filter((other) => other.start !== grid.start);
  const parts: [number, string][] = [
    [sum(onGrid(heat, grid)), imageName(grid, keys)],
    ...images.map((other): [number, string] => [sum(onGrid(heat, other)), imageName(other, keys)]),
  ];
  const isOther = (token: number): boolean => patchOf(keys, token) === null;
  const counts = (token: number): boolean => isCounted(axes.key, token);
  const [best = -1] = topKeys(heat.values, 1, (token) => isOther(token) && counts(token));
  const leftOut = heat.values.filter((_, token) => isOther(token) && !counts(token));
  const others: [number, string][] = [
    [heat.values[best] ?? 0, quotedAt(keys.text, best)],
    [sum(leftOut), "keys left out"],
  ];
  parts.push(...others.filter(([part]) => part / total >= MIN_NAMED_SHARE));
  const rest = total - parts.reduce((named, [part]) => named + part, 0);
  const shares = parts.map(([part, name]) => `${formatShare(part / total)} on ${name}`);
  if (rest / total >= MIN_NAMED_SHARE) shares.push(`${formatShare(rest / total)} elsewhere`);
  return shares.join(", ");
}

/** Return the name of a small map in a sentence. Words are quoted. */
function nameOf({ series: { name, token } }: Heat): string {
  return token === undefined ? name : quoted(name);
}

/** Return the tokens over which weights are drawn: keys, or the queries of the weights on one key. */
export function drawnTokens({ question, axes }: CaptionedHeat): TokenList {
  return axes[question.side === "key" ? "query" : "key"].tokens;
}

/**
 * Quote the patch that has the largest absolute value in a heat map by its row and column, such as
 * “patch 2,3”, and add this value.
 */
function strongestInWords(heat: Heat, input: CaptionedHeat): string {
  const { grid, stack } = input;
  const quantity = quantityOf(stack);
  const values = onGrid(heat, grid);
  const best = values.indexOf(largestOf(values));
  const { text } = drawnTokens(input);
  const value = values[best] ?? 0;
  const number = withWay(quantity, value, written(quantity, value, 3));
  return `${quoted(text[patchToken(grid, best)] ?? "")}, ${number}`;
}

export function headingOf({ question, grid, stack, axes }: CaptionedHeat): string {
  const { side, token, excluded, series } = question;
  const [queries, keys] = [axes.query.tokens, axes.key.tokens];
  const quantity = quantityOf(stack);
  const numbers = capital(pluralOf(quantity));
  const count = queries.text.length;
  const numCounted = count - excluded.reduce((sum, range) => sum + sizeOf(range), 0);
  const over = `over ${numCounted < count ? `${numCounted} of` : "all"} ${count} queries`;
  const isWord = series.some((item) => item.token !== undefined);
  const named = ({ text }: TokenList): string => (isWord ? "each word" : quotedAt(text, token));
  if (side === "query") return `${numbers} of ${named(queries)} on ${imageName(grid, keys)}`;
  if (side === "key") return `${numbers} on ${named(keys)} from each patch`;
  if (quantity.signed) {
    return `Mean ${quantity.name} ${over} (signs may cancel)`;
  }
  return `Attention received: the mean ${over}`;
}

/**
 * Return the patches that are attention sinks, as indices in the grid, in a mean over queries. As in
 * `attnviz/analysis/measures.py`, other heat maps have none.
 */
export function sinksOf(
  heat: Heat,
  {
    question,
    grid,
    stack,
  }: Pick<CaptionedHeat, "grid" | "stack"> & { question: HeatQuestion | null },
): number[] {
  if (question?.side !== null || stack.signed) return [];
  return [...onGrid(heat, grid).entries()].flatMap(([i, value]) => (value > SINK_WEIGHT ? i : []));
}

/** Return the caption below one heat map. */
export function heatInWords(heat: Heat, input: CaptionedHeat): string {
  const quantity = quantityOf(input.stack);
  if (quantity.signed) return `Largest ${quantity.name}: ${strongestInWords(heat, input)}.`;
  if (input.question.side === "key") return `Most from ${strongestInWords(heat, input)}.`;
  // Maxima over heads do not sum to 1, so the caption has no shares.
  const shares = heat.series.how === "max" ? "" : `${sharesInWords(heat, input)}. `;
  const hasSinks = sinksOf(heat, input).length > 0;
  const sinks = ` Framed: sinks, patches with a mean weight above ${SINK_WEIGHT}.`;
  return `${shares}Most on ${strongestInWords(heat, input)}.${hasSinks ? sinks : ""}`;
}

/** Describe all heat maps over the image for screen readers. */
export function heatsInWords(heats: readonly Heat[], input: CaptionedHeat): string {
  if (heats[0]?.series.choice) return `${headingOf(input)}. ${mapsInWords(heats, input)}`;
  const captions = heats.map((heat) => {
    return (heats.length > 1 ? `${capital(heat.series.name)}: ` : "") + heatInWords(heat, input);
  });
  return `${headingOf(input)}. ${captions.join(" ")}`;
}

/**
 * Describe the heat maps of layers, heads or words: the smallest and the largest share of the weight
 * that is on the image, and the largest weight.
 */
export function mapsInWords(heats: readonly Heat[], input: CaptionedHeat): string {
  const { grid, question, stack, axes } = input;
  const { name, signed } = quantityOf(stack);
  const sum = (values: Float32Array): number => values.reduce((total, value) => total + value, 0);
  const sizeOf = (heat: Heat): number => Math.abs(largestOf(onGrid(heat, grid)));
  const shareOf = (heat: Heat): number => sum(onGrid(heat, grid)) / sum(heat.values);
  const by = (number: (heat: Heat) => number): Heat[] =>
    [...heats].sort((a, b) => number(a) - number(b));
  const largest = by(sizeOf).at(-1) as Heat;
  const parts: string[] = [];
  const hasShares = !signed && question.side !== "key" && largest.series.how === "mean";
  if (hasShares && heats.length > 1) {
    const ranked = by(shareOf);
    const [least, most] = [ranked[0], ranked.at(-1)].map(
      (heat) => heat && `${formatShare(shareOf(heat))} (${nameOf(heat)})`,
    );
    parts.push(
      `Between ${least} and ${most} of the ${name} is on ${imageName(grid, axes.key.tokens)}`,
    );
  }
  parts.push(`Largest ${name}: ${nameOf(largest)}, ${strongestInWords(largest, input)}`);
  return `${parts.join(". ")}.`;
}
