/**
 * Where the weight of heads goes, from some queries of a text that is too long for whole maps
 * (`attnviz/server/strips.py` answers), and scores from the same queries.
 */

import type { Reply } from "../carrier";
import type { ScoresHeader, StackDescription, StripsHeader, StripsRequest } from "../protocol";
import { keptHeads, type Scores, type Source } from "../source";

/** Where a head's weight goes. */
export interface Strip extends StripsHeader {
  /** The share of each part, which add up to 1; NaN where no query attends to anything. */
  shares: number[];
  /** Their standard errors. */
  errors: number[];
}

export function readStrips({ header, data }: Reply): Strip[] {
  const shared = header as StripsHeader;
  if (data === null) throw new Error("The strips came without their numbers.");
  // A copy: what comes from a kernel may begin between two floats.
  const bytes = new Uint8Array(
    ArrayBuffer.isView(data) ? data.buffer : data,
    ArrayBuffer.isView(data) ? data.byteOffset : 0,
    data.byteLength,
  ).slice();
  const pairs = [...new Float32Array(bytes.buffer)];
  const each = 2 * shared.parts.length;
  return Array.from({ length: pairs.length / each }, (_, head) => {
    const own = pairs.slice(head * each, (head + 1) * each);
    const [shares, errors] = [0, 1].map((odd) => own.filter((_, i) => i % 2 === odd));
    return { ...shared, shares: shares as number[], errors: errors as number[] };
  });
}

export function askStrips(
  source: Source,
  request: StripsRequest,
  signal?: AbortSignal,
): Promise<Strip[]> {
  const bytesOf = (strips: Strip[]): number => 100 * strips.length;
  return source.question("strips", request, readStrips, bytesOf, signal);
}

/** Weights that a kernel computes in some tenths of a second. */
const WEIGHTS_AT_ONCE = 1 << 24;

/** Heads of which so many queries with all their keys are one question. */
export function headsAtOnce(queries: number, keys: number): number {
  return Math.max(1, Math.floor(WEIGHTS_AT_ONCE / (queries * keys)));
}

/**
 * A pattern's score of every head; of a long text estimated, question by question.
 *
 * @param told hears how many heads have theirs, of how many.
 */
export async function scoresOf(
  source: Source,
  stack: StackDescription,
  pattern: string,
  signal: AbortSignal,
  told: (done: number, of: number) => void,
): Promise<Scores> {
  const queries = stack.sampled;
  if (queries === undefined) return source.scores(stack.name, pattern, signal);
  const scores = stack.heads_per_layer.map((count): Scores[number] => new Array(count).fill(null));
  const keys = (stack.key_tokens ?? stack.query_tokens).text.length;
  const most = headsAtOnce(queries, keys);
  const all = stack.layers.map((layer) => keptHeads(stack, layer));
  const count = all.flat().length;
  let done = 0;
  told(0, count);
  const asked = stack.layers.flatMap((layer, at) => {
    const heads = all[at] as number[];
    const parts = Array.from({ length: Math.ceil(heads.length / most) }, (_, i) =>
      heads.slice(i * most, (i + 1) * most),
    );
    return parts.map(async (part) => {
      const read = ({ header }: Reply): Scores => (header as ScoresHeader).scores;
      const request = { stack: stack.name, layer, pattern, heads: part, queries };
      const found = await source.question("scores", request, read, () => 8 * most, signal);
      part.forEach((head, i) => {
        (scores[at] as Scores[number])[head] = found[0]?.[i] ?? null;
      });
      done += part.length;
      told(done, count);
    });
  });
  await Promise.all(asked);
  return scores;
}
