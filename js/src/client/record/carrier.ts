/** Answers from a saved record, as a kernel would: weights are read or computed when asked for. */

import type { Carrier, Connection, Reply, Requests } from "../carrier";
import { pageStrongest } from "../page/strongest";
import { PooledMean, parts, runs, type Starts, tileRange } from "../page/tiles";
import { vectorsReply } from "../page/vectors";
import type {
  BlockRequest,
  Description,
  ImageRequest,
  MapsRequest,
  PieceHeader,
  Pooled,
  Range,
  RecordRequests,
  ScoresRequest,
  SourcesHeader,
  SourcesRequest,
  StackDescription,
  StrongestRequest,
  TileRequest,
  VectorsRequest,
} from "../protocol";
import type { Scores } from "../source";
import { descriptionOf } from "./description";
import { RefusedFile } from "./fields";
import { PatternShare } from "./patterns";
import type { SavedRecord } from "./record";
import { maximumOf, type Place, placeIn, Weights } from "./weights";

/** Pairs of query and key of a head, up to 4,096 of each: beyond, Python estimates. */
const MOST_PAIRS = 1 << 24;
/**
 * Multiplications that small maps of all heads of a stack take: some seconds. Where they take more, each
 * is made of some queries.
 */
const MAPPED_WORK = 2 ** 32;
/** Its multiples fall evenly into any part of a circle. */
const GOLDEN = (Math.sqrt(5) - 1) / 2;
/** Keys that a list of sources has, and digits of its numbers. */
const SOURCES = 8;
const DIGITS = 1e5;
/** Bytes of an image that is shown as it is; a larger one is averaged. */
const IMAGE_BYTES = 1_000_000;

type Signal = AbortSignal | undefined;
type Answer<N extends keyof RecordRequests> = (
  args: RecordRequests[N],
  signal: Signal,
) => Reply | Promise<Reply>;

/** Queries from all over a text, one from each of equal parts (`attnviz/record/rows.py`). */
export function sampledQueries(count: number, most: number): number[] {
  const taken = Math.min(count, most);
  return Array.from({ length: taken }, (_, part) => {
    const within = (0.5 + part * GOLDEN) % 1;
    const last = Math.floor(((part + 1) * count) / taken) - 1;
    return Math.min(Math.floor((part + within) * (count / taken)), last);
  });
}

/** What a text cannot be that is too long for a page. @throws RefusedFile with the way out. */
function refuseLong({ stacks }: SavedRecord): void {
  for (const { name, queries, keys } of stacks) {
    const [rows, columns] = [queries.list.text.length, keys.list.text.length];
    if (rows * columns <= MOST_PAIRS) continue;
    const [a, b] = [rows.toLocaleString("en-US"), columns.toLocaleString("en-US")];
    throw new RefusedFile(
      `The stack “${name}” has ${a} queries and ${b} keys. This page shows records of up to ` +
        "4,096 of each. In Python, attnviz shows longer ones, and makes a page of them: " +
        'av.show_head_view(av.load("x.safetensors")).save("x.html").',
    );
  }
}

/** What a file of an older attnviz does not say. */
function notesOf({ notes, stacks }: SavedRecord): string[] {
  const uncounted = stacks.some(({ layers, lookedThrough, signed }) => {
    return !signed && lookedThrough.zeros === null && [...layers.values()].some((it) => it.given);
  });
  if (!uncounted) return notes;
  return [
    ...notes,
    "Exact zeros among its weights were not counted when this record was saved. To have them " +
      'counted, save it again: av.load("x.safetensors").save("y.safetensors").',
  ];
}

/** A carrier that is never late, and computes in turns with the page. */
export class RecordCarrier implements Carrier {
  readonly live = false;
  readonly #record: SavedRecord;
  readonly #description: Description;
  readonly #weights: Weights;
  readonly #answers: { [N in keyof RecordRequests]?: Answer<N> };

  private constructor(record: SavedRecord, description: Description, weights: Weights) {
    this.#record = record;
    this.#description = description;
    this.#weights = weights;
    this.#answers = {
      describe: () => ({ header: description, data: null }),
      block: (args, signal) => this.#block(args, signal),
      maps: (args, signal) => this.#maps(args, signal),
      tile: (args, signal) => this.#tile(args, signal),
      scores: (args, signal) => this.#scores(args, signal),
      strongest: (args, signal) => this.#strongest(args, signal),
      sources: (args, signal) => this.#sources(args, signal),
      vectors: (args) => this.#vectors(args),
      image: (args) => this.#image(args),
    };
  }

  /** @throws RefusedFile where the record is too large for a page. */
  static async of(record: SavedRecord): Promise<RecordCarrier> {
    refuseLong(record);
    const found = new Map<object, number>();
    const weights = new Weights((stack) => found.get(stack) as number);
    for (const stack of record.stacks) found.set(stack, await maximumOf(stack, weights.turns));
    const maximum = record.stacks.map((stack) => found.get(stack) as number);
    const description = { ...descriptionOf(record, maximum), notes: notesOf(record) };
    return new RecordCarrier(record, description, weights);
  }

  get description(): Description {
    return this.#description;
  }

  async ask<N extends keyof Requests>(
    name: N,
    args: Requests[N],
    signal?: AbortSignal,
  ): Promise<Reply> {
    const answers = this.#answers as Record<string, ((a: object, s: Signal) => Reply) | undefined>;
    const answer = Object.hasOwn(answers, name) ? answers[name] : undefined;
    if (!answer) throw new Error(`A record in a browser cannot answer "${name}".`);
    return answer(args, signal);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async #block(request: BlockRequest, signal: Signal): Promise<Reply> {
    const at = placeIn(this.#record, request, request.heads);
    const [top, bottom] = request.rows;
    const [left, right] = request.columns;
    const width = right - left;
    const values = new Float32Array(request.heads.length * (bottom - top) * width);
    let offset = 0;
    for (const head of request.heads) {
      const found = this.#weights.each(at, [head], request.rows, signal);
      for await (const { rows, range } of found) {
        for (let row = range[0]; row < range[1]; row++) {
          rows.add([head], row, left, values.subarray(offset, offset + width));
          offset += width;
        }
      }
    }
    return this.#piece(at, values, [request.heads.length, bottom - top, width]);
  }

  async #maps(request: MapsRequest, signal: Signal): Promise<Reply> {
    const at = placeIn(this.#record, request, request.heads);
    const { numQueries, numKeys } = at.layer;
    const rows = request.rows ?? [0, numQueries];
    const columns = request.columns ?? [0, numKeys];
    const groups = (request.heads ?? at.layer.heads).map((head) => [head]);
    const starts = { rows: parts(rows, request.size), columns: parts(columns, request.size) };
    const layers = [...at.stack.layers.values()];
    const ofRow = layers.reduce((sum, each) => sum + each.heads.length * numKeys * each.cost, 0);
    if ((rows[1] - rows[0]) * ofRow <= MAPPED_WORK)
      return this.#pooled(at, groups, starts, "max", signal);
    const queries = sampledQueries(rows[1] - rows[0], request.size).map((row) => rows[0] + row);
    const each = queries.length * (starts.columns.length - 1);
    const values = new Float32Array(groups.length * each);
    for (const [place, group] of groups.entries()) {
      const mean = new PooledMean(starts, "max");
      const [head] = group as [number];
      const together = this.#weights.rowsAtOnce(at);
      for (let first = 0; first < queries.length; first += together) {
        await this.#weights.turns.rest(signal);
        const some = queries.slice(first, first + together);
        const found = await this.#weights.some(at, head, some);
        for (const i of some.keys()) {
          const from = i * numKeys;
          const add = (_: unknown, __: number, left: number, line: Float32Array): void => {
            line.set(found.subarray(from + left, from + left + line.length));
          };
          mean.take({ add }, group, i, first + i);
        }
      }
      values.set(mean.cells(1), place * each);
    }
    const shape: PieceHeader["shape"] = [groups.length, queries.length, starts.columns.length - 1];
    const reply = this.#piece(at, values, shape);
    return { ...reply, header: { ...(reply.header as object), sampled: queries.length } };
  }

  #tile(request: TileRequest, signal: Signal): Promise<Reply> {
    const at = placeIn(this.#record, request, request.heads);
    const each = 2 ** request.level;
    const starts = {
      rows: runs(tileRange(request.row, request.level, at.layer.numQueries), each),
      columns: runs(tileRange(request.column, request.level, at.layer.numKeys), each),
    };
    return this.#pooled(at, [request.heads], starts, request.pooled, signal);
  }

  /** One pooled matrix for each group of heads, whose mean it is of. */
  async #pooled(
    at: Place,
    groups: readonly (readonly number[])[],
    starts: Starts,
    pooled: Pooled,
    signal: Signal,
  ): Promise<Reply> {
    const [numRows, numColumns] = [starts.rows.length - 1, starts.columns.length - 1];
    const values = new Float32Array(groups.length * numRows * numColumns);
    for (const [place, heads] of groups.entries()) {
      const mean = new PooledMean(starts, pooled);
      const all: Range = [starts.rows[0] as number, starts.rows[numRows] as number];
      let cell = 0;
      for await (const { rows, range } of this.#weights.each(at, heads, all, signal)) {
        for (let row = range[0]; row < range[1]; row++) {
          while (row >= (starts.rows[cell + 1] as number)) cell++;
          mean.take(rows, heads, row, cell);
        }
      }
      values.set(mean.cells(heads.length), place * numRows * numColumns);
    }
    return this.#piece(at, values, [groups.length, numRows, numColumns]);
  }

  async #scores(request: ScoresRequest, signal: Signal): Promise<Reply> {
    const { stack: name, pattern } = request;
    const stack = this.#record.stacks.find((each) => each.name === name);
    const scores: Scores = [];
    for (const [number, layer] of stack?.layers ?? []) {
      if (request.layer !== undefined && request.layer !== number) continue;
      const at = placeIn(this.#record, { stack: name, layer: number }, request.heads);
      const ofLayer: (number | null)[] = new Array(layer.numHeads).fill(null);
      for (const head of request.heads ?? layer.heads) {
        const share = new PatternShare(at.stack, pattern);
        const line = new Float32Array(layer.numKeys);
        const all = this.#weights.each(at, [head], [0, layer.numQueries], signal);
        for await (const { rows, range } of all) {
          for (let row = range[0]; row < range[1]; row++) {
            rows.add([head], row, 0, line.fill(0));
            share.take(row, line, await layer.allowed(head, row));
          }
        }
        ofLayer[head] = share.score;
      }
      scores.push(request.heads?.map((head) => ofLayer[head] as number | null) ?? ofLayer);
    }
    return { header: { scores }, data: null };
  }

  async #strongest(request: StrongestRequest, signal: Signal): Promise<Reply> {
    const at = placeIn(this.#record, request, request.heads);
    const stack = this.#description.stacks.find((each) => each.name === request.stack);
    const rows = await this.#weights.rows(at, request.heads, request.rows, signal);
    return pageStrongest(rows, request.heads, request, stack as StackDescription);
  }

  /** What all heads attend to from a query (`attnviz/record/sources.py`). */
  async #sources({ stack: name, query }: SourcesRequest, signal: Signal): Promise<Reply> {
    const stack = this.#record.stacks.find((each) => each.name === name);
    if (!stack || stack.signed) throw new Error(`“${name}” has no sources of a token.`);
    const count = stack.keys.list.text.length;
    const [means, even] = [new Float64Array(count), new Float64Array(count)];
    const [most, by] = [new Float32Array(count), new Map<number, [number, number]>()];
    let heads = 0;
    for (const [number, layer] of stack.layers) {
      const at = { stack, number, layer };
      for (const head of layer.heads) {
        await this.#weights.turns.rest(signal);
        const weights = await this.#weights.some(at, head, [query]);
        const allowed = await layer.allowed(head, query);
        const seen = allowed.reduce((sum, flag) => sum + flag, 0);
        heads++;
        for (let key = 0; key < count; key++) {
          const weight = weights[key] as number;
          means[key] = (means[key] as number) + weight;
          if (allowed[key]) even[key] = (even[key] as number) + 1 / seen;
          if (weight <= (most[key] as number)) continue;
          most[key] = weight;
          by.set(key, [number, head]);
        }
      }
    }
    const rounded = (value: number): number => Math.round(value * DIGITS) / DIGITS;
    const keys = Array.from(means, (sum, key) => ({ key, mean: sum / heads }))
      .filter(({ mean }) => mean > 0)
      .sort((a, b) => b.mean - a.mean || a.key - b.key)
      .slice(0, SOURCES);
    const rest = means.reduce((sum, each) => sum + each, 0) / heads;
    const listed = keys.reduce((sum, { mean }) => sum + mean, 0);
    const header: SourcesHeader = {
      query,
      keys: keys.map(({ key, mean }) => {
        const [layer, head] = by.get(key) as [number, number];
        const ofEven = rounded((even[key] as number) / heads);
        return {
          ...{ key, mean: rounded(mean), even: ofEven, layer, head },
          most: rounded(most[key] as number),
        };
      }),
      heads,
      layers: stack.layers.size,
      rest: rounded(Math.max(0, rest - listed)),
    };
    return { header, data: null };
  }

  async #vectors(request: VectorsRequest): Promise<Reply> {
    const { stack, number, layer } = placeIn(this.#record, request, [request.head]);
    const { vectors, numHeads, numKeyHeads } = layer;
    if (!vectors || numKeyHeads === null) {
      throw new Error(`Queries and keys of layer ${number} of “${stack.name}” are not known.`);
    }
    const inputs = (await vectors.inputs(request.head))(request.token);
    const of = {
      ...{ num_heads: numHeads, num_key_heads: numKeyHeads },
      ...{ scale: vectors.scale, softcap: vectors.softcap, bias: vectors.hasBias || null },
      ...{ error: 0, logit_error: 0 },
    };
    return vectorsReply(request, of, inputs);
  }

  async #image({ index }: ImageRequest): Promise<Reply> {
    const place = this.#record.images[index];
    if (!place) throw new Error(`The record has no image ${index}.`);
    const [height, width] = place.shape as [number, number, number];
    const pixels = await this.#record.file.bytes(place, 0, 3 * height * width);
    const factor = Math.ceil(Math.sqrt((3 * height * width) / IMAGE_BYTES));
    if (factor <= 1) return { header: { height, width }, data: pixels };
    const [rows, columns] = [Math.ceil(height / factor), Math.ceil(width / factor)];
    const sums = new Float64Array(3 * rows * columns);
    const counts = new Uint32Array(rows * columns);
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const to = Math.floor(y / factor) * columns + Math.floor(x / factor);
        counts[to] = (counts[to] as number) + 1;
        for (let color = 0; color < 3; color++) {
          const value = pixels[3 * (y * width + x) + color] as number;
          sums[3 * to + color] = (sums[3 * to + color] as number) + value;
        }
      }
    }
    const means = Uint8Array.from(sums, (sum, at) =>
      Math.round(sum / (counts[Math.floor(at / 3)] as number)),
    );
    return { header: { height: rows, width: columns }, data: means };
  }

  #piece({ stack }: Place, values: Float32Array, shape: PieceHeader["shape"]): Reply {
    const place = this.#record.stacks.indexOf(stack);
    const maximum = this.#description.stacks[place]?.maximum ?? 1;
    const header: PieceHeader = { shape, encoding: "float32", maximum, error: 0 };
    return { header, data: values };
  }
}
