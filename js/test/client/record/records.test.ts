// @vitest-environment node
/** What Python saved is read the same here, and what it refuses is refused: tests/fixtures/records.json. */

import { readFileSync } from "node:fs";
import { inflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { Description, StackDescription } from "../../../src/client/protocol";
import { RecordCarrier, sampledQueries } from "../../../src/client/record/carrier";
import { RefusedFile } from "../../../src/client/record/fields";
import { Checksum } from "../../../src/client/record/file";
import type { Layer } from "../../../src/client/record/layers";
import type { SavedStack } from "../../../src/client/record/record";
import { openRecord } from "../../../src/client/record/record";
import { visibleWithParts } from "../../../src/client/record/tokens";
import { Weights } from "../../../src/client/record/weights";
import { askStrongest, type Strongest } from "../../../src/client/requests/strongest";
import { askVectors } from "../../../src/client/requests/vectors";
import { keptHeads, Source } from "../../../src/client/source";

type Matrix = number[][];

interface Fixture {
  opened: {
    name: string;
    file: string;
    description: Description;
    weights: Record<string, Record<string, Record<string, Matrix>>>;
  }[];
  refused: { name: string; file: string; page: string }[];
  unshown: { file: string; heads: Record<string, number> };
  texts: [string, string][];
}

const FIXTURE = JSON.parse(
  readFileSync(new URL("../../../../tests/fixtures/records.json", import.meta.url), "utf8"),
) as Fixture;

function bytesOf(packed: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(inflateSync(Buffer.from(packed, "base64")));
}

async function sourceOf(file: Blob): Promise<Source> {
  return new Source(await RecordCarrier.of(await openRecord(file)));
}

function whole(stack: StackDescription) {
  const keys = stack.key_tokens ?? stack.query_tokens;
  const rows: [number, number] = [0, stack.query_tokens.text.length];
  const columns: [number, number] = [0, keys.text.length];
  return { rows, columns };
}

/** Of each head its stack, its layer, and what has to come out. */
function* headsOf({ description, weights }: Fixture["opened"][number]) {
  for (const stack of description.stacks) {
    for (const layer of stack.layers) {
      for (const head of keptHeads(stack, layer)) {
        yield { stack, layer, head, wanted: weights[stack.name]?.[layer]?.[head] as Matrix };
      }
    }
  }
}

describe.each(FIXTURE.opened)("$name", (record) => {
  const file = (): Blob => new Blob([bytesOf(record.file)]);

  it("is described as in Python", async () => {
    const found = await (await sourceOf(file())).describe();
    expect(found.stacks.map(({ maximum }) => maximum)).toEqual(
      record.description.stacks.map(({ maximum }) => expect.closeTo(maximum, 5)),
    );
    const without = (description: Description) =>
      JSON.parse(JSON.stringify(description, (name, value) => (name === "maximum" ? 0 : value)));
    expect(without(found)).toEqual(without(record.description));
  });

  it("has the weights that its model has", async () => {
    const source = await sourceOf(file());
    let seen = 0;
    for (const { stack, layer, head, wanted } of headsOf(record)) {
      const at = { stack: stack.name, layer, heads: [head], precision: "float32" as const };
      const { matrices } = await source.block({ ...at, ...whole(stack) });
      const [found] = matrices as [Float32Array];
      const flat = wanted.flat();
      expect(found.length).toBe(flat.length);
      found.forEach((weight, i) => {
        expect(Math.abs(weight - (flat[i] as number))).toBeLessThan(1e-4);
      });
      seen++;
    }
    expect(seen).toBeGreaterThan(0);
  });

  it("pools tiles, maps and strongest keys from these weights", async () => {
    const source = await sourceOf(file());
    for (const { stack, layer, head, wanted } of headsOf(record)) {
      const at = { stack: stack.name, layer, heads: [head] };
      const numKeys = wanted[0]?.length as number;
      const tile = await source.tile({
        ...{ ...at, level: 1, row: 0, column: 0, pooled: "max", precision: "float32" },
      });
      expect([tile.rows, tile.columns]).toEqual([
        Math.ceil(wanted.length / 2),
        Math.ceil(numKeys / 2),
      ]);
      const corner = [0, 1].flatMap((row) => wanted[row]?.slice(0, 2) ?? []);
      const largest = corner.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
      expect(Math.abs(Math.abs(tile.matrices[0]?.[0] as number) - Math.abs(largest))).toBeLessThan(
        2e-3,
      );
      const maps = await source.maps({ ...at, size: 2 });
      expect(maps.matrices[0]?.length).toBe(Math.min(2, wanted.length) * Math.min(2, numKeys));
      let strongest: Strongest | null = null;
      const request = {
        ...{ ...at, rows: [0, wanted.length] as [number, number], k: 1, bin_size: 1 },
        ...{ combine: "separate" as const, leave_out: [], pair: "all" as const },
      };
      await askStrongest(
        source,
        request,
        numKeys,
        (found) => {
          strongest = found;
        },
        new AbortController().signal,
      );
      const [of] = (strongest as Strongest | null)?.matrices ?? [];
      wanted.forEach((row, i) => {
        const most = Math.max(...row.map(Math.abs));
        expect(Math.abs(Math.abs(of?.weights[i] as number) - most)).toBeLessThan(1e-4);
      });
    }
  });

  it("says how weights come from queries and keys, where these are known", async () => {
    const source = await sourceOf(file());
    for (const { stack, layer, head, wanted } of headsOf(record)) {
      const request = { stack: stack.name, layer, head, token: 1, keys: whole(stack).columns };
      if (!stack.vectors) {
        await expect(askVectors(source, request)).rejects.toThrow("are not known");
        continue;
      }
      const found = await askVectors(source, request);
      found.weights.forEach((weight, key) => {
        expect(Math.abs(weight - (wanted[1]?.[key] as number))).toBeLessThan(1e-4);
      });
      const { sink } = found.header;
      const sum = found.weights.reduce((a, b) => a + b, sink?.weight ?? 0);
      expect(sum).toBeCloseTo(found.header.num_allowed > 0 ? 1 : 0, 4);
    }
  });

  it("scores heads by the patterns that it offers", async () => {
    const source = await sourceOf(file());
    for (const stack of record.description.stacks) {
      for (const pattern of stack.patterns) {
        const scores = await source.scores(stack.name, pattern);
        expect(scores.map((layer) => layer.length)).toEqual(stack.heads_per_layer);
      }
      if (!stack.patterns.includes("first token")) continue;
      const scores = await source.scores(stack.name, "first token");
      for (const { stack: other, layer, head, wanted } of headsOf(record)) {
        if (other !== stack) continue;
        const score = scores[stack.layers.indexOf(layer)]?.[head];
        const onFirst = wanted.reduce((sum, row) => sum + (row[0] as number), 0);
        // Of queries that the mask keeps from the first key nothing is said.
        expect(score === null ? onFirst : (score as number)).toBeGreaterThanOrEqual(
          onFirst / wanted.length - 1e-4,
        );
      }
    }
  });
});

describe("a file that Python refuses", () => {
  it.each(FIXTURE.refused)("is refused: $name", async ({ file, page }) => {
    const opened = openRecord(new Blob([bytesOf(file)]));
    await expect(opened).rejects.toBeInstanceOf(RefusedFile);
    await expect(opened).rejects.toThrow(page);
  });

  it("is refused wherever it was cut", async () => {
    const data = bytesOf(FIXTURE.opened[0]?.file as string);
    for (let cut = 0; cut < data.length; cut += 997) {
      await expect(openRecord(new Blob([data.slice(0, cut)]))).rejects.toBeInstanceOf(RefusedFile);
    }
  });

  it("is refused whichever byte was changed", async () => {
    const data = bytesOf(FIXTURE.opened[0]?.file as string);
    for (let at = 8; at < data.length; at += 1009) {
      const changed = data.slice();
      // A letter stays a letter.
      changed[at] = (changed[at] as number) ^ 1;
      await expect(openRecord(new Blob([changed]))).rejects.toBeInstanceOf(RefusedFile);
    }
  });
});

describe("a record", () => {
  it("whose weights are NaN says so where they are asked for", async () => {
    const source = await sourceOf(new Blob([bytesOf(FIXTURE.unshown.file)]));
    for (const [stack, head] of Object.entries(FIXTURE.unshown.heads)) {
      const at = { stack, layer: 0, heads: [head], precision: "float32" as const };
      const asked = source.block({ ...at, rows: [0, 3], columns: [0, 3] });
      await expect(asked).rejects.toThrow(`Stack “${stack}”, layer 0, head ${head}: some weights`);
    }
  });

  it("is read a slice at a time", async () => {
    const data = bytesOf(FIXTURE.opened.find(({ name }) => name === "given weights")?.file ?? "");
    const file = new Blob([data]);
    const read: number[] = [];
    const slice = file.slice.bind(file);
    file.slice = (from = 0, to = data.length) => {
      read.push(to - from);
      return slice(from, to);
    };
    const source = await sourceOf(file);
    read.length = 0;
    const at = { stack: "self", layer: 4, heads: [1], precision: "float32" as const };
    await source.block({ ...at, rows: [0, 2], columns: [0, 3] });
    // One head of two, and nothing twice.
    await source.block({ ...at, rows: [4, 5], columns: [0, 3] });
    expect(read).toEqual([4 * 12 * 12]);
  });

  it("is not answered any more where the answer is not wanted", async () => {
    const source = await sourceOf(new Blob([bytesOf(FIXTURE.opened[0]?.file as string)]));
    const ended = AbortSignal.abort();
    await expect(source.maps({ stack: "self", layer: 0, size: 4 }, ended)).rejects.toThrow(
      /abort/i,
    );
    await expect(source.carrier.ask("page", { part: 0, state: {} })).rejects.toThrow(
      "cannot answer",
    );
    await expect(source.maps({ stack: "self", layer: 7, size: 4 })).rejects.toThrow("no layer 7");
    await expect(source.maps({ stack: "self", layer: 0, size: 4, heads: [1] })).rejects.toThrow(
      "Head 1 of layer 0 was not kept",
    );
  });

  it("says where the tokens of an answer came from", async () => {
    const [record] = FIXTURE.opened as [Fixture["opened"][number]];
    const source = await sourceOf(new Blob([bytesOf(record.file)]));
    const { header } = await source.carrier.ask("sources", { stack: "self", query: 4 });
    const { keys, heads } = header as { keys: { key: number; mean: number }[]; heads: number };
    const rows = [...headsOf(record)].map(({ wanted }) => wanted[4] as number[]);
    expect(heads).toBe(rows.length);
    for (const { key, mean } of keys) {
      const wanted = rows.reduce((sum, row) => sum + (row[key] as number), 0) / rows.length;
      expect(mean).toBeCloseTo(wanted, 4);
    }
    expect(keys).toHaveLength(5);
  });

  it("shows its images", async () => {
    const record = FIXTURE.opened.find(({ name }) => name === "an image");
    const source = await sourceOf(new Blob([bytesOf(record?.file ?? "")]));
    const image = await source.image(0);
    expect([image.height, image.width]).toEqual([12, 12]);
    expect(new Set(image.pixels.filter((_, i) => i % 4 === 3))).toEqual(new Set([255]));
    expect(new Set(image.pixels).size).toBeGreaterThan(50);
  });
});

describe("a token's text", () => {
  it.each(FIXTURE.texts)("%j is shown as %j, as in Python", (given, shown) => {
    expect(visibleWithParts(given)).toBe(shown);
  });
});

it("a checksum is that of zlib", () => {
  // The check value of CRC-32: https://reveng.sourceforge.io/crc-catalogue/all.htm#crc.cat.crc-32-iso-hdlc
  expect(String(new Checksum().add("123456789"))).toBe("cbf43926");
  expect(String(new Checksum().add("12345").add("6789"))).toBe("cbf43926");
});

it("queries are sampled as in Python", () => {
  // From the docstring of attnviz.record.rows.sampled_queries.
  expect(sampledQueries(3, 64)).toEqual([0, 1, 2]);
  expect(sampledQueries(32_768, 64).slice(0, 4)).toEqual([256, 572, 1400, 1717]);
});

describe("weights that exceed the largest one that the file names", () => {
  // Two runs that differ by rounding differ by other roundings here than in Python.
  const some = (given: boolean, values: number[]) => {
    const layer = { given, weights: async () => Float32Array.from(values) } as unknown as Layer;
    const stack = { name: "b − a", signed: true } as SavedStack;
    return new Weights(() => 1e-6).some({ stack, number: 0, layer }, 0, [0]);
  };

  it("are shown where they are computed, and off by rounding alone", async () => {
    expect(await some(false, [1.5e-6, -1.2e-6])).toHaveLength(2);
    await expect(some(false, [0.01, -1.2e-6])).rejects.toThrow("the file was changed");
  });

  it("are refused where the file has them", async () => {
    await expect(some(true, [1.5e-6])).rejects.toThrow("the file was changed");
  });
});
