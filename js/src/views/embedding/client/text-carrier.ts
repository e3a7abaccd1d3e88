/** Asks about one text of a corpus what is asked about a record. */

import type { Carrier, Connection, Reply } from "../../../client/source";

export class TextCarrier implements Carrier {
  /** The page that there is to make is of the whole corpus. */
  readonly makesPages = false;
  readonly #carrier: Carrier;
  readonly #text: number;

  /** @param text index of the text in the corpus. */
  constructor(carrier: Carrier, text: number) {
    this.#carrier = carrier;
    this.#text = text;
  }

  ask(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
    return this.#carrier.ask(name, { ...args, text: this.#text }, signal);
  }

  retry(): void {
    this.#carrier.retry();
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#carrier.watch(listener, signal);
  }
}
