import { describe, expect, it } from "vitest";
import type { LineMark, Mark } from "../../../../src/draw/marks";
import { PALETTES } from "../../../../src/ui/colors/palette";
import type { Lines } from "../../../../src/views/embedding/client/requests";
import { lookOf } from "../../../../src/views/embedding/colors";
import {
  createCloud,
  mixedOrder,
  project,
  WHOLE,
} from "../../../../src/views/embedding/plot/cloud";
import {
  cloudMark,
  labelsOf,
  type Shown,
  standingMarks,
} from "../../../../src/views/embedding/plot/marks";
import { COUNT, corpusWith } from "../kernel";

const corpus = corpusWith();
const palette = PALETTES.light;
const ROOM = { width: 600, height: 400 };

/** Return a plot with six queries in an upper row and six keys below, filtered by `shows`. */
function shownOf(shows: (point: number) => boolean = () => true): Shown {
  const coordinates = Float32Array.from({ length: 2 * COUNT }, (_, i) => {
    const point = i >> 1;
    return i % 2 === 0 ? point % 6 : point < 6 ? 3 : 0;
  });
  const cloud = createCloud(coordinates, 2, mixedOrder(COUNT, shows));
  const index = Uint8Array.from({ length: COUNT }, (_, point) => (point < 6 ? 0 : 1));
  const colors = {
    ...{ name: "type", index, palette: ["#aa0000", "#0000aa"], scale: null, entries: [], note: "" },
    labelOf: () => null,
  };
  const projected = project(cloud, WHOLE, ROOM);
  const dots = cloudMark(cloud, lookOf(cloud.points, corpus, colors), projected, ROOM, 1);
  return { corpus, cloud, dots, zoom: 1, palette };
}

function linesTo(point: number, ends: [number, number][]): Lines {
  return {
    point,
    points: ends.map(([end]) => end),
    weights: ends.map(([, weight]) => weight),
    covered: 1,
  };
}

const nothing = { points: null, chosen: null, lines: null };
const lines = (marks: Mark[]): LineMark[] =>
  marks.filter((mark): mark is LineMark => mark.kind === "line");

describe("a chosen query", () => {
  const shown = shownOf();
  const chosen = {
    ...nothing,
    chosen: 3,
    lines: linesTo(3, [
      [9, 0.8],
      [6, 0.2],
      [8, 0.0001],
    ]),
  };

  it("has lines to its visible keys", () => {
    // The weight of the third key, 0.0001, is too small for a visible line.
    expect(lines(standingMarks(shown, chosen))).toHaveLength(2);
    const queries = shownOf((point) => point < 6);
    expect(lines(standingMarks(queries, chosen))).toEqual([]);
  });
});

it("each point has its own colour in any drawing order", () => {
  const { cloud, dots } = shownOf();
  const queries = cloud.points.map((point) => Number(point < 6));
  expect([...dots.color]).toEqual([...queries].map((isQuery) => 1 - isQuery));
});

it("labels do not overlap, and hide no points if possible", () => {
  const shown = shownOf();
  const labels = labelsOf(shown, nothing, -1);
  expect(labels.length).toBeGreaterThan(1);
  for (const a of labels)
    for (const b of labels)
      if (a !== b)
        expect(a.x + a.width <= b.x || b.x + b.width <= a.x || Math.abs(a.y - b.y) >= 16).toBe(
          true,
        );
  const { x, y } = shown.dots;
  for (const label of labels)
    x.forEach((px, i) => {
      const hidden = px >= label.x && px <= label.x + label.width;
      expect(hidden && Math.abs((y[i] as number) - label.y) < 8).toBe(false);
    });
});
