/**
 * Stored tokens of a text. The atlas stores only the tokens around the query and the key of each
 * stored edge. An edge is the weight from one query to one key. Pure functions.
 */

import { quoted } from "../../ui/text/captions";
import { type RunningToken, runningText } from "../../ui/text/running-text";
import type { Edge, Texts, Tokens } from "./client/atlas";

export interface StoredToken extends RunningToken {
  /** Whether the token is the edge's query, its key or both, or null if it is neither. */
  end: "query" | "key" | "both" | null;
}

/**
 * Return the stored tokens of an edge's text in text order. The result has one list with the side
 * "both". If queries and keys are different tokens, it has two lists with the sides "query" and
 * "key".
 *
 * @param around maximum distance of the tokens from the edge's query or key.
 */
export function storedTokens(texts: Texts, { text, query, key }: Edge, around: number) {
  const sides = texts.keys === texts.queries ? (["both"] as const) : (["query", "key"] as const);
  return sides.map((side) => {
    const tokens = side === "key" ? texts.keys : texts.queries;
    const isNear = (i: number): boolean => {
      const position = tokens.positions[i] as number;
      const [fromQuery, fromKey] = [Math.abs(position - query), Math.abs(position - key)];
      return (side !== "key" && fromQuery <= around) || (side !== "query" && fromKey <= around);
    };
    const named = tokens
      .of(text)
      .filter(isNear)
      .map((i) => ({
        name: texts.nameOf(tokens, i),
        position: tokens.positions[i] as number,
        special: false,
      }));
    const ended = runningText(named, texts.dotted).map((token): StoredToken => {
      const isQuery = side !== "key" && token.position === query;
      const isKey = side !== "query" && token.position === key;
      return { ...token, end: isQuery ? (isKey ? "both" : "query") : isKey ? "key" : null };
    });
    return { side, tokens: ended };
  });
}

/** Return the texts of an edge's query and key, in quotation marks. */
export function namesOf(texts: Texts, { text, query, key }: Edge): [string, string] {
  const name = (side: Tokens, position: number): string =>
    quoted(texts.nameOf(side, side.at(text, position)));
  return [name(texts.queries, query), name(texts.keys, key)];
}
