/** Tests that compare a small corpus from a kernel and from a page with numbers of a fixture. */
// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { fromBase64 } from "../../../../src/client/codec";
import type { LinesRequest } from "../../../../src/client/protocol";
import { Source } from "../../../../src/client/source";
import type { Transport } from "../../../../src/client/transport";
import {
  corpusOf,
  linesOf,
  normsOf,
  projectionOf,
  smallPlotsOf,
} from "../../../../src/views/embedding/client/requests";
import { transportOf } from "../../../builders";
import { FIXTURE, PCA, PLACING, page, type Values } from "./recorded";

const HEADS = Object.entries(FIXTURE.values).map(([key, values]) => {
  const [layer, head] = key.split(":").map(Number) as [number, number];
  return { selection: { stack: "self", layer, head }, values };
});

/** Return whether the arguments of two requests are equal, in any order of their names. */
function alike(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return a === b;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const names = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...names].every((name) => alike(left[name], right[name]));
}

/** Transport of a kernel that sends the replies of `FIXTURE`. */
const live = transportOf(async (name, args) => {
  if (name === "points") {
    return { header: { parts: 1 }, data: deflateSync(JSON.stringify(FIXTURE.corpus)) };
  }
  const reply = FIXTURE.live[name]?.find((recorded) => alike(recorded.arguments, args));
  if (!reply) throw new Error(`No ${name} was recorded of ${JSON.stringify(args)}.`);
  return { header: reply.header, data: reply.data ? fromBase64(reply.data) : null };
});

/** Largest rounding error of codes with two bytes, as a share of the coded range. */
const WORD = 0.5 / 65_535;

/** Yield text, position and token of every query point, in the order of the points. */
function* tokens(): Generator<[number, number, string]> {
  for (const [text, { tokens }] of FIXTURE.texts.entries())
    for (const [position, token] of tokens.entries()) yield [text, position, token];
}

const TRANSPORTS: [string, () => Transport][] = [
  ["a kernel", () => live],
  ["a page", page],
];

describe.each(TRANSPORTS)("the corpus of %s", (_, transportOf) => {
  const source = new Source(transportOf());

  it("has the tokens of its texts", async () => {
    const corpus = await corpusOf(source, { stack: "self" });
    const all = [...tokens()];
    expect(corpus.count).toBe(2 * all.length);
    for (const [i, [text, position, token]] of all.entries()) {
      for (const point of [i, i + all.length]) {
        expect(corpus.tokenOf(point)).toBe(token);
        expect([corpus.textOf(point), corpus.positionOf(point)]).toEqual([text, position]);
      }
      expect(corpus.pointOf("query", text, position)).toBe(i);
      expect(corpus.pointOf("key", text, position)).toBe(i + all.length);
    }
    expect(corpus.numTexts).toBe(FIXTURE.texts.length);
  });

  it.each(HEADS)("has the coordinates of $selection", async ({ selection, values }) => {
    const plot = await projectionOf(source, { ...selection, placing: PLACING, ...PCA });
    expect(plot.count).toBe(values.coordinates.length);
    values.coordinates.forEach(([x, y], point) => {
      const [left, up] = plot.coordinates.subarray(2 * point, 2 * point + 2);
      // The tolerance is the rounding error of the codes plus that of float32.
      expect(Math.abs((left as number) - x)).toBeLessThan(plot.size * WORD + 1e-5);
      expect(Math.abs((up as number) - y)).toBeLessThan(plot.size * WORD + 1e-5);
    });
  });

  it.each(HEADS)("has the small plot of $selection", async ({ selection, values }) => {
    const corpus = await corpusOf(source, { stack: "self" });
    const plots = await smallPlotsOf(source, corpus, { layer: selection.layer, placing: PLACING });
    const tile = plots[selection.head];
    expect(tile).toMatchObject({ layer: selection.layer, head: selection.head });
    const { low, size } = await projectionOf(source, { ...selection, placing: PLACING, ...PCA });
    values.coordinates.flat().forEach((value, i) => {
      // The overview has only the high byte of the code, so the value is in a range of 256 codes.
      const code = (65_535 * (value - (low[i % 2] as number))) / size;
      const [point, axis] = [Math.floor(i / 2), i % 2];
      const first = 256 * (tile?.coordinates[axis * values.coordinates.length + point] as number);
      expect(code > first - 1 && code < first + 256).toBe(true);
    });
  });

  it.each(HEADS)("has the norms of $selection", async ({ selection, values }) => {
    const norms = await normsOf(source, selection);
    const range = Math.max(...values.norms) - Math.min(...values.norms);
    values.norms.forEach((norm, point) => {
      const error = Math.abs((norms[point] as number) - norm);
      expect(error).toBeLessThan(range * WORD + 1e-6);
    });
  });
});

describe("the strongest keys of a query", () => {
  const all = [...tokens()];

  /**
   * Return the point and the weight of each key with a nonzero weight, the largest weight first.
   * `point` is the point of the query.
   */
  function strongest(values: Values, point: number): [number, number][] {
    const [text, position] = all[point] as [number, number, string];
    const first = all.findIndex(([other]) => other === text);
    const row = values.weights[text]?.[position] ?? [];
    return row
      .map((weight, key): [number, number] => [all.length + first + key, weight])
      .filter(([, weight]) => weight > 0)
      .sort((a, b) => b[1] - a[1]);
  }

  it.each(HEADS)("are in a page for $selection", async ({ selection, values }) => {
    const source = new Source(page());
    const corpus = await corpusOf(source, { stack: "self" });
    for (let point = 0; point < all.length; point++) {
      const lines = await linesOf(source, corpus, { ...selection, point });
      const expected = strongest(values, point).slice(0, FIXTURE.page.top_keys);
      // A page omits weights that are rounded to the code 0.
      const seen = expected.filter(([, weight]) => weight > WORD);
      expect([...lines.points]).toEqual(seen.map(([key]) => key));
      seen.forEach(([, weight], rank) => {
        expect(Math.abs((lines.weights[rank] as number) - weight)).toBeLessThan(WORD + 1e-6);
      });
    }
  });

  it("are sent by a kernel", async () => {
    const ofQueries = (FIXTURE.live.lines ?? [])
      .map((reply) => reply.arguments as unknown as LinesRequest)
      .filter(({ point }) => point < all.length);
    expect(ofQueries.length).toBeGreaterThan(0);
    for (const request of ofQueries) {
      const values = FIXTURE.values[`${request.layer}:${request.head}`] as Values;
      const source = new Source(live);
      const corpus = await corpusOf(source, { stack: "self" });
      const lines = await linesOf(source, corpus, request);
      const expected = strongest(values, request.point);
      expect([...lines.points]).toEqual(expected.map(([key]) => key));
      expect([...lines.weights]).toEqual(expected.map(([, weight]) => expect.closeTo(weight, 5)));
    }
  });
});
