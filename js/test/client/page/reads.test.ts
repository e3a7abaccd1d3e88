// @vitest-environment node

import { expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { parts, runs } from "../../../src/client/page/reductions";
import type { ReadRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { described, pageOf, pieceOf, readFixture, stackOf, tokensOf } from "../../builders";

interface Fixture {
  records: Record<string, { signed: boolean; codes: number[][][] }>;
  cases: {
    record: string;
    request: Omit<ReadRequest, "stack" | "layer">;
    matrices: number[][][];
  }[];
}

/** Weights and the answers to reads, which `tests/fixtures/make_reads.py` computed. */
const FIXTURE = readFixture<Fixture>("reads.json");

function sourceOf({ signed, codes }: Fixture["records"][string]): Source {
  const [first = []] = codes;
  const [queries, keys] = [first.length, first[0]?.length ?? 0];
  const tokens = (count: number) => Array.from({ length: count }, (_, i) => `t${i}`);
  const stack = stackOf({
    query_tokens: tokensOf(tokens(queries)),
    key_tokens: tokensOf(tokens(keys)),
  });
  const bytes = codes.flat(2).map((code) => code & 255);
  const block = pieceOf([codes.length, queries, keys], bytes, { ...(signed && { signed }) });
  return new Source(new PageTransport(pageOf({ blocks: [block], description: described(stack) })));
}

it.each(FIXTURE.cases.map((one) => [JSON.stringify([one.record, one.request]), one] as const))(
  "a page answers the read %s",
  async (_name, { record, request, matrices }) => {
    const source = sourceOf(FIXTURE.records[record] as Fixture["records"][string]);
    const answers = await source.read({ ...request, stack: "self", layer: 0 });
    expect(answers.map(({ rows, columns }) => [rows, columns])).toEqual(
      matrices.map((rows) => [rows.length, rows[0]?.length]),
    );
    answers.forEach(({ values }, i) => {
      const expected = (matrices[i] as number[][]).flat().map((value) => expect.closeTo(value, 6));
      expect([...values]).toEqual(expected);
    });
  },
);

it("a range is split into cells of one length, or into nearly equal cells", () => {
  expect(runs([4, 11], 4)).toEqual([4, 8, 11]);
  expect(parts([2, 9], 3)).toEqual([2, 4, 6, 9]);
  expect(parts([0, 2], 5)).toEqual([0, 1, 2]);
});
