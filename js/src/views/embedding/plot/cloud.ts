/**
 * Geometry of a cloud of points on the screen: positions, sizes and opacities of dots, and the
 * points under the pointer.
 *
 * `point` is the number of a point in the corpus, and `index` its index in the drawing order. The
 * functions are pure and use typed arrays, because a cloud may have hundreds of thousands of
 * points.
 */

/** Camera of the plot. */
export interface Camera {
  /** Location in the cloud that is at the centre of the picture, on the scale of `Cloud.units`. */
  x: number;
  y: number;
  /** Magnification. At 1 the picture shows all points. */
  zoom: number;
  /**
   * Rotation of a three-dimensional cloud in radians: about its vertical axis, and then towards the
   * viewer.
   */
  turn: number;
  tilt: number;
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
  /** Nearness in three dimensions, from 0 (most distant) to 255 (nearest). */
  near?: Uint8Array;
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
 * Return the drawn points in a mixed order, so that keys do not hide queries.
 *
 * @param shown whether a point is drawn.
 */
export function mixedOrder(count: number, shown: (point: number) => boolean): Uint32Array {
  // Multiples of the golden ratio, without their integer part, are spread evenly.
  const key = (point: number): number => Math.imul(point, 0x9e3779b1) >>> 0;
  const points = Array.from({ length: count }, (_, point) => point).filter(shown);
  return Uint32Array.from(points).sort((a, b) => key(a) - key(b));
}

/**
 * Create the cloud of the drawn points from the coordinates of all points.
 *
 * @param order number of the point at each index of the drawing order.
 */
export function createCloud(coordinates: Float32Array, dimensions: 2 | 3, order: Uint32Array) {
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
  const halves = low.map((value, axis) => ((high[axis] as number) - value) / 2);
  let half = Math.max(halves[0] as number, halves[1] as number);
  if (dimensions === 3) {
    half = 0;
    for (let at = 0; at < coordinates.length; at += 3) {
      const from = middle.map((value, axis) => (coordinates[at + axis] as number) - value);
      half = Math.max(half, Math.hypot(...from) || 0);
    }
  }
  const scale = half > 0 && Number.isFinite(half) ? 1 / half : 1;
  const count = order.length;
  const units = new Float32Array(count * dimensions);
  const indexOf = new Int32Array(coordinates.length / dimensions).fill(-1);
  order.forEach((point, index) => {
    indexOf[point] = index;
    for (let axis = 0; axis < dimensions; axis++)
      units[index * dimensions + axis] =
        ((coordinates[point * dimensions + axis] as number) - (middle[axis] as number)) * scale;
  });
  const span = (axis: number): number => {
    const share = (halves[axis] as number) * scale;
    return Number.isFinite(share) && share > 0 ? share : 0;
  };
  return {
    dimensions,
    count,
    points: order,
    /** Index of each point in the drawing order, or -1 if it is not drawn. */
    indexOf,
    /**
     * `dimensions` coordinates per index, relative to the centre of all points and scaled to [-1,
     * 1]. NaN if a point has no coordinates.
     */
    units,
    /**
     * Largest horizontal and largest vertical distance of a point from the centre. The larger of
     * the two is 1. In three dimensions both are 1.
     */
    reach: dimensions === 3 ? ([1, 1] as const) : ([span(0), span(1)] as const),
  };
}

export type Cloud = ReturnType<typeof createCloud>;

/**
 * Initial camera, which shows all points. In three dimensions it looks from above, so that no axis
 * hides behind another.
 */
export const WHOLE: Camera = { x: 0, y: 0, zoom: 1, turn: -0.56, tilt: 0.36 };

/**
 * Return the coordinates of the directions to the right, upwards, and towards the viewer along the
 * axes of a three-dimensional cloud.
 */
export function directionsOf({ turn, tilt }: Camera) {
  const [c, s, d, t] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
  return {
    right: [c, 0, s],
    up: [s * t, d, -c * t],
    near: [-s * d, t, c * d],
  } as const;
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
    return { x, y };
  }
  const near = new Uint8Array(count);
  const { right, up, near: towards } = directionsOf(camera);
  for (let i = 0; i < count; i++) {
    const along = ([a, b, c]: readonly [number, number, number]): number =>
      a * (units[3 * i] as number) +
      b * (units[3 * i + 1] as number) +
      c * (units[3 * i + 2] as number);
    const depth = along(towards);
    const wider = (DISTANCE / (DISTANCE - depth)) * scale;
    x[i] = left + along(right) * wider;
    y[i] = top - along(up) * wider;
    near[i] = Math.max(0, Math.min(255, Math.round((depth + 1) * 127.5)));
  }
  return { x, y, near };
}

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

/** Return the camera after a drag of (dx, dy) pixels, which rotates a three-dimensional cloud. */
export function turnedBy(camera: Camera, dx: number, dy: number): Camera {
  const tilt = camera.tilt + dy * TURN_PER_PIXEL;
  const most = Math.PI / 2;
  return {
    ...camera,
    turn: camera.turn + dx * TURN_PER_PIXEL,
    tilt: Math.max(-most, Math.min(most, tilt)),
  };
}

/** Return the radius of dots in pixels: larger for few points and for a higher zoom. */
export function radiusOf(count: number, room: Room, zoom: number): number {
  const apart = Math.sqrt((room.width * room.height) / Math.max(1, count));
  const whole = Math.max(0.85, Math.min(4.5, 0.34 * apart));
  return Math.max(0.6, Math.min(7, whole * zoom ** 0.35));
}

/**
 * Return the opacity of dots. It is so low that overlapping dots show the density of points.
 *
 * @param density number of dots, times their squared radius, per area of the picture.
 */
export function opacityAt(density: number): number {
  return Math.max(0.26, Math.min(0.85, 1.6 / (1 + 5 * density)));
}

/** Return the opacity of the dots of a cloud. */
export function opacityOf(cloud: Cloud, room: Room, zoom: number, radius: number): number {
  const [across, up] = cloud.reach;
  const area = 4 * across * up * scaleOf(cloud, room, zoom) ** 2;
  return opacityAt((cloud.count * radius ** 2) / Math.max(1, area));
}

/**
 * Return the index of the point nearest to (atX, atY), or -1 if none is within `reach` pixels. If
 * two points are equally near, return the one that is drawn later.
 */
export function nearestIndex({ x, y }: Projected, atX: number, atY: number, reach: number): number {
  let best = -1;
  let least = reach * reach;
  for (let index = 0; index < x.length; index++) {
    const away = ((x[index] as number) - atX) ** 2 + ((y[index] as number) - atY) ** 2;
    if (away <= least) {
      best = index;
      least = away;
    }
  }
  return best;
}

/** Corners of a lasso in pixels. */
export type Lasso = readonly (readonly [x: number, y: number])[];

/**
 * Return the points in a lasso in ascending order. A lasso with fewer than three corners contains
 * none.
 */
export function inLasso(cloud: Cloud, { x, y }: Projected, lasso: Lasso): number[] {
  const xs = lasso.map(([cornerX]) => cornerX);
  const ys = lasso.map(([, cornerY]) => cornerY);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const isInside = (px: number, py: number): boolean => {
    if (!(px >= left && px <= right && py >= top && py <= bottom)) return false;
    let inside = false;
    for (let a = 0, b = xs.length - 1; a < xs.length; b = a++) {
      const [ay, by] = [ys[a] as number, ys[b] as number];
      if (ay > py === by > py) continue;
      const [ax, bx] = [xs[a] as number, xs[b] as number];
      // A point is inside if a ray from it to the right crosses an odd number of edges.
      if (px < ((bx - ax) * (py - ay)) / (by - ay) + ax) inside = !inside;
    }
    return inside;
  };
  return [...cloud.points]
    .filter((_, index) => isInside(x[index] as number, y[index] as number))
    .sort((a, b) => a - b);
}
