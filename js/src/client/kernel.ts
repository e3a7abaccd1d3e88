/**
 * Asks the running kernel, over the widget's custom messages.
 *
 * anywidget's own `invoke` gives up after three seconds and cannot carry an error back, so the
 * channel is its own: every request has an id, can be cancelled, may be answered late, and only
 * a few travel at once.
 */

import type { Carrier, Connection, Reply } from "./carrier";

/** The part of anywidget's model that is used. */
export interface MessageModel {
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void;
}

/** Requests that travel at once; hosts queue or drop more than a few. */
export const MOST_IN_FLIGHT = 4;
/** After this long without an answer the view says that it waits. */
export const WAITING_AFTER_MS = 1_000;
/** After this long the view says that the kernel does not answer. */
export const UNANSWERED_AFTER_MS = 10_000;

interface Pending {
  name: string;
  args: object;
  /** Every id under which it was sent: a retry does not make the first answer worthless. */
  ids: string[];
  resolve: (reply: Reply) => void;
  reject: (error: Error) => void;
  release: () => void;
  connection: Connection;
  timers: ReturnType<typeof setTimeout>[];
}

interface Message {
  attnviz?: unknown;
  id?: unknown;
  header?: unknown;
  message?: unknown;
}

function randomPrefix(): string {
  // Several tabs share one kernel, so a counter alone would not be unique.
  const words = crypto.getRandomValues(new Uint32Array(2));
  return Array.from(words, (word) => word.toString(36)).join("");
}

/** The table of requests of one model. */
export class KernelChannel implements Carrier {
  readonly live = true;
  readonly #model: MessageModel;
  readonly #prefix = randomPrefix();
  #counter = 0;
  #queue: Pending[] = [];
  readonly #inFlight = new Set<Pending>();
  readonly #byId = new Map<string, Pending>();
  readonly #listeners = new Set<(connection: Connection) => void>();
  #connection: Connection = "ready";

  /** @param signal ends the channel: what is pending is rejected and nothing more is heard. */
  constructor(model: MessageModel, signal?: AbortSignal) {
    this.#model = model;
    const listener = (message: Message, buffers?: DataView[]): void =>
      this.#receive(message, buffers ?? []);
    model.on("msg:custom", listener as never);
    signal?.addEventListener("abort", () => {
      model.off("msg:custom", listener as never);
      for (const pending of [...this.#queue, ...this.#inFlight]) {
        this.#finish(pending);
        pending.reject(abortError());
      }
    });
  }

  ask(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(abortError());
        return;
      }
      const abort = (): void => {
        this.#cancel(pending);
        reject(abortError());
      };
      const pending: Pending = {
        name,
        args,
        ids: [],
        resolve,
        reject,
        release: () => signal?.removeEventListener("abort", abort),
        connection: "ready",
        timers: [],
      };
      signal?.addEventListener("abort", abort);
      this.#queue.push(pending);
      this.#sendNext();
    });
  }

  retry(): void {
    for (const pending of this.#inFlight) this.#send(pending);
    this.#report();
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
    listener(this.#connection);
  }

  #sendNext(): void {
    while (this.#inFlight.size < MOST_IN_FLIGHT) {
      const pending = this.#queue.shift();
      if (!pending) return;
      this.#inFlight.add(pending);
      this.#send(pending);
    }
  }

  #send(pending: Pending): void {
    const id = `${this.#prefix}-${this.#counter++}`;
    pending.ids.push(id);
    this.#byId.set(id, pending);
    pending.timers.forEach(clearTimeout);
    pending.connection = "ready";
    const later = (after: number, connection: Connection): ReturnType<typeof setTimeout> =>
      setTimeout(() => {
        pending.connection = connection;
        this.#report();
      }, after);
    pending.timers = [later(WAITING_AFTER_MS, "waiting"), later(UNANSWERED_AFTER_MS, "unanswered")];
    this.#transmit({ attnviz: "request", id, name: pending.name, arguments: pending.args });
  }

  #transmit(message: object): void {
    try {
      this.#model.send(message);
    } catch {
      // JupyterLab throws where the kernel is gone. That is one way of not being answered: the
      // timers say so, and a retry sends again.
    }
  }

  #cancel(pending: Pending): void {
    const sent = this.#inFlight.has(pending);
    const ids = pending.ids;
    this.#finish(pending);
    if (sent) for (const id of ids) this.#transmit({ attnviz: "cancel", id });
    // Once all that are given up together are: a kernel hears of a request before it hears that
    // it is not wanted any more, and would answer each that moves up only to be cancelled.
    queueMicrotask(() => this.#sendNext());
  }

  #finish(pending: Pending): void {
    pending.timers.forEach(clearTimeout);
    pending.release();
    for (const id of pending.ids) this.#byId.delete(id);
    this.#inFlight.delete(pending);
    this.#queue = this.#queue.filter((other) => other !== pending);
    this.#report();
  }

  #receive(message: Message, buffers: DataView[]): void {
    if (message?.attnviz !== "reply" && message?.attnviz !== "error") return;
    // An id that is not in the table: another tab's, or one that was cancelled meanwhile.
    const pending = this.#byId.get(String(message.id));
    if (!pending) return;
    this.#finish(pending);
    if (message.attnviz === "reply") {
      pending.resolve({ header: message.header, data: buffers[0] ?? null });
    } else {
      pending.reject(new Error(String(message.message ?? "The kernel gave no reason.")));
    }
    this.#sendNext();
  }

  #report(): void {
    const states = new Set(Array.from(this.#inFlight, (pending) => pending.connection));
    const connection = states.has("unanswered")
      ? "unanswered"
      : states.has("waiting")
        ? "waiting"
        : "ready";
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const listener of this.#listeners) listener(connection);
  }
}

function abortError(): DOMException {
  return new DOMException("The request was cancelled.", "AbortError");
}

/** Whether an error only says that the answer is not wanted any more. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
