/**
 * Captions, tooltips and screen reader texts of the atlas.
 *
 * An edge is the weight from one query to one key of a text. A role names what a head does, such as
 * "induction". The baseline of a score is its value for simple attention, such as uniform
 * attention.
 */

import type { AtlasDescription, AtlasRole, AtlasStack } from "../../client/protocol";
import { countHeads } from "../../client/source";
import type { HeadIndex, ScoredHead } from "../../ui/head-grid/grid";
import {
  capital,
  formatNumber,
  formatShare,
  headName,
  several,
  stackName,
  withMinus,
} from "../../ui/text/captions";
import type { Figure, Table } from "./client/atlas";
import type { EdgeList } from "./state";

/** Return "Layer 1, head 0", or "Layer 1, head 0, linear" for a head of a linear layer. */
export function headTitle(head: HeadIndex, { linear }: Pick<AtlasStack, "linear">): string {
  return capital(headName(head)) + (linear ? ", linear" : "");
}

/**
 * Return the number of decimals, from 2 to 5, for a mean with this standard error. Return 2 if the
 * error is so small that it may only be a rounding error of float32.
 */
function decimalsOf(mean: number, error: number): number {
  if (!(error > 1e-5 * Math.abs(mean))) return 2;
  return Math.max(2, Math.min(5, Math.ceil(-Math.log10(error))));
}

function signed(value: number, decimals: number): string {
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/**
 * Return "0.98 ± 0.01", "0.98 ± <0.01" for a smaller error, or "0.98" if the error is null. Return
 * "0" for an exact zero and "<0.01" if both numbers would be written as zeros.
 */
export function withError(mean: number, error: number | null): string {
  const decimals = decimalsOf(mean, error ?? 0);
  const number = signed(mean, decimals);
  if (error === null) return number;
  const least = 10 ** -decimals;
  if (mean === 0 && error === 0) return "0";
  if (error < least / 2 && mean > 0 && mean < least / 2) return `<${least.toFixed(decimals)}`;
  if (error < least / 2) return `${number} ± <${least.toFixed(decimals)}`;
  return `${number} ± ${error.toFixed(decimals)}`;
}

/** Return the unit after a space, such as " bits", or "" for shares, factors and no unit. */
export function unitInWords(unit: string): string {
  return ["", "share", "factor"].includes(unit) ? "" : ` ${unit}`;
}

/** Return "induction 0.98 ± 0.01 (baseline 0.12), 312 texts". */
export function roleInWords(stack: AtlasStack, role: AtlasRole): string {
  const { score, standard_error, baseline, texts } = role;
  const name = stack.roles[role.role]?.name ?? "";
  return `${name} ${withError(score, standard_error)} (baseline ${signed(baseline, 2)}), ${several(texts, "text")}`;
}

/** Smallest p-value that is shown. The normal approximation is not accurate for smaller values. */
const MIN_P = 1e-6;

/** Return "p = 0.012" or "p < 1e−6". */
function pInWords(p: number): string {
  return p < MIN_P ? `p < ${formatNumber(MIN_P)}` : `p = ${formatNumber(p)}`;
}

/** Return a definition with a capital letter and a full stop. */
export function definitionInWords(definition: string): string {
  return capital(definition).replace(/([^.])$/, "$1.");
}

/**
 * Return the evidence for a role: the score minus its baseline, the 95% interval of this
 * difference, the p-value and the number of texts.
 */
export function evidenceInWords({ baseline, difference, low, high, p, texts }: AtlasRole): string {
  // The width of a 95% interval is about four standard errors.
  const decimals = decimalsOf(difference, (high - low) / 4);
  const interval = [low, high].map((end) => signed(end, decimals)).join(" to ");
  return (
    `${signed(difference, decimals)} above its baseline of ${signed(baseline, decimals)}, ` +
    `95% interval ${interval}, ${pInWords(p)} after correction, ${several(texts, "text")}`
  );
}

/** Return why a head has no role, without a subject: "none of 8 roles: no score exceeds ...". */
export function noRoleInWords({ roles, margin, level }: AtlasStack): string {
  return (
    `none of ${several(roles.length, "role")}: no score exceeds its baseline by more than ${margin} ` +
    `at a false discovery rate of ${formatShare(level)}`
  );
}

/** Return "0.42 ± 0.01 bits (baseline 0.12), 312 texts", or "not defined". */
export function figureInWords({ mean, error, baseline, texts }: Figure, unit: string): string {
  if (mean === null) return "not defined";
  const than = baseline === null ? "" : ` (baseline ${signed(baseline, 2)})`;
  return `${withError(mean, error)}${unitInWords(unit)}${than}, ${several(texts, "text")}`;
}

/** Return the score that orders the heads, for the text below a cell. "–" stands for null. */
export function sortedValue({ score }: ScoredHead): string {
  return score === null ? "–" : signed(score, 2);
}

/** Return the subtitle: the stacks of the grid, their heads and the corpus. */
export function subtitleOf(atlas: AtlasDescription, stacks: readonly AtlasStack[]): string {
  const heads = stacks.map(countHeads).reduce((sum, count) => sum + count, 0);
  return [
    stacks.map(({ name }) => stackName(name)).join(" and "),
    several(heads, "head"),
    `${several(atlas.texts, "text")}, ${several(atlas.tokens, "token")}`,
  ].join(" · ");
}

/** Return the sentence below the view: the chosen head and its roles. */
export function sentenceOf(table: Table, head: HeadIndex): string {
  const [first, ...others] = table.roles(head);
  const title = headTitle(head, table.stack);
  if (!first) return `${title} has ${noRoleInWords(table.stack)}.`;
  const also = others.map(({ role }) => table.stack.roles[role]?.name).join(", ");
  return `${title}: ${roleInWords(table.stack, first)}.${also === "" ? "" : ` Also ${also}.`}`;
}

/**
 * Return the second caption below the view: how the numbers were computed, how many texts were
 * skipped, and whether the page omits edges.
 *
 * @param hasKinds whether the grid has linear and other layers.
 * @param otherLists sentence about the heads that a list of ordered heads lacks, or "".
 */
export function coverageOf(
  atlas: AtlasDescription,
  stack: AtlasStack,
  { hasKinds = false, otherLists = "" } = {},
): string {
  const { num_skipped } = atlas;
  const kept = (name: EdgeList, all: number): string =>
    stack[name] < all ? `This page has ${stack[name]} of ${all} ${name} edges of each head.` : "";
  return [
    otherLists,
    "Numbers are means over texts, ± their standard error.",
    stack.linear ? "Weights are shares of the absolute weights of a query." : "",
    hasKinds
      ? "Layers with a mark of two colours are linear. Their numbers have another scale."
      : "",
    "A head has a role if its score exceeds the baseline, paired by text, by more than " +
      `${stack.margin}. p is corrected for all heads and roles (Benjamini-Hochberg, rate ${stack.level}).`,
    num_skipped > 0
      ? `${several(num_skipped, "text")} ${num_skipped === 1 ? "was" : "were"} skipped: empty or too long.`
      : "",
    kept("sampled", stack.sampled_in_all),
    kept("strongest", stack.strongest_in_all),
  ]
    .filter(Boolean)
    .join(" ");
}

/** Explain how the edges of a list were selected. */
export function listInWords(list: EdgeList): string {
  return list === "sampled"
    ? "A uniform sample: a query drawn uniformly from all texts, and one of its keys drawn in proportion to its weight. The share of edges of a kind therefore estimates the share of this head’s attention."
    : "The largest weights of all texts. They do not show how often the head attends like this. The sampled edges do.";
}

export function offsetInWords(offset: number): string {
  return withMinus(String(offset));
}
