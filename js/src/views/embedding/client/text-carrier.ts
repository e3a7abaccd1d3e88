/** Asks about one text of a corpus what is asked about a record. */

import type { Carrier, Connection, Reply, Requests } from "../../../client/carrier";
import type { ReplyProgress } from "../../../client/protocol";

export class TextCarrier implements Carrier {
  readonly #carrier: Carrier;
  readonly #text: number;

  /** @param text index of the text in the corpus. */
  constructor(carrier: Carrier, text: number) {
    this.#carrier = carrier;
    this.#text = text;
  }

  get live(): boolean {
    return this.#carrier.live;
  }

  ask<N extends keyof Requests>(
    name: N,
    args: Requests[N],
    signal?: AbortSignal,
    report?: (later: ReplyProgress) => void,
  ): Promise<Reply> {
    return this.#carrier.ask(name, { ...args, text: this.#text }, signal, report);
  }

  retry(): void {
    this.#carrier.retry();
  }

  stop(): void {
    this.#carrier.stop?.();
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#carrier.watch(listener, signal);
  }
}
