/**
 * Head at which a view opens. Most views open at the head with the most distinct pattern, if Python
 * finds one and the user chose no layer, head or token.
 */

import { withoutNumber } from "../../client/record-number";
import { formatWeight, headName, quoted } from "../text/captions";

/**
 * Head with the most distinct pattern, which `attnviz/analysis/distinct.py` selects. `pattern` is
 * the name of the pattern. `score` is the share of the head's weight on the query-key pairs of the
 * pattern.
 */
export interface Opening {
  stack: string;
  layer: number;
  head: number;
  pattern: string;
  score: number;
  /** Value that `score` would have if the attention of the head were uniform. */
  baseline: number;
  /**
   * Number of queries in the sample from which `score` and `baseline` are estimated, or null if all
   * queries were used.
   */
  num_queries: number | null;
}

/**
 * Return a sentence that explains why the view opened at the head that it shows. Return "" if the
 * view did not open at a head with a distinct pattern (`opening` is null), or if it shows another
 * stack, layer or selection of heads now.
 */
export function openingInWords(
  opening: Opening | null,
  at: { stack: { name: string; signed?: boolean }; layer: number; chosen: readonly number[] },
): string {
  if (opening === null) return "";
  const { stack, layer, head, pattern, score, baseline, num_queries } = opening;
  const atOpening = withoutNumber(at.stack.name) === stack && at.layer === layer;
  if (!atOpening || at.chosen.length !== 1 || at.chosen[0] !== head) return "";
  // Only linear layers have signed weights. Their scores are shares of the absolute weights.
  const whole = at.stack.signed ? "absolute weight" : "weight";
  const estimate = num_queries === null ? "" : `, estimated from ${num_queries} queries`;
  return (
    `Opened at ${headName(opening)}, which shows the most distinct pattern: ${quoted(pattern)}, ` +
    `${formatWeight(score)} of the ${whole} where uniform attention has ${formatWeight(baseline)}${estimate}.`
  );
}
