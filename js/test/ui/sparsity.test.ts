// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../src/client/protocol";
import { pixelsOf } from "../../src/ui/colors/color-scales";
import { PALETTES } from "../../src/ui/colors/palette";
import { coverage } from "../../src/ui/heat-map/captions";
import type { Grid } from "../../src/ui/heat-map/tiles";
import { zerosInWords } from "../../src/ui/text/captions";
import { coverage as coverageOfLines } from "../../src/views/head/captions";
import { computeLines, shownMatrices } from "../../src/views/head/lines";
import { heatMark, strongestCells } from "../../src/views/model/marks";
import { place, viewport } from "./heat-map/viewports";

type Zeros = StackDescription["zeros"];

/** Four tokens, layers 3 and 5 with two heads each. */
function at(layer: number, heads: number[], zeros: Zeros) {
  const made = place(4, 4, { layers: [3, 5], heads_per_layer: [2, 2], ...(zeros && { zeros }) });
  return { ...made, layer, heads };
}

const COUNTS: Zeros = [
  [
    [8, 16],
    [0, 16],
  ],
  [
    [6, 10],
    [1, 10],
  ],
];

describe("exact zeros in words", () => {
  it("are those of the heads that are shown, in their layer", () => {
    expect(zerosInWords(at(3, [0], COUNTS))).toBe("50% of head 0's weights are exactly 0.");
    expect(zerosInWords(at(3, [0, 1], COUNTS))).toBe(
      "25% of the weights of heads 0, 1 are exactly 0.",
    );
  });

  it("say where masked pairs are not among those counted", () => {
    expect(zerosInWords(at(5, [1], COUNTS))).toBe(
      "10% of head 1's weights are exactly 0, masked pairs not counted.",
    );
  });

  it("say nothing where there are none", () => {
    expect(zerosInWords(at(3, [1], COUNTS))).toBe("");
    expect(zerosInWords(at(3, [0], undefined))).toBe("");
  });

  it("never round a share to none or to all", () => {
    const counts = (zeros: number): Zeros => [[[zeros, 10_000]], [[0, 1]]];
    expect(zerosInWords(at(3, [0], counts(1)))).toContain("<1% of");
    expect(zerosInWords(at(3, [0], counts(9_990)))).toContain(">99% of");
  });

  it("stand in the head view's caption", () => {
    const drawn = {
      shares: {
        drawn: 1,
        leftOut: 0,
        leftOutError: 0,
        otherPair: 0,
        away: 0,
        far: 0,
        outside: 0,
        rest: 0,
      },
      maxima: false,
      topK: null,
      threshold: 0,
      faintest: null,
      leaveOut: [],
      renormalize: false,
      pair: "all" as const,
      emptyQueries: 0,
      wholeRows: true,
      pinned: ["query “t1”"],
      live: false,
    };
    expect(coverageOfLines(drawn)).toBe("All lines drawn: 100% of the weight. Pinned: query “t1”.");
    expect(coverageOfLines({ ...drawn, zeros: zerosInWords(at(3, [0], COUNTS)) })).toBe(
      "All lines drawn: 100% of the weight. 50% of head 0's weights are exactly 0. Pinned: query “t1”.",
    );
  });

  it("stand in the matrix view's caption, and do not come from the bytes that were sent", () => {
    // What the codec sent as 0 was small in head 1, and exactly 0 in none.
    const grid: Grid = {
      rows: 2,
      columns: 2,
      values: Float32Array.of(0, 1, 1, 0),
      maximum: 1,
      error: 0.00392,
      missing: 0,
      fine: true,
    };
    const words = (zeros: Zeros): string => {
      const now = viewport(2, 2, {}, { ...(zeros && { zeros }) });
      const said = { viewport: now, grid, token: null, key: null, row: null, column: null };
      return coverage(said, { scale: "linear", end: 1, live: true });
    };
    expect(words(undefined)).not.toContain("exactly 0");
    const counts: Zeros = [[[0, 4] as [number, number], [1, 4]]];
    expect(words(counts)).toContain("25% of head 1's weights are exactly 0.");
  });
});

describe("a weight of exactly 0", () => {
  const values = Float32Array.of(0, 0, 0, 0);
  const all = Uint8Array.of(1, 1);

  it("is no line, also where no weight is larger", () => {
    const weights = {
      heads: [0],
      matrices: [values],
      rows: [0, 2] as [number, number],
      columns: [0, 2] as [number, number],
      numKeys: 2,
      normalized: false,
      maximum: 0,
      error: 0,
    };
    const options = {
      combine: "separate" as const,
      topK: null,
      threshold: 0,
      leftOut: new Uint8Array(2),
      pairQueries: all,
      pairKeys: all,
      renormalize: false,
      queryWindow: [0, 2] as [number, number],
      keyWindow: [0, 2] as [number, number],
    };
    for (const topK of [null, 1]) {
      const lines = computeLines(
        weights,
        { ...options, topK },
        shownMatrices(weights, "separate", false),
      );
      expect(lines.series[0]?.count).toBe(0);
    }
  });

  it("is no colour in a matrix and no ink in a thumbnail", () => {
    const some = Float32Array.of(0, 0.5, 0.5, 0);
    const cells = pixelsOf(some, "light", 1, "linear", "#010203");
    expect([cells[3], cells[7], cells[11], cells[15]]).toEqual([0, 255, 255, 0]);
    const map = { values: some, rows: 2, columns: 2, maximum: 1, error: 0 };
    const { pixels } = heatMark(map, { x: 0, y: 0, side: 20 }, PALETTES.light.neutral);
    expect([pixels[3], pixels[15]]).toEqual([0, 0]);
    expect(pixels[7]).toBeGreaterThan(0);
    expect(strongestCells(map, 4)).toEqual([1, 2]);
  });
});
