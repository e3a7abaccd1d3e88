/** How far plots can be trusted: in short below a tile, in words, and in how strongly they are drawn. */

import { capital, counted, formatShare, several } from "../../ui/text/captions";
import type { HeadTrust } from "./client/requests";

/** A correlation with two decimals and a true minus: "−0.61". */
export function formatCorrelation(value: number): string {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** From this correlation on distances say little of q·k, and do not "follow" it. */
export const LITTLE = -0.1;

/** What of a plot can be believed: how distance follows q·k, and how many near keys are strong ones. */
export function trustInWords(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "";
  if (trust === null) return "How far this plot can be trusted cannot be measured here.";
  const { allowed, all_pairs } = trust.plot;
  const parts: string[] = [];
  const correlation = allowed ?? all_pairs;
  if (correlation !== null) {
    const number = formatCorrelation(correlation);
    const over =
      allowed === null
        ? "over all pairs"
        : `over keys that a query may attend to${all_pairs === null ? "" : ` (${formatCorrelation(all_pairs)} over all pairs)`}`;
    parts.push(
      correlation > LITTLE
        ? `Correlation of distance with q·k on this plot: ${number} ${over}`
        : `On this plot distance follows q·k with r = ${number} ${over}`,
    );
  }
  const mine = trust.recall_allowed !== null;
  const recall = trust.recall_allowed ?? trust.recall_all;
  const chance = mine ? trust.chance_allowed : trust.chance_all;
  if (recall !== null) {
    const by = chance === null ? "" : ` (chance ${formatShare(chance)})`;
    const which = mine ? "" : " of all texts";
    const share = `${formatShare(recall)} of a query’s ten strongest keys${which} are among its ten nearest${by}`;
    parts.push(parts.length > 0 ? share : capital(share));
  }
  if (parts.length === 0)
    return "No query has enough keys to measure how far this plot can be trusted.";
  return `${parts.join("; ")}.`;
}

/** What the figures mean. */
export const TRUST_HELP =
  "r is the mean over queries of the correlation between distance and q·k: −1 where nearer always " +
  "means a larger q·k, 0 where the plot says nothing of it.";

/** How trust went from the vectors as they are to the plot: "r over allowed keys: −0.31 → −0.55 → −0.48". */
export function stepsInWords(trust: HeadTrust): string {
  const side = trust.plot.allowed !== null ? "allowed" : "all_pairs";
  const steps = [trust.before[side], trust.placed[side], trust.plot[side]];
  if (steps.some((value) => value === null)) return "";
  const [before, placed, plot] = steps.map((value) => formatCorrelation(value as number));
  const measured =
    trust.queries < trust.of
      ? ` Measured on ${counted(trust.queries)} of ${several(trust.of, "query", "queries")}.`
      : "";
  return `r of the vectors as they are ${before}, as placed ${placed}, on the plot ${plot}.${measured}`;
}

/** Trust by `headKey`. */
export type TrustMap = ReadonlyMap<string, HeadTrust | null>;

/** How much of a tile's figures there is room for. */
export type FigureDetail = "words" | "short" | "least";

/** The figures of a tile: over keys that may be attended to, or else over all. */
export function figuresOf(trust: HeadTrust | null | undefined): {
  correlation: number | null;
  recall: number | null;
  /** Whether one of them had to be taken over all pairs. */
  ofAll: { correlation: boolean; recall: boolean };
} {
  const { allowed = null, all_pairs = null } = trust?.plot ?? {};
  const { recall_allowed = null, recall_all = null } = trust ?? {};
  return {
    correlation: allowed ?? all_pairs,
    recall: recall_allowed ?? recall_all,
    ofAll: {
      correlation: allowed === null && all_pairs !== null,
      recall: recall_allowed === null && recall_all !== null,
    },
  };
}

/** What stands behind a figure that is over all pairs. */
const OF_ALL = "*";

/** A share of small plots: "42%". */
function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** "r −0.83 · 42%", in short "−0.83", over all pairs "r −0.83*"; "…" of a head that is not measured yet. */
export function figuresInShort(trust: HeadTrust | null | undefined, words: FigureDetail): string {
  if (trust === undefined) return "…";
  const { correlation, recall, ofAll } = figuresOf(trust);
  const named = words === "words" ? "r " : "";
  const marked = (figure: string, all: boolean): string => `${figure}${all ? OF_ALL : ""}`;
  const parts = [
    correlation === null
      ? ""
      : `${named}${marked(formatCorrelation(correlation), ofAll.correlation)}`,
    recall === null || words === "least" ? "" : marked(percent(recall), ofAll.recall),
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(" · ") : "no figure";
}

/** "correlation −0.83, recall 42%", for a screen reader. */
export function figuresSpoken(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "not measured yet";
  const { correlation, recall, ofAll } = figuresOf(trust);
  const over = (all: boolean): string => (all ? " over all pairs" : "");
  const parts = [
    correlation === null
      ? ""
      : `correlation ${formatCorrelation(correlation)}${over(ofAll.correlation)}`,
    recall === null ? "" : `recall ${percent(recall)}${over(ofAll.recall)}`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "no trust figure";
}

/** What recall would be by chance, in the middle of the heads: " (about 31% by chance)", or "". */
export function chanceInWords(trust: TrustMap): string {
  const chances = [...trust.values()]
    .flatMap(
      (each) => (each?.recall_allowed === null ? each.chance_all : each?.chance_allowed) ?? [],
    )
    .sort((a, b) => a - b);
  const middle = chances[chances.length >> 1];
  if (middle === undefined) return "";
  return middle < 0.005 ? " (less than 1% by chance)" : ` (about ${percent(middle)} by chance)`;
}

/**
 * What stands below the plots, and why some are faint.
 *
 * @param figures which of them there is room for.
 */
export function keyInWords(trust: TrustMap, figures: FigureDetail = "words"): string {
  const least = figures === "least";
  const shown = [...trust.values()].map(figuresOf);
  const correlated = shown.some(({ correlation }) => correlation !== null);
  const recalled = !least && (shown.length === 0 || shown.some(({ recall }) => recall !== null));
  const ofAll = shown.some((each) => each.ofAll.correlation || (!least && each.ofAll.recall));
  const shownFigures = [
    ...(correlated || !recalled ? ["r of distance with q·k (−1 is best)"] : []),
    ...(recalled
      ? [
          `how many of a query’s ten strongest keys are among its ten nearest${chanceInWords(trust)}`,
        ]
      : []),
  ].join(", and ");
  const all = ofAll ? ` ${OF_ALL} Over all pairs: queries may attend to too few keys.` : "";
  return `Below each plot: ${shownFigures}.${all} The fainter a plot, the less its r is below 0.`;
}

/** Whether distances on a plot follow q·k so little that the view warns of it. */
export function saysLittle(trust: HeadTrust | null | undefined): boolean {
  const { correlation } = figuresOf(trust);
  return correlation !== null && correlation > LITTLE;
}

/** From this correlation on a plot is as strong as it gets; from `LITTLE` on as faint. */
const STRONG_AT = -0.5;
const FAINTEST = 0.3;

/**
 * How strongly a head's plot is drawn, 0 to 1: one whose distances say little of q·k steps back,
 * so that its shapes are not taken for attention.
 */
export function strengthOf(trust: HeadTrust | null | undefined): number {
  const { correlation } = figuresOf(trust);
  if (correlation === null) return trust === undefined ? 0.75 : FAINTEST;
  const share = (correlation - LITTLE) / (STRONG_AT - LITTLE);
  return FAINTEST + (1 - FAINTEST) * Math.max(0, Math.min(1, share));
}
