/**
 * Requests to the running kernel, as custom messages of the widget.
 *
 * anywidget's own `invoke` times out after three seconds and cannot return an error. Here every
 * request has an id, can be cancelled and may be answered late, and only a few are sent at once.
 * A kernel computes each request for a moment. If it needs longer it replies with its progress,
 * and continues when the request is sent again (`attnviz/server/pending_replies.py`).
 */

import { type Signal, signal } from "@preact/signals";
import type { PendingHeader, ReplyProgress } from "./protocol";
import { RECORD_NUMBER, withNumber, withoutNumber } from "./record-number";
import type { Connection, Reply, Transport } from "./transport";

/** The methods of anywidget's model that are used here. */
export interface MessageModel {
  get?(name: string): unknown;
  set?(name: string, value: unknown): void;
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void;
}

/** Trait with the description that is sent with the widget. */
const DESCRIPTION = "_description";
/** Maximum number of requests sent at once. Hosts queue or drop more than a few. */
export const MAX_IN_FLIGHT = 4;
/** Time without an answer after which the view shows that it is waiting. */
export const WAITING_AFTER_MS = 1_000;
/** Time after which the view shows that the kernel does not answer. */
export const UNANSWERED_AFTER_MS = 10_000;

interface Pending {
  name: string;
  args: object;
  /** All ids under which it was sent. After a retry the answer to an earlier id is still valid. */
  ids: string[];
  resolve: (reply: Reply) => void;
  reject: (error: Error) => void;
  release: () => void;
  connection: Connection;
  timers: ReturnType<typeof setTimeout>[];
  /** Progress of the answer, once the kernel has replied that it needs longer. */
  progress: ReplyProgress | null;
  /** Time of the first reply with progress. */
  firstProgressAt: number;
  report: ((progress: ReplyProgress) => void) | undefined;
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

/** Send a message to the kernel. Return false if it cannot be sent. */
function post(model: MessageModel, message: object): boolean {
  try {
    model.send(message);
    return true;
  } catch {
    // JupyterLab throws if the kernel ended or the notebook was closed.
    return false;
  }
}

/**
 * Return whether a widget has no connection to a kernel because it was stored in a notebook or page.
 * anywidget has no such flag, but the widget's layout is an ipywidgets model, which has one.
 */
function isDetached(model: MessageModel): boolean {
  const layout = model.get?.("layout") as
    | { comm?: unknown; comm_live?: unknown }
    | null
    | undefined;
  return layout?.comm_live === false && layout.comm === undefined;
}

/** Description that was sent with the widget. Without a number it is about record 0. */
interface WidgetDescription {
  record?: number;
}

/** Remove the description from the widget's state, so that it is neither stored twice nor saved. */
function takeDescription(model: MessageModel): WidgetDescription | null {
  const description = (model.get?.(DESCRIPTION) ?? null) as WidgetDescription | null;
  // Two values, because the model also keeps the previous one and would still hold the description.
  if (description) for (const empty of ["", null]) model.set?.(DESCRIPTION, empty);
  return description;
}

/** Return the number of the record that a widget shows. */
export function recordNumber(model: MessageModel): number {
  return (model.get?.(RECORD_NUMBER) as number | undefined) ?? 0;
}

/** The requests of one widget model. */
export class KernelChannel implements Transport {
  readonly live = true;
  readonly detached: boolean;
  readonly record: Signal<number>;
  readonly #model: MessageModel;
  #description: WidgetDescription | null;
  readonly #prefix = randomPrefix();
  #counter = 0;
  #queue: Pending[] = [];
  readonly #inFlight = new Set<Pending>();
  readonly #byId = new Map<string, Pending>();
  readonly #listeners = new Set<(connection: Connection) => void>();
  #connection: Connection = "ready";

  /** @param ended closes the channel: pending requests are rejected and messages are ignored. */
  constructor(model: MessageModel, ended?: AbortSignal) {
    this.#model = model;
    this.detached = isDetached(model);
    this.#description = takeDescription(model);
    this.record = signal(recordNumber(model));
    const onMessage = (message: Message, buffers?: DataView[]): void =>
      this.#receive(message, buffers ?? []);
    // The kernel no longer answers requests about the previous record.
    const onRecordChange = (): void => {
      if (recordNumber(model) === this.record.peek()) return;
      this.#cancelAll();
      this.record.value = recordNumber(model);
    };
    model.on("msg:custom", onMessage as never);
    model.on(`change:${RECORD_NUMBER}`, onRecordChange as never);
    ended?.addEventListener("abort", () => {
      model.off("msg:custom", onMessage as never);
      model.off(`change:${RECORD_NUMBER}`, onRecordChange as never);
      this.#cancelAll();
    });
  }

  request(
    name: string,
    args: object,
    signal?: AbortSignal,
    report?: (progress: ReplyProgress) => void,
  ): Promise<Reply> {
    const kernelArgs = this.#kernelArgs(args);
    if (kernelArgs === null) return Promise.reject(abortError());
    const stored = name === "describe" && !signal?.aborted ? this.#takeDescription() : null;
    if (stored) return Promise.resolve(stored);
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
        args: kernelArgs,
        ids: [],
        resolve,
        reject,
        release: () => signal?.removeEventListener("abort", abort),
        connection: "ready",
        timers: [],
        progress: null,
        firstProgressAt: 0,
        report,
      };
      signal?.addEventListener("abort", abort);
      this.#queue.push(pending);
      this.#sendNext();
    });
  }

  retry(): void {
    for (const pending of this.#inFlight) this.#send(pending);
    this.#notify();
  }

  stop(): void {
    for (const pending of this.#inFlight) {
      if (!isLong(pending)) continue;
      this.#cancel(pending);
      pending.reject(new Error("The computation was stopped."));
    }
  }

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
    listener(this.#connection);
  }

  /** Return the arguments with the kernel's stack names, or null if they name a previous record. */
  #kernelArgs(args: object): object | null {
    const { stack } = args as { stack?: unknown };
    const number = this.record.peek();
    if (typeof stack !== "string" || number === 0) return args;
    const kernelName = withoutNumber(stack);
    return withNumber(kernelName, number) === stack ? { ...args, stack: kernelName } : null;
  }

  /** Return the description that was sent with the widget, once, or null if it is of another record. */
  #takeDescription(): Reply | null {
    const { record = 0, ...header } = this.#description ?? { record: -1 };
    this.#description = null;
    return record === this.record.peek() ? { header, data: null } : null;
  }

  #cancelAll(): void {
    for (const pending of [...this.#queue, ...this.#inFlight]) {
      this.#finish(pending);
      pending.reject(abortError());
    }
  }

  #sendNext(): void {
    while (this.#inFlight.size < MAX_IN_FLIGHT) {
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
    const startTimer = (delay: number, connection: Connection): ReturnType<typeof setTimeout> =>
      setTimeout(() => {
        pending.connection = connection;
        this.#notify();
      }, delay);
    pending.timers = isDetached(this.#model)
      ? [startTimer(WAITING_AFTER_MS, "detached")]
      : [startTimer(WAITING_AFTER_MS, "waiting"), startTimer(UNANSWERED_AFTER_MS, "unanswered")];
    // If it cannot be sent, the timers report that the answer is missing, and a retry sends it again.
    const { name, args } = pending;
    const record = this.record.peek();
    post(this.#model, { attnviz: "request", id, name, arguments: args, record });
  }

  #cancel(pending: Pending): void {
    const wasSent = this.#inFlight.has(pending);
    const ids = pending.ids;
    this.#finish(pending);
    if (wasSent) for (const id of ids) post(this.#model, { attnviz: "cancel", id });
    // Callers often cancel several requests together. Wait until all are removed from the queue, or
    // the queued ones would be sent only to be cancelled, and the kernel would still compute them.
    queueMicrotask(() => this.#sendNext());
  }

  #finish(pending: Pending): void {
    pending.timers.forEach(clearTimeout);
    pending.release();
    for (const id of pending.ids) this.#byId.delete(id);
    this.#inFlight.delete(pending);
    this.#queue = this.#queue.filter((other) => other !== pending);
    this.#notify();
  }

  #receive(message: Message, buffers: DataView[]): void {
    if (message?.attnviz !== "reply" && message?.attnviz !== "error") return;
    // Unknown ids belong to another tab or to a cancelled request.
    const pending = this.#byId.get(String(message.id));
    if (!pending) return;
    const { pending: progress = null } = (message.header ?? {}) as Partial<PendingHeader>;
    if (message.attnviz === "reply" && progress !== null) {
      this.#continue(pending, String(message.id), progress);
      return;
    }
    this.#finish(pending);
    if (message.attnviz === "reply") {
      pending.resolve({ header: message.header, data: buffers[0] ?? null });
    } else {
      pending.reject(
        new Error(String(message.message ?? "The kernel returned an error without a message.")),
      );
    }
    this.#sendNext();
  }

  /** Send a request again that the kernel has not finished. */
  #continue(pending: Pending, id: string, progress: ReplyProgress): void {
    const isNewest = pending.ids[pending.ids.length - 1] === id;
    pending.ids = pending.ids.filter((other) => other !== id);
    this.#byId.delete(id);
    // If the request was sent again since, ignore the progress of its earlier ids.
    if (!isNewest) return;
    if (pending.progress === null) pending.firstProgressAt = Date.now();
    pending.progress = progress;
    pending.report?.(progress);
    // The `report` callback may have cancelled the request.
    if (!this.#inFlight.has(pending)) return;
    this.#send(pending);
    this.#notify();
  }

  #notify(): void {
    const states = new Set(Array.from(this.#inFlight, (pending) => pending.connection));
    const longRequests = [...this.#inFlight].filter(isLong);
    // If several are long, report the one that was requested first.
    const problem = (["detached", "unanswered"] as const).find((state) => states.has(state));
    const connection =
      problem ?? longRequests[0]?.progress ?? (states.has("waiting") ? "waiting" : "ready");
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const listener of this.#listeners) listener(connection);
  }
}

/** Return whether an answer has been computed for so long that the view shows its progress. */
function isLong({ progress, firstProgressAt, report }: Pending): boolean {
  return (
    progress !== null && report === undefined && Date.now() - firstProgressAt >= WAITING_AFTER_MS
  );
}

function abortError(): DOMException {
  return new DOMException("The request was cancelled.", "AbortError");
}

/** Return whether an error means only that the request was cancelled. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
