import { describe, expect, it } from "vitest";
import { DOTS_PAINTER, dotPaths, dotPixels } from "../../src/draw/dots";
import { type DotsMark, translate } from "../../src/draw/marks";

/** Return a mark of dots, by default one disc of radius 4 in the middle of a 20 x 20 area. */
function dots(overrides: Partial<DotsMark> = {}): DotsMark {
  return {
    ...{ kind: "dots", painter: DOTS_PAINTER, count: 1, radius: 4, opacity: 1 },
    ...{ x: Float32Array.of(10), y: Float32Array.of(10), shape: Uint8Array.of(0) },
    ...{ color: Uint8Array.of(0), colors: ["#204060", "#ff8000"] },
    area: { x: 0, y: 0, width: 20, height: 20 },
    ...overrides,
  };
}

/** Field `shape` of a mark whose only dot is a square. */
const SQUARE = Uint8Array.of(1);

/** Fields of a mark with two dots of different colours at the same position. */
const TWO: Partial<DotsMark> = {
  ...{ count: 2, x: Float32Array.of(10, 10), y: Float32Array.of(10, 10) },
  ...{ color: Uint8Array.of(0, 1), shape: Uint8Array.of(0, 0) },
};

/** Return red, green, blue and opacity of a pixel. */
function pixelAt(mark: DotsMark, x: number, y: number): [number, number, number, number] {
  const { pixels, columns } = dotPixels(mark, 1);
  const start = (y * columns + x) * 4;
  return [...pixels.subarray(start, start + 4)] as [number, number, number, number];
}

/** Return the painted area in pixels: the sum of all opacities. */
function paintedArea(mark: DotsMark): number {
  const { pixels } = dotPixels(mark, 1);
  let sum = 0;
  for (let i = 3; i < pixels.length; i += 4) sum += (pixels[i] as number) / 255;
  return sum;
}

describe("dots as pixels", () => {
  it("have their colour in the middle and nothing outside", () => {
    expect(pixelAt(dots(), 10, 10)).toEqual([0x20, 0x40, 0x60, 255]);
    expect(pixelAt(dots(), 16, 10)).toEqual([0, 0, 0, 0]);
    // The centre of this pixel is 3.5 pixels above and 3.5 pixels left of the dot. A disc of radius
    // 4 does not reach it, but a square of the same area does (its sides are 7.09 pixels long).
    expect(pixelAt(dots({ shape: SQUARE }), 6, 6)[3]).toBeGreaterThan(40);
    expect(pixelAt(dots(), 6, 6)[3]).toBe(0);
  });

  it.each([0.3, 0.8, 1.5, 4, 7.3])("of radius %f cover the area of a disc", (radius) => {
    const area = Math.PI * radius ** 2;
    for (const shape of [Uint8Array.of(0), SQUARE]) {
      for (const position of [10, 10.3, 10.9]) {
        const at = Float32Array.of(position);
        const painted = paintedArea(dots({ radius, shape, x: at, y: at }));
        // The tolerance is for the soft edge of a dot and for rounded opacities.
        expect(Math.abs(painted - area)).toBeLessThan(0.12 * area + 0.15);
      }
    }
  });

  it("are blended with dots below by their opacity", () => {
    const [red, green, blue, alpha] = pixelAt(dots({ ...TWO, opacity: 0.5 }), 10, 10);
    expect(Math.abs(alpha - 255 * 0.75)).toBeLessThan(2);
    // The upper dot has the opacity 0.5, and half of the lower dot's 0.5 remains visible.
    const mixed = (above: number, below: number): number => (0.5 * above + 0.25 * below) / 0.75;
    expect(Math.abs(red - mixed(255, 0x20))).toBeLessThan(3);
    expect(Math.abs(green - mixed(128, 0x40))).toBeLessThan(3);
    expect(Math.abs(blue - mixed(0, 0x60))).toBeLessThan(3);
  });

  it("never overflow, even if many overlap", () => {
    const count = 2000;
    const [at, zeros] = [new Float32Array(count).fill(10.3), new Uint8Array(count)];
    const pile = dots({ count, x: at, y: at, color: zeros, shape: zeros, colors: ["#ffffff"] });
    for (const [x, y] of [
      [10, 10],
      [8, 12],
      [13, 10],
    ] as const) {
      const pixel = pixelAt({ ...pile, opacity: 0.37 }, x, y);
      for (const part of pixel) expect(part).toBeGreaterThan(245);
    }
  });

  it("are clipped to their area and omitted if a coordinate is NaN", () => {
    const mark = dots({
      ...{ count: 3, x: Float32Array.of(0, Number.NaN, 500), y: Float32Array.of(0, 3, 3) },
      ...{ color: Uint8Array.of(0, 0, 0), shape: Uint8Array.of(0, 1, 0) },
    });
    const quarter = (Math.PI * 16) / 4;
    expect(Math.abs(paintedArea(mark) - quarter)).toBeLessThan(2);
  });

  it("are smaller and fainter at a larger distance, and below near dots", () => {
    const areaAt = (near: number) => paintedArea(dots({ near: Uint8Array.of(near) }));
    expect(areaAt(0)).toBeLessThan(areaAt(255) / 4);
    for (const [near, color] of [
      [Uint8Array.of(255, 0), Uint8Array.of(1, 0)],
      [Uint8Array.of(0, 255), Uint8Array.of(0, 1)],
    ] as const) {
      // The near dot is above. It has colour 1, in which red is 255 and not 0x20.
      expect(pixelAt(dots({ ...TWO, color, near }), 10, 10)[0]).toBeGreaterThan(220);
    }
  });
});

describe("dots as an SVG", () => {
  it("are one subpath each, with round caps for discs and square caps for squares", () => {
    const count = 400;
    const numbers = (of: (i: number) => number) => Array.from({ length: count }, (_, i) => of(i));
    const x = Float32Array.from(numbers((i) => (i * 7) % 20));
    const y = Float32Array.from(numbers((i) => (i * 3) % 20));
    const color = Uint8Array.from(numbers((i) => i % 2));
    const shape = Uint8Array.from(numbers((i) => (i >> 1) % 2));
    const svg = dotPaths(dots({ count, x, y, color, shape, opacity: 0.5 }));
    expect(svg.match(/M/g)).toHaveLength(count);
    const root = new DOMParser().parseFromString(svg, "image/svg+xml");
    const paths = [...root.querySelectorAll("path")];
    // Dots of equal colour and shape share a path unless they overlap. Within a path, the overlap
    // of two dots would be as transparent as a single dot.
    expect(paths.length).toBeGreaterThan(20);
    expect(paths.length).toBeLessThan(60);
    const caps = new Set(paths.map((path) => path.getAttribute("stroke-linecap")));
    expect(caps).toEqual(new Set(["round", "square"]));
    const widths = paths.map((path) => Number(path.getAttribute("stroke-width")));
    expect(Math.max(...widths)).toBe(8);
    expect(Math.min(...widths)).toBeCloseTo(8 * Math.sqrt(Math.PI / 4), 1);
  });

  it("move with `translate`, and are omitted outside their area", () => {
    const [moved] = translate([dots()], 5, -2) as [DotsMark];
    expect([moved.x[0], moved.y[0], moved.area.x, moved.area.y]).toEqual([15, 8, 5, -2]);
    expect(dotPaths(dots({ x: Float32Array.of(40) }))).not.toContain("M");
  });
});
