/**
 * A cloud of points on the screen: where each is at a camera, how large and how opaque. Pure functions over typed arrays, for hundreds of thousands of points.
 */

/** Points in the order in which they are drawn, in units of their own box. */
export interface Cloud {
  dimensions: 2 | 3;
  count: number;
  /** The point that stands at each place of the order. */
  points: Uint32Array;
  /** `dimensions` numbers for each place, about the middle of all points; NaN where unknown. */
  units: Float32Array;
  /** How far the points reach from their middle to the right and upwards, 1 for the farther. */
  reach: [number, number];
  /** How many points a unit of area holds where a point of the middle rank lies. */
  crowd: number;
}

/** Where the picture is looked at from. */
export interface Camera {
  /** What of the cloud lies in the middle of the picture. */
  x: number;
  y: number;
  /** 1 where everything is in sight. */
  zoom: number;
  /** In three dimensions: rows of the rotation, whose last points at the reader. */
  turn: Float64Array;
}

/** The picture, in pixels. */
export interface Room {
  width: number;
  height: number;
}

/** Places of a cloud on the screen. */
export interface Projected {
  x: Float32Array;
  y: Float32Array;
  /** 0 for the farthest to 255 for the nearest; null in two dimensions. */
  near: Uint8Array | null;
}

/** Pixels around the points where everything is in sight. */
const MARGIN = 22;
/** How far away the reader is in three dimensions, in units: near points are a little larger. */
const DISTANCE = 4;
const LEAST_ZOOM = 0.4;
const MOST_ZOOM = 400;
/** Radians that a pixel of dragging turns by. */
const TURN_PER_PIXEL = 0.008;

/**
 * An order in which neither side's points lie on top of the other's, the same every time.
 *
 * @param shown whether a point is drawn at all.
 */
export function mixedOrder(count: number, shown: (point: number) => boolean): Uint32Array {
  const order = new Uint32Array(count);
  let length = 0;
  for (let point = 0; point < count; point++) if (shown(point)) order[length++] = point;
  let state = 0x9e3779b9;
  for (let i = length - 1; i > 0; i--) {
    // Knuth's numbers for a linear congruential generator; its high bits are the better ones.
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    const other = order[j] as number;
    order[j] = order[i] as number;
    order[i] = other;
  }
  return order.subarray(0, length);
}

/** Makes a cloud of the points in `order`. */
export function createCloud(
  coordinates: Float32Array,
  dimensions: 2 | 3,
  order: Uint32Array,
): Cloud {
  const low = new Float64Array(3).fill(Number.POSITIVE_INFINITY);
  const high = new Float64Array(3).fill(Number.NEGATIVE_INFINITY);
  // Of all points, so that a filter does not move those that stay.
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
  for (let place = 0; place < count; place++) {
    const from = (order[place] as number) * dimensions;
    for (let axis = 0; axis < dimensions; axis++)
      units[place * dimensions + axis] =
        ((coordinates[from + axis] as number) - (middle[axis] as number)) * scale;
  }
  const span = (axis: number): number => {
    const each = (((high[axis] as number) - (low[axis] as number)) / 2) * scale;
    return Number.isFinite(each) && each > 0 ? each : 0;
  };
  const reach: [number, number] = dimensions === 3 ? [1, 1] : [span(0), span(1)];
  return { dimensions, count, points: order, units, reach, crowd: crowdOf(units, dimensions) };
}

/** Cells a side in which points are counted, at most; of few points, so many to a cell. */
const MOST_CELLS = 64;
const IN_A_CELL = 8;

/** Points to a unit of area, around the point of the middle rank. */
function crowdOf(units: Float32Array, dimensions: number): number {
  const wanted = Math.floor(Math.sqrt(units.length / dimensions / IN_A_CELL));
  const cells = Math.max(1, Math.min(MOST_CELLS, wanted));
  const counts = new Uint32Array(cells * cells);
  const along = (unit: number): number => Math.min(cells - 1, Math.floor(((unit + 1) / 2) * cells));
  const cellOf = (at: number): number =>
    along(units[at + 1] as number) * cells + along(units[at] as number);
  let known = 0;
  for (let at = 0; at < units.length; at += dimensions) {
    const cell = cellOf(at);
    if (Number.isNaN(cell)) continue;
    counts[cell] = (counts[cell] as number) + 1;
    known++;
  }
  if (known === 0) return 0;
  const sorted = counts.filter((each) => each > 0).sort();
  let passed = 0;
  for (const each of sorted) {
    passed += each;
    if (passed * 2 >= known) return each / (2 / cells) ** 2;
  }
  return 0;
}

export const UPRIGHT: Float64Array = Float64Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1);

/** A turn at which no axis hides behind another. */
function asSeenFromAbove(): Float64Array {
  return turned(turned(UPRIGHT, -70, 0), 0, 45);
}

/** Everything in sight. */
export function wholeCamera(dimensions: 2 | 3): Camera {
  return { x: 0, y: 0, zoom: 1, turn: dimensions === 3 ? asSeenFromAbove() : UPRIGHT };
}

/** Pixels to a unit. */
export function scaleOf(cloud: Pick<Cloud, "reach">, room: Room, zoom: number): number {
  const across = Math.max(20, room.width / 2 - MARGIN) / Math.max(cloud.reach[0], 1e-3);
  const up = Math.max(20, room.height / 2 - MARGIN) / Math.max(cloud.reach[1], 1e-3);
  return Math.min(across, up) * zoom;
}

/** Where all places of a cloud are on the screen. */
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

/** The camera nearer by a factor, what is at (x, y) staying there. */
export function zoomedAt(
  camera: Camera,
  cloud: Pick<Cloud, "reach">,
  room: Room,
  x: number,
  y: number,
  factor: number,
): Camera {
  const zoom = Math.max(LEAST_ZOOM, Math.min(MOST_ZOOM, camera.zoom * factor));
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

/** The camera after the picture was dragged; the points stay in sight. */
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

/** A rotation turned on by a drag of so many pixels, as if the cloud hung in a ball of glass. */
export function turned(turn: Float64Array, dx: number, dy: number): Float64Array {
  const [p, q] = [dx * TURN_PER_PIXEL, dy * TURN_PER_PIXEL];
  const [cp, sp, cq, sq] = [Math.cos(p), Math.sin(p), Math.cos(q), Math.sin(q)];
  // About the screen's upright axis, then about its level one.
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

/** The rotation nearest to a matrix that was one but for rounding. */
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

/** The radius of a dot: large where there are few, and larger the nearer one looks. */
export function radiusOf(count: number, room: Room, zoom: number): number {
  const apart = Math.sqrt((room.width * room.height) / Math.max(1, count));
  const whole = Math.max(0.85, Math.min(4.5, 0.34 * apart));
  return Math.max(0.6, Math.min(7, whole * zoom ** 0.35));
}

/** The opacity of a dot, so that where many lie on each other their number still shows. */
export function opacityOf(cloud: Cloud, room: Room, zoom: number, radius: number): number {
  const scale = scaleOf(cloud, room, zoom);
  const onEachOther = (cloud.crowd / scale ** 2) * Math.PI * radius ** 2;
  // In three dimensions far ones are fainter still.
  const whole = cloud.dimensions === 3 ? 1.9 : 1.3;
  // Where most lie in one heap those around it are to be seen, too.
  const least = Math.max(0.12, Math.min(0.3, 3000 / Math.max(1, cloud.count)));
  return Math.max(least, Math.min(0.85, whole / (1 + 0.8 * onEachOther)));
}

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
