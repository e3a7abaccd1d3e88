import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../../src/client/protocol";
import {
  findCell,
  type GridLayout,
  type IncludeHeads,
  layerGrid,
  offeredHeads,
  rankedCells,
  rowKind,
  stepCell,
} from "../../../src/ui/head-grid/grid";
import { layersOf } from "../../../src/ui/view/model-layers";
import { stackOf, tokensOf } from "../../builders";

function withHeads(heads: Record<number, number>): StackDescription {
  return stackOf({
    layers: Object.keys(heads).map(Number),
    heads_per_layer: Object.values(heads),
    query_tokens: tokensOf(["a", "b"]),
  });
}

const ragged = withHeads({ 0: 3, 2: 1, 7: 2 });

describe("the arrangement of heads", () => {
  it("shows the included heads, in all layers or by layer", () => {
    const offered = (include: IncludeHeads) =>
      ragged.layers.map((layer) => offeredHeads(ragged, layer, include));
    expect(offered([1, 2])).toEqual([[1, 2], [], [1]]);
    expect(offered({ "0": [2], "7": [0, 9] })).toEqual([[2], [], [0]]);
    const grid = layerGrid(layersOf({}, [ragged]), { "0": [2], "7": [0] });
    // The grid has no rows and columns without an included head.
    expect(grid.columns).toEqual([0, 2]);
    expect(grid.rows).toHaveLength(2);
    expect([grid.shown, grid.all]).toEqual([2, 6]);
  });

  const all = layerGrid(layersOf({}, [ragged]));
  const gap = layerGrid(layersOf({}, [ragged]), { "0": [0, 2], "7": [1] });
  it.each([
    ["to the nearest head", all, [0, 2], [1, 0], [1, 0]],
    ["to no head", all, [1, 0], [0, 1], [1, 0]],
    ["over the first layer", all, [0, 0], [-1, 0], [0, 0]],
    ["over the last layer", all, [0, 0], [99, 0], [2, 0]],
    ["over the last head", all, [0, 0], [0, Number.MAX_SAFE_INTEGER], [0, 2]],
    ["over an empty cell", gap, [0, 0], [0, 1], [0, 2]],
  ] as const)("steps %s", (_, grid, [row, column], [down, right], expected) => {
    const cell = stepCell(grid, { row, column }, down, right);
    expect([cell.row, cell.column]).toEqual(expected);
  });
});

it("heads are ordered by their own scores", () => {
  // Scores of the heads in the layers 0, 2 and 7.
  const scores = [[0.1, 0.5, 0.2], [0.9], [null, 0.5]];
  const ranked = rankedCells(ragged, scores);
  expect(ranked.map(({ layer, head }) => `${layer}.${head}`)).toEqual([
    "2.0",
    "0.1",
    "7.1",
    "0.2",
    "0.0",
    "7.0",
  ]);
});

it("the layers of sibling stacks are in one grid, in the order of the model", () => {
  const linear = { ...withHeads({ 1: 4, 2: 2 }), name: "linear" };
  const siblings = [
    [
      { name: "self", linear: false },
      { name: "linear", linear: true },
    ],
  ];
  const layers = layersOf({ siblings }, [ragged, linear]);
  const include = { "0": [0, 1, 2], "1": [1, 3], "2": [0, 1], "7": [0, 1] };
  const grid = layerGrid(layers, include);
  const heads = grid.rows.map((row) => row.map((cell) => cell?.head ?? null));
  expect(grid.columns).toEqual([0, 1, 2, 3]);
  expect(heads).toEqual([
    [0, 1, 2, null],
    [null, 1, null, 3],
    [0, null, null, null],
    [0, 1, null, null],
    [0, 1, null, null],
  ]);
  expect(grid.rows.map((row) => row.find(Boolean)?.layer)).toEqual([0, 1, 2, 2, 7]);
  expect([grid.shown, grid.all]).toEqual([10, 12]);
  // The two heads differ only in their stacks.
  expect(findCell(grid, { layer: 2, head: 1, stack: "linear" })).toEqual({ row: 3, column: 1 });
  expect(findCell(grid, { layer: 2, head: 1, stack: "self" })).toBe(null);
  const words = grid.rows.map((row) => rowKind(row, grid, { kinds: 60 } as GridLayout).word);
  expect(words).toEqual(["", "linear", "", "linear", ""]);
  expect(layerGrid(layersOf({ siblings }, [ragged])).kinds).toBeUndefined();
});
