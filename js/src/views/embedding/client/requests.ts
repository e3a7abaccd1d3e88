/** What the embedding view asks of a corpus beside its tokens: plots, trust, norms, weights. */

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
import { dataOf, joined, MAX_REPLY_BYTES, type Reply } from "../../../client/transport";

export type { Method, OverviewRequest, Scaling } from "../../../client/protocol";
export { type Caveat, Corpus, type CorpusColumn, corpusOf, type Kind } from "./corpus";

/** How queries and keys are placed before they are projected. */
export type Way = Placing;
/** How they are projected. */
export type Projecting = Omit<PlotOptions, "stack" | "layer" | "way">;
export type HeadRequest = Omit<NormsRequest, "part">;
export type ProjectionRequest = HeadPlot;
/** How far a t-SNE or UMAP is. */
export type ProjectionWork = Work;
/** How far distances of a head's plot follow its logits. */
export type HeadTrust = HeadTrustFigures;
export type TrustRequest = PlotOptions & Pick<TrustFields, "heads">;

export interface OverviewHead extends OverviewHeadHeader {
  /** x and y of every point, one after the other, 0 to 255 over a square; y grows upwards. */
  coordinates: Uint8Array;
}

/** Small plots of all heads of some layers, by their principal components. */
export interface Overview {
  stack: string;
  way: Way;
  /** Every so-manieth point is on them: the first, the one at `stride`, ... */
  stride: number;
  /** How many are. */
  points: number;
  heads: OverviewHead[];
}

/** The plot of one head. */
export interface Projection {
  request: ProjectionRequest;
  dimensions: 2 | 3;
  count: number;
  /** Point after point, `dimensions` numbers each, in the data's units. */
  coordinates: Float32Array;
  /** The corner of the box that holds them, and its side, the same along all axes. */
  low: number[];
  size: number;
  /** Shares of variance along the axes; null for other methods than PCA. */
  explained: number[] | null;
  /** What queries were divided by and keys multiplied by. */
  factor: number;
  /** Why there is no plot, in words. */
  problem: string | null;
  /** null where nothing had to be waited for. */
  work: ProjectionWork | null;
}

/** Mean weight over texts by query position and key position. */
export interface Aggregate {
  layer: number;
  head: number;
  rows: number;
  columns: number;
  /** Where the bins begin, and where the last ends: one more than there are. */
  queryEdges: number[];
  keyEdges: number[];
  /** How many texts it is of, and of how many. */
  texts: number;
  ofTexts: number;
  /** How many of their queries, and of how many: long texts are sampled. */
  queries: number;
  ofQueries: number;
  /** Row by row; -1 where no query may attend to any key. */
  weights: Float32Array;
  /** The mean of the highest of 255 codes; left out where the means are exact. */
  coded?: number;
}

/** The strongest keys of a query, or the queries that give a key most. */
export interface Lines {
  point: number;
  layer: number;
  head: number;
  points: Int32Array;
  weights: Float32Array;
  /** Share of the query's weight that the lines show. */
  covered: number;
  /** How many there are in all. */
  numTotal: number;
  /** How far any weight, and the share, may be off; left out where they are exact. */
  error?: { weight: number; covered: number };
}

/** The bytes of an answer that came in parts, or whole where it says nothing of them. */
async function bytesOf(
  reply: Reply,
  more: (part: number) => Promise<Reply>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { parts = 1 } = reply.header as Partial<PartHeader>;
  return joined({ ...reply, header: { parts } }, more);
}

function expectBytes(bytes: Uint8Array, expected: number): void {
  if (bytes.length === expected) return;
  throw new Error(
    `The reply holds ${bytes.length} bytes; what it says of itself needs ${expected}.`,
  );
}

/** 16-bit codes, least byte first, of which 0 stands for `low` and 65535 for `low + size`. */
function spread(bytes: Uint8Array, low: readonly number[], size: number): Float32Array {
  const values = new Float32Array(bytes.length / 2);
  const axes = low.length;
  for (let i = 0; i < values.length; i++) {
    const code = (bytes[2 * i] as number) | ((bytes[2 * i + 1] as number) << 8);
    values[i] = (low[i % axes] as number) + (code / 65535) * size;
  }
  return values;
}

/** Small plots of all heads of some layers. */
export async function overviewOf(
  source: Source,
  request: OverviewRequest,
  signal?: AbortSignal,
): Promise<Overview> {
  const { stack, way } = request;
  const read = async (reply: Reply): Promise<Overview> => {
    const header = reply.header as OverviewHeader;
    const { stride, points } = header;
    const bytes = await bytesOf(reply, (part) =>
      source.transport.request("overview", { ...request, part }, signal),
    );
    const each = 2 * points;
    expectBytes(bytes, header.heads.length * each);
    const heads = header.heads.map((head, i) => ({
      ...head,
      coordinates: bytes.subarray(i * each, (i + 1) * each),
    }));
    return { stack, way, stride, points, heads };
  };
  const size = ({ heads, points }: Overview): number => 2 * points * heads.length;
  return source.fetch("overview", request, read, size, signal);
}

/** How often the parts of a plot are asked for again because it has moved on in between. */
const MOST_ATTEMPTS = 4;

/**
 * The plot of one head, as far as it is known.
 *
 * @param restart whether one that was cancelled or has failed is begun anew.
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
    for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
      const header = reply.header as ProjectionHeader;
      try {
        const bytes = await bytesOf(reply, async (part) => {
          const other = await ask({ part });
          const { work } = other.header as ProjectionHeader;
          // A newer frame's points among an older one's would be a plot that was never asked for.
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
  // Only what will not change any more.
  const kept = ({ work, coordinates }: Projection): number | null =>
    work === null || work.state === "done" ? coordinates.byteLength : null;
  if (restart) await ask({ restart });
  return source.fetch("projection", request, read, kept, signal);
}

/** Ends a projection that runs. */
export async function cancelProjection(
  source: Source,
  request: ProjectionRequest,
  signal?: AbortSignal,
): Promise<void> {
  await source.transport.request("cancel", request, signal);
}

/** Heads whose trust is asked for at once: some tenths of a second of computing. */
const TRUST_AT_ONCE = 4;

/** How far the plots of some heads of a layer are to be trusted; null of one that has none. */
export async function trustOf(
  source: Source,
  request: TrustRequest,
  signal?: AbortSignal,
): Promise<(HeadTrust | null)[]> {
  const read = ({ header }: Reply): (HeadTrust | null)[] => (header as TrustHeader).heads;
  const bytes = (heads: (HeadTrust | null)[]): number => 256 * heads.length;
  const found: (HeadTrust | null)[] = [];
  for (let at = 0; at < request.heads.length; at += TRUST_AT_ONCE) {
    const heads = request.heads.slice(at, at + TRUST_AT_ONCE);
    found.push(...(await source.fetch("trust", { ...request, heads }, read, bytes, signal)));
  }
  return found;
}

/** The length of every point's vector, as the model has it. */
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

/** Mean weight by position, in at most `size` by `size` bins. */
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

/** How far a mean weight may be off: half the distance of the two codes between which it lies. */
export function meanError({ coded }: Pick<Aggregate, "coded">, weight: number): number {
  if (!coded) return 0;
  const code = 254 * Math.sqrt(weight / coded);
  // Somewhat more, for numbers of single precision.
  return (coded * (code + 0.2501)) / 254 ** 2 + 1e-7 * weight;
}

/** The attention lines of a point. */
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
