/** Export of a page: its progress and its cancellation. */

import { expect, test } from "vitest";
import { KernelChannel, type MessageModel } from "../../../src/client/kernel";
import type { ReplyProgress } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Requests } from "../../../src/client/transport";
import { laterInWords } from "../../../src/ui/text/captions";

const LATER = { doing: "strongest keys", progress: 0.349, seconds_left: 37.2 };

test.each([
  [LATER, "strongest keys, 34%, about 40 s left"],
  [{ ...LATER, seconds_left: 6.1 }, "strongest keys, 34%, about 7 s left"],
  [{ ...LATER, seconds_left: 400 }, "strongest keys, 34%, about 7 min left"],
  [{ ...LATER, seconds_left: null }, "strongest keys, 34%"],
] as [ReplyProgress, string][])("describes the progress of a reply", (later, words) => {
  expect(laterInWords(later)).toBe(words);
});

/**
 * Model of a widget whose kernel exports a page. The export has two steps, and the reply has two
 * parts.
 */
class Maker implements MessageModel {
  readonly requestedParts: number[] = [];
  #listener: ((message: object, buffers?: DataView[]) => void) | null = null;
  on(event: string, listener: (...args: never[]) => void): void {
    if (event === "msg:custom") this.#listener = listener as never;
  }
  off(): void {}
  send(content: unknown): void {
    const { attnviz, id, arguments: args } = content as Record<string, unknown>;
    if (attnviz !== "request") return;
    const { part } = args as Requests["page"];
    this.requestedParts.push(part);
    const later = { ...LATER, progress: this.requestedParts.length / 4 };
    const header =
      this.requestedParts.length <= 2 ? { pending: later } : { parts: 2, name: "x.html" };
    const data = new TextEncoder().encode(part === 0 ? "first " : "second");
    const buffers = "parts" in header ? [new DataView(data.buffer)] : [];
    queueMicrotask(() => this.#listener?.({ attnviz: "reply", id, header }, buffers));
  }
}

test("asks until the page is made, and then for its parts", async () => {
  const maker = new Maker();
  const shares: number[] = [];
  const source = new Source(new KernelChannel(maker));
  const page = await source.page({}, undefined, ({ progress }) => shares.push(progress));
  expect([page.name, new TextDecoder().decode(page.bytes)]).toEqual(["x.html", "first second"]);
  expect(shares).toEqual([0.25, 0.5]);
  expect(maker.requestedParts).toEqual([0, 0, 0, 1]);
});

test("requests nothing after it is cancelled", async () => {
  const maker = new Maker();
  const controller = new AbortController();
  const source = new Source(new KernelChannel(maker));
  const page = source.page({}, controller.signal, () => controller.abort());
  await expect(page).rejects.toThrow();
  expect(maker.requestedParts).toEqual([0]);
});
