/**
 * Interface of transports. A transport sends the requests of a view to a kernel, or answers them
 * from the data of an exported page. The requests are about a record, which is the attention of one
 * example, or about a corpus or an atlas.
 */

import type { ReadonlySignal } from "@preact/signals";
import { asBytes } from "./codec";
import type {
  AtlasReplies,
  AtlasRequests,
  CorpusReplies,
  CorpusRequests,
  PartHeader,
  RecordReplies,
  RecordRequests,
  ReplyProgress,
} from "./protocol";

/** A reply before it is decoded: a header and at most one buffer. */
export interface Reply<Header = unknown> {
  header: Header;
  data: ArrayBufferView | ArrayBuffer | null;
}

/**
 * State of the connection to a kernel: "waiting" after a short time without an answer, "unanswered"
 * after a longer time, "detached" if no kernel can answer, otherwise "ready". It is a
 * `ReplyProgress` if the kernel has been computing an answer for a while.
 */
export type Connection = "ready" | "waiting" | "unanswered" | "detached" | ReplyProgress;

/** Arguments of all requests, by name. */
export type Requests = RecordRequests & Omit<CorpusRequests & AtlasRequests, keyof RecordRequests>;

/** Headers of the replies to all requests, by name. */
export type Replies = RecordReplies & Omit<CorpusReplies & AtlasReplies, keyof RecordReplies>;

export interface Transport {
  /**
   * Send a request.
   *
   * @param report called with the progress of a long answer. If it is passed, `connection` does not
   *   contain the progress of this request.
   */
  request<N extends keyof Requests>(
    name: N,
    args: Requests[N],
    signal?: AbortSignal,
    report?: (progress: ReplyProgress) => void,
  ): Promise<Reply>;
  /** Send the requests again that were sent and have no answer yet. */
  retry?(): void;
  /**
   * Cancel the requests that the kernel has been computing for a while, except those with a
   * `report` callback.
   */
  stop?(): void;
  /** State of the connection to a kernel, or undefined for a page. */
  readonly connection?: ReadonlySignal<Connection>;
  /** Number of the record that replies are about, or undefined if the record never changes. */
  readonly record?: ReadonlySignal<number>;
  /**
   * Whether a kernel answers requests. A kernel can compute every answer, but an exported page has
   * only the answers that its data allow.
   */
  readonly live: boolean;
  /** Maximum number of bytes in the buffer of a reply, or undefined without a limit. */
  readonly maxReplyBytes?: number;
  /**
   * Whether the widget comes from a stored notebook or page without a kernel. A view then requests
   * only what its first picture needs.
   */
  readonly detached?: boolean;
}

/**
 * Maximum number of bytes in the buffer of a reply of a kernel. All tested programs that show
 * notebooks deliver messages of this size.
 */
export const MAX_REPLY_BYTES = 1_000_000;

/** Return the buffer of a reply. @throws Error if it has none. */
export function dataOf(reply: Reply): ArrayBufferView | ArrayBuffer {
  if (reply.data === null) throw new Error("The reply contains no data.");
  return reply.data;
}

/**
 * Request the parts of an answer after the first one, one after the other, and return the bytes of
 * all parts. `first` is the reply with the first part.
 */
export async function joinParts(
  first: Reply,
  requestPart: (part: number) => Promise<Reply>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { parts } = first.header as PartHeader;
  const replies = [first];
  while (replies.length < parts) replies.push(await requestPart(replies.length));
  const pieces = replies.map((reply) => asBytes(dataOf(reply)));
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}
