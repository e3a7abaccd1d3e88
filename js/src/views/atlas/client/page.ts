/** Transport of an exported page. It answers the requests of the atlas from the page's data. */

import { fromBase64, inflate } from "../../../client/codec";
import type { Handlers, PageData } from "../../../client/page";
import type {
  AtlasDescription,
  AtlasRequests,
  AtlasStack,
  ClassesRequest,
  OffsetsRequest,
} from "../../../client/protocol";
import type { Connection, Reply, Transport } from "../../../client/transport";

/**
 * Compressed weights. `data` has one byte per weight (the code), head after head, deflated and in
 * base64. A weight is the head's `maximum` times ((code - 1) / 254)^2. Code 0 stands for NaN.
 */
interface Coded {
  maximum: number[];
  data: string;
}

/** Data of one stack. All strings except `stack` are deflated bytes in base64. */
interface PageStack {
  stack: string;
  table: string;
  /** Mean weights by offset of each layer. The codes have the shape [heads][bins]. */
  offsets: Coded[];
  /**
   * Mean weights between token classes: for each class system, one entry per layer. The codes have
   * the shape [heads][query classes][key classes].
   */
  classes: Record<string, Coded[]>;
  texts: string;
  /** Edges, one string per layer. */
  edges: string[];
}

export type AtlasPageData = Omit<PageData, "description"> & {
  description: AtlasDescription;
  atlas: { stacks: PageStack[] };
};

/** Transport that answers requests from the data of an exported page. */
export class AtlasPageTransport implements Transport {
  readonly live = false;
  readonly #data: AtlasPageData;
  readonly #answers: Handlers<AtlasRequests>;

  /** @throws Error if the format of the data is not supported. */
  constructor(data: AtlasPageData) {
    if (data.format !== 2) {
      throw new Error(
        `The page’s data have format ${String(data.format)}, but only format 2 is supported.`,
      );
    }
    this.#data = data;
    this.#answers = {
      describe: () => ({ header: data.description, data: null }),
      statistics: ({ stack }) => whole(this.#stack(stack).table),
      texts: ({ stack }) => whole(this.#stack(stack).texts),
      offsets: (args) => this.#offsets(args),
      classes: (args) => this.#classes(args),
      edges: ({ stack, layer }) =>
        whole(this.#ofLayer(stack, layer, this.#stack(stack).edges, "edges")),
    };
  }

  async request(name: string, args: object): Promise<Reply> {
    const answer = (this.#answers as Handlers<Record<string, object>>)[name];
    if (!answer) throw new Error(`An exported page cannot answer “${name}”.`);
    return answer(args);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  #stack(name: string): PageStack {
    const pageStack = this.#data.atlas.stacks.find((candidate) => candidate.stack === name);
    if (!pageStack) throw new Error(`This page contains no heads of “${name}”.`);
    return pageStack;
  }

  #ofLayer<T>(stack: string, layer: number, of: readonly T[], what: string): T {
    const value = of[this.#described(stack)?.layers.indexOf(layer) ?? -1];
    if (value === undefined) {
      throw new Error(`This page contains no ${what} of layer ${layer} of “${stack}”.`);
    }
    return value;
  }

  #described(name: string): AtlasStack | undefined {
    return this.#data.description.stacks.find((candidate) => candidate.name === name);
  }

  async #offsets({ stack, layer }: OffsetsRequest): Promise<Reply> {
    const coded = this.#ofLayer(stack, layer, this.#stack(stack).offsets, "offsets");
    const weights = await decoded(coded);
    return { header: { bins: weights.length / coded.maximum.length }, data: weights.buffer };
  }

  async #classes({ stack, layer, head, system }: ClassesRequest): Promise<Reply> {
    const of = this.#stack(stack).classes[system] ?? [];
    const coded = this.#ofLayer(stack, layer, of, `weights by ${system}`);
    if (head >= coded.maximum.length) {
      throw new Error(`This page contains no head ${head} of layer ${layer}.`);
    }
    const weights = await decoded(coded);
    const numPerHead = weights.length / coded.maximum.length;
    const data = weights.slice(head * numPerHead, (head + 1) * numPerHead);
    return { header: { classes: Math.sqrt(numPerHead) }, data: data.buffer };
  }
}

async function decoded({ maximum, data }: Coded): Promise<Float32Array<ArrayBuffer>> {
  const codes = await inflate(fromBase64(data));
  const numPerHead = codes.length / Math.max(1, maximum.length);
  return Float32Array.from(codes, (code, i) => {
    const most = maximum[Math.floor(i / numPerHead)] ?? 0;
    return code === 0 ? Number.NaN : most * ((code - 1) / 254) ** 2;
  });
}

/** Return base64 data as a reply that consists of a single part. */
function whole(data: string): Reply {
  return { header: { parts: 1 }, data: fromBase64(data) };
}

declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Create the transport of an exported page. In the bundle of a widget, it is undefined. */
export const atlasPageTransport =
  typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "widget"
    ? undefined
    : (data: PageData): Transport => new AtlasPageTransport(data as unknown as AtlasPageData);
