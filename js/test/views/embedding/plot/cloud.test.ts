import { describe, expect, it } from "vitest";
import {
  anyWithin,
  type Camera,
  type Cloud,
  createCloud,
  hitGrid,
  inLasso,
  mixedOrder,
  nearestIndex,
  type Projected,
  project,
  turned,
  UPRIGHT,
  wholeCamera,
  zoomedAt,
} from "../../../../src/views/embedding/plot/cloud";
import { placeLabels } from "../../../../src/views/embedding/plot/marks";

const ROOM = { width: 600, height: 400 };

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state / 0x7fffffff;
  };
}

function coordinatesOf(count: number, dimensions: number, seed = 1): Float32Array {
  const next = random(seed);
  return Float32Array.from({ length: count * dimensions }, () => 10 * next() - 3);
}

function cloudOf(coordinates: number[], dimensions: 2 | 3 = 2): Cloud {
  const count = coordinates.length / dimensions;
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  return createCloud(Float32Array.from(coordinates), dimensions, order);
}

/** Return the screen positions x and y of all points, rounded to pixels. */
function positionsAt(cloud: Cloud, camera: Camera): number[][] {
  const { x, y } = project(cloud, camera, ROOM);
  return Array.from(x, (value, i) => [Math.round(value), Math.round(y[i] as number)]);
}

describe("the drawing order", () => {
  it("contains every drawn point once, and is deterministic", () => {
    const order = mixedOrder(1000, (point) => point % 3 !== 0);
    const sorted = [...order].sort((a, b) => a - b);
    expect(sorted).toEqual(Array.from({ length: 1000 }, (_, i) => i).filter((i) => i % 3 !== 0));
    expect([...order]).toEqual([...mixedOrder(1000, (point) => point % 3 !== 0)]);
  });

  it("mixes queries and keys", () => {
    const order = mixedOrder(10_000, () => true);
    for (let part = 0; part < 4; part++) {
      const keys = order.subarray(part * 2500, (part + 1) * 2500).filter((i) => i >= 5000).length;
      // The number of keys in a random quarter is 1250 with a standard deviation of 22
      // (hypergeometric). The limit is six standard deviations.
      expect(Math.abs(keys - 1250)).toBeLessThan(132);
    }
  });
});

describe("points on the screen", () => {
  it("fill the picture with the same scale on both axes, larger values upwards", () => {
    const positions = positionsAt(cloudOf([0, 0, 4, 0, 0, 2, 4, 2]), wholeCamera(2));
    // The extent is 4 by 2. The width without margins, 600 - 44 pixels, limits the scale.
    expect(positions).toEqual([
      [22, 339],
      [578, 339],
      [22, 61],
      [578, 61],
    ]);
  });

  it("stay in place when a filter removes others", () => {
    const coordinates = coordinatesOf(50, 2);
    const all = createCloud(
      coordinates,
      2,
      mixedOrder(50, () => true),
    );
    const filtered = createCloud(
      coordinates,
      2,
      mixedOrder(50, (point) => point < 10),
    );
    const at = (cloud: Cloud, point: number): number[] =>
      positionsAt(cloud, wholeCamera(2))[cloud.points.indexOf(point)] as number[];
    for (const point of [0, 3, 9]) expect(at(filtered, point)).toEqual(at(all, point));
  });

  it("are centred if all are equal, and are absent if they are not numbers", () => {
    expect(positionsAt(cloudOf([7, 7, 7, 7]), wholeCamera(2))).toEqual([
      [300, 200],
      [300, 200],
    ]);
    const [first, second] = positionsAt(cloudOf([Number.NaN, 0, 1, 1]), wholeCamera(2));
    expect(first?.[0]).toBeNaN();
    expect(second?.[0]).toBe(300);
  });

  it("keeps the point under the pointer while zooming", () => {
    const cloud = cloudOf([...coordinatesOf(40, 2)]);
    const before = positionsAt(cloud, wholeCamera(2));
    const [x, y] = before[7] as [number, number];
    const camera = zoomedAt(wholeCamera(2), cloud, ROOM, x, y, 3);
    const after = positionsAt(cloud, camera);
    expect(Math.abs((after[7]?.[0] as number) - x)).toBeLessThan(3);
    expect(Math.abs((after[7]?.[1] as number) - y)).toBeLessThan(3);
    const apart = (positions: number[][]): number =>
      Math.hypot(
        (positions[0]?.[0] as number) - (positions[1]?.[0] as number),
        (positions[0]?.[1] as number) - (positions[1]?.[1] as number),
      );
    expect(apart(after) / apart(before)).toBeCloseTo(3, 1);
  });
});

/** Return how much a matrix deviates from an orthogonal matrix. */
function deviation(turn: Float64Array): number {
  let most = 0;
  for (let a = 0; a < 3; a++)
    for (let b = 0; b < 3; b++) {
      let sum = 0;
      for (let i = 0; i < 3; i++) sum += (turn[3 * a + i] as number) * (turn[3 * b + i] as number);
      most = Math.max(most, Math.abs(sum - (a === b ? 1 : 0)));
    }
  return most;
}

describe("three dimensions", () => {
  it("keeps a rotation after many turns", () => {
    let turn = UPRIGHT;
    for (let i = 0; i < 5000; i++) turn = turned(turn, (i % 7) - 3, (i % 5) - 1);
    expect(deviation(turn)).toBeLessThan(1e-12);
  });

  it("rotates the front in the direction of the drag", () => {
    // The first point is nearest to the viewer, and the second one is most distant.
    const cloud = cloudOf([0, 0, 1, 0, 0, -1], 3);
    const camera = { ...wholeCamera(3), turn: UPRIGHT };
    const { near } = project(cloud, camera, ROOM);
    expect([...(near as Uint8Array)]).toEqual([255, 0]);
    const right = positionsAt(cloud, { ...camera, turn: turned(UPRIGHT, 50, 0) });
    expect(right[0]?.[0]).toBeGreaterThan(350);
    expect(right[1]?.[0]).toBeLessThan(300);
    const down = positionsAt(cloud, { ...camera, turn: turned(UPRIGHT, 0, 50) });
    expect(down[0]?.[1]).toBeGreaterThan(230);
  });

  it("shows all points at any rotation", () => {
    const cloud = cloudOf([...coordinatesOf(300, 3)], 3);
    for (let i = 0; i < 20; i++) {
      const turn = turned(turned(UPRIGHT, i * 37, 0), 0, i * 53);
      for (const [x, y] of positionsAt(cloud, { ...wholeCamera(3), turn }) as [number, number][]) {
        expect(x > -60 && x < 660 && y > -60 && y < 460).toBe(true);
      }
    }
  });
});

/** Return the nearest point within `reach` of a position. It compares all points. */
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

/**
 * Return an array that counts how often its entries are read, and a function that returns the
 * count.
 */
function counting(values: Float32Array): [Float32Array, () => number] {
  let reads = 0;
  const proxy = new Proxy(values, {
    get: (target, name) => {
      if (name === "length") return target.length;
      reads++;
      return target[Number(name)];
    },
  });
  return [proxy, () => reads];
}

describe("the point under the pointer", () => {
  it("is the nearest of all, found without a full search", () => {
    const cloud = createCloud(
      coordinatesOf(3000, 2),
      2,
      mixedOrder(3000, () => true),
    );
    const camera = zoomedAt(wholeCamera(2), cloud, ROOM, 100, 300, 2.5);
    const projected = project(cloud, camera, ROOM);
    const grid = hitGrid(projected, ROOM);
    const next = random(5);
    for (let i = 0; i < 300; i++) {
      // Use positions inside the picture. Points outside are never found.
      const [x, y] = [10 + next() * (ROOM.width - 20), 10 + next() * (ROOM.height - 20)];
      expect(nearestIndex(grid, projected, x, y, 9)).toBe(nearestOfAll(projected, x, y, 9));
    }
  });

  it("is absent if none is near, and the last drawn of equal ones", () => {
    const projected = { x: Float32Array.of(50, 50), y: Float32Array.of(50, 50), near: null };
    const grid = hitGrid(projected, ROOM);
    expect(nearestIndex(grid, projected, 60, 50, 9)).toBe(-1);
    expect(nearestIndex(grid, projected, 52, 50, 9)).toBe(1);
    expect(anyWithin(grid, projected, [45, 45, 55, 55])).toBe(true);
    expect(anyWithin(grid, projected, [51, 45, 75, 55])).toBe(false);
  });

  it("is found among 200,000 by testing at most one in fifty", () => {
    const count = 200_000;
    const cloud = createCloud(
      coordinatesOf(count, 2),
      2,
      mixedOrder(count, () => true),
    );
    const projected = project(cloud, wholeCamera(2), ROOM);
    const [x, reads] = counting(projected.x);
    const counted = { ...projected, x };
    const grid = hitGrid(counted, ROOM);
    // `hitGrid` reads each point once to sort the points into squares.
    expect(reads()).toBe(count);
    for (let i = 0; i < 100; i++) {
      const [atX, atY] = [3 * i, 2 * i];
      const before = reads();
      const nearest = nearestIndex(grid, counted, atX, atY, 9);
      expect(reads() - before).toBeLessThan(count / 50);
      if (i % 10 === 0) expect(nearest).toBe(nearestOfAll(projected, atX, atY, 9));
    }
    expect(reads()).toBeGreaterThan(count);
  });
});

describe("the lasso", () => {
  const cloud = cloudOf([0, 0, 4, 0, 0, 2, 4, 2, 2, 1]);
  const projected = project(cloud, wholeCamera(2), ROOM);

  it("contains the points inside, even if it is concave", () => {
    expect(inLasso(cloud, projected, [0, 0, 300, 0, 300, 400, 0, 400])).toEqual([0, 2]);
    // This lasso has the shape of a C that is open to the right. The centre is outside the lasso.
    const hollow = [0, 0, 600, 0, 600, 100, 250, 100, 250, 300, 600, 300, 600, 400, 0, 400];
    expect(inLasso(cloud, projected, hollow)).toEqual([0, 1, 2, 3]);
  });

  it("contains nothing with fewer than three corners", () => {
    expect(inLasso(cloud, projected, [0, 0, 600, 400])).toEqual([]);
    expect(inLasso(cloud, projected, [])).toEqual([]);
  });
});

describe("labels of points", () => {
  const at = (x: number[], y: number[]): Projected => ({
    x: Float32Array.from(x),
    y: Float32Array.from(y),
    near: null,
  });
  const word = () => ({ text: "word", width: 40 });
  const options = { room: ROOM, most: 30, height: 16, away: 8 };

  it("do not overlap, and avoid points if possible", () => {
    const crowded = at([300, 305, 310, 302], [200, 204, 198, 209]);
    const placed = placeLabels([0, 1, 2, 3], crowded, word, options);
    expect(placed.length).toBeGreaterThan(1);
    for (const a of placed)
      for (const b of placed)
        if (a !== b)
          expect(Math.abs(a.x - b.x) >= 40 || Math.abs(a.y - b.y) >= options.height).toBe(true);
    const covers = (left: number): boolean => left > 290;
    const [one] = placeLabels([0], crowded, word, { ...options, covers });
    expect(one?.x).toBe(300 - 8 - 40);
  });

  it("stay inside the picture", () => {
    const [right] = placeLabels([0], at([596], [200]), word, options);
    expect((right?.x as number) + 40).toBeLessThan(600);
    expect(placeLabels([0], at([-50], [200]), word, options)).toEqual([]);
  });

  it("are omitted if they would hide points, unless they are required", () => {
    const covers = (): boolean => true;
    const one = at([300], [200]);
    expect(placeLabels([0], one, word, { ...options, covers })).toEqual([]);
    expect(placeLabels([0], one, word, { ...options, covers, least: true })).toHaveLength(1);
  });
});
