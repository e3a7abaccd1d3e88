/**
 * Requests of the embedding view: points, plots, trust figures, norms and lines.
 * Trust figures measure how well distances on a plot follow q·k.
 *
 * A kernel and an exported page answer in the same form, with three exceptions: a page has plots of
 * principal components in place of other plots that it does not contain, small plots with all
 * points and both bytes of coordinates, and the strongest keys of all queries in place of lines.
 */

import { inflate } from "../../../client/codec";
import type {
  LinesHeader,
  LinesRequest,
  NormsHeader,
  PlotHeader,
  PlotOptions,
  SmallPlotsHeader,
  TrustHeader,
} from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { joinParts, type Requests } from "../../../client/transport";
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

/** The strongest keys of a query, or the strongest queries of a key. */
export interface Lines extends LinesHeader {
  point: number;
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
  ({ low, high }: NormsHeader, bytes) =>
    Float32Array.from(new Uint16Array(bytes.buffer), (code) => low + (code / 65535) * (high - low)),
  (norms) => norms.byteLength,
);

/** Load the attention lines of a point of the corpus. */
export function linesOf(
  source: Source,
  corpus: Corpus,
  request: LinesRequest,
  signal?: AbortSignal,
): Promise<Lines> {
  const { point } = request;
  const none = { point, points: [], weights: [], covered: 0 };
  const load = loader(
    "lines",
    (header: Partial<Lines>, bytes): Lines =>
      bytes.length > 0 ? recordedLines(corpus, point, bytes) : { ...none, ...header },
    ({ points }) => 16 * points.length,
  );
  return load(source, request, signal);
}

/**
 * Return the strongest keys of a query from a page. `keys` has four byte arrays of shape
 * [rank][queries]: the high bytes of the weights and of the indices of the keys among the keys of
 * their text, and then the low bytes of both. Weights are shares of 65,535.
 */
function recordedLines(corpus: Corpus, point: number, keys: Uint8Array): Lines {
  const lines = { point, points: [] as number[], weights: [] as number[], covered: 0 };
  if (corpus.isKey(point)) {
    const problem = "This page contains lines of queries, but no lines of keys.";
    return { ...lines, problem };
  }
  const plane = keys.length / 4;
  const code = (at: number): number =>
    256 * (keys[at] as number) + (keys[at + 2 * plane] as number);
  const [first] = corpus.pointsOf("key", corpus.textOf(point));
  for (let at = point; at < plane && code(at) > 0; at += corpus.numQueries) {
    lines.points.push(first + code(plane + at));
    lines.weights.push(code(at) / 65535);
    lines.covered += code(at) / 65535;
  }
  return lines;
}
