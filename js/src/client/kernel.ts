/**
 * Asks the running kernel, over the widget's custom messages.
 *
 * anywidget's own `invoke` gives up after three seconds and cannot carry an error back, so the
 * channel is its own: every request has an id, can be cancelled, may be answered late, and only
 * a few travel at once. A kernel computes a moment for each; what takes longer it answers with how
 * far it is, and goes on when it is asked again (`attnviz/server/pending_replies.py`).
 */

import { type Signal, signal } from "@preact/signals";
import type { Carrier, Connection, Reply } from "./carrier";
import type { PendingHeader, ReplyProgress } from "./protocol";
import { RECORD_NUMBER, withNumber, withoutNumber } from "./record-number";

/** The part of anywidget's model that is used. */
export interface MessageModel {
  get?(name: string): unknown;
  set?(name: string, value: unknown): void;
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void;
}

/** The trait with the description that came with the widget. */
const DESCRIPTION = "_description";
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
  /** How far the answer is, once the kernel has said that it takes longer. */
  later: ReplyProgress | null;
  /** When it said so first. */
  since: number;
  report: ((later: ReplyProgress) => void) | undefined;
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

/** Says something to the kernel; false where that cannot be sent. */
function tell(model: MessageModel, message: object): boolean {
  try {
    model.send(message);
    return true;
  } catch {
    // JupyterLab throws where the kernel is gone, or the notebook was closed.
    return false;
  }
}

/**
 * Whether a widget has no way to a kernel: it was stored in a notebook or a page. anywidget does not
 * say so of the widget itself. Its layout is stored with it, as a model of ipywidgets.
 */
function isDetached(model: MessageModel): boolean {
  const layout = model.get?.("layout") as
    | { comm?: unknown; comm_live?: unknown }
    | null
    | undefined;
  return layout?.comm_live === false && layout.comm === undefined;
}

/** The description that came with the widget, and the number of its record. */
interface Described {
  record?: number;
}

/** Takes the description out of the widget's state: it is neither held twice nor saved. */
function takeDescription(model: MessageModel): Described | null {
  const described = (model.get?.(DESCRIPTION) ?? null) as Described | null;
  // Twice, because a model has its last values as well.
  if (described) for (const nothing of ["", null]) model.set?.(DESCRIPTION, nothing);
  return described;
}

/** The number of the record that a widget shows. */
export function recordNumber(model: MessageModel): number {
  return (model.get?.(RECORD_NUMBER) as number | undefined) ?? 0;
}

/** The table of requests of one model. */
export class KernelChannel implements Carrier {
  readonly live = true;
  readonly detached: boolean;
  readonly record: Signal<number>;
  readonly #model: MessageModel;
  #described: Described | null;
  readonly #prefix = randomPrefix();
  #counter = 0;
  #queue: Pending[] = [];
  readonly #inFlight = new Set<Pending>();
  readonly #byId = new Map<string, Pending>();
  readonly #listeners = new Set<(connection: Connection) => void>();
  #connection: Connection = "ready";

  /** @param ended ends the channel: what is pending is rejected and nothing more is heard. */
  constructor(model: MessageModel, ended?: AbortSignal) {
    this.#model = model;
    this.detached = isDetached(model);
    this.#described = takeDescription(model);
    this.record = signal(recordNumber(model));
    const listener = (message: Message, buffers?: DataView[]): void =>
      this.#receive(message, buffers ?? []);
    // The kernel does not answer about the record that was there before.
    const replaced = (): void => {
      if (recordNumber(model) === this.record.peek()) return;
      this.#giveUp();
      this.record.value = recordNumber(model);
    };
    model.on("msg:custom", listener as never);
    model.on(`change:${RECORD_NUMBER}`, replaced as never);
    ended?.addEventListener("abort", () => {
      model.off("msg:custom", listener as never);
      model.off(`change:${RECORD_NUMBER}`, replaced as never);
      this.#giveUp();
    });
  }

  ask(
    name: string,
    args: object,
    signal?: AbortSignal,
    report?: (later: ReplyProgress) => void,
  ): Promise<Reply> {
    const named = this.#asked(args);
    if (named === null) return Promise.reject(abortError());
    const described = name === "describe" && !signal?.aborted ? this.#takeDescribed() : null;
    if (described) return Promise.resolve(described);
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
        args: named,
        ids: [],
        resolve,
        reject,
        release: () => signal?.removeEventListener("abort", abort),
        connection: "ready",
        timers: [],
        later: null,
        since: 0,
        report,
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

  stop(): void {
    for (const pending of this.#inFlight) {
      if (!isLong(pending)) continue;
      this.#cancel(pending);
      pending.reject(new Error("Stopped before it was computed."));
    }
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
    listener(this.#connection);
  }

  /** A request with the kernel's own names of stacks; null about a record that is gone. */
  #asked(args: object): object | null {
    const { stack } = args as { stack?: unknown };
    const number = this.record.peek();
    if (typeof stack !== "string" || number === 0) return args;
    const plain = withoutNumber(stack);
    return withNumber(plain, number) === stack ? { ...args, stack: plain } : null;
  }

  /** The description that came with the widget, once; null if it is of another record. */
  #takeDescribed(): Reply | null {
    const { record = 0, ...header } = this.#described ?? { record: -1 };
    this.#described = null;
    return record === this.record.peek() ? { header, data: null } : null;
  }

  #giveUp(): void {
    for (const pending of [...this.#queue, ...this.#inFlight]) {
      this.#finish(pending);
      pending.reject(abortError());
    }
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
    pending.timers = isDetached(this.#model)
      ? [later(WAITING_AFTER_MS, "detached")]
      : [later(WAITING_AFTER_MS, "waiting"), later(UNANSWERED_AFTER_MS, "unanswered")];
    // Where it cannot be sent it is not answered: the timers say so, and a retry sends again.
    const { name, args } = pending;
    const record = this.record.peek();
    tell(this.#model, { attnviz: "request", id, name, arguments: args, record });
  }

  #cancel(pending: Pending): void {
    const sent = this.#inFlight.has(pending);
    const ids = pending.ids;
    this.#finish(pending);
    if (sent) for (const id of ids) tell(this.#model, { attnviz: "cancel", id });
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
    const { pending: later = null } = (message.header ?? {}) as Partial<PendingHeader>;
    if (message.attnviz === "reply" && later !== null) {
      this.#goOn(pending, String(message.id), later);
      return;
    }
    this.#finish(pending);
    if (message.attnviz === "reply") {
      pending.resolve({ header: message.header, data: buffers[0] ?? null });
    } else {
      pending.reject(new Error(String(message.message ?? "The kernel gave no reason.")));
    }
    this.#sendNext();
  }

  /** Asks again for what the kernel has not done yet. */
  #goOn(pending: Pending, id: string, later: ReplyProgress): void {
    const newest = pending.ids[pending.ids.length - 1] === id;
    pending.ids = pending.ids.filter((other) => other !== id);
    this.#byId.delete(id);
    // After a retry, the last one sent goes on.
    if (!newest) return;
    if (pending.later === null) pending.since = Date.now();
    pending.later = later;
    pending.report?.(later);
    // Who heard of it may have given it up.
    if (!this.#inFlight.has(pending)) return;
    this.#send(pending);
    this.#report();
  }

  #report(): void {
    const states = new Set(Array.from(this.#inFlight, (pending) => pending.connection));
    const long = [...this.#inFlight].filter(isLong);
    // Of several, the one that was asked for first.
    const stands = (["detached", "unanswered"] as const).find((each) => states.has(each));
    const connection = stands ?? long[0]?.later ?? (states.has("waiting") ? "waiting" : "ready");
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const listener of this.#listeners) listener(connection);
  }
}

/** Whether an answer is computed for so long that the reader is told how far it is. */
function isLong({ later, since, report }: Pending): boolean {
  return later !== null && report === undefined && Date.now() - since >= WAITING_AFTER_MS;
}

function abortError(): DOMException {
  return new DOMException("The request was cancelled.", "AbortError");
}

/** Whether an error only says that the answer is not wanted any more. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
