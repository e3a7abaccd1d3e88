/**
 * State of the compare view. Members are the compared records, of which member 0 is the reference.
 * The record of the view contains each compared stack once for every member. It may also contain
 * stacks with the differences between a member and member 0.
 */

import type { Description, StackDescription } from "../../client/protocol";
import type { Scores } from "../../client/source";
import type { COMPARE_VIEW_TRAITS, StateOf } from "../../client/traits";
import type { HeatMapState } from "../../ui/heat-map/state";
import type { Selection } from "../../ui/view/record";
import type { HeadState } from "../head";

/** A compared stack. Entry i of each list belongs to member i. */
export interface ComparedStack {
  /** Names of the members' stacks in the record. */
  members: string[];
  /**
   * Name of the stack with the difference from member 0, or null if the record does not contain it.
   */
  differences: (string | null)[];
  /** Total variation distance (mean over queries) of each head from the same head of member 0. */
  distances: (Scores | null)[];
  /** Upper bound, for each head, of the distance that rounding alone causes, or null if unknown. */
  rounding: (Scores | null)[];
  /** Number of queries from which distances are estimated, or null if all queries were used. */
  sampled: number | null;
  /** Indices of the queries and keys that a member does not have. */
  missing: { queries: number[]; keys: number[] }[];
}

export interface Compared {
  names: string[];
  stacks: Record<string, ComparedStack>;
}

/**
 * Head at which the view opened. Its distance exceeds its rounding error most or, if `rounding` is
 * null, its distance is the largest.
 */
export interface CompareOpening {
  stack: string;
  layer: number;
  head: number;
  member: number;
  distance: number;
  rounding: number | null;
}

export type CompareState = HeadState &
  HeatMapState & { [K in "comparison" | "member" | "form"]: CompareTraits[K] };

type CompareTraits = StateOf<typeof COMPARE_VIEW_TRAITS> & { comparison: Compared };

/**
 * Return the description with each compared stack once, instead of once for each member.
 *
 * A stack has the tokens of the difference between the compared member and member 0. If the record
 * does not contain this difference, the stack has the tokens of another difference or of member 0.
 */
export function describedOnce(
  description: Description,
  compared: Compared,
  member: number,
): Description {
  const stacks = Object.entries(compared.stacks).flatMap(([name, { members, differences }]) => {
    const named = (stackName: string | null | undefined) =>
      description.stacks.find((stack) => stack.name === stackName);
    const first = named(members[0]);
    if (!first) return [];
    const { query_tokens, key_tokens } =
      named(differences[member] ?? differences.find((difference) => difference !== null)) ?? first;
    return [{ ...first, query_tokens, key_tokens, name, patterns: [] }];
  });
  return { ...description, stacks, siblings: [] };
}

/** The selected stack, layer and heads, and the compared members. */
export interface CompareSelection extends Selection {
  compared: ComparedStack;
  names: string[];
  /** Index of the member that is compared with member 0. */
  member: number;
  /** Index of the chosen head, or of the head with the largest distance if none is chosen. */
  head: number;
}

/**
 * Distance of a head from member 0, and the largest distance that rounding alone may cause. Each is
 * null if unknown.
 */
export interface HeadDistance {
  distance: number | null;
  rounding: number | null;
}

export function distanceOf(
  selection: Pick<CompareSelection, "compared" | "member"> & { stack: StackDescription },
  layer: number,
  head: number,
): HeadDistance {
  const at = selection.stack.layers.indexOf(layer);
  const { distances, rounding } = selection.compared;
  return {
    distance: distances[selection.member]?.[at]?.[head] ?? null,
    rounding: rounding[selection.member]?.[at]?.[head] ?? null,
  };
}

/**
 * Return whether rounding alone may cause the distance of a head. If the effect of rounding is
 * unknown, this is true only for a distance of 0.
 */
export function isSame({ distance, rounding }: HeadDistance): boolean {
  return distance !== null && distance <= (rounding ?? 0);
}

/**
 * Return the selection with its compared member and chosen head. An invalid index of a member is
 * replaced by the nearest valid one. Return null if the stack is not compared.
 */
export function compareSelection(
  selection: Selection,
  state: { comparison: Compared; member: number },
): CompareSelection | null {
  const compared = state.comparison.stacks[selection.stack.name];
  if (!compared) return null;
  const last = compared.members.length - 1;
  const member = Math.max(1, Math.min(last, Math.floor(state.member) || 1));
  const { names } = state.comparison;
  const base = { ...selection, compared, names, member };
  return { ...base, head: selection.chosen[0] ?? farthestHead(base) };
}

/**
 * Return the head that has the largest distance in the selected layer, or the first head if no
 * distance is known.
 */
function farthestHead(
  selection: Selection & Pick<CompareSelection, "compared" | "member">,
): number {
  let best = selection.allHeads[0] ?? 0;
  let most = 0;
  for (const head of selection.allHeads) {
    const { distance } = distanceOf(selection, selection.layer, head);
    if ((distance ?? 0) > most) [best, most] = [head, distance as number];
  }
  return best;
}

/** Return the queries that member 0 or the compared member does not have. */
export function missingQueries({ compared, member }: CompareSelection): number[] {
  return [0, member].flatMap((at) => compared.missing[at]?.queries ?? []);
}
