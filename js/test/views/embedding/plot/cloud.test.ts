import { describe, expect, it } from "vitest";
import {
  type Camera,
  type Cloud,
  createCloud,
  directionsOf,
  inLasso,
  mixedOrder,
  nearestIndex,
  type Projected,
  project,
  turnedBy,
  WHOLE,
  zoomedAt,
} from "../../../../src/views/embedding/plot/cloud";
import { randomNumbers } from "../../../builders";

const ROOM = { width: 600, height: 400 };

function coordinatesOf(count: number, dimensions: number): Float32Array {
  const next = randomNumbers(1);
  return Float32Array.from({ length: count * dimensions }, () => 10 * next() - 3);
}

function cloudOf(coordinates: number[], dimensions: 2 | 3 = 2): Cloud {
  const count = coordinates.length / dimensions;
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  return createCloud(Float32Array.from(coordinates), dimensions, order);
}

/** Return the screen position [x, y] of each point, rounded to pixels. */
function positionsAt(cloud: Cloud, camera: Camera): number[][] {
  const { x, y } = project(cloud, camera, ROOM);
  return Array.from(x, (value, i) => [Math.round(value), Math.round(y[i] as number)]);
}

it("the drawing order has every drawn point once, and mixes queries and keys", () => {
  const order = mixedOrder(10_000, (point) => point % 2 === 0);
  expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: 5000 }, (_, i) => 2 * i));
  for (let part = 0; part < 4; part++) {
    const keys = order.subarray(part * 1250, (part + 1) * 1250).filter((point) => point >= 5000);
    // The number of keys in a random quarter is 625 with a standard deviation of 15.3
    // (hypergeometric). The limit is six standard deviations.
    expect(Math.abs(keys.length - 625)).toBeLessThan(92);
  }
});

describe("points on the screen", () => {
  it("fill the picture with the same scale on both axes, larger values upwards", () => {
    const positions = positionsAt(cloudOf([0, 0, 4, 0, 0, 2, 4, 2]), WHOLE);
    // The width without margins, 600 - 2 * 22 pixels, limits the scale of the 4 x 2 rectangle.
    expect(positions).toEqual([
      [22, 339],
      [578, 339],
      [22, 61],
      [578, 61],
    ]);
  });

  it("stay in place when a filter removes others", () => {
    const at = (shows: (point: number) => boolean): number[][] => {
      const cloud = createCloud(coordinatesOf(50, 2), 2, mixedOrder(50, shows));
      const positions = positionsAt(cloud, WHOLE);
      return [0, 3, 9].map((point) => positions[cloud.points.indexOf(point)] as number[]);
    };
    expect(at((point) => point < 10)).toEqual(at(() => true));
  });

  it("are centred if all are equal, and are absent if they are not numbers", () => {
    expect(positionsAt(cloudOf([7, 7]), WHOLE)).toEqual([[300, 200]]);
    const [first, second] = positionsAt(cloudOf([Number.NaN, 0, 1, 1]), WHOLE);
    expect([first?.[0], second?.[0]]).toEqual([NaN, 300]);
  });

  it("keep the point under the pointer while zooming", () => {
    const cloud = cloudOf([...coordinatesOf(40, 2)]);
    const before = project(cloud, WHOLE, ROOM);
    const [x, y] = [before.x[7] as number, before.y[7] as number];
    const after = project(cloud, zoomedAt(WHOLE, cloud, ROOM, x, y, 3), ROOM);
    expect([after.x[7], after.y[7]]).toEqual([expect.closeTo(x, 3), expect.closeTo(y, 3)]);
    const distance = ({ x, y }: Projected): number =>
      Math.hypot((x[0] as number) - (x[1] as number), (y[0] as number) - (y[1] as number));
    expect(distance(after) / distance(before)).toBeCloseTo(3, 3);
  });
});

describe("three dimensions", () => {
  it("have orthogonal directions of length 1", () => {
    const { right, up, near } = directionsOf({ ...WHOLE, turn: 2.3, tilt: -0.7 });
    const rows = [right, up, near];
    rows.forEach((a, i) => {
      rows.forEach((b, j) => {
        const product = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        expect(product).toBeCloseTo(i === j ? 1 : 0, 12);
      });
    });
  });

  it("rotate the front in the direction of the drag", () => {
    // The first point is nearest to the viewer, and the second point is most distant.
    const cloud = cloudOf([0, 0, 1, 0, 0, -1], 3);
    const camera = { ...WHOLE, turn: 0, tilt: 0 };
    const { near } = project(cloud, camera, ROOM);
    expect([...(near as Uint8Array)]).toEqual([255, 0]);
    const right = positionsAt(cloud, turnedBy(camera, 50, 0));
    expect(right[0]?.[0]).toBeGreaterThan(350);
    expect(right[1]?.[0]).toBeLessThan(300);
    const down = positionsAt(cloud, turnedBy(camera, 0, 50));
    expect(down[0]?.[1]).toBeGreaterThan(230);
    // A long drag does not turn the cloud upside down.
    expect(directionsOf(turnedBy(camera, 0, 1000)).near[1]).toBeCloseTo(1, 12);
  });
});

/** Return the index of the nearest of all points within `reach` of a position, or -1. */
function nearestOfAll({ x, y }: Projected, atX: number, atY: number, reach: number): number {
  let best = -1;
  let least = reach;
  x.forEach((value, i) => {
    const away = Math.hypot(value - atX, (y[i] as number) - atY);
    if (away < least) {
      least = away;
      best = i;
    }
  });
  return best;
}

describe("the point under the pointer", () => {
  it("is the nearest of all", () => {
    const cloud = createCloud(
      coordinatesOf(3000, 2),
      2,
      mixedOrder(3000, () => true),
    );
    const camera = zoomedAt(WHOLE, cloud, ROOM, 100, 300, 2.5);
    const projected = project(cloud, camera, ROOM);
    const next = randomNumbers(5);
    for (let i = 0; i < 300; i++) {
      const [x, y] = [next() * ROOM.width, next() * ROOM.height];
      expect(nearestIndex(projected, x, y, 9)).toBe(nearestOfAll(projected, x, y, 9));
    }
  });

  it("is absent if none is near, and the last drawn of equal ones", () => {
    const projected = { x: Float32Array.of(50, 50), y: Float32Array.of(50, 50) };
    expect(nearestIndex(projected, 60, 50, 9)).toBe(-1);
    expect(nearestIndex(projected, 52, 50, 9)).toBe(1);
  });
});

it("the lasso contains the points inside, even if it is concave", () => {
  // The corners and the centre of a rectangle. The drawing order is not that of their numbers.
  const coordinates = Float32Array.of(0, 0, 4, 0, 0, 2, 4, 2, 2, 1);
  const cloud = createCloud(coordinates, 2, Uint32Array.of(4, 3, 2, 1, 0));
  const inside = (...lasso: [number, number][]): number[] =>
    inLasso(cloud, project(cloud, WHOLE, ROOM), lasso);
  expect(inside([0, 0], [300, 0], [300, 400], [0, 400])).toEqual([0, 2]);
  // This lasso has the shape of a C that is open to the right. The centre is outside the lasso.
  const right: [number, number][] = [
    [600, 0],
    [600, 100],
    [250, 100],
    [250, 300],
    [600, 300],
    [600, 400],
  ];
  expect(inside([0, 0], ...right, [0, 400])).toEqual([0, 1, 2, 3]);
  expect(inside([0, 0], [600, 400])).toEqual([]);
});
