/**
 * Functions that read fixtures, and make descriptions, pages and transports. Fields that a test
 * does not set have simple defaults.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { expect, it } from "vitest";
import type { PageData } from "../src/client/page";
import type { EmbeddedRows } from "../src/client/page/rows";
import type { Description, StackDescription, TokenList } from "../src/client/protocol";
import type { Transport } from "../src/client/transport";

/** Return the content of a JSON file in `tests/fixtures`. */
export function readFixture<Content>(name: string): Content {
  return JSON.parse(readFileSync(join(__dirname, "../../tests/fixtures", name), "utf8"));
}

/** Return a function that returns the same sequence of numbers from 0 to 1 in every run. */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 16_807) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

export function tokensOf(text: string[], overrides: Partial<TokenList> = {}): TokenList {
  return { text, special: [], sequence: text.map(() => 0), ...overrides };
}

export function stackOf(fields: Partial<StackDescription> = {}): StackDescription {
  return {
    name: "self",
    layers: [0],
    heads_per_layer: [2],
    query_tokens: tokensOf([]),
    key_tokens: null,
    normalized: true,
    maximum: 1,
    causal: false,
    vectors: false,
    patterns: [],
    ...fields,
  };
}

export function described(...stacks: StackDescription[]): Description {
  return { model: "m", notes: [], stacks };
}

export function pageOf(fields: Partial<PageData> = {}): PageData {
  const { blocks = [] } = fields;
  return {
    ...{ format: 1, view: "head", state: {}, description: described() },
    ...{ blocks, maps: [] },
    ...fields,
  };
}

/** Return a transport that is always ready. The function `request` returns its replies. */
export function transportOf(
  request: Transport["request"],
  overrides: Partial<Transport> = {},
): Transport {
  return {
    live: true,
    request,
    ...overrides,
  };
}

/**
 * Return the weights of a layer as a page contains them.
 *
 * @param shape numbers of heads, queries and keys.
 * @param codes bytes of the weights. By default, a byte stands for the weight (byte / 255)^2.
 */
export function pieceOf(
  shape: [number, number, number],
  codes: ArrayLike<number>,
  overrides: Partial<EmbeddedRows> = {},
): EmbeddedRows {
  const [heads, queries, keys] = shape;
  const rows = heads * queries;
  // Four numbers describe each row. They are 0, which means that the row contains all keys.
  const bytes = [...new Uint8Array(4 * rows), ...Uint8Array.from(codes)];
  const data = deflateSync(Uint8Array.from(bytes)).toString("base64");
  const runs = [rows, rows, rows, rows, 0, codes.length];
  const header = { maximum: 1, max_rest: 0, reach: keys, runs, error: 0.00392 };
  return { stack: "self", layer: 0, shape, ...header, data, ...overrides };
}

/**
 * Return the weights of a layer as a page contains them. All queries of head h attend only to one
 * key, which is (first + h) modulo the number of keys.
 */
export function sticky(
  shape: [number, number, number],
  overrides: Partial<EmbeddedRows> = {},
  first = 0,
): EmbeddedRows {
  const [heads, queries, keys] = shape;
  const codes = new Uint8Array(heads * queries * keys);
  for (let head = 0; head < heads; head++)
    for (let query = 0; query < queries; query++)
      codes[(head * queries + query) * keys + ((first + head) % keys)] = 255;
  return pieceOf(shape, codes, overrides);
}

/** Define a test for each entry: the key is the expected text, and the value the actual text. */
export function sentences(table: Record<string, string>): void {
  it.each(Object.entries(table))("%s", (sentence, words) => expect(words).toBe(sentence));
}
