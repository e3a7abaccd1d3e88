/**
 * Trust figures of a plot as text, and the opacity of a plot that depends on them.
 *
 * Trust figures measure how well distances on the plot follow q·k, the dot product of query and
 * key. r is the correlation of distance with q·k. Recall is the share of a query's ten strongest
 * keys that are among its ten nearest keys.
 */

import { capital, formatShare } from "../../ui/text/captions";
import type { HeadTrust } from "./client/requests";

/** Return a correlation with two decimals and a true minus sign: "−0.61". */
export function formatCorrelation(value: number): string {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** A correlation above this means that distances say little about q·k. */
export const LITTLE = -0.1;

/**
 * Return the trust figures as a sentence.
 *
 * @param trust figures, null if the plot has none, or undefined if they are not measured yet.
 */
export function trustInWords(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "";
  if (trust === null) return "This plot has no trust figures.";
  const { plot, recall, recall_baseline: baseline } = trust;
  const parts: string[] = [];
  if (plot !== null) {
    const figure = `${formatCorrelation(plot)} over keys that a query may attend to`;
    parts.push(
      plot > LITTLE
        ? `Correlation of distance with q·k on this plot: ${figure}`
        : `On this plot distance follows q·k with r = ${figure}`,
    );
  }
  if (recall !== null) {
    const by = baseline === null ? "" : ` (chance ${formatShare(baseline)})`;
    const share = `${formatShare(recall)} of a query’s ten strongest keys are among its ten nearest${by}`;
    parts.push(parts.length > 0 ? share : capital(share));
  }
  if (parts.length === 0) return "No query has enough keys for trust figures.";
  return `${parts.join("; ")}.`;
}

/** Explanation of r for tooltips. */
export const TRUST_HELP =
  "r is the mean over queries of the correlation between distance and q·k: −1 if nearer always " +
  "means a larger q·k, 0 if the two are unrelated.";

/**
 * Trust figures by `headKey`, or null for a head without trust figures. A head that is not measured
 * yet has no entry.
 */
export type TrustMap = ReadonlyMap<string, HeadTrust | null>;

/** Level of detail of the figures below a tile. Narrow tiles have less detail. */
export type FigureDetail = "words" | "short" | "least";

/** Return a share in percent: "42%". */
function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/**
 * Return the figures below a tile: "r −0.83 · 42%" ("words"), "−0.83 · 42%" ("short") or "−0.83"
 * ("least"). Return "…" if the head is not measured yet.
 */
export function figuresInShort(trust: HeadTrust | null | undefined, words: FigureDetail): string {
  if (trust === undefined) return "…";
  const { plot = null, recall = null } = trust ?? {};
  const named = words === "words" ? "r " : "";
  const parts = [
    plot === null ? "" : `${named}${formatCorrelation(plot)}`,
    recall === null || words === "least" ? "" : percent(recall),
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(" · ") : "no figure";
}

/** Return "correlation −0.83, recall 42%" for a screen reader. */
export function figuresSpoken(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "not measured yet";
  const { plot = null, recall = null } = trust ?? {};
  const parts = [
    plot === null ? "" : `correlation ${formatCorrelation(plot)}`,
    recall === null ? "" : `recall ${percent(recall)}`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "no trust figure";
}

/**
 * Return the median of the recall that heads would have by chance, such as " (about 31% by
 * chance)". Return "" if it is unknown.
 */
export function chanceInWords(trust: TrustMap): string {
  const chances = [...trust.values()]
    .flatMap((headTrust) => headTrust?.recall_baseline ?? [])
    .sort((a, b) => a - b);
  const middle = chances[chances.length >> 1];
  if (middle === undefined) return "";
  return middle < 0.005 ? " (less than 1% by chance)" : ` (about ${percent(middle)} by chance)`;
}

/**
 * Return an explanation of the figures below the plots, and of the opacity of plots.
 *
 * @param figures level of detail of the figures.
 */
export function keyInWords(trust: TrustMap, figures: FigureDetail = "words"): string {
  const least = figures === "least";
  const heads = [...trust.values()];
  const correlated = heads.some((headTrust) => headTrust && headTrust.plot !== null);
  const recalled =
    !least &&
    (heads.length === 0 || heads.some((headTrust) => headTrust && headTrust.recall !== null));
  const shownFigures = [
    ...(correlated || !recalled ? ["r of distance with q·k (−1 is best)"] : []),
    ...(recalled
      ? [
          `how many of a query’s ten strongest keys are among its ten nearest${chanceInWords(trust)}`,
        ]
      : []),
  ].join(", and ");
  return `Below each plot: ${shownFigures}. Plots with r near or above 0 are faint.`;
}

/** Whether distances follow q·k so little that the view shows a warning. */
export function saysLittle(trust: HeadTrust | null | undefined): boolean {
  const correlation = trust?.plot ?? null;
  return correlation !== null && correlation > LITTLE;
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
export function strengthOf(trust: HeadTrust | null | undefined): number {
  const correlation = trust?.plot ?? null;
  if (correlation === null) return trust === undefined ? 0.75 : FAINTEST;
  const share = (correlation - LITTLE) / (STRONG_AT - LITTLE);
  return FAINTEST + (1 - FAINTEST) * Math.max(0, Math.min(1, share));
}
