import { describe, expect, it } from "vitest";
import type { HeadTrust } from "../../../../src/client/protocol";
import type { SmallPlot } from "../../../../src/views/embedding/client/requests";
import { tileDots, tileLook } from "../../../../src/views/embedding/overview/marks";
import {
  figureLines,
  figuresInShort,
  keyInWords,
  strengthOf,
} from "../../../../src/views/embedding/trust";
import { sentences } from "../../../builders";
import { trustFor } from "../kernel";

function trusted(correlation: number | null, recall: number | null): HeadTrust {
  return { ...trustFor(0, 0), plot: correlation, recall };
}

describe("the figures of a tile", () => {
  const trust = trusted(-0.834, 0.42);
  const both = new Map(
    [0.2, 0.3, 0.9].map((chance, i) => [`0:${i}`, { ...trust, recall_baseline: chance }]),
  );
  sentences({
    "r −0.83 · 42%": figuresInShort(trust, "words"),
    "distance with q·k: r −0.83, recall at 10: 42% (chance 30%)": figureLines({
      ...trust,
      recall_baseline: 0.3,
    }).join(", "),
    "no figure": figuresInShort(null, "words"),
    "Below each plot: r of distance with q·k (−1 is best), and how many of a query’s ten strongest keys are among its ten nearest (about 30% by chance). Plots with r near or above 0 are faint.":
      keyInWords(both),
  });
});

it("a head is fainter if its plot shows less of its attention", () => {
  const [good, fair, bad, wrong] = [-0.9, -0.3, 0, 0.4].map((r) => strengthOf(trusted(r, null)));
  expect(good).toBe(1);
  expect(fair).toBeLessThan(1);
  expect(bad).toBeLessThan(fair as number);
  expect([wrong, strengthOf(null)]).toEqual([bad, bad]);
});

describe("a tile's points", () => {
  // The corpus has eight points. The overview contains every second point, and two of these four
  // are keys.
  const look = (standsOut: Uint8Array | null) =>
    tileLook(
      Uint32Array.of(2, 0, 3, 1),
      2,
      { isKey: (point) => point >= 4 },
      {
        index: Uint8Array.of(0, 9, 1, 9, 2, 9, 3, 9),
        palette: ["#000000", "#111111", "#222222", "#333333"],
      },
      standsOut,
    );
  const head: SmallPlot = {
    layer: 0,
    head: 0,
    problem: null,
    coordinates: Uint8Array.of(0, 255, 0, 255, 0, 0, 255, 255),
  };
  const square = { x: 100, y: 0, side: 58 };

  it("lie in their square, larger values upwards", () => {
    const [mark] = tileDots(head, look(null), square, 1);
    // The edges of corner dots are 4 pixels inside the square, and their centres 4 + 2.6 pixels.
    expect(mark?.radius).toBe(2.6);
    const corners = Array.from(mark?.x ?? [], (x, i) => [x, mark?.y[i]]);
    const [left, right, top, bottom] = [106.6, 151.4, 6.6, 51.4].map((at) => expect.closeTo(at, 4));
    expect(corners).toEqual([
      [left, top],
      [left, bottom],
      [right, top],
      [right, bottom],
    ]);
    expect(mark?.area).toEqual({ x: 100, y: 0, width: 58, height: 58 });
  });

  it("are drawn over the others if they stand out", () => {
    const matches = Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0);
    const [back, front] = tileDots(head, look(matches), square, 1);
    const [whole] = tileDots(head, look(null), square, 1);
    expect([back?.count, front?.count]).toEqual([3, 1]);
    expect([...(front?.color ?? [])]).toEqual([2]);
    expect(back?.opacity).toBeLessThan(whole?.opacity as number);
    // If a search finds no point, all points are faint.
    const none = tileDots(head, look(new Uint8Array(8)), square, 1);
    expect(none).toHaveLength(1);
    expect(none[0]?.opacity).toBeLessThan(whole?.opacity as number);
  });
});
