/** Which point of a cloud is under the pointer, and which lie in a lasso. Pure functions. */

import type { Cloud, Projected, Room } from "./scatter";

/** Places of the screen sorted into squares, to find what is near without looking at all. */
export interface HitGrid {
  cell: number;
  columns: number;
  rows: number;
  /** Where each square's places begin in `places`, and where the last's end. */
  starts: Uint32Array;
  places: Uint32Array;
}

const HIT_CELL = 20;

/** Sorts what is in the room into squares. */
export function hitGrid({ x, y }: Projected, room: Room): HitGrid {
  const columns = Math.max(1, Math.ceil(room.width / HIT_CELL));
  const rows = Math.max(1, Math.ceil(room.height / HIT_CELL));
  const starts = new Uint32Array(columns * rows + 1);
  const cells = new Int32Array(x.length);
  for (let i = 0; i < x.length; i++) {
    const column = Math.floor((x[i] as number) / HIT_CELL);
    const row = Math.floor((y[i] as number) / HIT_CELL);
    const inside = column >= 0 && column < columns && row >= 0 && row < rows;
    const cell = inside ? row * columns + column : -1;
    cells[i] = cell;
    if (cell >= 0) starts[cell + 1] = (starts[cell + 1] as number) + 1;
  }
  for (let i = 1; i < starts.length; i++)
    starts[i] = (starts[i] as number) + (starts[i - 1] as number);
  const places = new Uint32Array(starts[columns * rows] as number);
  const next = starts.slice();
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i] as number;
    if (cell < 0) continue;
    places[next[cell] as number] = i;
    next[cell] = (next[cell] as number) + 1;
  }
  return { cell: HIT_CELL, columns, rows, starts, places };
}

/** The place nearest to (x, y) within `reach`, of equals the one drawn last; -1 for none. */
export function nearestPlace(
  grid: HitGrid,
  { x, y }: Projected,
  atX: number,
  atY: number,
  reach: number,
): number {
  let best = -1;
  let least = reach * reach;
  const clip = (value: number, count: number): number =>
    Math.max(0, Math.min(count - 1, Math.floor(value / grid.cell)));
  const [firstColumn, lastColumn] = [
    clip(atX - reach, grid.columns),
    clip(atX + reach, grid.columns),
  ];
  const [firstRow, lastRow] = [clip(atY - reach, grid.rows), clip(atY + reach, grid.rows)];
  for (let row = firstRow; row <= lastRow; row++) {
    const start = grid.starts[row * grid.columns + firstColumn] as number;
    const stop = grid.starts[row * grid.columns + lastColumn + 1] as number;
    for (let i = start; i < stop; i++) {
      const place = grid.places[i] as number;
      const away = ((x[place] as number) - atX) ** 2 + ((y[place] as number) - atY) ** 2;
      if (away < least || (away === least && place > best)) {
        best = place;
        least = away;
      }
    }
  }
  return best;
}

/** Whether any place lies in a box. */
export function anyWithin(
  grid: HitGrid,
  { x, y }: Projected,
  [left, top, right, bottom]: readonly [number, number, number, number],
): boolean {
  const clip = (value: number, count: number): number =>
    Math.max(0, Math.min(count - 1, Math.floor(value / grid.cell)));
  for (let row = clip(top, grid.rows); row <= clip(bottom, grid.rows); row++) {
    const start = grid.starts[row * grid.columns + clip(left, grid.columns)] as number;
    const stop = grid.starts[row * grid.columns + clip(right, grid.columns) + 1] as number;
    for (let i = start; i < stop; i++) {
      const place = grid.places[i] as number;
      const [px, py] = [x[place] as number, y[place] as number];
      if (px >= left && px <= right && py >= top && py <= bottom) return true;
    }
  }
  return false;
}

/** Corners of a lasso, x and y one after the other. */
export type Lasso = number[];

/** The lasso drawn on to (x, y); steps of less than 3 pixels are not worth a corner. */
export function drawnOn(lasso: Lasso, x: number, y: number): Lasso {
  const [lastX, lastY] = [lasso.at(-2), lasso.at(-1)];
  if (lastX !== undefined && lastY !== undefined && Math.hypot(x - lastX, y - lastY) < 3)
    return lasso;
  return [...lasso, x, y];
}

/** The points in a lasso, in rising order. A lasso of less than three corners holds none. */
export function inLasso(cloud: Cloud, { x, y }: Projected, lasso: Lasso): number[] {
  const corners = lasso.length / 2;
  if (corners < 3) return [];
  const xs = lasso.filter((_, i) => i % 2 === 0);
  const ys = lasso.filter((_, i) => i % 2 === 1);
  const [left, right, top, bottom] = [
    Math.min(...xs),
    Math.max(...xs),
    Math.min(...ys),
    Math.max(...ys),
  ];
  const found: number[] = [];
  for (let i = 0; i < cloud.count; i++) {
    const px = x[i] as number;
    const py = y[i] as number;
    if (!(px >= left && px <= right && py >= top && py <= bottom)) continue;
    let inside = false;
    for (let a = 0, b = corners - 1; a < corners; b = a++) {
      const [ax, ay, bx, by] = [xs[a], ys[a], xs[b], ys[b]] as [number, number, number, number];
      // A ray to the right crosses the edge.
      if (ay > py !== by > py && px < ((bx - ax) * (py - ay)) / (by - ay) + ax) inside = !inside;
    }
    if (inside) found.push(cloud.points[i] as number);
  }
  return found.sort((a, b) => a - b);
}
