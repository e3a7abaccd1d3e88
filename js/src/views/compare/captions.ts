/**
 * Captions of the compare view. Members are the compared records, of which the first is the
 * reference. The distance of a head is measured from the same head of the reference.
 */

import type { HeadGrid, HeadIndex } from "../../ui/head-grid/grid";
import {
  capital,
  formatSmall,
  headName,
  isAttention,
  pluralOf,
  quantityOf,
  quotedAt,
  several,
  stackName,
  tokensInWords,
} from "../../ui/text/captions";
import type { KeyChange, Moved } from "./moved";
import {
  type CompareOpening,
  type CompareSelection,
  distanceOf,
  isSame,
  missingQueries,
} from "./state";

/** Return a change with its sign: "+0.12", "−0.30". */
export function signed(change: number): string {
  return `${change < 0 ? "−" : "+"}${formatSmall(Math.abs(change))}`;
}

/** Return the subtitle: the names of the two members, the stack and its number of tokens. */
export function subtitleOf(selection: CompareSelection): string {
  const { stack, names, member } = selection;
  return [
    `${names[member]} compared with ${names[0]}`,
    stackName(stack.name),
    tokensInWords(selection),
  ].join(" · ");
}

/**
 * Return the lines about the distance of a head: the distance and, if it is known, the distance
 * that rounding alone may cause. A single line says that the distance is unknown or exactly 0.
 */
export function distanceLines(selection: CompareSelection, cell: HeadIndex): string[] {
  const at = distanceOf(selection, cell.layer, cell.head);
  if (at.distance === null) return ["nothing to compare"];
  if (at.distance === 0) return ["no difference: exactly the same"];
  return [
    `${isSame(at) ? "no difference:" : "distance"} ${formatSmall(at.distance)}`,
    ...(at.rounding === null ? [] : [`rounding alone: up to ${formatSmall(at.rounding)}`]),
  ];
}

function changeOf(selection: CompareSelection, { key, change }: KeyChange): string {
  return `${quotedAt(selection.keys.text, key)} (${signed(change)})`;
}

/**
 * Minimum share of the moved attention that each named key must have lost or gained. If one of them
 * lost or gained less, the caption calls the changes of these keys only "the largest part".
 */
const NEARLY_ALL = 0.95;

/**
 * Return the main caption. It states how much attention of one query moved in the chosen head and
 * between which keys, or the distance of the head if `moved` is null. If the rows do not sum to 1,
 * it states the largest changes instead. Separate sentences say that the head does not differ, or
 * that the head or the pinned query cannot be compared.
 */
export function sentenceOf(selection: CompareSelection, moved: Moved | null): string {
  const { layer, head, names, member, token } = selection;
  const name = capital(headName({ layer, head }));
  const at = distanceOf(selection, layer, head);
  const [a, b] = [names[0], names[member]];
  if (token !== null && missingQueries(selection).includes(token)) {
    const query = quotedAt(selection.queries.text, token);
    return `${name}: only one of ${a} and ${b} has ${query} as a query, so there is nothing to compare.`;
  }
  if (at.distance === null) return `${name}: nothing to compare between ${a} and ${b}.`;
  if (at.distance === 0) return `${name} is exactly the same in ${a} and ${b}.`;
  const mean = formatSmall(at.distance);
  if (isSame(at)) {
    const floor = formatSmall(at.rounding ?? 0);
    return `${name} does not differ: the distance between ${a} and ${b} is ${mean}, and rounding alone may cause ${floor}.`;
  }
  if (!moved || (!moved.from && !moved.to)) {
    const all = `${name}: the distance between ${a} and ${b} is ${mean}, the mean over queries.`;
    return token === null ? `${all} Pin a query to see what moved.` : all;
  }
  const [most, comma] = moved.most ? [", the query that changed most in this head", ","] : ["", ""];
  const row = quotedAt(selection.queries.text, moved.query) + most;
  const { from, to } = moved;
  const changes = [from, to].filter((change) => change !== null);
  if (!selection.stack.normalized) {
    const named = changes.map((change) => changeOf(selection, change)).join(" and ");
    const [noun, verb] = changes.length === 1 ? ["change", "is"] : ["changes", "are"];
    return `${name}: the largest ${noun} of ${row}${comma} from ${a} to ${b} ${verb} ${named}.`;
  }
  const sink = "the attention sink";
  const left = `from ${from ? changeOf(selection, from) : sink}`;
  const went = `to ${to ? changeOf(selection, to) : sink}`;
  const whole = changes.every(({ change }) => Math.abs(change) >= NEARLY_ALL * moved.total);
  // Sums of rounded weights can exceed 1 slightly.
  const share = formatSmall(Math.min(1, moved.total));
  return (
    `${name} moved ${share} of the attention of ${row}` +
    (whole ? `${comma} ${left} ${went}.` : `: the largest part ${left}, the largest part ${went}.`)
  );
}

/** Return the number of heads in a grid that differ by no more than rounding alone may cause. */
export function numSame(selection: CompareSelection, { rows }: HeadGrid): number {
  const isSameCell = (cell: HeadIndex | null): boolean =>
    cell !== null && isSame(distanceOf(selection, cell.layer, cell.head));
  return rows.flat().filter(isSameCell).length;
}

/**
 * Return the detail caption: the definition of a distance, the error of an estimated distance, the
 * number of heads that do not differ by more than rounding, whether queries are excluded, and
 * `notes`.
 */
export function coverageOf(
  selection: CompareSelection,
  grid: HeadGrid,
  notes: readonly string[],
): string {
  const { member, compared } = selection;
  const same = numSame(selection, grid);
  const hasRounding = compared.rounding[member]?.some((row) => row.some((value) => value !== null));
  const quantity = quantityOf(selection.stack);
  const sample = compared.sampled;
  const error = sample === null ? "" : (0.5 / Math.sqrt(sample)).toFixed(3);
  const definition = selection.stack.normalized
    ? "the share of a query’s attention that moved to other keys (total variation)"
    : isAttention(quantity)
      ? "half the sum of the absolute changes of a query’s row"
      : "the sum of the absolute changes of a query’s row, relative to the absolute numbers of both rows";
  return [
    `A distance is ${definition}, the mean over queries.`,
    sample === null
      ? ""
      : `It is estimated from ${sample} queries of each head, with a standard error of at most ${error}.`,
    same > 0
      ? `${several(same, "head")} of ${grid.shown}, hatched, ${same === 1 ? "differs" : "differ"} by no more than rounding alone may cause.`
      : hasRounding
        ? "No difference is small enough to be caused by rounding alone."
        : isAttention(quantity)
          ? "The effect of rounding is unknown because the record has no queries and keys."
          : `The effect of rounding on ${pluralOf(quantity)} is not estimated.`,
    missingQueries(selection).length > 0
      ? "Queries without a counterpart are excluded from the distances."
      : "",
    ...notes,
  ]
    .filter(Boolean)
    .join(" ");
}

/**
 * Return a sentence that states why the view opened at the selected head. Return "" if `opening` is
 * null, or if the reader has selected another stack, layer, head or member since.
 */
export function openingInWords(
  opening: CompareOpening | null,
  selection: CompareSelection,
): string {
  if (!opening) return "";
  const { stack, layer, head, member, distance, rounding } = opening;
  const { stack: shown, ...now } = selection;
  const isShown = now.layer === layer && now.head === head && now.member === member;
  if (shown.name !== stack || !isShown) return "";
  const reason =
    rounding === null
      ? "which has the largest distance"
      : "whose distance exceeds its rounding error most";
  return `Opened at ${headName(opening)}, ${reason}: ${formatSmall(distance)}, the mean over queries.`;
}
