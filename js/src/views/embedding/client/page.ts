/** Transport that answers the requests of the embedding view from an exported page. */

import { RecordedTransport } from "../../../client/page/recorded";
import type {
  LinesHeader,
  LinesRequest,
  OverviewHead,
  OverviewRequest,
  PlotHeader,
  PlotRequest,
  TrustHeader,
  TrustRequest,
} from "../../../client/protocol";
import { Source } from "../../../client/source";
import type { Reply, Transport } from "../../../client/transport";
import { MAX_SMALL_PLOT_POINTS } from "../state";
import { corpusOf } from "./requests";

/** Method of the plots that every page contains. */
const PCA = { method: "pca", dimensions: 2 } as const;

const NO_PLOT =
  "This page does not contain this plot. The principal components are shown instead. " +
  "Save the page while the plot is shown to include it.";
const NO_KEYS =
  "This page does not contain the strongest keys of its queries. Save it with top_keys=5 to add them.";

/**
 * Transport that answers with recorded replies, and computes some replies from others: the overview
 * from the plots of heads, and lines from the strongest keys of all queries.
 */
export class EmbeddingPageTransport extends RecordedTransport {
  readonly #source = new Source(this);

  override async request(name: string, args: object): Promise<Reply> {
    if (name === "overview") return this.#overview(args as OverviewRequest);
    if (name === "plot") return this.#plot(args as PlotRequest);
    if (name === "trust") return this.#trust(args as TrustRequest);
    if (name === "lines") return this.#lines(args as LinesRequest);
    return super.request(name, args);
  }

  /**
   * Compute the small plots of all heads of the requested layers from their recorded plots.
   * Recorded coordinates have 16 bits. A small plot has the high byte of each coordinate, of at
   * most `MAX_SMALL_PLOT_POINTS` points (every `stride`-th point).
   */
  async #overview({ stack, layers }: OverviewRequest): Promise<Reply> {
    const heads: OverviewHead[] = [];
    const planes: Uint8Array<ArrayBuffer>[] = [];
    let stride = 1;
    for (const layer of layers) {
      const ofLayer = { stack, layer, ...PCA };
      const num = (this.find("plot", ofLayer)?.header as PlotHeader[] | undefined)?.length ?? 0;
      for (let head = 0; head < num; head++) {
        const { header, data } = await super.request("plot", { ...ofLayer, head });
        const { count, problem } = header as PlotHeader;
        stride = Math.max(1, Math.ceil(count / MAX_SMALL_PLOT_POINTS));
        heads.push({ layer, head, problem });
        const high = (data as Uint8Array<ArrayBuffer>).subarray(0, 2 * count);
        planes.push(high.filter((_, i) => (i % count) % stride === 0));
      }
    }
    const data = await new Blob(planes).arrayBuffer();
    return { header: { stride, points: data.byteLength / 2 / heads.length, heads }, data };
  }

  async #plot(request: PlotRequest): Promise<Reply> {
    if (this.find("plot", request)) return super.request("plot", request);
    // The page does not contain this plot. Answer as the kernel does for a method that cannot run:
    // with principal components and the reason.
    const { header, data } = await super.request("plot", { ...request, ...PCA });
    const work = { state: "failed", done: 0, num_total: 0, words: NO_PLOT };
    return { header: { ...(header as PlotHeader), work }, data };
  }

  async #trust(request: TrustRequest): Promise<Reply> {
    const args = this.find("trust", request) ? request : { ...request, ...PCA };
    const { header } = await super.request("trust", args);
    const recorded = (header as TrustHeader).heads;
    const heads = request.heads.map(
      (head) => recorded.find((trust) => trust?.head === head) ?? null,
    );
    return { header: { heads }, data: null };
  }

  /**
   * Return the strongest keys of a query. The recorded keys are three byte arrays of shape
   * [rank][queries]: a code c for each weight, which is (c / 255)², and the low and the high byte of
   * the key's index among the keys of its text. Code 0 means that the query has no further key.
   */
  async #lines({ stack, layer, head, point }: LinesRequest): Promise<Reply> {
    if (!this.find("keys", { stack, layer })) throw new Error(NO_KEYS);
    const corpus = await corpusOf(this.#source, { stack });
    if (corpus.isKey(point)) {
      throw new Error("This page contains lines of queries, but no lines of keys.");
    }
    const keys = (await super.request("keys", { stack, layer, head })).data as Uint8Array;
    const plane = keys.length / 3;
    const [first, stop] = corpus.pointsOf("key", corpus.textOf(point));
    const points: number[] = [];
    const weights: number[] = [];
    const error = { weight: 0, covered: 0 };
    for (let at = point; at < plane && keys[at] !== 0; at += corpus.numQueries) {
      const code = keys[at] as number;
      points.push(first + (keys[plane + at] as number) + 256 * (keys[2 * plane + at] as number));
      weights.push((code / 255) ** 2);
      // This is the error of the weight if the code, which is rounded, is off by 0.5.
      const bound = (code + 0.25) / 255 ** 2;
      error.weight = Math.max(error.weight, bound);
      error.covered += bound;
    }
    const covered = weights.reduce((sum, weight) => sum + weight, 0);
    const { stacks } = await this.#source.describe();
    // With a causal mask, a query cannot attend to the keys after it.
    const causal = stacks.find(({ name }) => name === stack)?.causal;
    const last = causal ? corpus.positionOf(point) : Number.POSITIVE_INFINITY;
    const positions = corpus.positions.subarray(first, stop);
    const num_total = positions.filter((position) => position <= last).length;
    const header: LinesHeader & { error: object } = { points, weights, covered, num_total, error };
    return { header, data: null };
  }
}

/** Function that creates the transport of an exported page. Undefined in a widget's bundle. */
export const embeddingPageTransport =
  BUNDLE_FOR === "widget"
    ? undefined
    : (page: object): Transport => new EmbeddingPageTransport(page as never);
