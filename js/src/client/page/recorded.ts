/**
 * Transport of a page that is a list of recorded replies: the pages of the embedding view and of
 * the atlas. `attnviz/pages/recorded.py` records the replies.
 */

import { fromBase64, inflate } from "../codec";
import type { Reply, Transport } from "../transport";
import { checkFormat } from "./texts";

/**
 * Reply to all requests with the name `request` whose arguments include `arguments`. If `header` is
 * a list, it has one header for each head of a layer. The object then contains one reply for each
 * of these heads, and the argument `head` of the request chooses one. A request without `head` gets
 * all headers as a list `heads`, and all bytes.
 */
export interface RecordedReply {
  request: string;
  arguments: Record<string, unknown>;
  header: object | object[];
  /** Fields that are equal in the headers of all heads, which omit them. */
  common?: object;
  /**
   * Deflated bytes in base64. If `header` is a list, the inflated bytes have the shape
   * [planes][heads][...] (see `planes`). The reply for a head then has the bytes of this head,
   * plane by plane.
   */
  data?: string;
  /**
   * Number of planes, 1 by default. A plane has similar bytes of all heads side by side, such as
   * all high bytes, because such bytes compress better.
   */
  planes?: number;
  /**
   * Deflated bytes in base64, used instead of `data` if the receiver of the reply inflates the
   * bytes. The transport passes these bytes on without inflating them.
   */
  compressed?: string;
  /**
   * Largest weight of each head, if the data are mean weights with one byte each. A byte c from 1
   * to 255 stands for the weight maximum * ((c - 1) / 254)², where maximum is the largest weight of
   * the head. Byte 0 stands for NaN.
   */
  maxima?: number[];
}

/** Data of a page that is a list of recorded replies. */
export interface RecordedPage {
  format: 1;
  description: object;
  replies: RecordedReply[];
}

export class RecordedTransport implements Transport {
  readonly live = false;
  readonly #page: RecordedPage;
  /** Cache of inflated data. */
  readonly #inflated = new Map<RecordedReply, Promise<Uint8Array>>();

  constructor(page: RecordedPage) {
    checkFormat(page);
    this.#page = page;
  }

  async request(name: string, args: object): Promise<Reply> {
    if (name === "describe") return { header: this.#page.description, data: null };
    const recorded = this.#find(name, args);
    if (!recorded) {
      const named = Object.entries(args).map(([key, value]) => `${key} ${String(value)}`);
      throw new Error(`This page does not contain “${name}” of ${named.join(", ")}.`);
    }
    return this.#reply(recorded, (args as { head?: number }).head);
  }

  /** Return the first recorded reply to a request, or undefined if the page has none. */
  #find(name: string, args: object): RecordedReply | undefined {
    return this.#page.replies.find(
      (reply) =>
        reply.request === name &&
        Object.entries(reply.arguments).every(
          ([key, value]) => String((args as Record<string, unknown>)[key]) === String(value),
        ),
    );
  }

  async #reply(recorded: RecordedReply, head?: number): Promise<Reply> {
    const { common, compressed, data, maxima, planes = 1 } = recorded;
    const all = Array.isArray(recorded.header) ? recorded.header : null;
    const ofHeads = head === undefined ? null : all;
    const own = ofHeads ? ofHeads[head as number] : recorded.header;
    if (own === undefined) throw new Error(`This page contains no head ${head}.`);
    const header =
      all && !ofHeads
        ? { heads: all.map((each) => ({ ...common, ...each })) }
        : { ...common, ...own };
    if (compressed !== undefined) return { header, data: fromBase64(compressed) };
    if (data === undefined) return { header, data: null };
    const inflated = this.#inflated.get(recorded) ?? inflate(fromBase64(data));
    this.#inflated.set(recorded, inflated);
    const bytes = await inflated;
    const part = ofHeads ? partOf(bytes, planes, ofHeads.length, head as number) : bytes;
    if (!maxima) return { header, data: part };
    const maximum = maxima[ofHeads ? (head as number) : 0] as number;
    return { header: { ...header, maximum }, data: weightsOf(part, ofHeads ? [maximum] : maxima) };
  }
}

/** Return the bytes of one head from an array of shape [planes][heads][...]. */
function partOf(
  bytes: Uint8Array,
  planes: number,
  heads: number,
  head: number,
): Uint8Array<ArrayBuffer> {
  const size = bytes.length / (planes * heads);
  const own = new Uint8Array(planes * size);
  for (let plane = 0; plane < planes; plane++) {
    const start = (plane * heads + head) * size;
    own.set(bytes.subarray(start, start + size), plane * size);
  }
  return own;
}

/**
 * Decode bytes to mean weights (see `RecordedReply.maxima`). `codes` has the bytes of one or more
 * heads, one head after the other, and `maxima` has one number for each of these heads.
 */
function weightsOf(codes: Uint8Array, maxima: readonly number[]): Float32Array<ArrayBuffer> {
  const size = codes.length / maxima.length;
  return Float32Array.from(codes, (code, i) => {
    const maximum = maxima[Math.floor(i / size)] ?? 0;
    return code === 0 ? Number.NaN : maximum * ((code - 1) / 254) ** 2;
  });
}

/**
 * Function that creates the transport of a page of recorded replies. Undefined in the bundle for
 * widgets, which never read an exported page.
 */
export const recordedTransport =
  BUNDLE_FOR === "widget"
    ? undefined
    : (page: object): Transport => new RecordedTransport(page as RecordedPage);
