/**
 * Requests of the embedding view: plots, trust figures, norms, mean weights and attention lines.
 */

import { asBytes } from "../../../client/codec";
import type {
  AggregateHeader,
  AggregateRequest,
  HeadPlot,
  HeadTrustFigures,
  LinesHeader,
  LinesRequest,
  NormsHeader,
  NormsRequest,
  OverviewHeader,
  OverviewHead as OverviewHeadHeader,
  OverviewRequest,
  PartHeader,
  Placing,
  PlotOptions,
  ProjectionHeader,
  TrustRequest as TrustFields,
  TrustHeader,
  Work,
} from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { dataOf, joinParts, MAX_REPLY_BYTES, type Reply } from "../../../client/transport";

export type { Method, OverviewRequest, Scaling } from "../../../client/protocol";
export { type Caveat, Corpus, type CorpusColumn, corpusOf, type Kind } from "./corpus";

/** Placing of queries and keys before the projection: scaling, moving and lift. */
export type { Placing };
/** Method of the projection and its settings. */
export type Projecting = Omit<PlotOptions, "stack" | "layer" | "placing">;
export type HeadRequest = Omit<NormsRequest, "part">;
export type ProjectionRequest = HeadPlot;
/** State and progress of a t-SNE or UMAP projection. */
export type ProjectionWork = Work;
/** Trust figures: how well distances of a head's plot follow its logits. */
export type HeadTrust = HeadTrustFigures;
export type TrustRequest = PlotOptions & Pick<TrustFields, "heads">;

export interface OverviewHead extends OverviewHeadHeader {
  /**
   * Coordinates of all points: x and y of the first point, then of the next. They are integers from
   * 0 to 255, and y grows upwards.
   */
  coordinates: Uint8Array;
}

/** Small plots of all heads of some layers. They show the first two principal components. */
export interface Overview {
  stack: string;
  placing: Placing;
  /** The overview contains every `stride`-th point of the corpus, beginning with the first. */
  stride: number;
  /** Number of points in each small plot. */
  points: number;
  heads: OverviewHead[];
}

/** The plot of one head. */
export interface Projection {
  request: ProjectionRequest;
  dimensions: 2 | 3;
  count: number;
  /** Decoded coordinates of all points, `dimensions` numbers per point. */
  coordinates: Float32Array;
  /** Lowest corner and side length of a cube that contains all points. */
  low: number[];
  size: number;
  /** Share of the variance along each axis, or null if the axes are not principal components. */
  explained: number[] | null;
  /** Factor that queries were divided by and keys multiplied by. */
  factor: number;
  /** Reason for a missing plot, or null. */
  problem: string | null;
  /** State of the projection, or null if the plot needed no projection job. */
  work: ProjectionWork | null;
}

/** Mean weights over texts, binned by query position and by key position. */
export interface Aggregate {
  layer: number;
  head: number;
  rows: number;
  columns: number;
  /** First position of each bin, followed by the end of the last bin (exclusive). */
  queryEdges: number[];
  keyEdges: number[];
  /** Number of texts in the mean, and number of all texts with points. */
  texts: number;
  ofTexts: number;
  /**
   * Number of queries in the mean, and number of all queries of these texts. They differ if texts
   * are so long that their queries are sampled.
   */
  queries: number;
  ofQueries: number;
  /** Mean weights in row-major order. A bin is -1 if no query may attend to any of its keys. */
  weights: Float32Array;
  /**
   * Largest mean weight of the head. A page stores the other means relative to this one. Absent if
   * the means are exact.
   */
  coded?: number;
}

/** The strongest keys of a query, or the strongest queries of a key. */
export interface Lines {
  point: number;
  layer: number;
  head: number;
  points: Int32Array;
  weights: Float32Array;
  /**
   * Share of the weight that the lines show: for a query its weight on all keys, for a key its
   * weight from the sampled queries.
   */
  covered: number;
  /**
   * Number of keys or queries that the mask allows. The lines are limited to the strongest of
   * these.
   */
  numTotal: number;
  /** Largest error of a line's weight, and error of `covered`. Absent if both are exact. */
  error?: { weight: number; covered: number };
}

/**
 * Return the bytes of a reply. If it is the first of several parts, request and join the others.
 *
 * @param more requests a part by its index.
 */
async function bytesOf(
  reply: Reply,
  more: (part: number) => Promise<Reply>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { parts = 1 } = reply.header as Partial<PartHeader>;
  return joinParts({ ...reply, header: { parts } }, more);
}

function expectBytes(bytes: Uint8Array, expected: number): void {
  if (bytes.length === expected) return;
  throw new Error(`The reply has ${bytes.length} bytes, but its header requires ${expected}.`);
}

/**
 * Decode little-endian 16-bit codes of points, with one code per axis. On axis i, code 0 stands for
 * `low[i]` and code 65535 for `low[i] + size`.
 */
function spread(bytes: Uint8Array, low: readonly number[], size: number): Float32Array {
  const values = new Float32Array(bytes.length / 2);
  const axes = low.length;
  for (let i = 0; i < values.length; i++) {
    const code = (bytes[2 * i] as number) | ((bytes[2 * i + 1] as number) << 8);
    values[i] = (low[i % axes] as number) + (code / 65535) * size;
  }
  return values;
}

/** Load the small plots of all heads of some layers. */
export async function overviewOf(
  source: Source,
  request: OverviewRequest,
  signal?: AbortSignal,
): Promise<Overview> {
  const { stack, placing } = request;
  const read = async (reply: Reply): Promise<Overview> => {
    const header = reply.header as OverviewHeader;
    const { stride, points } = header;
    const bytes = await bytesOf(reply, (part) =>
      source.transport.request("overview", { ...request, part }, signal),
    );
    const bytesPerHead = 2 * points;
    expectBytes(bytes, header.heads.length * bytesPerHead);
    const heads = header.heads.map((head, i) => ({
      ...head,
      coordinates: bytes.subarray(i * bytesPerHead, (i + 1) * bytesPerHead),
    }));
    return { stack, placing, stride, points, heads };
  };
  const size = ({ heads, points }: Overview): number => 2 * points * heads.length;
  return source.fetch("overview", request, read, size, signal);
}

/**
 * Maximum number of attempts to read a plot in parts. An attempt fails if a running projection
 * changes the plot between two parts.
 */
const MAX_ATTEMPTS = 4;

/**
 * Load the plot of one head. While its projection runs, load the newest intermediate plot.
 *
 * @param restart whether to restart a cancelled or failed projection.
 */
export async function projectionOf(
  source: Source,
  request: ProjectionRequest,
  signal?: AbortSignal,
  restart = false,
): Promise<Projection> {
  const ask = (more: object): Promise<Reply> =>
    source.transport.request("projection", { ...request, ...more }, signal);
  const read = async (first: Reply): Promise<Projection> => {
    const moved = new Error("The plot changed while it was read.");
    let reply = first;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const header = reply.header as ProjectionHeader;
      try {
        const bytes = await bytesOf(reply, async (part) => {
          const other = await ask({ part });
          const { work } = other.header as ProjectionHeader;
          // The projection made another step since the first part, so the parts do not fit
          // together.
          if (work?.done !== header.work?.done || work?.state !== header.work?.state) throw moved;
          return other;
        });
        const { dimensions, count, low, size, explained, factor, problem, work } = header;
        expectBytes(bytes, 2 * dimensions * count);
        const coordinates = spread(bytes, low, size);
        return {
          request,
          dimensions,
          count,
          coordinates,
          low,
          size,
          explained,
          factor,
          problem,
          work,
        };
      } catch (reason) {
        if (reason !== moved) throw reason;
        reply = await ask({});
      }
    }
    throw moved;
  };
  // Do not cache an intermediate plot, because a later one replaces it.
  const kept = ({ work, coordinates }: Projection): number | null =>
    work === null || work.state === "done" ? coordinates.byteLength : null;
  if (restart) await ask({ restart });
  return source.fetch("projection", request, read, kept, signal);
}

/** Cancel a running projection. */
export async function cancelProjection(
  source: Source,
  request: ProjectionRequest,
  signal?: AbortSignal,
): Promise<void> {
  await source.transport.request("cancel", request, signal);
}

/**
 * Number of heads per request of trust figures. The kernel needs some tenths of a second for them.
 */
const TRUST_AT_ONCE = 4;

/** Load the trust figures of some heads of a layer. A head without a plot has null. */
export async function trustOf(
  source: Source,
  request: TrustRequest,
  signal?: AbortSignal,
): Promise<(HeadTrust | null)[]> {
  const read = ({ header }: Reply): (HeadTrust | null)[] => (header as TrustHeader).heads;
  const bytes = (heads: (HeadTrust | null)[]): number => 256 * heads.length;
  const trusts: (HeadTrust | null)[] = [];
  for (let at = 0; at < request.heads.length; at += TRUST_AT_ONCE) {
    const heads = request.heads.slice(at, at + TRUST_AT_ONCE);
    trusts.push(...(await source.fetch("trust", { ...request, heads }, read, bytes, signal)));
  }
  return trusts;
}

/** Load the length of the vector of every point, measured before the placing. */
export async function normsOf(
  source: Source,
  request: HeadRequest,
  signal?: AbortSignal,
): Promise<Float32Array> {
  const read = async (reply: Reply): Promise<Float32Array> => {
    const { low, high } = reply.header as NormsHeader;
    const bytes = await bytesOf(reply, (part) =>
      source.transport.request("norms", { ...request, part }, signal),
    );
    return spread(bytes, [low], high - low);
  };
  return source.fetch("norms", request, read, (norms) => norms.byteLength, signal);
}

/** Load the mean weights of a head by query and key position, in at most `size` by `size` bins. */
export async function aggregateOf(
  source: Source,
  request: AggregateRequest,
  signal?: AbortSignal,
): Promise<Aggregate> {
  const { layer, head } = request;
  const read = (reply: Reply): Aggregate => {
    const header = reply.header as AggregateHeader & { coded?: number };
    const { rows, columns, query_edges, key_edges, texts, queries } = header;
    const bytes = asBytes(dataOf(reply));
    expectBytes(bytes, 4 * rows * columns);
    const weights = new Float32Array(bytes.slice().buffer);
    const edges = { queryEdges: query_edges, keyEdges: key_edges };
    const of = { ofTexts: header.of_texts, ofQueries: header.of_queries };
    const coded = header.coded === undefined ? {} : { coded: header.coded };
    return { layer, head, rows, columns, ...edges, texts, queries, ...of, weights, ...coded };
  };
  return source.fetch("aggregate", request, read, () => MAX_REPLY_BYTES / 4, signal);
}

/**
 * Return the maximum error of a mean weight from a page: half the distance to the next code. Return
 * 0 if means are exact.
 */
export function meanError({ coded }: Pick<Aggregate, "coded">, weight: number): number {
  if (!coded) return 0;
  const code = 254 * Math.sqrt(weight / coded);
  // The exact bound has 0.25 and no second term. The excess allows for the rounding of float32.
  return (coded * (code + 0.2501)) / 254 ** 2 + 1e-7 * weight;
}

/** Load the attention lines of a point. */
export async function linesOf(
  source: Source,
  request: LinesRequest,
  signal?: AbortSignal,
): Promise<Lines> {
  const { layer, head, point } = request;
  const read = ({ header }: Reply): Lines => {
    const {
      points,
      weights,
      covered,
      num_total: numTotal,
      error,
    } = header as LinesHeader & Pick<Lines, "error">;
    return {
      point,
      layer,
      head,
      points: Int32Array.from(points),
      weights: Float32Array.from(weights),
      covered,
      numTotal,
      ...(error && { error }),
    };
  };
  return source.fetch("lines", request, read, ({ points }) => 8 * points.length, signal);
}
