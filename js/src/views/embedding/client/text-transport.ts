/**
 * Transport for requests about one text of a corpus. It adds the index of the text to every
 * request.
 */

import type { ReplyProgress } from "../../../client/protocol";
import type { Connection, Reply, Requests, Transport } from "../../../client/transport";

export class TextTransport implements Transport {
  readonly #transport: Transport;
  readonly #text: number;

  /** @param text index of the text in the corpus. */
  constructor(transport: Transport, text: number) {
    this.#transport = transport;
    this.#text = text;
  }

  get live(): boolean {
    return this.#transport.live;
  }

  request<N extends keyof Requests>(
    name: N,
    args: Requests[N],
    signal?: AbortSignal,
    report?: (progress: ReplyProgress) => void,
  ): Promise<Reply> {
    return this.#transport.request(name, { ...args, text: this.#text }, signal, report);
  }

  retry(): void {
    this.#transport.retry();
  }

  stop(): void {
    this.#transport.stop?.();
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#transport.watch(listener, signal);
  }
}
