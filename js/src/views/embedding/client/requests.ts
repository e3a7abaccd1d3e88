/**
 * Requests of the embedding view: points, plots, trust figures, norms, mean weights and lines.
 * Trust figures measure how well distances on a plot follow q·k.
 */

import { inflate } from "../../../client/codec";
import type {
  AggregateHeader,
  HeadPlot,
  LinesHeader,
  NormsHeader,
  OverviewHeader,
  OverviewHead as OverviewHeadHeader,
  PlotHeader,
  PlotOptions,
  PlotRequest,
  TrustHeader,
} from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { joinParts, MAX_REPLY_BYTES, type Requests } from "../../../client/transport";
import { createCorpus } from "./corpus";

export type { Corpus, Kind } from "./corpus";

/** Method of the projection and its settings. */
export type Projecting = Omit<PlotOptions, "stack" | "layer" | "placing">;

export interface OverviewHead extends OverviewHeadHeader {
  /**
   * Coordinates of the overview's points: first x of each point, then y of each point. They are
   * integers from 0 to 255, and y grows upwards.
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

/** Load the small plots of all heads of some layers. */
export const overviewOf = loader(
  "overview",
  (header: OverviewHeader, bytes): Overview => {
    const size = 2 * header.points;
    const coordinatesOf = (i: number) => bytes.subarray(i * size, (i + 1) * size);
    const heads = header.heads.map((head, i) => ({ ...head, coordinates: coordinatesOf(i) }));
    return { ...header, heads };
  },
  ({ heads, points }) => 2 * points * heads.length,
);

const plotOf = loader(
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
    return { ...header, request: request as HeadPlot, coordinates };
  },
  // Do not cache the plot of an unfinished projection, because a later plot replaces it.
  ({ work, coordinates }) =>
    work === null || work.state === "done" ? coordinates.byteLength : null,
);

/**
 * Load the plot of one head. While its projection runs, load the newest intermediate plot.
 *
 * @param action "cancel" cancels a running projection before the plot is loaded. "restart" starts a
 *   cancelled or failed projection again.
 */
export async function projectionOf(
  source: Source,
  request: HeadPlot,
  signal?: AbortSignal,
  action: PlotRequest["action"] = "show",
): Promise<Projection> {
  if (action !== "show") await source.transport.request("plot", { ...request, action }, signal);
  return plotOf(source, request, signal);
}

/** Load the trust figures of some heads of a layer. A head without a plot has null. */
export const trustOf = loader(
  "trust",
  ({ heads }: TrustHeader) => heads,
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

/** Load the attention lines of a point. */
export const linesOf = loader(
  "lines",
  (header: LinesHeader, _bytes, { point }): Lines => ({ ...header, point }),
  ({ points }) => 16 * points.length,
);

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
