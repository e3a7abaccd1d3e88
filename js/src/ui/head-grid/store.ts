/**
 * State of a grid of heads: the part of it that is in the document, the head that the view shows
 * (the current head), and the head at the keyboard cursor.
 */

import { type ReadonlySignal, signal } from "@preact/signals";
import { createRef } from "preact";
import { computedValue } from "../view/state";
import {
  findCell,
  type GridLayout,
  type GridPosition,
  type HeadGrid,
  type HeadIndex,
  sightOf,
  stepCell,
} from "./grid";

let instances = 0;

export function createHeadGrid(options: {
  grid: ReadonlySignal<HeadGrid | null>;
  layout: ReadonlySignal<GridLayout | null>;
  current: ReadonlySignal<HeadIndex | null>;
  /**
   * Whether the view highlights the current head. If a current head is highlighted, the first arrow
   * key sets the cursor beside it. If not, the first arrow key only shows the cursor, at the
   * current head or the first head of the grid.
   */
  highlighted?: boolean;
}) {
  const { grid, layout, current, highlighted = false } = options;
  const scroll = signal({ x: 0, y: 0 });
  const cursor = signal<HeadIndex | null>(null);
  const position = (): GridPosition | null => {
    const now = grid.peek();
    if (!now) return null;
    const target = findCell(now, cursor.peek()) ?? findCell(now, current.peek());
    if (target) return target;
    const first = now.rows.findIndex((row) => row.some((cell) => cell !== null));
    return first < 0 ? null : { row: first, column: now.rows[first]?.findIndex(Boolean) ?? 0 };
  };
  return {
    /** Element of the scroll box. It receives the keyboard focus in place of the cells. */
    box: createRef<HTMLDivElement>(),
    /** Prefix of the element ids of the cells. */
    id: `av-grid-${instances++}`,
    grid,
    layout,
    // Rows and chunks that are in the document: the visible ones, and one more row above and below
    // (see `Sight`). A chunk is a group of adjacent columns. The signal changes only if these
    // ranges change, not with every pixel of scrolling.
    sight: computedValue(() =>
      layout.value && grid.value
        ? sightOf(layout.value, grid.value.rows.length, scroll.value)
        : null,
    ),
    scroll,
    current,
    cursor,
    /**
     * Return the row and the column of the head at the cursor. If the grid does not show this head,
     * return those of the current head or, if the grid does not show that one either, of the first
     * head. Return null if the grid has no heads.
     */
    position,
    /**
     * Move the cursor by a number of rows and columns. If there is no cursor yet and no head is
     * highlighted, only show the cursor. Return the head at the cursor, or null if the grid has no
     * heads.
     */
    move: (rows: number, columns: number): HeadIndex | null => {
      const now = grid.peek();
      const from = position();
      if (!now || !from) return null;
      const isVisible = cursor.peek() !== null || (highlighted && current.peek() !== null);
      const to = isVisible ? stepCell(now, from, rows, columns) : from;
      const cell = now.rows[to.row]?.[to.column];
      if (!cell) return null;
      const { score: _, ...head } = cell;
      cursor.value = head;
      return cursor.value;
    },
  };
}

export type HeadGridStore = ReturnType<typeof createHeadGrid>;
