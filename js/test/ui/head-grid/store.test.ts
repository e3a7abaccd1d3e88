// @vitest-environment node
import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type { GridLayout, HeadGrid, HeadIndex } from "../../../src/ui/head-grid/grid";
import { createHeadGrid } from "../../../src/ui/head-grid/store";

const layout: GridLayout = {
  cell: 20,
  frame: 1,
  across: 25,
  down: 25,
  left: 50,
  top: 25,
  columns: 3,
  width: 125,
  height: 1025,
  boxWidth: 125,
  boxHeight: 225,
};

/** Grid with forty layers of three heads. In layer 0, head 0 is missing. */
const grid: HeadGrid = {
  stack: "self",
  columns: [0, 1, 2],
  rows: Array.from({ length: 40 }, (_, layer) =>
    [0, 1, 2].map((head) => (layer === 0 && head === 0 ? null : { layer, head, score: null })),
  ),
  shown: 119,
  offered: 119,
  all: 119,
  score: null,
};

function store(isOpen: boolean, at: HeadIndex | null = null) {
  const current = signal(at);
  const options = { grid: signal(grid), layout: signal(layout), current };
  return createHeadGrid({ ...options, isOpen: () => isOpen });
}

describe("the keyboard's cursor", () => {
  it("begins at the first existing head, or at the current one", () => {
    expect(store(false).position()).toEqual({ row: 0, column: 1 });
    expect(store(false, { layer: 7, head: 2 }).position()).toEqual({ row: 7, column: 2 });
    // A current head that is not in the grid is ignored.
    expect(store(false, { layer: 0, head: 0 }).position()).toEqual({ row: 0, column: 1 });
  });

  it("is only shown by the first key, and moved by the next", () => {
    const heads = store(false, { layer: 7, head: 2 });
    expect(heads.move(1, 0)).toEqual({ layer: 7, head: 2 });
    expect(heads.move(1, 0)).toEqual({ layer: 8, head: 2 });
    expect(heads.cursor.value).toEqual({ layer: 8, head: 2 });
    expect(heads.move(0, -99)).toEqual({ layer: 8, head: 0 });
  });

  it("moves at once if the current head is open", () => {
    expect(store(true, { layer: 7, head: 2 }).move(1, 0)).toEqual({ layer: 8, head: 2 });
  });
});

describe("the visible part", () => {
  it("follows scrolling by whole rows, and notifies once per row", () => {
    const heads = store(false);
    const seen: unknown[] = [];
    const stop = heads.sight.subscribe((value) => seen.push(value?.rows));
    heads.scroll.value = { x: 0, y: 3 };
    heads.scroll.value = { x: 0, y: 9 };
    heads.scroll.value = { x: 0, y: 500 };
    stop();
    // Eight rows fit into the box. One more row before and after them is rendered.
    expect(seen).toEqual([
      [0, 9],
      [0, 10],
      [19, 29],
    ]);
  });

  it("has cell ids that differ from those of another grid in the page", () => {
    expect(store(false).id).not.toBe(store(false).id);
  });
});
