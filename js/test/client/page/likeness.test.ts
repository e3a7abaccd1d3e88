/** Blocks that a page computes from others, against codes written out here and in the fixture. */
// @vitest-environment node
import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { PageCarrier, type PageData } from "../../../src/client/page";
import { expectedCode } from "../../../src/client/page/likeness";
import type { EmbeddedPiece } from "../../../src/client/page/rows";
import type { StackDescription } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";

const fixture = JSON.parse(
  readFileSync(new URL("../../../../tests/fixtures/likeness.json", import.meta.url), "utf8"),
) as { step: number; cases: { maxima: [number, number, number]; codes: string }[] };

describe("the code of a difference", () => {
  it.each(fixture.cases)("is the one that Python computes, of $maxima", ({ maxima, codes }) => {
    const [first, second, most] = maxima;
    const wanted = Buffer.from(codes, "base64");
    let at = 0;
    for (let before = 0; before < 256; before += fixture.step) {
      for (let after = 0; after < 256; after += fixture.step) {
        const like = [
          { values: Uint8Array.of(before), maximum: first },
          { values: Uint8Array.of(after), maximum: second },
        ];
        expect(expectedCode(like, 0, most) & 255, `${before}, ${after}`).toBe(wanted[at]);
        at += 1;
      }
    }
    expect(at).toBe(wanted.length);
  });
});

// One head of two queries that do not look ahead: 255 of the first, then 51 and 204.
const MEMBERS = { a: [255, 51, 204], b: [255, 102, 153], c: [250, 153, 102] };
// As a page would hold them by themselves; the first query of the last has no change that counts.
const CHANGES: Record<string, number[]> = { b: [0, 44, -67], c: [-25, 72, -88] };

const NAMES = ["a", "b", "c", "b − a", "c − a"];

function piece(stack: string, codes: number[], like?: string[]): EmbeddedPiece {
  return {
    ...{ stack, layer: 0, shape: [1, 2, 2] as [number, number, number], reach: 0 },
    ...{ maximum: 1, error: 0.01, ...(like && { like }) },
    encoding: stack.includes("−") ? "int8-sqrt" : "uint8-sqrt",
    data: deflateSync(Uint8Array.from(codes, (code) => code & 255)).toString("base64"),
  };
}

const less = (codes: number[], other: number[]): number[] =>
  codes.map((code, at) => code - (other[at] as number));

/** What the two give, by the formula written out. */
const between = (before: number[], after: number[]): number[] =>
  before.map((code, at) => {
    const change = ((after[at] as number) / 255) ** 2 - (code / 255) ** 2;
    return Math.sign(change) * Math.round(127 * Math.sqrt(Math.abs(change)));
  });

function sourceOf(blocks: EmbeddedPiece[]): Source {
  const tokens = { text: ["t0", "t1"], special: [], sequence: [0, 0] };
  const stacks = NAMES.map(
    (name): StackDescription => ({
      ...{ name, layers: [0], heads_per_layer: [1], query_tokens: tokens, key_tokens: tokens },
      ...{ normalized: true, signed: name.includes("−"), measure: "weight", maximum: 1 },
      ...{ causal: true, vectors: false, patterns: [] },
    }),
  );
  const data: PageData = {
    ...{ format: 2, view: "compare", state: {}, blocks, maps: [] },
    description: { model: "m", notes: [], stacks },
  };
  return new Source(new PageCarrier(data));
}

async function read(source: Source, stack: string): Promise<number[]> {
  const { matrices } = await source.block({
    ...{ stack, layer: 0, heads: [0], rows: [0, 2], columns: [0, 2] },
    precision: "float32",
  });
  return [...(matrices[0] as Float32Array)];
}

describe("blocks that are computed from others", () => {
  const { a, b, c } = MEMBERS;
  const blocks = [
    piece("a", a),
    piece("b", less(b, a), ["a"]),
    piece("c", less(c, b), ["b"]),
    piece("b − a", less(CHANGES.b as number[], between(a, b)), ["a", "b"]),
    piece("c − a", less(CHANGES.c as number[], between(a, c)), ["a", "c"]),
  ];

  it.each(NAMES)("are read as if they stood there: %s", async (name) => {
    const codes = CHANGES[name[0] as string];
    const changes = name.includes("−");
    const [first, second, third] = (changes ? codes : MEMBERS[name as "a"]) as number[];
    const value = (code = 0): number => Math.sign(code) * (code / (changes ? 127 : 255)) ** 2 + 0;
    const wanted = [value(first), 0, value(second), value(third)];
    const found = await read(sourceOf(blocks), name);
    found.forEach((number, at) => {
      expect(number, `cell ${at}`).toBeCloseTo(wanted[at] as number, 6);
    });
  });

  it("are an error without what they are computed from, or before it", async () => {
    await expect(read(sourceOf(blocks.slice(1)), "b")).rejects.toThrow('contain layer 0 of "a"');
    const turned = [piece("a", a, ["b"]), piece("b", b, ["a"])];
    await expect(read(sourceOf(turned), "a")).rejects.toThrow('contain layer 0 of "b"');
  });
});
