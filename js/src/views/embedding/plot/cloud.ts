/**
 * Geometry of a cloud of points on the screen: positions, sizes and opacities of dots, and the
 * points under the pointer.
 *
 * `point` is the number of a point in the corpus, and `index` its index in the drawing order. The
 * functions are pure and use typed arrays, because a cloud may have hundreds of thousands of
 * points.
 */

/** Drawn points in drawing order, with coordinates scaled to [-1, 1]. */
export interface Cloud {
  dimensions: 2 | 3;
  count: number;
  /** Number of the point at each index of the drawing order. */
  points: Uint32Array;
  /**
   * `dimensions` coordinates per index, relative to the centre of all points. NaN if a point has no
   * coordinates.
   */
  units: Float32Array;
  /**
   * Largest horizontal and largest vertical distance of a point from the centre. The larger of the
   * two is 1. In three dimensions both are 1.
   */
  reach: [number, number];
  /** Density around the median point, in points per unit of area. */
  crowd: number;
}

/** Camera of the plot. */
export interface Camera {
  /** Location in the cloud that is at the centre of the picture, on the scale of `Cloud.units`. */
  x: number;
  y: number;
  /** Magnification. At 1 the picture shows all points. */
  zoom: number;
  /**
   * 3 by 3 rotation matrix of a three-dimensional cloud, row by row. The rows are the directions to
   * the right, upwards, and towards the viewer.
   */
  turn: Float64Array;
}

/** Size of the picture in pixels. */
export interface Room {
  width: number;
  height: number;
}

/** Positions of a cloud's points in the picture, in pixels and in drawing order. */
export interface Projected {
  x: Float32Array;
  y: Float32Array;
  /** Nearness from 0 (most distant) to 255 (nearest), or null in two dimensions. */
  near: Uint8Array | null;
}

/** Margin in pixels around the points when all are visible. */
const MARGIN = 22;
/**
 * Distance of the viewer from the centre in three dimensions, on the scale of `Cloud.units`. It
 * determines the perspective, which enlarges what is near the viewer.
 */
const DISTANCE = 4;
const MIN_ZOOM = 0.4;
const MAX_ZOOM = 400;
/** Rotation in radians per pixel of dragging. */
const TURN_PER_PIXEL = 0.008;

/**
 * Return the drawn points in random order, so that keys do not hide queries. Every call uses the
 * same random numbers.
 *
 * @param shown whether a point is drawn.
 */
export function mixedOrder(count: number, shown: (point: number) => boolean): Uint32Array {
  const order = new Uint32Array(count);
  let length = 0;
  for (let point = 0; point < count; point++) if (shown(point)) order[length++] = point;
  let state = 0x9e3779b9;
  for (let i = length - 1; i > 0; i--) {
    // Linear congruential generator with Knuth's constants. The index is taken from the high bits
    // of its state, which are more random than the low bits.
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    const other = order[j] as number;
    order[j] = order[i] as number;
    order[i] = other;
  }
  return order.subarray(0, length);
}

/** Create the cloud of the points in `order` from the coordinates of all points. */
export function createCloud(
  coordinates: Float32Array,
  dimensions: 2 | 3,
  order: Uint32Array,
): Cloud {
  const low = new Float64Array(3).fill(Number.POSITIVE_INFINITY);
  const high = new Float64Array(3).fill(Number.NEGATIVE_INFINITY);
  // Scale by the extent of all points, drawn or not, so that a filter does not move the points that
  // stay.
  for (let i = 0; i < coordinates.length; i++) {
    const value = coordinates[i] as number;
    const axis = i % dimensions;
    if (value < (low[axis] as number)) low[axis] = value;
    if (value > (high[axis] as number)) high[axis] = value;
  }
  const middle = Array.from(low, (value, axis) => (value + (high[axis] as number)) / 2);
  let half = 0;
  if (dimensions === 2) {
    for (let axis = 0; axis < 2; axis++)
      half = Math.max(half, ((high[axis] as number) - (low[axis] as number)) / 2);
  } else {
    for (let at = 0; at < coordinates.length; at += 3) {
      const far = Math.hypot(
        ...middle.map((value, axis) => (coordinates[at + axis] as number) - value),
      );
      if (far > half) half = far;
    }
  }
  const scale = half > 0 && Number.isFinite(half) ? 1 / half : 1;
  const count = order.length;
  const units = new Float32Array(count * dimensions);
  for (let index = 0; index < count; index++) {
    const from = (order[index] as number) * dimensions;
    for (let axis = 0; axis < dimensions; axis++)
      units[index * dimensions + axis] =
        ((coordinates[from + axis] as number) - (middle[axis] as number)) * scale;
  }
  const span = (axis: number): number => {
    const halfSpan = (((high[axis] as number) - (low[axis] as number)) / 2) * scale;
    return Number.isFinite(halfSpan) && halfSpan > 0 ? halfSpan : 0;
  };
  const reach: [number, number] = dimensions === 3 ? [1, 1] : [span(0), span(1)];
  return { dimensions, count, points: order, units, reach, crowd: crowdOf(units, dimensions) };
}

/**
 * Points are counted on a grid with at most `MAX_CELLS` cells per axis. Small clouds have fewer
 * cells, each with `IN_A_CELL` points on average.
 */
const MAX_CELLS = 64;
const IN_A_CELL = 8;

/**
 * Return the density around the median point, in points per unit of area. Return 0 without points.
 */
function crowdOf(units: Float32Array, dimensions: number): number {
  const targetCells = Math.floor(Math.sqrt(units.length / dimensions / IN_A_CELL));
  const cells = Math.max(1, Math.min(MAX_CELLS, targetCells));
  const counts = new Uint32Array(cells * cells);
  const along = (unit: number): number => Math.min(cells - 1, Math.floor(((unit + 1) / 2) * cells));
  const cellOf = (at: number): number =>
    along(units[at + 1] as number) * cells + along(units[at] as number);
  let numKnown = 0;
  for (let at = 0; at < units.length; at += dimensions) {
    const cell = cellOf(at);
    if (Number.isNaN(cell)) continue;
    counts[cell] = (counts[cell] as number) + 1;
    numKnown++;
  }
  if (numKnown === 0) return 0;
  const sorted = counts.filter((cellCount) => cellCount > 0).sort();
  let passed = 0;
  for (const inCell of sorted) {
    passed += inCell;
    if (passed * 2 >= numKnown) return inCell / (2 / cells) ** 2;
  }
  return 0;
}

export const UPRIGHT: Float64Array = Float64Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1);

/**
 * Return the initial rotation of a three-dimensional plot, in which no axis hides behind another.
 */
function asSeenFromAbove(): Float64Array {
  return turned(turned(UPRIGHT, -70, 0), 0, 45);
}

/** Return the initial camera, which shows all points. */
export function wholeCamera(dimensions: 2 | 3): Camera {
  return { x: 0, y: 0, zoom: 1, turn: dimensions === 3 ? asSeenFromAbove() : UPRIGHT };
}

/** Return the number of pixels per unit of `Cloud.units`. */
export function scaleOf(cloud: Pick<Cloud, "reach">, room: Room, zoom: number): number {
  const across = Math.max(20, room.width / 2 - MARGIN) / Math.max(cloud.reach[0], 1e-3);
  const up = Math.max(20, room.height / 2 - MARGIN) / Math.max(cloud.reach[1], 1e-3);
  return Math.min(across, up) * zoom;
}

/** Return the screen positions of all points of a cloud. */
export function project(cloud: Cloud, camera: Camera, room: Room): Projected {
  const { count, units } = cloud;
  const scale = scaleOf(cloud, room, camera.zoom);
  const left = room.width / 2 - camera.x * scale;
  const top = room.height / 2 + camera.y * scale;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  if (cloud.dimensions === 2) {
    for (let i = 0; i < count; i++) {
      x[i] = left + (units[2 * i] as number) * scale;
      y[i] = top - (units[2 * i + 1] as number) * scale;
    }
    return { x, y, near: null };
  }
  const near = new Uint8Array(count);
  const [a, b, c, d, e, f, g, h, k] = camera.turn as unknown as Turn;
  for (let i = 0; i < count; i++) {
    const u = units[3 * i] as number;
    const v = units[3 * i + 1] as number;
    const w = units[3 * i + 2] as number;
    const depth = g * u + h * v + k * w;
    const wider = (DISTANCE / (DISTANCE - depth)) * scale;
    x[i] = left + (a * u + b * v + c * w) * wider;
    y[i] = top - (d * u + e * v + f * w) * wider;
    near[i] = Math.max(0, Math.min(255, Math.round((depth + 1) * 127.5)));
  }
  return { x, y, near };
}

type Turn = [number, number, number, number, number, number, number, number, number];

/** Zoom by a factor, within limits, and keep the location (x, y) of the picture in place. */
export function zoomedAt(
  camera: Camera,
  cloud: Pick<Cloud, "reach">,
  room: Room,
  x: number,
  y: number,
  factor: number,
): Camera {
  const zoom = Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, camera.zoom * factor));
  const before = scaleOf(cloud, room, camera.zoom);
  const after = scaleOf(cloud, room, zoom);
  const away = 1 / before - 1 / after;
  return {
    ...camera,
    zoom,
    x: camera.x + (x - room.width / 2) * away,
    y: camera.y - (y - room.height / 2) * away,
  };
}

/**
 * Move the camera by a drag of (dx, dy) pixels. The centre of the picture cannot leave the extent
 * of the points.
 */
export function movedBy(
  camera: Camera,
  cloud: Pick<Cloud, "reach">,
  room: Room,
  dx: number,
  dy: number,
): Camera {
  const scale = scaleOf(cloud, room, camera.zoom);
  const within = (value: number, reach: number): number => Math.max(-reach, Math.min(reach, value));
  return {
    ...camera,
    x: within(camera.x - dx / scale, Math.max(cloud.reach[0], 0.2)),
    y: within(camera.y + dy / scale, Math.max(cloud.reach[1], 0.2)),
  };
}

/**
 * Return the rotation after a drag of (dx, dy) pixels, which rotates the cloud like a trackball.
 *
 * @param turn rotation before the drag.
 */
export function turned(turn: Float64Array, dx: number, dy: number): Float64Array {
  const [p, q] = [dx * TURN_PER_PIXEL, dy * TURN_PER_PIXEL];
  const [cp, sp, cq, sq] = [Math.cos(p), Math.sin(p), Math.cos(q), Math.sin(q)];
  // Rotate about the vertical axis of the screen, then about the horizontal one.
  const step = [cp, 0, sp, sq * sp, cq, -sq * cp, -cq * sp, sq, cq * cp];
  const next = new Float64Array(9);
  for (let row = 0; row < 3; row++)
    for (let column = 0; column < 3; column++)
      for (let i = 0; i < 3; i++)
        next[row * 3 + column] =
          (next[row * 3 + column] as number) +
          (step[row * 3 + i] as number) * (turn[i * 3 + column] as number);
  return rightAngled(next);
}

/**
 * Return a rotation matrix with orthonormal rows. Without this, rounding errors of many rotations
 * would distort the plot.
 */
function rightAngled(matrix: Float64Array): Float64Array {
  const first = unit(matrix.slice(0, 3));
  const second = matrix.slice(3, 6);
  const along = first.reduce((sum, value, i) => sum + value * (second[i] as number), 0);
  const level = unit(second.map((value, i) => value - along * (first[i] as number)));
  const [a, b, c] = first as unknown as [number, number, number];
  const [d, e, f] = level as unknown as [number, number, number];
  return Float64Array.of(a, b, c, d, e, f, b * f - c * e, c * d - a * f, a * e - b * d);
}

function unit(vector: Float64Array): Float64Array {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
}

/** Return the radius of dots in pixels: larger for few points and for a higher zoom. */
export function radiusOf(count: number, room: Room, zoom: number): number {
  const apart = Math.sqrt((room.width * room.height) / Math.max(1, count));
  const whole = Math.max(0.85, Math.min(4.5, 0.34 * apart));
  return Math.max(0.6, Math.min(7, whole * zoom ** 0.35));
}

/** Return the opacity of dots. It is so low that overlapping dots show the density of points. */
export function opacityOf(cloud: Cloud, room: Room, zoom: number, radius: number): number {
  const scale = scaleOf(cloud, room, zoom);
  const onEachOther = (cloud.crowd / scale ** 2) * Math.PI * radius ** 2;
  // In three dimensions distant dots are drawn fainter. A higher opacity of all dots compensates
  // for this.
  const whole = cloud.dimensions === 3 ? 1.9 : 1.3;
  // Keep a minimum, so that isolated points are visible if most points are in one cluster.
  const least = Math.max(0.12, Math.min(0.3, 3000 / Math.max(1, cloud.count)));
  return Math.max(least, Math.min(0.85, whole / (1 + 0.8 * onEachOther)));
}

/** Points sorted into square cells of the picture, for a fast search of the nearest point. */
export interface HitGrid {
  cell: number;
  columns: number;
  rows: number;
  /** Start of each cell in `indices`, followed by the length of `indices`. */
  starts: Uint32Array;
  indices: Uint32Array;
}

const HIT_CELL = 20;

/** Sort the points inside the picture into square cells. */
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
  const indices = new Uint32Array(starts[columns * rows] as number);
  const next = starts.slice();
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i] as number;
    if (cell < 0) continue;
    indices[next[cell] as number] = i;
    next[cell] = (next[cell] as number) + 1;
  }
  return { cell: HIT_CELL, columns, rows, starts, indices: indices };
}

/** Yield the indices of the points in the cells of a grid that overlap a box of the picture. */
function* around(
  grid: HitGrid,
  [left, top, right, bottom]: readonly [number, number, number, number],
): Generator<number> {
  const clip = (value: number, count: number): number =>
    Math.max(0, Math.min(count - 1, Math.floor(value / grid.cell)));
  for (let row = clip(top, grid.rows); row <= clip(bottom, grid.rows); row++) {
    const start = grid.starts[row * grid.columns + clip(left, grid.columns)] as number;
    const stop = grid.starts[row * grid.columns + clip(right, grid.columns) + 1] as number;
    for (let i = start; i < stop; i++) yield grid.indices[i] as number;
  }
}

/**
 * Return the index of the point nearest to (atX, atY), or -1 if none is within `reach` pixels. If
 * two points are equally near, return the one that is drawn later.
 */
export function nearestIndex(
  grid: HitGrid,
  { x, y }: Projected,
  atX: number,
  atY: number,
  reach: number,
): number {
  let best = -1;
  let least = reach * reach;
  for (const index of around(grid, [atX - reach, atY - reach, atX + reach, atY + reach])) {
    const away = ((x[index] as number) - atX) ** 2 + ((y[index] as number) - atY) ** 2;
    if (away < least || (away === least && index > best)) {
      best = index;
      least = away;
    }
  }
  return best;
}

/** Whether any point lies in the box [left, top, right, bottom] of the picture. */
export function anyWithin(
  grid: HitGrid,
  { x, y }: Projected,
  box: readonly [number, number, number, number],
): boolean {
  const [left, top, right, bottom] = box;
  for (const index of around(grid, box)) {
    const [px, py] = [x[index] as number, y[index] as number];
    if (px >= left && px <= right && py >= top && py <= bottom) return true;
  }
  return false;
}

/** Corners of a lasso in pixels: x and y of the first corner, then of the next. */
export type Lasso = number[];

/**
 * Return the lasso extended to (x, y), or unchanged if its last corner is less than 3 pixels away.
 */
export function drawnOn(lasso: Lasso, x: number, y: number): Lasso {
  const [lastX, lastY] = [lasso.at(-2), lasso.at(-1)];
  if (lastX !== undefined && lastY !== undefined && Math.hypot(x - lastX, y - lastY) < 3)
    return lasso;
  return [...lasso, x, y];
}

/**
 * Return the points in a lasso in ascending order. A lasso with fewer than three corners contains
 * none.
 */
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
  const selected: number[] = [];
  for (let i = 0; i < cloud.count; i++) {
    const px = x[i] as number;
    const py = y[i] as number;
    if (!(px >= left && px <= right && py >= top && py <= bottom)) continue;
    let inside = false;
    for (let a = 0, b = corners - 1; a < corners; b = a++) {
      const [ax, ay, bx, by] = [xs[a], ys[a], xs[b], ys[b]] as [number, number, number, number];
      // A point is inside if a ray from it to the right crosses an odd number of edges.
      if (ay > py !== by > py && px < ((bx - ax) * (py - ay)) / (by - ay) + ax) inside = !inside;
    }
    if (inside) selected.push(cloud.points[i] as number);
  }
  return selected.sort((a, b) => a - b);
}
