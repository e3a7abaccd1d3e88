/**
 * Stored tokens of a text. The atlas stores only the tokens around the query and the key of each
 * stored edge. Pure functions.
 */

import { isDotted, type RunningToken, runningText } from "../../ui/text/running-text";
import type { Edge, Texts, Tokens } from "./client/atlas";

/** Number of tokens shown on each side of an edge's query or key. */
const AROUND = 5;

/** Token near an edge. */
export interface WindowToken extends RunningToken {
  /** Whether the token is the edge's query, its key or both, or null if it is neither. */
  end: "query" | "key" | "both" | null;
}

const dotted = new WeakMap<Texts, boolean>();

function dottedIn(texts: Texts): boolean {
  const hasDots = dotted.get(texts) ?? isDotted(texts.vocabulary);
  dotted.set(texts, hasDots);
  return hasDots;
}

/** Name of the class of special tokens. An atlas may lack this class. */
const SPECIAL = "special";

/**
 * Return the stored tokens of a text at the positions for which `near` is true.
 *
 * @param side the stored queries or the stored keys.
 * @param kinds names of the classes in the first class system.
 */
export function storedTokens(
  texts: Texts,
  side: Tokens,
  text: number,
  kinds: readonly string[],
  near: (position: number) => boolean,
): RunningToken[] {
  const [first, stop] = side.of(text);
  const special = kinds.indexOf(SPECIAL);
  const tokens = [];
  for (let i = first; i < stop; i++) {
    const position = side.positions[i] as number;
    if (!near(position)) continue;
    const name = texts.nameOf(side, i);
    tokens.push({ name, position, special: special >= 0 && side.classes[0]?.[i] === special });
  }
  return runningText(tokens, dottedIn(texts));
}

/**
 * Return the tokens around the query and the key of an edge. The result is one list in text order.
 * If queries and keys are different tokens, it has two lists: query tokens, then key tokens.
 */
export function windowTokens(texts: Texts, edge: Edge, kinds: readonly string[]): WindowToken[][] {
  const same = texts.keys === texts.queries;
  const { text, query, key } = edge;
  const near = (end: number, position: number): boolean => Math.abs(position - end) <= AROUND;
  if (same) {
    const both = storedTokens(
      texts,
      texts.queries,
      text,
      kinds,
      (position) => near(query, position) || near(key, position),
    );
    return [
      both.map((token): WindowToken => {
        const at = token.position;
        const end = at === query ? (at === key ? "both" : "query") : at === key ? "key" : null;
        return { ...token, end };
      }),
    ];
  }
  return (["query", "key"] as const).map((end) => {
    const side = end === "query" ? texts.queries : texts.keys;
    const at = edge[end];
    return storedTokens(texts, side, text, kinds, (position) => near(at, position)).map(
      (token): WindowToken => ({ ...token, end: token.position === at ? end : null }),
    );
  });
}
