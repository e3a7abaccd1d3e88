/** The compare view's traits, and what they say of a record in which each stack stands several times. */

import type { Description, StackDescription } from "../../client/protocol";
import type { Scores } from "../../client/source";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";
import type { Selection } from "../../ui/view/record";
import { HEAD_DEFAULTS, type HeadState } from "../head";

/** A stack of what is compared; entry i of each list is of member i, entry 0 of the first. */
export interface ComparedStack {
  /** Names of the record's stacks. */
  members: string[];
  /** Names of the stacks of differences from the first; null where there is none. */
  differences: (string | null)[];
  /** How far each head lies from the first's, in total variation. */
  distances: (Scores | null)[];
  /** How far rounding alone may move it; null in it where that is not known. */
  rounding: (Scores | null)[];
  /** How many queries distances are estimated from; null for all. */
  sampled: number | null;
  /** Units that a member has not: queries and keys. */
  missing: { queries: number[]; keys: number[] }[];
}

export interface Compared {
  names: string[];
  stacks: Record<string, ComparedStack>;
}

/** Why the view opened at a head: it lies farthest apart. */
export interface CompareOpening {
  stack: string;
  layer: number;
  head: number;
  member: number;
  distance: number;
  rounding: number | null;
}

/** The names are Python's. */
export interface CompareState extends HeadState, HeatMapState {
  comparison: Compared;
  /** Which member is compared with the first. */
  member: number;
  form: "head" | "matrix";
}

export const COMPARE_DEFAULTS: CompareState = {
  ...HEAT_MAP_DEFAULTS,
  ...HEAD_DEFAULTS,
  comparison: { names: [], stacks: {} },
  member: 1,
  form: "head",
};

/**
 * The record as it was before its stacks stood there several times: with their own names, and with
 * the tokens of a difference, which say what both members have.
 */
export function describedOnce(
  description: Description,
  compared: Compared,
  member: number,
): Description {
  const stacks = Object.entries(compared.stacks).flatMap(([name, { members, differences }]) => {
    const named = (wanted: string | null | undefined) =>
      description.stacks.find((each) => each.name === wanted);
    const found = named(members[0]);
    if (!found) return [];
    const { query_tokens, key_tokens } =
      named(differences[member] ?? differences.find((each) => each !== null)) ?? found;
    return [{ ...found, query_tokens, key_tokens, name, patterns: [] }];
  });
  return { ...description, stacks };
}

/** Where the view is in what is compared. */
export interface CompareSelection extends Selection {
  compared: ComparedStack;
  names: string[];
  /** Which member is compared with the first, and the head that is shown. */
  member: number;
  head: number;
}

/** A head's distance from the first member's, and how far rounding alone may move it. */
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

/** Whether a head differs by no more than rounding alone may cause. */
export function isSame({ distance, rounding }: HeadDistance): boolean {
  return distance !== null && distance <= (rounding ?? 0);
}

/** What the traits mean; what there is not falls back to what there is. */
export function compareSelection(
  selection: Selection,
  state: { comparison: Compared; member: number },
): CompareSelection | null {
  const compared = state.comparison.stacks[selection.stack.name];
  if (!compared) return null;
  const last = compared.members.length - 1;
  const member = Math.max(1, Math.min(last, Math.floor(state.member) || 1));
  const { names } = state.comparison;
  const here = { ...selection, compared, names, member };
  return { ...here, head: selection.chosen[0] ?? farthestHead(here) };
}

/** The head of the layer that lies farthest apart; the first where none is known to. */
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

/** Queries that the first member or the other has not. */
export function missingQueries({ compared, member }: CompareSelection): number[] {
  return [0, member].flatMap((at) => compared.missing[at]?.queries ?? []);
}
