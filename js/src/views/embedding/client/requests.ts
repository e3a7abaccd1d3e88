/**
 * Requests of the embedding view: points, plots, trust figures, norms, mean weights and lines.
 * Trust figures measure how well distances on a plot follow q·k.
 *
 * A kernel and an exported page answer in the same form, with three exceptions: a page has plots of
 * principal components in place of other plots that it does not contain, small plots with all
 * points and both bytes of coordinates, and the strongest keys of all queries in place of lines.
 */

import { inflate } from "../../../client/codec";
import type {
  AggregateHeader,
  LinesHeader,
  LinesRequest,
  NormsHeader,
  PlotHeader,
  PlotOptions,
  SmallPlotsHeader,
  TrustHeader,
} from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { joinParts, MAX_REPLY_BYTES, type Requests } from "../../../client/transport";
import type { HeadIndex } from "../../../ui/head-grid/grid";
import { type Corpus, createCorpus } from "./corpus";

export type { Corpus, Kind } from "./corpus";

/** Method of the projection and its settings. */
export type Projecting = Omit<PlotOptions, "stack" | "layer" | "head" | "placing">;

/** Options of the plot of one head. */
export type HeadPlot = PlotOptions & { head: number };

/** Small plot of a head, which shows the first two principal components. */
export interface SmallPlot extends HeadIndex {
  /** Reason why the plot cannot be drawn, or null. */
  problem: string | null;
  /**
   * Coordinates of every n-th point, where n is `stride` of the corpus: first x of each point, then
   * y of each point. They are integers from 0 to 255, and y grows upwards.
   */
  coordinates: Uint8Array;
}

/** The plot of one head. */
export interface Projection extends PlotHeader {
  request: HeadPlot;
  /** Decoded coordinates of all points, `dimensions` numbers per point. */
  coordinates: Float32Array;
}

/** Mean weights over texts, binned by query position and by key position. */
export interface Aggregate extends AggregateHeader {
  layer: number;
  head: number;
  /** Mean weights in row-major order. A bin is NaN if no query may attend to any of its keys. */
  weights: Float32Array;
  /**
   * Largest mean weight of the head. A page stores the other means relative to this one. Absent if
   * the means are exact.
   */
  maximum?: number;
}

/** The strongest keys of a query, or the strongest queries of a key. */
export interface Lines extends LinesHeader {
  point: number;
  /** Largest error of a line's weight, and error of `covered`. Absent if both are exact. */
  error?: { weight: number; covered: number };
  /** Reason why a page does not contain the lines. */
  problem?: string;
}

/**
 * Return a function that loads the answer to a kind of request.
 *
 * @param read decodes the header and the bytes of all parts. Without data there are 0 bytes.
 * @param bytesOf returns the size of the answer, or null if it must not be cached.
 */
function loader<N extends keyof Requests, Header, T>(
  name: N,
  read: (header: Header, bytes: Uint8Array<ArrayBuffer>, request: Requests[N]) => T | Promise<T>,
  bytesOf: (answer: T) => number | null,
) {
  return (source: Source, request: Requests[N], signal?: AbortSignal): Promise<T> =>
    source.fetch(
      name,
      request,
      async (reply) => {
        const requestPart = (part: number) =>
          source.transport.request(name, { ...request, part }, signal);
        const bytes = reply.data ? await joinParts(reply, requestPart) : new Uint8Array();
        return read(reply.header as Header, bytes, request);
      },
      bytesOf,
      signal,
    );
}

/** Load the points of a stack. */
export const corpusOf = loader(
  "points",
  async (_header: object, bytes, { stack }) =>
    createCorpus(stack, JSON.parse(new TextDecoder().decode(await inflate(bytes)))),
  ({ count, columns, facts }) => count * (12 + 8 * columns.length) + 40 * facts.vocabulary.length,
);

/** Load the small plots of all heads of a layer of the corpus. */
export async function smallPlotsOf(
  source: Source,
  { stack, count, facts: { stride } }: Corpus,
  { layer, placing }: Pick<PlotOptions, "layer" | "placing">,
  signal?: AbortSignal,
): Promise<SmallPlot[]> {
  const points = Math.ceil(count / stride);
  const load = loader(
    "plot",
    ({ heads }: SmallPlotsHeader, bytes) => {
      // The bytes of x of all heads come first, then those of y.
      const isThinned = bytes.length === 2 * points * heads.length;
      const [size, step] = isThinned ? [points, 1] : [count, stride];
      return heads.map(({ problem }, head): SmallPlot => {
        const code = (_: unknown, i: number): number => {
          const [axis, point] = i < points ? [0, i] : [1, i - points];
          return bytes[(axis * heads.length + head) * size + point * step] as number;
        };
        return { layer, head, problem, coordinates: Uint8Array.from({ length: 2 * points }, code) };
      });
    },
    (heads) => 2 * points * heads.length,
  );
  return load(source, { stack, layer, placing }, signal);
}

const NOT_IN_PAGE =
  "This page does not contain this plot. The principal components are shown instead. " +
  "Save the page while the plot is shown to include it.";

/** Load the plot of one head. While its projection runs, load the newest intermediate plot. */
export const projectionOf = loader(
  "plot",
  (header: PlotHeader, bytes, request): Projection => {
    const { dimensions, count, low, size } = header;
    // A coordinate is sent as a code of 16 bits. The high bytes of all codes come first, axis by
    // axis, then the low bytes.
    const coordinates = new Float32Array(dimensions * count);
    for (let axis = 0; axis < dimensions; axis++) {
      for (let point = 0; point < count; point++) {
        const at = axis * count + point;
        const code = 256 * (bytes[at] as number) + (bytes[dimensions * count + at] as number);
        coordinates[point * dimensions + axis] = (low[axis] as number) + (code / 65535) * size;
      }
    }
    const isOther = request.method !== "pca" || request.dimensions !== dimensions;
    const isInstead = header.work === null && isOther;
    const work = { state: "failed", done: 0, num_total: 0, words: NOT_IN_PAGE } as const;
    const shown = isInstead ? { ...header, work } : header;
    return { ...shown, request: request as HeadPlot, coordinates };
  },
  // Do not cache the plot of an unfinished projection, because a later plot replaces it.
  ({ work, coordinates }) =>
    work === null || work.state === "done" ? coordinates.byteLength : null,
);

/** Load the trust figures of one head or all heads of a layer. A head without a plot has null. */
export const trustOf = loader(
  "trust",
  ({ heads }: TrustHeader, _bytes, { head }) =>
    head === undefined ? heads : [heads.find((trust) => trust?.head === head) ?? null],
  (heads) => 256 * heads.length,
);

/** Load the length of the vector of every point, measured before the placing. */
export const normsOf = loader(
  "norms",
  ({ low, high, top }: NormsHeader, bytes) => {
    const codes = top > 255 ? new Uint16Array(bytes.buffer) : bytes;
    return Float32Array.from(codes, (code) => low + (code / top) * (high - low));
  },
  (norms) => norms.byteLength,
);

/** Load the mean weights of a head by query and key position, in at most `size` by `size` bins. */
export const aggregateOf = loader(
  "aggregate",
  (header: AggregateHeader & { maximum?: number }, bytes, { layer, head }): Aggregate => {
    return { ...header, layer, head, weights: new Float32Array(bytes.buffer) };
  },
  () => MAX_REPLY_BYTES / 4,
);

/**
 * Load the attention lines of a point of the corpus.
 *
 * @param causal whether a query cannot attend to the keys after it.
 */
export function linesOf(
  source: Source,
  corpus: Corpus,
  causal: boolean,
  request: Omit<LinesRequest, "stack">,
  signal?: AbortSignal,
): Promise<Lines> {
  const { point } = request;
  const none = { point, points: [], weights: [], covered: 0, num_total: 0 };
  const load = loader(
    "lines",
    (header: Partial<Lines>, bytes): Lines =>
      bytes.length > 0 ? recordedLines(corpus, causal, point, bytes) : { ...none, ...header },
    ({ points }) => 16 * points.length,
  );
  return load(source, { stack: corpus.stack, ...request }, signal);
}

/**
 * Return the strongest keys of a query from a page. `keys` has three byte arrays of shape
 * [rank][queries]: a code c for each weight, which is (c / 255)², and the low and the high byte of
 * the key's index among the keys of its text. Code 0 means that the query has no further key.
 */
function recordedLines(corpus: Corpus, causal: boolean, point: number, keys: Uint8Array): Lines {
  const lines = { point, points: [] as number[], weights: [] as number[] };
  const error = { weight: 0, covered: 0 };
  if (corpus.isKey(point)) {
    const problem = "This page contains lines of queries, but no lines of keys.";
    return { ...lines, covered: 0, num_total: 0, problem };
  }
  const plane = keys.length / 3;
  const [first, stop] = corpus.pointsOf("key", corpus.textOf(point));
  for (let at = point; at < plane && keys[at] !== 0; at += corpus.numQueries) {
    const code = keys[at] as number;
    lines.points.push(
      first + (keys[plane + at] as number) + 256 * (keys[2 * plane + at] as number),
    );
    lines.weights.push((code / 255) ** 2);
    // This is the error of the weight if the code, which is rounded, is off by 0.5.
    const bound = (code + 0.25) / 255 ** 2;
    error.weight = Math.max(error.weight, bound);
    error.covered += bound;
  }
  const covered = lines.weights.reduce((sum, weight) => sum + weight, 0);
  const last = causal ? corpus.positionOf(point) : Number.POSITIVE_INFINITY;
  const positions = corpus.positions.subarray(first, stop);
  const num_total = positions.filter((position) => position <= last).length;
  return { ...lines, covered, num_total, error };
}

/**
 * Return the maximum error of a mean weight from a page: half the distance to the next code. Return
 * 0 if means are exact.
 */
export function meanError({ maximum }: Pick<Aggregate, "maximum">, weight: number): number {
  if (!maximum) return 0;
  const code = 254 * Math.sqrt(weight / maximum);
  // The exact bound has 0.25 and no second term. The excess allows for the rounding of float32.
  return (maximum * (code + 0.2501)) / 254 ** 2 + 1e-7 * weight;
}
