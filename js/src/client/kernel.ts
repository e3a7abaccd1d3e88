/**
 * Requests to the running kernel, sent as custom messages of the widget.
 *
 * anywidget's own `invoke` is not used, because it fails after three seconds and cannot return an
 * error. In this module every request has an id, can be cancelled, and may be answered late. At
 * most `MAX_IN_FLIGHT` requests wait for the kernel at once. If an answer takes long, the kernel
 * replies with the progress of its computation. It continues the computation when the request is
 * sent again (`attnviz/server/pending_replies.py`).
 */

import { type Signal, signal } from "@preact/signals";
import type { PendingHeader, ReplyProgress } from "./protocol";
import { RECORD_NUMBER, withNumber, withoutNumber } from "./record-number";
import { type Connection, MAX_REPLY_BYTES, type Reply, type Transport } from "./transport";

/** Methods of anywidget's model. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void;
}

/** Trait with the description of the record, if it was ready when the widget was opened. */
const DESCRIPTION = "_description";
/**
 * Maximum number of requests that are sent and have no answer yet. Programs that show notebooks,
 * such as JupyterLab, queue or drop further messages.
 */
export const MAX_IN_FLIGHT = 4;
/** Milliseconds without an answer after which the view shows that it is waiting. */
export const WAITING_AFTER_MS = 1_000;
/** Milliseconds without an answer after which the view shows that the kernel does not answer. */
export const UNANSWERED_AFTER_MS = 10_000;

interface Pending {
  name: string;
  args: object;
  /**
   * Ids of the sent messages whose answers are accepted. After a retry, an answer to an earlier
   * message is still accepted.
   */
  ids: string[];
  resolve: (reply: Reply) => void;
  reject: (error: Error) => void;
  /** Stop listening to the caller's abort signal. */
  release: () => void;
  /**
   * "ready" until the answer is late, then "waiting", "unanswered" or "detached" (see
   * `Connection`).
   */
  connection: Connection;
  timers: ReturnType<typeof setTimeout>[];
  /** Latest progress of the answer. Null until the kernel has replied that it needs longer. */
  progress: ReplyProgress | null;
  /** Time of the first reply with progress, as `Date.now()` returns it, or 0 before this reply. */
  firstProgressAt: number;
  report: ((progress: ReplyProgress) => void) | undefined;
}

interface Message {
  attnviz: "reply" | "error";
  id: string;
  header?: unknown;
  message?: string;
}

function post(model: WidgetModel, message: object): void {
  try {
    model.send(message);
  } catch {
    // JupyterLab throws if the kernel ended or the notebook was closed.
  }
}

/**
 * Return whether a widget comes from a stored notebook or page, and has no connection to a kernel.
 *
 * anywidget has no flag for this. The widget's layout is an ipywidgets model, which has one. A page
 * that marimo exported has a global variable.
 */
function isDetached(model: WidgetModel): boolean {
  if ("__MARIMO_STATIC__" in globalThis) return true;
  const layout = model.get("layout") as { comm?: unknown; comm_live?: unknown } | null | undefined;
  return layout?.comm_live === false && layout.comm === undefined;
}

/**
 * Description of a record that was sent with the widget. `record` is the number of the record (see
 * `record-number.ts`), by default 0.
 */
type WidgetDescription = { record?: number };

/**
 * Remove the description from the widget's state and return it, or return null without one.
 * Otherwise the description would be in memory twice, and would be saved with the notebook.
 */
function takeDescription(model: WidgetModel): WidgetDescription | null {
  const description = (model.get(DESCRIPTION) ?? null) as WidgetDescription | null;
  // Set two values, because the model also keeps its previous value. After setting only one, the
  // previous value would still be the description.
  if (description) for (const empty of ["", null]) model.set(DESCRIPTION, empty);
  return description;
}

export function recordNumber(model: WidgetModel): number {
  return (model.get(RECORD_NUMBER) as number | undefined) ?? 0;
}

/** Transport for the requests of one widget model. */
export class KernelChannel implements Transport {
  readonly live = true;
  readonly maxReplyBytes = MAX_REPLY_BYTES;
  readonly detached: boolean;
  readonly record: Signal<number>;
  readonly connection = signal<Connection>("ready");
  readonly #model: WidgetModel;
  #description: WidgetDescription | null;
  // Several tabs may share one kernel, so a counter alone would not identify a message.
  readonly #prefix = crypto.getRandomValues(new Uint32Array(1)).join();
  #counter = 0;
  /** Requests without an answer. The first `MAX_IN_FLIGHT` are sent. */
  #pending: Pending[] = [];

  /**
   * @param ended signal that closes the channel. Pending requests are then rejected, and later
   *   messages are ignored.
   */
  constructor(model: WidgetModel, ended?: AbortSignal) {
    this.#model = model;
    this.detached = isDetached(model);
    this.#description = takeDescription(model);
    this.record = signal(recordNumber(model));
    const onMessage = (message: Message, buffers?: DataView[]): void =>
      this.#receive(message, buffers ?? []);
    // The kernel does not answer requests about the previous record, so cancel them.
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
    if (kernelArgs === null || signal?.aborted) return Promise.reject(abortError());
    const stored = name === "describe" ? this.#takeDescription() : null;
    if (stored) return Promise.resolve(stored);
    return new Promise((resolve, reject) => {
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
      this.#pending.push(pending);
      this.#sendNext();
    });
  }

  retry(): void {
    for (const pending of this.#pending.slice(0, MAX_IN_FLIGHT)) this.#send(pending);
    this.#notify();
  }

  stop(): void {
    for (const pending of this.#pending.filter(isLong)) {
      this.#cancel(pending);
      pending.reject(new Error("The computation was stopped."));
    }
  }

  /**
   * Return the arguments as the kernel expects them: the name of the stack does not contain the
   * number of its record. Return null if the stack belongs to a previous record.
   */
  #kernelArgs(args: object): object | null {
    const { stack } = args as { stack?: unknown };
    const number = this.record.peek();
    if (typeof stack !== "string" || number === 0) return args;
    const kernelName = withoutNumber(stack);
    return withNumber(kernelName, number) === stack ? { ...args, stack: kernelName } : null;
  }

  /**
   * Return the description that was sent with the widget. Return null if none was sent, if it
   * belongs to another record, or if an earlier call has returned it.
   */
  #takeDescription(): Reply | null {
    const { record = 0, ...header } = this.#description ?? { record: -1 };
    this.#description = null;
    return record === this.record.peek() ? { header, data: null } : null;
  }

  #cancelAll(): void {
    for (const pending of [...this.#pending]) {
      this.#finish(pending);
      pending.reject(abortError());
    }
  }

  #sendNext(): void {
    for (const pending of this.#pending.slice(0, MAX_IN_FLIGHT))
      if (pending.ids.length === 0) this.#send(pending);
  }

  #send(pending: Pending): void {
    const id = `${this.#prefix}-${this.#counter++}`;
    pending.ids.push(id);
    pending.timers.forEach(clearTimeout);
    pending.connection = "ready";
    const detached = isDetached(this.#model);
    const become = (connection: Connection): void => {
      pending.connection = detached ? "detached" : connection;
      this.#notify();
    };
    pending.timers = [
      setTimeout(become, WAITING_AFTER_MS, "waiting"),
      setTimeout(become, UNANSWERED_AFTER_MS, "unanswered"),
    ];
    // If the message cannot be sent, the timers report that the answer is missing. A retry sends
    // the request again.
    const { name, args } = pending;
    const record = this.record.peek();
    post(this.#model, { attnviz: "request", id, name, arguments: args, record });
  }

  #cancel(pending: Pending): void {
    this.#finish(pending);
    for (const id of pending.ids) post(this.#model, { attnviz: "cancel", id });
    // Callers often cancel several requests together. Send the next request after all of them are
    // removed from the queue. Otherwise a queued request could be sent just before it is cancelled,
    // and the kernel would compute it.
    queueMicrotask(() => this.#sendNext());
  }

  #finish(pending: Pending): void {
    pending.timers.forEach(clearTimeout);
    pending.release();
    this.#pending = this.#pending.filter((other) => other !== pending);
    this.#notify();
  }

  #receive({ attnviz, id, header, message }: Message, buffers: DataView[]): void {
    // A message with an unknown id answers a request of another tab, or a request that has ended.
    const pending = this.#pending.find(({ ids }) => ids.includes(id));
    if (!pending) return;
    const progress = (header as Partial<PendingHeader> | undefined)?.pending;
    if (progress) {
      this.#continue(pending, id, progress);
      return;
    }
    this.#finish(pending);
    if (attnviz === "reply") pending.resolve({ header, data: buffers[0] ?? null });
    else pending.reject(new Error(message));
    this.#sendNext();
  }

  /** Send an unfinished request again, so that the kernel continues to compute it. */
  #continue(pending: Pending, id: string, progress: ReplyProgress): void {
    // If a retry has sent the request again under a newer id, ignore progress of the earlier id.
    if (pending.ids.at(-1) !== id) return;
    if (pending.progress === null) pending.firstProgressAt = Date.now();
    pending.progress = progress;
    pending.report?.(progress);
    // The `report` callback may have cancelled the request.
    if (!this.#pending.includes(pending)) return;
    pending.ids.pop();
    this.#send(pending);
    this.#notify();
  }

  #notify(): void {
    const states = this.#pending.map((pending) => pending.connection);
    // A problem has precedence over progress, and progress over "waiting". Among several long
    // requests, report the progress of the first.
    const problem = (["detached", "unanswered"] as const).find((state) => states.includes(state));
    const progress = this.#pending.find(isLong)?.progress;
    this.connection.value =
      problem ?? progress ?? (states.includes("waiting") ? "waiting" : "ready");
  }
}

/**
 * Return whether the view shows the progress of a request. It does if the kernel first replied with
 * progress at least `WAITING_AFTER_MS` ago, and the request has no `report` callback.
 */
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
