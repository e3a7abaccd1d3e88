/** Answers what an atlas is asked from the data that an exported page contains. */

import type { Carrier, Connection, Reply } from "../../../client/carrier";
import { fromBase64, inflate } from "../../../client/codec";
import type { Answers, PageData } from "../../../client/page";
import type { AtlasDescription, AtlasRequests, OffsetsRequest } from "../../../client/protocol";

/** Data are base64 of deflated bytes. */
interface PageStack {
  stack: string;
  table: string;
  /** Of each layer codes of [heads][bins]: a weight is maximum * ((code - 1) / 254)^2, 0 is none. */
  offsets: { maximum: number[]; data: string }[];
  texts: string;
  /** Of each layer. */
  edges: string[];
}

export type AtlasPageData = Omit<PageData, "description"> & {
  description: AtlasDescription;
  atlas: { stacks: PageStack[] };
};

/** A carrier that is never late. */
export class AtlasPageCarrier implements Carrier {
  readonly live = false;
  readonly #data: AtlasPageData;
  readonly #answers: Answers<AtlasRequests>;

  /** @throws Error when the data are of a format that this bundle does not know. */
  constructor(data: AtlasPageData) {
    if (data.format !== 2) {
      throw new Error(`The page's data have format ${String(data.format)}; format 2 is known.`);
    }
    this.#data = data;
    this.#answers = {
      describe: () => ({ header: data.description, data: null }),
      statistics: ({ stack }) => whole(this.#stack(stack).table),
      texts: ({ stack }) => whole(this.#stack(stack).texts),
      offsets: (args) => this.#offsets(args),
      edges: ({ stack, layer }) => whole(this.#ofLayer(stack, layer, "edges")),
    };
  }

  async ask(name: string, args: object): Promise<Reply> {
    if ("text" in args) {
      throw new Error(
        "An exported page contains the edges of texts, but not all of their weights.",
      );
    }
    const answer = (this.#answers as Answers<Record<string, object>>)[name];
    if (!answer) throw new Error(`An exported page cannot answer "${name}".`);
    return answer(args);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  #stack(name: string): PageStack {
    const found = this.#data.atlas.stacks.find((each) => each.stack === name);
    if (!found) throw new Error(`This page contains no heads of "${name}".`);
    return found;
  }

  #ofLayer<N extends "offsets" | "edges">(stack: string, layer: number, of: N): PageStack[N][0] {
    const layers = this.#data.description.stacks.find((each) => each.name === stack)?.layers ?? [];
    const found = this.#stack(stack)[of][layers.indexOf(layer)];
    if (found === undefined) {
      throw new Error(`This page contains no ${of} of layer ${layer} of "${stack}".`);
    }
    return found as PageStack[N][0];
  }

  async #offsets({ stack, layer }: OffsetsRequest): Promise<Reply> {
    const { maximum, data } = this.#ofLayer(stack, layer, "offsets");
    const codes = await inflate(fromBase64(data));
    const bins = codes.length / Math.max(1, maximum.length);
    const weights = Float32Array.from(codes, (code, i) => {
      const most = maximum[Math.floor(i / bins)] ?? 0;
      return code === 0 ? Number.NaN : most * ((code - 1) / 254) ** 2;
    });
    return { header: { bins }, data: weights.buffer };
  }
}

/** What is embedded as a kernel would send it, in one part. */
function whole(data: string): Reply {
  return { header: { parts: 1 }, data: fromBase64(data) };
}

declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** What answers in an exported page; not in a widget's bundle. */
export const atlasPageCarrier =
  typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "widget"
    ? undefined
    : (data: PageData): Carrier => new AtlasPageCarrier(data as unknown as AtlasPageData);
