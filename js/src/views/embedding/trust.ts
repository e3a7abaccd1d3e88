/**
 * Trust figures of a plot as text, and the opacity of a plot that depends on them.
 *
 * Trust figures measure how well distances on the plot follow q·k, the dot product of query and
 * key. r is the correlation of distance with q·k. Recall is the share of a query's ten strongest
 * keys that are among its ten nearest keys.
 *
 * The figures of a head are undefined if they are not measured yet, and null if it has none.
 */

import type { HeadTrust } from "../../client/protocol";
import { capital, formatShare, withMinus } from "../../ui/text/captions";

type Trust = HeadTrust | null | undefined;

/** Trust figures by `headKey`. A head that is not measured yet has no entry. */
export type TrustMap = ReadonlyMap<string, HeadTrust | null>;

/** Return a correlation with two decimals: "−0.61". A correlation that is rounded to 0 is "0.00". */
export function formatCorrelation(value: number): string {
  return withMinus(value.toFixed(2).replace("-0.00", "0.00"));
}

/** Return a share in percent: "42%". */
function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** Explanation of r for tooltips. */
export const TRUST_HELP =
  "r is the mean over queries of the correlation between distance and q·k: −1 if nearer always " +
  "means a larger q·k, 0 if the two are unrelated.";

/** A correlation above this means that distances say little about q·k. */
const LITTLE = -0.1;

/** Return the trust figures as a sentence. */
export function trustInWords(trust: HeadTrust): string {
  const { plot, recall, recall_baseline: baseline } = trust;
  const parts: string[] = [];
  if (plot !== null) {
    const r = formatCorrelation(plot);
    parts.push(`Correlation of distance with q·k over keys that a query may attend to: r = ${r}`);
  }
  if (recall !== null) {
    const by = baseline === null ? "" : ` (chance ${formatShare(baseline)})`;
    parts.push(
      `${formatShare(recall)} of a query’s ten strongest keys are among its ten nearest${by}`,
    );
  }
  if (parts.length === 0) return "No query has enough keys for trust figures.";
  const warning = (plot ?? -1) > LITTLE ? " Distance says little about q·k here." : "";
  return `${capital(parts.join("; "))}.${warning}`;
}

/** Level of detail of the figures below a tile. Narrow tiles have less detail. */
export type FigureDetail = "words" | "short" | "least";

/**
 * Return the figures below a tile: "r −0.83 · 42%" ("words"), "−0.83 · 42%" ("short") or "−0.83"
 * ("least"). Return "…" if the head is not measured yet.
 */
export function figuresInShort(trust: Trust, words: FigureDetail): string {
  if (trust === undefined) return "…";
  const { plot = null, recall = null } = trust ?? {};
  const named = words === "words" ? "r " : "";
  const parts = [
    plot === null ? "" : `${named}${formatCorrelation(plot)}`,
    recall === null || words === "least" ? "" : percent(recall),
  ];
  return parts.filter(Boolean).join(" · ") || "no figure";
}

/** Return the figures as lines of a tooltip, which screen readers also read. */
export function figureLines(trust: Trust): string[] {
  if (trust === undefined) return ["not measured yet"];
  const { plot = null, recall = null, recall_baseline: baseline = null } = trust ?? {};
  const by = baseline === null ? "" : ` (chance ${percent(baseline)})`;
  const lines = [
    plot === null ? "" : `distance with q·k: r ${formatCorrelation(plot)}`,
    recall === null ? "" : `recall at 10: ${percent(recall)}${by}`,
  ].filter(Boolean);
  return lines.length > 0 ? lines : ["no trust figure"];
}

/** Return an explanation of the figures below the plots, and of the opacity of plots. */
export function keyInWords(trust: TrustMap, figures: FigureDetail = "words"): string {
  // The median of the recall that heads would have by chance.
  const chances = [...trust.values()].flatMap((head) => head?.recall_baseline ?? []);
  const chance = chances.sort((a, b) => a - b)[chances.length >> 1];
  const byChance = chance === undefined ? "" : ` (about ${percent(chance)} by chance)`;
  const recall = `, and how many of a query’s ten strongest keys are among its ten nearest${byChance}`;
  return `Below each plot: r of distance with q·k (−1 is best)${figures === "least" ? "" : recall}. Plots with r near or above 0 are faint.`;
}

/**
 * Plots have full opacity up to a correlation of `STRONG_AT`. Opacity falls to `FAINTEST` at a
 * correlation of `LITTLE`.
 */
const STRONG_AT = -0.5;
const FAINTEST = 0.3;

/**
 * Return the opacity of a head's plot, 0 to 1.
 *
 * A plot whose distances say little about q·k is faint, so that its shapes are not mistaken for
 * attention.
 */
export function strengthOf(trust: Trust): number {
  const correlation = trust?.plot ?? null;
  if (correlation === null) return trust === undefined ? 0.75 : FAINTEST;
  const share = (correlation - LITTLE) / (STRONG_AT - LITTLE);
  return FAINTEST + (1 - FAINTEST) * Math.max(0, Math.min(1, share));
}
