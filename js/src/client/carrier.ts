/** What moves requests and replies: a running kernel, or an exported page. */

import type { ReadonlySignal } from "@preact/signals";
import type {
  AtlasRequests,
  CorpusRequests,
  PartHeader,
  RecordRequests,
  ReplyProgress,
} from "./protocol";

/** A reply as it came: a header, and at most one buffer. */
export interface Reply {
  header: unknown;
  data: ArrayBufferView | ArrayBuffer | null;
}

/**
 * How a carrier stands: `unanswered` after it has waited too long; `detached` where no kernel is there
 * that could answer; how far an answer is that is computed for a while already.
 */
export type Connection = "ready" | "waiting" | "unanswered" | "detached" | ReplyProgress;

/** Arguments of all requests, by name. */
export type Requests = RecordRequests & Omit<CorpusRequests & AtlasRequests, keyof RecordRequests>;

/** Moves requests and replies. */
export interface Carrier {
  /** @param report hears how far the answer is, where it takes long; no other listener does then. */
  ask<N extends keyof Requests>(
    name: N,
    args: Requests[N],
    signal?: AbortSignal,
    report?: (later: ReplyProgress) => void,
  ): Promise<Reply>;
  /** Asks once more for everything that has not been answered. */
  retry(): void;
  /** Gives up the answers that are computed for a while already, but for those with a `report`. */
  stop?(): void;
  /** Calls the listener with every change of the connection, until the signal is aborted. */
  watch(listener: (connection: Connection) => void, signal: AbortSignal): void;
  /** The number of the record that is answered about; left out where no other takes its place. */
  readonly record?: ReadonlySignal<number>;
  /** Whether a kernel is behind it, which can compute what was not asked for before. */
  readonly live: boolean;
  /** Whether that kernel is not there, as the widget was stored: asks for nothing in advance. */
  readonly detached?: boolean;
}

/** Replies contain at most this many bytes: what every host that was tried passes on. */
export const LARGEST_REPLY = 1_000_000;

/** The buffer of a reply. @throws Error where there is none. */
export function dataOf(reply: Reply): ArrayBufferView | ArrayBuffer {
  if (reply.data === null) throw new Error("The reply came without its data.");
  return reply.data;
}

/** The bytes of an answer that comes in parts, one after the other: the kernel reads on from it. */
export async function joined(
  first: Reply,
  more: (part: number) => Promise<Reply>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { parts } = first.header as PartHeader;
  const replies = [first];
  while (replies.length < parts) replies.push(await more(replies.length));
  if (replies.length === 1) return bytesOf(first);
  return new Uint8Array(await new Blob(replies.map(bytesOf)).arrayBuffer());
}

function bytesOf(reply: Reply): Uint8Array<ArrayBuffer> {
  const data = dataOf(reply);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
}
