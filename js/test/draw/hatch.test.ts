// @vitest-environment node
import { expect, it } from "vitest";
import { hatchLines, hatchMark } from "../../src/draw/hatch";

/** Two rows of three cells, each 10 pixels wide and 12 pixels high. The first cell is at (7, 3). */
const GRID = { x: 7, y: 3, width: 30, height: 24, columns: 3, rows: 2 };
const FLAGS = [0, 1, 1, 1, 0, 1];

it("diagonals run through hatched cells only, and through each point of them", () => {
  const mark = hatchMark(GRID, FLAGS, "#123456");
  const lines = hatchLines(mark);
  // Whether a point, relative to the grid, is on a line, according to the flags alone.
  const isHatched = (across: number, down: number): boolean =>
    FLAGS[Math.floor(down / 12) * 3 + Math.floor(across / 10)] === 1;
  for (let sum = mark.spacing; sum < 54; sum += mark.spacing)
    for (let across = 0.25; across < 30; across += 0.5) {
      const down = sum - across;
      if (down <= 0 || down >= 24) continue;
      const covering = lines.filter(
        ([x0, y0, x1]) => Math.abs(x0 + y0 - sum - 10) < 1e-9 && x0 < across + 7 && x1 > across + 7,
      );
      expect(covering.length, `${across}, ${down}`).toBe(isHatched(across, down) ? 1 : 0);
    }
});

it("a diagonal is one line across adjacent cells", () => {
  const lines = hatchLines({ ...hatchMark(GRID, [1, 1, 1, 1, 1, 1], "#123456"), spacing: 24 });
  expect(lines).toEqual([
    [7, 27, 31, 3],
    [31, 27, 37, 21],
  ]);
});
