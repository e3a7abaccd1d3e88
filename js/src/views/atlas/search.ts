/**
 * Finding edges by the tokens at both ends, and how many of a sample match. Pure functions.
 *
 * A sampled edge is a query drawn uniformly and one of its keys drawn in proportion to its weight,
 * so the share of a head's sampled edges that match estimates the share of its attention that does.
 */

import type { AtlasStack } from "../../client/protocol";
import { quoted } from "../../ui/text/captions";
import { tokenMatcher } from "../../ui/text/token-search";
import type { Edges, Texts, Tokens } from "./client/atlas";

/** What is sought, made of what was typed. */
export type Sought =
  | { kind: "any" }
  | { kind: "class"; system: number; value: number }
  | { kind: "position"; position: number }
  | { kind: "token"; matches: (token: string) => boolean };

/** A sign that stands for any token. */
const ANY = "*";

/**
 * What a text in a search field means; null where it is empty.
 *
 * @throws Error where it names a system of classes with a class that there is not.
 */
export function soughtOf(typed: string, classes: AtlasStack["classes"]): Sought | null {
  const wanted = typed.trim();
  if (wanted === "") return null;
  if (wanted === ANY) return { kind: "any" };
  const number = /^#(\d+)$/.exec(wanted);
  if (number) return { kind: "position", position: Number(number[1]) };
  const colon = wanted.indexOf(":");
  const name = wanted.slice(0, colon).toLowerCase();
  const system = colon < 0 ? -1 : classes.findIndex((each) => each.name.toLowerCase() === name);
  if (system >= 0) {
    const { values } = classes[system] as AtlasStack["classes"][0];
    const value = wanted.slice(colon + 1).trim();
    const found = values.findIndex((each) => each.toLowerCase() === value.toLowerCase());
    if (found < 0) {
      const [first, more] = [values.slice(0, MOST_NAMED), values.length - MOST_NAMED];
      const known = `${first.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
      throw new Error(
        value === ""
          ? `${name}: one of ${known}.`
          : `No ${name} is ${quoted(value)}; there are ${known}.`,
      );
    }
    return { kind: "class", system, value: found };
  }
  // A text of its own, as no part of it can be a class.
  const matches = tokenMatcher(wanted) as (token: string) => boolean;
  return { kind: "token", matches };
}

/** Classes that an error names. */
const MOST_NAMED = 8;

/** Of each token whether it is sought; null where any is. */
function markedTokens(sought: Sought | null, texts: Texts, side: Tokens): Uint8Array | null {
  if (!sought || sought.kind === "any") return null;
  const { count, entries, positions } = side;
  const marks = new Uint8Array(count);
  if (sought.kind === "token") {
    // Of each different token once, however often it occurs.
    const found = Uint8Array.from(texts.vocabulary, (token) => (sought.matches(token) ? 1 : 0));
    for (let i = 0; i < count; i++) marks[i] = found[entries[i] as number] as number;
    return marks;
  }
  const values = sought.kind === "class" ? side.classes[sought.system] : positions;
  const wanted = sought.kind === "class" ? sought.value : sought.position;
  for (let i = 0; i < count; i++) marks[i] = values?.[i] === wanted ? 1 : 0;
  return marks;
}

/** A search that is ready to go over edges. */
export interface Search {
  queries: Uint8Array | null;
  keys: Uint8Array | null;
  offsets: readonly [number, number] | null;
}

export function searchOf(
  texts: Texts,
  query: Sought | null,
  key: Sought | null,
  offsets: readonly [number, number] | null,
): Search {
  return {
    queries: markedTokens(query, texts, texts.queries),
    keys: markedTokens(key, texts, texts.keys),
    offsets,
  };
}

/** Whether an edge is one of those that are sought. */
export function isFound(edges: Edges, i: number, { queries, keys, offsets }: Search): boolean {
  if (queries && queries[edges.queryToken[i] as number] !== 1) return false;
  if (keys && keys[edges.keyToken[i] as number] !== 1) return false;
  if (!offsets) return true;
  const offset = (edges.key[i] as number) - (edges.query[i] as number);
  return offset >= offsets[0] && offset <= offsets[1];
}

/** How many of a head's edges match, of how many. */
export interface Count {
  found: number;
  of: number;
}

/** Of each head of a layer how many of its edges match. */
export function countFound(edges: Edges, heads: number, search: Search): Count[] {
  return Array.from({ length: heads }, (_, head) => {
    const [first, stop] = edges.of(head);
    let found = 0;
    for (let i = first; i < stop; i++) if (isFound(edges, i, search)) found++;
    return { found, of: stop - first };
  });
}

/** The 97.5% point of the normal distribution. */
const Z = 1.959964;

/** Wilson's interval (1927) of a share of which a sample has some, at 95%. */
export function wilson({ found, of }: Count): [number, number] {
  if (of === 0) return [0, 1];
  const [share, square] = [found / of, Z * Z];
  const middle = (share + square / (2 * of)) / (1 + square / of);
  const half =
    (Z / (1 + square / of)) * Math.sqrt((share * (1 - share)) / of + square / (4 * of * of));
  return [found === 0 ? 0 : middle - half, found === of ? 1 : middle + half];
}
