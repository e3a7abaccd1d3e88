/**
 * The long texts of an exported page, which stand in elements apart from its data: a page is drawn
 * before the browser has read them all. `attnviz/pages/parts.py` sets them apart.
 */

import type { Connection } from "../carrier";
import { fromBase64, inflate } from "../codec";
import { idle } from "../idle";

/** The name that stands for a text: its place among the parts. base64 has no such character. */
const NAME = /^#(\d+)$/;

/** Bytes that were deflated: base64 of them, or the name of a part that is it. */
export async function inflatedText(text: string): Promise<Uint8Array> {
  return inflatedFirst(text) ?? inflate(fromBase64(await wholeText(text)));
}

/** What the page's loader inflated while it unpacked the code; each is held until it is asked for. */
function inflatedFirst(text: string): Uint8Array | undefined {
  const held = (globalThis as { attnvizPage?: { inflated?: Map<number, Uint8Array> } }).attnvizPage
    ?.inflated;
  const name = NAME.exec(text);
  if (!held || !name) return undefined;
  const place = Number(name[1]);
  const bytes = held.get(place);
  held.delete(place);
  return bytes;
}

/**
 * The text that a name stands for, once the browser has read it; another text as it is.
 *
 * @throws Error where the page ends before it.
 */
export async function wholeText(text: string): Promise<string> {
  const name = NAME.exec(text);
  if (!name) return text;
  const place = Number(name[1]);
  // As many as were read until now. The last one is no text, and ends the page.
  const parts = document.getElementsByClassName("attnviz-part");
  // What nothing follows may be read in part.
  while (!parts[place + 1] && !standsBeforeCode(parts[place])) {
    if (isWhole()) {
      throw new Error(
        "This file is not complete: these weights are missing. Copy or download it again.",
      );
    }
    await more();
  }
  // A part is a template, of which the text is beside the page.
  return (parts[place] as Partial<HTMLTemplateElement> | undefined)?.content?.textContent ?? "";
}

function standsBeforeCode(part: Element | undefined): boolean {
  const code = document.getElementById("attnviz-bundle");
  if (!part || !code) return false;
  return (part.compareDocumentPosition(code) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
}

/** Whether the browser has read the page to its end. */
function isWhole(): boolean {
  return globalThis.document?.readyState !== "loading";
}

/** Once the browser has read the page to its end, and nothing else is to be done. */
export async function atRest(): Promise<void> {
  if (!isWhole()) {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
  }
  await idle();
}

/** What takes longer is said; what is there, or nearly, would only flicker. */
const LATE_MS = 300;

/** Answers of a page that is being read, and whether the reader waits for one. */
export class Answering {
  readonly #listeners = new Set<(connection: Connection) => void>();
  #late = 0;

  watch(listener: (connection: Connection) => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
    listener(this.#connection);
  }

  /** An answer, unless it is not wanted any more when it comes. */
  async of<T>(answer: T | Promise<T>, signal?: AbortSignal): Promise<T> {
    if (isWhole()) {
      const given = await answer;
      signal?.throwIfAborted();
      return given;
    }
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#count(1);
    }, LATE_MS);
    try {
      return await Promise.race([answer, aborted(signal)]);
    } finally {
      clearTimeout(timer);
      if (isLate) this.#count(-1);
    }
  }

  get #connection(): Connection {
    return this.#late > 0 ? "loading" : "ready";
  }

  #count(change: number): void {
    const before = this.#connection;
    this.#late += change;
    if (this.#connection === before) return;
    for (const listener of this.#listeners) listener(this.#connection);
  }
}

/** Is rejected when the signal is aborted. */
function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    if (signal?.aborted) reject(signal.reason);
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}

/** When the browser has read on, or has come to the end. */
function more(): Promise<void> {
  return new Promise((resolve) => {
    const observer = new MutationObserver(done);
    function done(): void {
      observer.disconnect();
      document.removeEventListener("DOMContentLoaded", done);
      resolve();
    }
    observer.observe(document.body, { childList: true });
    document.addEventListener("DOMContentLoaded", done);
  });
}
