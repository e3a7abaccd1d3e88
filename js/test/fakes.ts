/** Fakes of a kernel and of a widget's model. */

import type { ReadRequest } from "../src/client/protocol";
import type { Reply, Transport } from "../src/client/transport";

/** Return the name of a request, or of a read the name of its reduction or "block". */
export function kindOf(name: string, args: object): string {
  return name === "read" ? ((args as ReadRequest).reduce?.kind ?? "block") : name;
}

/** Fake kernel, which lists its requests. Tests decide which replies are delayed or fail. */
export abstract class FakeKernel implements Transport {
  live = true;
  /**
   * Name and arguments of each request. A read has the name of its reduction, or "block" without
   * one, also for `held`, `failing` and `reply`.
   */
  readonly asked: [string, Record<string, unknown>][] = [];
  /** Function that returns whether a request with this name is delayed until `release`. */
  held: (name: string) => boolean = () => false;
  /** Delayed requests, oldest first. */
  waiting: { name: string; release: () => void }[] = [];
  /** Names of the delayed requests that were cancelled. */
  readonly aborted: string[] = [];
  /** Error message for each name of a request that fails. */
  failing: Record<string, string> = {};

  async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    const kind = kindOf(name, args);
    this.asked.push([kind, args as Record<string, unknown>]);
    if (this.held(kind)) await this.#delay(kind, ended);
    const failure = this.failing[kind];
    if (failure) throw new Error(failure);
    return this.reply(kind, args);
  }

  /** Return the arguments of all requests that have this name. */
  of(name: string): Record<string, unknown>[] {
    return this.asked.filter(([asked]) => asked === name).map(([, args]) => args);
  }

  /** Reply to the oldest delayed request. */
  release(): void {
    this.waiting.shift()?.release();
  }

  protected abstract reply(name: string, args: object): Reply | Promise<Reply>;

  #delay(name: string, ended?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const entry = { name, release: resolve };
      this.waiting.push(entry);
      ended?.addEventListener("abort", () => {
        this.aborted.push(name);
        this.waiting = this.waiting.filter((other) => other !== entry);
        reject(new DOMException("cancelled", "AbortError"));
      });
    });
  }
}

type Listener = (...args: unknown[]) => void;

/** Fake of a widget's model. It has traits and listeners, and lists the messages that are sent. */
export class WidgetModel {
  readonly values: Record<string, unknown>;
  readonly sent: unknown[] = [];
  numSaves = 0;
  readonly #listeners = new Map<string, Set<Listener>>();

  constructor(values: Record<string, unknown> = {}) {
    this.values = values;
  }

  get(name: string): unknown {
    return this.values[name];
  }

  /** Set a trait, and call its listeners if the value differs. */
  set(name: string, value: unknown): void {
    this.receive({ [name]: value });
  }

  /** Set several traits like a message of the kernel: set all values, then call the listeners. */
  receive(values: Record<string, unknown>): void {
    const differs = (name: string): boolean =>
      JSON.stringify(this.values[name]) !== JSON.stringify(values[name]);
    const changed = Object.keys(values).filter(differs);
    Object.assign(this.values, values);
    for (const name of changed) this.emit(`change:${name}`);
  }

  save_changes(): void {
    this.numSaves++;
  }

  send(content: unknown): void {
    this.sent.push(content);
  }

  on(event: string, listener: (...args: never[]) => void): void {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners.add(listener as Listener));
  }

  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void {
    this.#listeners.get(event ?? "")?.delete(listener as Listener);
  }

  emit(event: string, ...args: unknown[]): void {
    for (const listener of this.#listeners.get(event) ?? []) listener(...args);
  }

  get numListeners(): number {
    return [...this.#listeners.values()].reduce((sum, { size }) => sum + size, 0);
  }
}
