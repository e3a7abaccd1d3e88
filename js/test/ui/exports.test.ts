/** How a page that is being made is told of. */

import { expect, test } from "vitest";
import type { Carrier, Reply, Requests } from "../../src/client/carrier";
import type { PageHeader } from "../../src/client/protocol";
import { Source } from "../../src/client/source";
import { inWords } from "../../src/ui/exports";

const HEADER = { parts: 0, name: "", doing: "strongest keys", progress: 0.349, seconds_left: 37.2 };

test.each([
  [HEADER, "Making the page: strongest keys, 34%, about 40 s left."],
  [{ ...HEADER, seconds_left: 6.1 }, "Making the page: strongest keys, 34%, about 7 s left."],
  [{ ...HEADER, seconds_left: 400 }, "Making the page: strongest keys, 34%, about 7 min left."],
  [{ ...HEADER, seconds_left: null }, "Making the page: strongest keys, 34%."],
  [{ parts: 0, name: "" }, "Making the page …"],
] as [PageHeader, string][])("says how far a page is", (header, words) => {
  expect(inWords(header)).toBe(words);
});

/** Answers requests for a page: two moments of work, and two parts. */
class Maker implements Carrier {
  readonly live = true;
  readonly asked: number[] = [];
  async ask(_: string, args: object, signal?: AbortSignal): Promise<Reply> {
    signal?.throwIfAborted();
    const { part } = args as Requests["page"];
    this.asked.push(part);
    if (this.asked.length <= 2) {
      return { header: { ...HEADER, progress: this.asked.length / 4 }, data: null };
    }
    const data = new TextEncoder().encode(part === 0 ? "first " : "second");
    return { header: { parts: 2, name: "x.html" }, data };
  }
  retry(): void {}
  watch(): void {}
}

test("asks until the page is made, and then for its parts", async () => {
  const maker = new Maker();
  const shares: (number | undefined)[] = [];
  const source = new Source(maker);
  const page = await source.page({}, undefined, ({ progress }) => shares.push(progress));
  expect([page.name, new TextDecoder().decode(page.bytes)]).toEqual(["x.html", "first second"]);
  expect(shares).toEqual([0.25, 0.5]);
  expect(maker.asked).toEqual([0, 0, 0, 1]);
});

test("asks for nothing more once it is given up", async () => {
  const maker = new Maker();
  const given = new AbortController();
  const page = new Source(maker).page({}, given.signal, () => given.abort());
  await expect(page).rejects.toThrow();
  expect(maker.asked).toEqual([0]);
});
