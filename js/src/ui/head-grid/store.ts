/** The live state of a grid of heads: what of it is in sight, and where the keyboard is. */

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
  /** Whether the current head stands out, so that the first key already moves on from it. */
  isOpen?: () => boolean;
}) {
  const { grid, layout, current, isOpen = () => false } = options;
  const scroll = signal({ x: 0, y: 0 });
  const cursor = signal<HeadIndex | null>(null);
  // As text, so that scrolling within a row changes nothing.
  const sightText = computed(() =>
    layout.value && grid.value
      ? JSON.stringify(sightOf(layout.value, grid.value.rows.length, scroll.value))
      : "null",
  );
  const position = (): GridPosition | null => {
    const now = grid.peek();
    if (!now) return null;
    const found = findCell(now, cursor.peek()) ?? findCell(now, current.peek());
    if (found) return found;
    const first = now.rows.findIndex((row) => row.some((cell) => cell !== null));
    return first < 0 ? null : { row: first, column: now.rows[first]?.findIndex(Boolean) ?? 0 };
  };
  return {
    /** The start of the names that its cells have in the page. */
    id: `av-grid-${instances++}`,
    grid,
    layout,
    sight: computed<Sight | null>(() => JSON.parse(sightText.value)),
    scroll,
    /** The head that the view is at, and the one that the keyboard is at. */
    current,
    cursor,
    /** Where the cursor is or would begin: at the current head, or the first. */
    position,
    /** Moves the cursor; null where there is no head. */
    move: (rows: number, columns: number): HeadIndex | null => {
      const now = grid.peek();
      const from = position();
      if (!now || !from) return null;
      // The first press only shows where the keyboard is.
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
