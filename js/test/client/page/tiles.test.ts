// @vitest-environment node

import { expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { parts, runs } from "../../../src/client/page/tiles";
import type { TileRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { pageOf, pieceOf, readFixture } from "../../builders";

interface Fixture {
  codes: Record<string, number[][][]>;
  cases: { record: string; request: Omit<TileRequest, "stack" | "layer">; cells: number[][] }[];
}

/** Codes of weights, and the tiles that `tests/fixtures/make_tiles.py` computed from the codes. */
const FIXTURE = readFixture<Fixture>("tiles.json");

function sourceOf(codes: number[][][]): Source {
  const [rows = []] = codes;
  const block = pieceOf([codes.length, rows.length, rows[0]?.length ?? 0], codes.flat(2));
  return new Source(new PageTransport(pageOf({ blocks: [block], maps: [block] })));
}

it.each(FIXTURE.cases.map((one) => [JSON.stringify([one.record, one.request]), one] as const))(
  "a page pools the tile %s",
  async (_name, { record, request, cells }) => {
    const source = sourceOf(FIXTURE.codes[record] as number[][][]);
    const block = await source.tile({ ...request, stack: "self", layer: 0 });
    expect([block.rows, block.columns]).toEqual([cells.length, cells[0]?.length]);
    const expected = cells.flat().map((cell) => expect.closeTo(cell, 6));
    expect([...(block.matrices[0] as Float32Array)]).toEqual(expected);
  },
);

it("the range of a tile is split into runs, and into equal parts", () => {
  expect(runs([4, 11], 4)).toEqual([4, 8, 11]);
  expect(parts([2, 9], 3)).toEqual([2, 4, 6, 9]);
  expect(parts([0, 2], 5)).toEqual([0, 1, 2]);
});
