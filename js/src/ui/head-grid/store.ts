/**
 * State of a grid of heads: its visible part, the head that the view shows (the current head), and
 * the head at the keyboard cursor.
 */

import { computed, type ReadonlySignal, signal, untracked } from "@preact/signals";
import {
  findCell,
  type GridLayout,
  type GridPosition,
  type HeadGrid,
  type HeadIndex,
  type Sight,
  sightOf,
  stepCell,
} from "./grid";

let instances = 0;

export function createHeadGrid(options: {
  grid: ReadonlySignal<HeadGrid | null>;
  layout: ReadonlySignal<GridLayout | null>;
  current: ReadonlySignal<HeadIndex | null>;
  /**
   * Return whether the view highlights the current head. If so, the first arrow key moves the
   * cursor. Otherwise the first arrow key only shows the cursor.
   */
  isOpen?: () => boolean;
}) {
  const { grid, layout, current, isOpen = () => false } = options;
  const scroll = signal({ x: 0, y: 0 });
  const cursor = signal<HeadIndex | null>(null);
  // The value is a string, so the signal does not change while the reader scrolls within a row.
  const sightText = computed(() =>
    layout.value && grid.value
      ? JSON.stringify(sightOf(layout.value, grid.value.rows.length, scroll.value))
      : "null",
  );
  const position = (): GridPosition | null => {
    const now = grid.peek();
    if (!now) return null;
    const target = findCell(now, cursor.peek()) ?? findCell(now, current.peek());
    if (target) return target;
    const first = now.rows.findIndex((row) => row.some((cell) => cell !== null));
    return first < 0 ? null : { row: first, column: now.rows[first]?.findIndex(Boolean) ?? 0 };
  };
  return {
    /** Prefix of the element ids of the cells. */
    id: `av-grid-${instances++}`,
    grid,
    layout,
    sight: computed<Sight | null>(() => JSON.parse(sightText.value)),
    scroll,
    /** Head that the view shows, and head at the keyboard cursor. */
    current,
    cursor,
    /**
     * Return the position of the cursor if the grid has it, else that of the current head if the
     * grid has it, else that of the first cell. Return null without cells.
     */
    position,
    /** Move the cursor by a number of rows and columns. Return its head, or null without cells. */
    move: (rows: number, columns: number): HeadIndex | null => {
      const now = grid.peek();
      const from = position();
      if (!now || !from) return null;
      // The first arrow key only shows the cursor, unless the current head is highlighted.
      const fresh = cursor.peek() === null && !untracked(isOpen);
      const to = fresh ? from : stepCell(now, from, rows, columns);
      const cell = now.rows[to.row]?.[to.column];
      if (!cell) return null;
      const { layer, head } = cell;
      cursor.value = { layer, head };
      return cursor.value;
    },
  };
}

export type HeadGridStore = ReturnType<typeof createHeadGrid>;
