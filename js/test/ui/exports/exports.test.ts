/** Tests of the export of a page: its parts, progress and cancellation. */

import { expect, it } from "vitest";
import { KernelChannel } from "../../../src/client/kernel";
import { Source } from "../../../src/client/source";
import type { Requests } from "../../../src/client/transport";
import { laterInWords } from "../../../src/ui/text/captions";
import { WidgetModel } from "../../fakes";

const LATER = { doing: "strongest keys", progress: 0.349, seconds_left: 37.2 };

it("describes the progress of a reply, with the seconds or minutes that are left", () => {
  const seconds = { ...LATER, seconds_left: 6.1 };
  expect(laterInWords(seconds)).toBe("strongest keys, 34%, about 7 s left");
  const minutes = { ...LATER, seconds_left: 400 };
  expect(laterInWords(minutes)).toBe("strongest keys, 34%, about 7 min left");
});

/**
 * Fake model of a widget whose kernel exports a page. The first two replies only state progress.
 * The next two contain the parts of the page.
 */
class Exporter extends WidgetModel {
  readonly requestedParts: number[] = [];

  override send(content: unknown): void {
    const { attnviz, id, arguments: args } = content as Record<string, unknown>;
    if (attnviz !== "request") return;
    const { part } = args as Requests["page"];
    const count = this.requestedParts.push(part);
    const isPending = count <= 2;
    const pending = { ...LATER, progress: count / 4 };
    const header = isPending ? { pending } : { parts: 2, name: "x.html" };
    const data = new TextEncoder().encode(part === 0 ? "first " : "second");
    const buffers = isPending ? [] : [new DataView(data.buffer)];
    queueMicrotask(() => this.emit("msg:custom", { attnviz: "reply", id, header }, buffers));
  }
}

it("requests a page until it is made, and then its parts", async () => {
  const model = new Exporter();
  const shares: number[] = [];
  const source = new Source(new KernelChannel(model));
  const page = await source.page({}, undefined, ({ progress }) => shares.push(progress));
  expect([page.name, new TextDecoder().decode(page.bytes)]).toEqual(["x.html", "first second"]);
  expect(shares).toEqual([0.25, 0.5]);
  expect(model.requestedParts).toEqual([0, 0, 0, 1]);
});

it("requests nothing after it is cancelled", async () => {
  const model = new Exporter();
  const controller = new AbortController();
  const source = new Source(new KernelChannel(model));
  const page = source.page({}, controller.signal, () => controller.abort());
  await expect(page).rejects.toThrow();
  expect(model.requestedParts).toEqual([0]);
});
