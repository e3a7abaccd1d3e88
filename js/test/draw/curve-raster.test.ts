import { describe, expect, it } from "vitest";
import { CurveRaster, type Part, rasterable } from "../../src/draw/curve-raster";
import { type CurvesMark, OPACITY_STEPS } from "../../src/draw/marks";

const [START, END] = [10, 30];

/** Curves from START to END, each from one place along to another. */
function curves(
  places: readonly (readonly [number, number])[],
  more: Partial<CurvesMark> & { strength?: number; wide?: number } = {},
): CurvesMark {
  const { strength = 1, wide = 1, ...rest } = more;
  const count = places.length;
  return {
    kind: "curves",
    columns: "vertical",
    color: "#204060",
    count,
    x0: new Float32Array(count).fill(START),
    x1: new Float32Array(count).fill(END),
    y0: Float32Array.from(places, ([from]) => from),
    y1: Float32Array.from(places, ([, to]) => to),
    opacity: new Float32Array(count).fill(strength),
    width: new Float32Array(count).fill(wide),
    ...rest,
  };
}

function turned(mark: CurvesMark): CurvesMark {
  const { x0, x1, y0, y1 } = mark;
  return { ...mark, columns: "horizontal", x0: y0, x1: y1, y0: x0, y1: x1 };
}

function rasterOf(marks: CurvesMark[], scale = 1): CurveRaster {
  const found = rasterable(marks);
  if (!found) throw new Error("These are not curves with common ends.");
  return new CurveRaster(found, scale);
}

function painted(raster: CurveRaster, start: number, stop: number, least = 0): Part {
  const work = raster.paint(start, stop, least);
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Opacities, from 0 to 1, in [column][row along]. */
function opacities(raster: CurveRaster, start: number, stop: number): number[][] {
  const { pixels } = painted(raster, start, stop);
  return Array.from({ length: raster.across }, (_, column) =>
    Array.from({ length: stop - start }, (_, row) => {
      const at = raster.vertical ? row * raster.across + column : column * (stop - start) + row;
      return (pixels[4 * at + 3] as number) / 255;
    }),
  );
}

const ALMOST = 0.5 / 255 + 1e-6;

/** The length of a curve, by many short straight pieces of its Bézier formula. */
function lengthOf(from: number, to: number): number {
  const pieces = 20_000;
  const at = (t: number): [number, number] => {
    const s = 1 - t;
    const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
    const middle = (START + END) / 2;
    return [a * START + (b + c) * middle + d * END, (a + b) * from + (c + d) * to];
  };
  let sum = 0;
  for (let i = 0; i < pieces; i++) {
    const [x0, y0] = at(i / pieces);
    const [x1, y1] = at((i + 1) / pieces);
    sum += Math.hypot(x1 - x0, y1 - y0);
  }
  return sum;
}

describe("curves as pixels", () => {
  it("share out a level curve by its distance from the middles of pixels", () => {
    for (const [place, above, own, below] of [
      [5.5, 0, 1, 0],
      [5.75, 0, 0.75, 0.25],
      [5.1, 0.4, 0.6, 0],
    ] as const) {
      for (const row of opacities(rasterOf([curves([[place, place]])]), 0, 12)) {
        expect(Math.abs((row[4] as number) - above)).toBeLessThan(ALMOST);
        expect(Math.abs((row[5] as number) - own)).toBeLessThan(ALMOST);
        expect(Math.abs((row[6] as number) - below)).toBeLessThan(ALMOST);
        expect(row.filter((_, i) => i < 4 || i > 6).every((each) => each === 0)).toBe(true);
      }
    }
  });

  it("cover the area of a band as long as the curve, at every width, slope and scale", () => {
    for (const wide of [1.3, 2, 2.6]) {
      for (const [from, to] of [
        [20, 20.4],
        [20, 27],
        [60, 21],
        [15, 115],
      ] as const) {
        for (const scale of [1, 1.25, 2]) {
          const raster = rasterOf([curves([[from, to]], { wide })], scale);
          const sum = opacities(raster, 0, raster.stop)
            .flat()
            .reduce((a, b) => a + b, 0);
          const area = wide * lengthOf(from, to) * scale * scale;
          expect(Math.abs(sum / area - 1)).toBeLessThan(0.02);
        }
      }
    }
  });

  it("are connected where they are steep: every row has as much of a thin one", () => {
    const rows = opacities(rasterOf([curves([[10, 210]])]), 0, 220);
    for (let row = 40; row < 180; row++) {
      const sum = rows.reduce((all, column) => all + (column[row] as number), 0);
      expect(Math.abs(sum - 1)).toBeLessThan(0.1);
    }
  });

  it("cover of the first and the last column as much as lies between the ends", () => {
    // Level, rising gently and steeply, faint and strong: one that is level is painted in no blocks here.
    for (const [from, to] of [
      [20.5, 20.5],
      [20.5, 21.5],
      [20.5, 60.5],
    ] as const) {
      for (const strength of [0.01, 1]) {
        const places = { x0: Float32Array.of(START + 0.6), x1: Float32Array.of(END - 0.7) };
        const columns = opacities(rasterOf([curves([[from, to]], { strength, ...places })]), 0, 80);
        const share = (column: number): number =>
          (columns[column] as number[]).reduce((a, b) => a + b, 0);
        // A hundredth is two steps of 192, which is what is drawn.
        const drawn = Math.round(strength * OPACITY_STEPS) / OPACITY_STEPS;
        expect(Math.abs(share(0) - 0.4 * drawn)).toBeLessThan(4 * ALMOST);
        expect(Math.abs(share(columns.length - 1) - 0.3 * drawn)).toBeLessThan(4 * ALMOST);
        expect(columns.length).toBe(END - START);
      }
    }
  });

  it("add up as what lets light through, however faint each is", () => {
    const one = 1 / OPACITY_STEPS;
    for (const count of [1, 2, 30, 1000]) {
      const many = curves(new Array(count).fill([5.5, 5.5]), { strength: one });
      const [row] = opacities(rasterOf([many]), 0, 12);
      expect(Math.abs((row?.[5] as number) - (1 - (1 - one) ** count))).toBeLessThan(ALMOST);
    }
  });

  it("let through together what each lets through alone, faint and strong, level and steep", () => {
    const rises = [0, 0.4, 3, 9, 14, 19, 26, 40, 75, 160];
    const marks = [1 / OPACITY_STEPS, 0.03, 0.2, 0.9].flatMap((strength, i) =>
      [0.8, 1, 1.7].map((wide, j) =>
        curves(
          rises.map((rise, k) => {
            const from = 10 + 3.7 * k + 2.3 * i + j;
            return (i + k) % 2 === 0 ? [from, from + rise] : [from + rise, from];
          }),
          { strength, wide },
        ),
      ),
    );
    const rasters = marks.flatMap((mark) =>
      Array.from({ length: mark.count }, (_, i) => {
        const at = (of: Float32Array): Float32Array => of.slice(i, i + 1);
        const { x0, x1, y0, y1, opacity, width } = mark;
        const places = { x0: at(x0), x1: at(x1), y0: at(y0), y1: at(y1) };
        return rasterOf([{ ...mark, ...places, opacity: at(opacity), width: at(width), count: 1 }]);
      }),
    );
    const together = opacities(rasterOf(marks), 0, 240);
    const through = together.map((column) => column.map(() => 1));
    for (const raster of rasters) {
      opacities(raster, 0, 240).forEach((column, i) => {
        column.forEach((each, j) => {
          (through[i] as number[])[j] = (through[i]?.[j] as number) * (1 - each);
        });
      });
    }
    // Of each the pixels are rounded, to half a step.
    const off = together.flatMap((column, i) =>
      column.map((each, j) => Math.abs(each - (1 - (through[i]?.[j] as number)))),
    );
    expect(Math.max(...off)).toBeLessThan(10 / 255);
    expect(off.reduce((a, b) => a + b, 0) / off.length).toBeLessThan(0.5 / 255);
  });

  it("lie one above the other where their colours differ", () => {
    const below = curves([[5.5, 5.5]], { color: "#ff0000", strength: 0.5 });
    const above = curves([[5.5, 5.5]], { color: "#0000ff", strength: 0.25 });
    const raster = rasterOf([below, above]);
    const { pixels } = painted(raster, 0, 12);
    const [red, green, blue, alpha] = pixels.subarray(
      4 * 5 * raster.across,
      4 * 5 * raster.across + 4,
    );
    // Porter and Duff's "over": 0.25 of blue, then 0.75 of what the half of red is.
    const opacity = 0.25 + 0.75 * 0.5;
    expect(Math.abs((alpha as number) - 255 * opacity)).toBeLessThanOrEqual(0.5);
    expect(Math.abs((red as number) - (255 * 0.375) / opacity)).toBeLessThanOrEqual(0.5);
    expect(green).toBe(0);
    expect(Math.abs((blue as number) - (255 * 0.25) / opacity)).toBeLessThanOrEqual(0.5);
  });

  it("are the same in one part and in many, upright and lying", () => {
    const places = Array.from({ length: 60 }, (_, i): [number, number] => [
      5 + ((i * 37) % 90),
      5 + ((i * 53) % 90),
    ]);
    const marks = [
      curves(places.slice(0, 20), { strength: 0.3 }),
      curves(places.slice(20), { strength: 0.7, wide: 1.8, color: "#b84812" }),
    ];
    for (const scale of [1, 1.25]) {
      const raster = rasterOf(marks, scale);
      const whole = opacities(raster, 0, 130);
      const parts = [0, 7, 50, 51, 130];
      const joined = parts
        .slice(1)
        .map((stop, i) => opacities(raster, parts[i] as number, stop))
        .reduce((all, part) => all.map((column, i) => [...column, ...(part[i] as number[])]));
      joined.forEach((column, i) => {
        column.forEach((each, j) => {
          expect(Math.abs(each - (whole[i]?.[j] as number))).toBeLessThan(2 * ALMOST);
        });
      });
      expect(opacities(rasterOf(marks.map(turned), scale), 0, 130)).toEqual(whole);
    }
  });

  it("leave out what is not in the part, and weak ones until they are asked for", () => {
    const far = curves([
      [5, 8],
      [105, 108],
      [5, 108],
    ]);
    const raster = rasterOf([far]);
    expect(painted(raster, 0, 20).count).toBe(2);
    expect(painted(raster, 40, 60).count).toBe(1);
    expect(painted(raster, 200, 210).count).toBe(0);
    expect(raster.painted).toBe(3);
    far.opacity.set([0.2, 0.9, 0.6]);
    const mixed = rasterOf([far]);
    expect(painted(mixed, 0, 120, 0.5).count).toBe(2);
    expect(mixed.opacityOfStrongest(0, 120, 3)).toBe(0);
    const least = mixed.opacityOfStrongest(0, 120, 2);
    expect(painted(mixed, 0, 120, least).count).toBe(2);
  });
});

describe("what can be painted so", () => {
  it("are curves that share their ends, whole and of a colour with six digits", () => {
    const one = curves([[5, 8]]);
    expect(rasterable([one, curves([[1, 2]], { color: "#ff0000" })])?.count).toBe(2);
    expect(rasterable([])).toBeNull();
    expect(rasterable([curves([])])).toBeNull();
    expect(rasterable([one, curves([[1, 2]], { dashed: true })])).toBeNull();
    expect(rasterable([one, turned(one)])).toBeNull();
    expect(rasterable([curves([[1, 2]], { color: "var(--ink)" })])).toBeNull();
    expect(rasterable([one, curves([[1, 2]], { x1: Float32Array.of(31) })])).toBeNull();
    expect(rasterable([one, { kind: "rect" }])).toBeNull();
    expect(rasterable([{ kind: "rect" }, one])).toBeNull();
  });
});
