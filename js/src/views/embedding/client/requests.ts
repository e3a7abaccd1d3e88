/** Requests of the embedding view: plots, trust figures, norms, mean weights and lines. */

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
  PlotHeader,
  PlotOptions,
  TrustHeader,
} from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { dataOf, joinParts, MAX_REPLY_BYTES, type Reply } from "../../../client/transport";

export { Corpus, corpusOf, type Kind } from "./corpus";

/** Method of the projection and its settings. */
export type Projecting = Omit<PlotOptions, "stack" | "layer" | "placing">;

export interface OverviewHead extends OverviewHeadHeader {
  /**
   * Coordinates of all points: first x of each point, then y of each point. They are integers from
   * 0 to 255, and y grows upwards.
   */
  coordinates: Uint8Array;
}

/** Small plots of all heads of some layers. They show the first two principal components. */
export interface Overview extends OverviewHeader {
  heads: OverviewHead[];
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
}

/** Load the small plots of all heads of some layers. */
export async function overviewOf(
  source: Source,
  request: OverviewRequest,
  signal?: AbortSignal,
): Promise<Overview> {
  const read = async (reply: Reply): Promise<Overview> => {
    const header = reply.header as OverviewHeader;
    const size = 2 * header.points;
    const bytes = await joinParts(reply, (part) =>
      source.transport.request("overview", { ...request, part }, signal),
    );
    const heads = header.heads.map((head, i) => ({
      ...head,
      coordinates: bytes.subarray(i * size, (i + 1) * size),
    }));
    return { ...header, heads };
  };
  const size = ({ heads, points }: Overview): number => 2 * points * heads.length;
  return source.fetch("overview", request, read, size, signal);
}

/**
 * Load the plot of one head. While its projection runs, load the newest intermediate plot.
 *
 * @param action whether to cancel the projection first, or to restart it if it was cancelled or has
 *   failed.
 */
export async function projectionOf(
  source: Source,
  request: HeadPlot,
  signal?: AbortSignal,
  action: "show" | "restart" | "cancel" = "show",
): Promise<Projection> {
  const read = async (reply: Reply): Promise<Projection> => {
    const header = reply.header as PlotHeader;
    const { dimensions, count, low, size } = header;
    const bytes = await joinParts(reply, (part) =>
      source.transport.request("plot", { ...request, part }, signal),
    );
    // The high bytes of all codes come first, axis by axis, then the low bytes.
    const coordinates = new Float32Array(dimensions * count);
    for (let axis = 0; axis < dimensions; axis++) {
      for (let point = 0; point < count; point++) {
        const at = axis * count + point;
        const code = 256 * (bytes[at] as number) + (bytes[dimensions * count + at] as number);
        coordinates[point * dimensions + axis] = (low[axis] as number) + (code / 65535) * size;
      }
    }
    return { ...header, request, coordinates };
  };
  if (action !== "show") await source.transport.request("plot", { ...request, action }, signal);
  // Do not cache an intermediate plot, because a later one replaces it.
  const kept = ({ work, coordinates }: Projection): number | null =>
    work === null || work.state === "done" ? coordinates.byteLength : null;
  return source.fetch("plot", request, read, kept, signal);
}

/** Load the trust figures of some heads of a layer. A head without a plot has null. */
export async function trustOf(
  source: Source,
  request: PlotOptions & { heads: number[] },
  signal?: AbortSignal,
): Promise<(HeadTrustFigures | null)[]> {
  const read = ({ header }: Reply): (HeadTrustFigures | null)[] => (header as TrustHeader).heads;
  return source.fetch("trust", request, read, (heads) => 256 * heads.length, signal);
}

/** Load the length of the vector of every point, measured before the placing. */
export async function normsOf(
  source: Source,
  request: NormsRequest,
  signal?: AbortSignal,
): Promise<Float32Array> {
  const read = async (reply: Reply): Promise<Float32Array> => {
    const { low, high, top } = reply.header as NormsHeader;
    const bytes = await joinParts(reply, (part) =>
      source.transport.request("norms", { ...request, part }, signal),
    );
    const codes = top > 255 ? new Uint16Array(bytes.slice().buffer) : bytes;
    return Float32Array.from(codes, (code) => low + (code / top) * (high - low));
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
    const header = reply.header as AggregateHeader & { maximum?: number };
    const weights = new Float32Array(asBytes(dataOf(reply)).slice().buffer);
    return { ...header, layer, head, weights };
  };
  return source.fetch("aggregate", request, read, () => MAX_REPLY_BYTES / 4, signal);
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

/** Load the attention lines of a point. */
export async function linesOf(
  source: Source,
  request: LinesRequest,
  signal?: AbortSignal,
): Promise<Lines> {
  const read = ({ header }: Reply): Lines => ({
    ...(header as LinesHeader),
    point: request.point,
  });
  return source.fetch("lines", request, read, ({ points }) => 16 * points.length, signal);
}
