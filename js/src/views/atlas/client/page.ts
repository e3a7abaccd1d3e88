/** Answers the requests of the atlas from the data of an exported page. */

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
 * Weights as codes of one byte, head by head. A weight is the maximum of its head times
 * ((code - 1) / 254)^2. Code 0 marks a missing weight.
 */
interface Coded {
  maximum: number[];
  data: string;
}

/** Data of one stack. All strings except its name are deflated bytes in base64. */
interface PageStack {
  stack: string;
  table: string;
  /** Codes of each layer, [heads][bins]. */
  offsets: Coded[];
  /** Codes of each layer by system of classes, [heads][classes][classes]. */
  classes: Record<string, Coded[]>;
  texts: string;
  /** Edges of each layer. */
  edges: string[];
}

export type AtlasPageData = Omit<PageData, "description"> & {
  description: AtlasDescription;
  atlas: { stacks: PageStack[] };
};

/** Transport that answers from a page's data. */
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

/** Return embedded data as a reply in one part. */
function whole(data: string): Reply {
  return { header: { parts: 1 }, data: fromBase64(data) };
}

declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Create the transport of an exported page. Undefined in a widget's bundle. */
export const atlasPageTransport =
  typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "widget"
    ? undefined
    : (data: PageData): Transport => new AtlasPageTransport(data as unknown as AtlasPageData);
