/**
 * Patterns that heads are ordered by, and their scores, as `attnviz/analysis/patterns.py` defines them:
 * the share of a head's weight that falls on some pairs, over the queries that have an allowed one.
 */

import type { SavedStack } from "./record";

/** Whether a pair of query and key makes a pattern; codes number the distinct tokens. */
type Pairs = (query: number, key: number, codes: readonly number[]) => boolean;

const PATTERNS: Readonly<Record<string, Pairs>> = {
  "previous token": (query, key) => key === query - 1,
  "next token": (query, key) => key === query + 1,
  self: (query, key) => key === query,
  "first token": (_, key) => key === 0,
  "same token": (query, key, codes) => key < query && codes[key] === codes[query],
  induction: (query, key, codes) => key <= query && key > 0 && codes[key - 1] === codes[query],
};

/** Scores of more weights than these would take longer than all else. */
const MOST_WEIGHTS = 30_000_000;

function codesOf({ keys }: SavedStack): number[] {
  const numbers = new Map<string | number, number>();
  return (keys.ids ?? keys.list.text).map((token) => {
    const code = numbers.get(token) ?? numbers.size;
    numbers.set(token, code);
    return code;
  });
}

/** Patterns that heads of a stack can show, where their scores take a moment. */
export function offeredPatterns(stack: SavedStack): string[] {
  const { queries, keys, signed } = stack;
  const count = keys.list.text.length;
  const layers = [...stack.layers.values()];
  const heads = layers.reduce((sum, layer) => sum + layer.heads.length, 0);
  if (signed || heads * queries.list.text.length * count > MOST_WEIGHTS) return [];
  if (keys !== queries) return ["first token"];
  const repeats = new Set(codesOf(stack)).size < count;
  const causal = layers.every((layer) => layer.causal);
  return Object.keys(PATTERNS).filter((name) => {
    if (name === "next token") return count > 1 && !causal;
    if (name === "previous token") return count > 1;
    return repeats || (name !== "same token" && name !== "induction");
  });
}

/** One pattern's share of the weight of a head, row by row. */
export class PatternShare {
  readonly #pairs: Pairs;
  readonly #codes: number[];
  #mass = 0;
  #rows = 0;

  constructor(stack: SavedStack, pattern: string) {
    const pairs = Object.hasOwn(PATTERNS, pattern) ? PATTERNS[pattern] : undefined;
    if (!pairs) throw new Error(`Scores for "${pattern}" do not exist.`);
    this.#pairs = pairs;
    this.#codes = codesOf(stack);
  }

  take(query: number, weights: Float32Array, allowed: Uint8Array): void {
    let possible = false;
    for (let key = 0; key < weights.length; key++) {
      if (!this.#pairs(query, key, this.#codes)) continue;
      this.#mass += weights[key] as number;
      possible ||= allowed[key] === 1;
    }
    if (possible) this.#rows++;
  }

  /** null where no query has an allowed pair. */
  get score(): number | null {
    return this.#rows > 0 ? this.#mass / this.#rows : null;
  }
}
