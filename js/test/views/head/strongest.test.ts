// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Carrier, Reply } from "../../../src/client/carrier";
import type { StrongestRequest } from "../../../src/client/protocol";
import {
  askStrongest,
  type Meant,
  readStrongest,
  type Strongest,
  splitStrongest,
  strongestOf,
} from "../../../src/client/requests/strongest";
import { Source } from "../../../src/client/source";
import { PALETTES } from "../../../src/ui/colors/palette";
import { alongToken, layOut, type Strip, tokenIn } from "../../../src/views/head/layout";
import { computeLines, type LineOptions, type Weights } from "../../../src/views/head/lines";
import { clipWindow } from "../../../src/views/head/state";
import { binSizeOf, spreadOf, stripMarks, stripWords } from "../../../src/views/head/strips";
import { strongestKeys } from "../../../src/views/head/strongest";

const LONG = 131_072;

// Every row sums to one. Worked by hand below.
const ROWS = [
  [0.5, 0.25, 0, 0, 0.25, 0],
  [0.125, 0, 0.5, 0.25, 0, 0.125],
  [0, 0, 0, 0, 0, 1],
];
const rowAt = (row: number): Float32Array => Float32Array.from(ROWS[row] ?? []);

const request: StrongestRequest = {
  stack: "self",
  layer: 0,
  heads: [0],
  rows: [0, 3],
  k: 2,
  bin_size: 2,
  combine: "separate",
  leave_out: [],
  pair: "all",
};

function meant(more: Partial<Meant> = {}, keys = 6): Meant {
  return {
    leftOut: new Uint8Array(keys),
    pairQueries: new Uint8Array(keys).fill(1),
    pairKeys: new Uint8Array(keys).fill(1),
    ...more,
  };
}

/** What a kernel would reply, in its order: keys, weights, sums, spread. */
function replyOf(part: StrongestRequest): Reply {
  const [top, bottom] = part.rows;
  const found = part.heads.map(() => {
    return strongestOf(rowAt, { ...part, bin_size: 2 }, 6, meant());
  });
  const buffers = [
    ...found.map((each) => each.keys),
    ...found.map((each) => each.weights),
    ...found.map((each) => each.sums),
    ...found.map((each) => each.spread),
  ];
  const bytes = new Uint8Array(buffers.reduce((sum, each) => sum + each.byteLength, 0) + 1);
  let at = 1;
  for (const each of buffers) {
    bytes.set(new Uint8Array(each.buffer, each.byteOffset, each.byteLength), at);
    at += each.byteLength;
  }
  // A message's view need not start at a multiple of four bytes.
  const data = new DataView(bytes.buffer, 1);
  return { header: { shape: [found.length, bottom - top, part.k, 3] }, data };
}

describe("the strongest keys", () => {
  it("are found in whole rows, with all sums", () => {
    const found = strongestOf(rowAt, request, 6, meant());
    expect([...found.keys]).toEqual([0, 1, 2, 3, 5, -1]);
    expect([...found.weights]).toEqual([0.5, 0.25, 0.5, 0.25, 1, 0]);
    expect([...found.sums]).toEqual([1, 0, 0, 1, 0, 0, 1, 0, 0]);
    expect([...found.spread]).toEqual([0.875, 0.75, 1.375]);
  });

  it("are none that are left out or not taken, whose sums are said", () => {
    const leftOut = Uint8Array.from([1, 0, 0, 0, 0, 0]);
    const pairKeys = Uint8Array.from([1, 1, 1, 1, 0, 1]);
    const pairQueries = Uint8Array.from([1, 1, 0, 1, 1, 1]);
    const found = strongestOf(rowAt, request, 6, meant({ leftOut, pairKeys, pairQueries }));
    expect([...found.keys]).toEqual([1, -1, 2, 3, 5, -1]);
    expect([...found.sums]).toEqual([0.25, 0.5, 0.25, 0.875, 0.125, 0, 1, 0, 0]);
    // Of the two queries that are taken.
    expect([...found.spread]).toEqual([0.25, 0.75, 0.125]);
  });

  it("are read from a reply, and a reply of another length is refused", () => {
    const reply = replyOf({ ...request, heads: [0, 1], rows: [1, 3] });
    const [first, second] = readStrongest(reply);
    expect([...(first?.keys ?? [])]).toEqual([2, 3, 5, -1]);
    expect(second).toEqual(first);
    const short = new DataView((reply.data as DataView).buffer, 1, 100);
    expect(() => readStrongest({ header: reply.header, data: short })).toThrow(/holds 100 bytes/);
  });

  it("are asked for in parts of which none takes long", () => {
    const heads = Array.from({ length: 32 }, (_, head) => head);
    for (const combine of ["separate", "mean"] as const) {
      for (const [numKeys, k] of [
        [6, 6],
        [5000, 10],
        [5000, 1500],
        [LONG, 10],
        [LONG, 1500],
      ] as const) {
        const asked = { ...request, heads, rows: [100, 164] as [number, number], combine };
        const parts = splitStrongest({ ...asked, k, bin_size: 64 }, numKeys);
        const cells = parts.map(
          (part) => part.heads.length * (part.rows[1] - part.rows[0]) * numKeys,
        );
        expect(Math.max(...cells)).toBeLessThanOrEqual(1 << 23);
        for (const part of parts) {
          const numRows = part.rows[1] - part.rows[0];
          const matrices = combine === "mean" ? 1 : part.heads.length;
          const bytes = matrices * (numRows * (8 * k + 12) + 4 * Math.ceil(numKeys / 64));
          expect(bytes).toBeLessThanOrEqual(1_000_000);
        }
        const pairs = parts.flatMap((part) =>
          part.heads.flatMap((head) =>
            Array.from(
              { length: part.rows[1] - part.rows[0] },
              (_, i) => `${head} ${part.rows[0] + i}`,
            ),
          ),
        );
        expect(new Set(pairs).size).toBe(32 * 64);
        expect(pairs).toHaveLength(32 * 64);
        // A mean needs all heads of a row at once.
        if (combine === "mean") expect(parts.every((part) => part.heads.length === 32)).toBe(true);
      }
    }
  });

  it("are put together as they come, and said to be done when all have", async () => {
    const carrier = {
      live: true,
      ask: async (_: string, part: object) => replyOf(part as StrongestRequest),
      retry: () => {},
      watch: () => {},
    } satisfies Carrier;
    const seen: number[] = [];
    let last: Strongest | null = null;
    // Rows that are taken for long ones: two of a head are a part.
    const numKeys = 1 << 22;
    const long = { ...request, heads: [0, 1], bin_size: Math.ceil(numKeys / 3) };
    const controller = new AbortController();
    await askStrongest(
      new Source(carrier),
      long,
      numKeys,
      (found) => {
        seen.push(found.done);
        last = found;
      },
      controller.signal,
    );
    expect(seen).toEqual([0.25, 0.5, 0.75, 1]);
    const [first, second] = (last as unknown as Strongest).matrices;
    expect([...(first?.spread ?? [])]).toEqual([0.875, 0.75, 1.375]);
    // The two largest of each of ROWS, by hand: of equal ones the first.
    expect([...(first?.keys ?? [])]).toEqual([0, 1, 2, 3, 5, -1]);
    expect([...(first?.weights ?? [])]).toEqual([0.5, 0.25, 0.5, 0.25, 1, 0]);
    expect([...(first?.sums ?? [])]).toEqual([1, 0, 0, 1, 0, 0, 1, 0, 0]);
    expect(second).toEqual(first);
  });

  it("of one query are put in order over all heads, and null until they are known", () => {
    const found = strongestOf(rowAt, request, 6, meant());
    const weaker = strongestOf((row) => rowAt(row).map((value) => value / 2), request, 6, meant());
    const all: Strongest = { rows: [0, 3], k: 2, binSize: 2, matrices: [weaker, found], done: 1 };
    expect(strongestKeys(all, 0, false)?.map(({ series, key }) => [series, key])).toEqual([
      [1, 0],
      [0, 0],
      [1, 1],
      [0, 1],
    ]);
    // Of one half left out and a quarter of another text a quarter is left.
    found.sums.set([0.25, 0.5, 0.25]);
    expect(strongestKeys(all, 0, true)?.map(({ series, value }) => [series, value])).toEqual([
      [1, 2],
      [1, 1],
      [0, 0.5],
      [0, 0.25],
    ]);
    found.sums[0] = Number.NaN;
    expect(strongestKeys(all, 0, false)).toBeNull();
    expect(strongestKeys(all, 3, false)).toBeNull();
  });
});

const window_ = {
  combine: "separate",
  topK: 2,
  threshold: 0,
  renormalize: false,
  queryWindow: [0, 3],
  keyWindow: [2, 5],
  ...meant(),
} satisfies LineOptions;

/** The keys 2, 3 and 4 of all three queries. */
const inWindow: Weights = {
  heads: [0],
  matrices: [Float32Array.from(ROWS.flatMap((row) => row.slice(2, 5)))],
  rows: [0, 3],
  columns: [2, 5],
  numKeys: 6,
  normalized: true,
  maximum: 1,
  error: 0,
};

function found(options: Partial<LineOptions> = {}, k = 2): Strongest {
  const all = { ...window_, ...options };
  const one = strongestOf(rowAt, { ...request, k }, 6, all);
  return { rows: [0, 3], k, binSize: 2, matrices: [one], done: 1 };
}

describe("lines of a part of a text", () => {
  const shown = [{ head: 0, name: "head 0", matrix: inWindow.matrices[0] as Float32Array }];

  it("are those of each query's strongest keys of all, wherever they end", () => {
    const { series, shares } = computeLines(inWindow, window_, shown, found());
    const [head] = series;
    const drawn = Array.from({ length: head?.count ?? 0 }, (_, i) => [
      head?.query[i],
      head?.key[i],
    ]);
    expect(drawn).toEqual([
      [1, 2],
      [1, 3],
      [2, 5],
      [0, 0],
      [0, 1],
    ]);
    expect(shares.drawn).toBeCloseTo(0.75 / 3, 6);
    expect(shares.away).toBeCloseTo(1.75 / 3, 6);
    expect(shares.far).toBe(3);
    // Of the window's .75 + .25 all others leave it.
    expect(shares.outside).toBeCloseTo(2 / 3, 6);
    expect(shares.drawn + shares.outside + shares.rest).toBeCloseTo(1, 6);
  });

  it("wait for rows that have not come", () => {
    const some = found();
    (some.matrices[0] as { sums: Float32Array }).sums.fill(Number.NaN, 3, 6);
    const lines = computeLines(inWindow, window_, shown, some);
    expect(lines.awaited).toBe(1);
    expect([...(lines.series[0]?.query ?? [])]).not.toContain(1);
  });

  it("are few to one place, but for the query that is looked at", () => {
    const numRows = 64;
    const sink = (row: number): Float32Array => {
      const values = new Float32Array(LONG);
      values[0] = 0.5 + row / 1000;
      return values;
    };
    const options: LineOptions = {
      ...window_,
      ...meant({}, LONG),
      queryWindow: [0, numRows],
      keyWindow: [70_000, 70_064],
    };
    const one = strongestOf(sink, { rows: [0, numRows], k: 3, bin_size: 64 }, LONG, options);
    const far: Strongest = { rows: [0, 64], k: 3, binSize: 64, matrices: [one], done: 1 };
    const none: Weights = {
      ...inWindow,
      matrices: [new Float32Array(0)],
      rows: [0, numRows],
      columns: [70_000, 70_000],
      numKeys: LONG,
      normalized: false,
    };
    const [head] = computeLines(none, options, shown, far).series;
    expect(head?.count).toBe(12);
    expect(head?.query).toHaveLength(numRows);
    // The strongest are those that are drawn.
    expect(Math.min(...(head?.query.slice(0, 12) ?? []))).toBe(52);
  });

  it("are never of more tokens than can be laid out", () => {
    expect(clipWindow([0, LONG], LONG)).toEqual([0, 2000]);
  });
});

describe("the spread of the weight", () => {
  it("is all of it together with what is in the window, whose cut bins are parted", () => {
    const matrices = [inWindow.matrices[0] as Float32Array];
    const spread = spreadOf(found(), inWindow, matrices, window_, null);
    // Keys 0 and 1 before, key 5 after; key 4 shares its bin with it.
    expect(spread.before).toBeCloseTo(0.875 / 3, 6);
    expect(spread.after).toBeCloseTo(1.125 / 3, 6);
    expect([...spread.bins].map((value) => Number((3 * value).toFixed(6)))).toEqual([
      0.875, 0, 1.125,
    ]);
  });

  it("leaves out what is left out, of the whole weight", () => {
    const leftOut = Uint8Array.from([1, 0, 0, 0, 1, 0]);
    const options = { ...window_, leftOut };
    const matrices = [inWindow.matrices[0] as Float32Array];
    const spread = spreadOf(found({ leftOut }), inWindow, matrices, options, null);
    expect(spread.before).toBeCloseTo(0.25 / 3, 6);
    expect(spread.after).toBeCloseTo(1.125 / 3, 6);
  });

  it("has bins that a window cuts once at most, and few of them", () => {
    for (const count of [101, 2000, 20_000, LONG]) {
      for (const size of [1, 16, 64, 100, 400]) {
        const bin = binSizeOf(count, [10, 10 + size]);
        expect(bin).toBeLessThanOrEqual(size);
        if (size >= 64) expect(count / bin).toBeLessThanOrEqual(2048);
      }
    }
  });
});

const texts = Array.from({ length: LONG }, (_, index) => `t${index}`);
const layout = (start: number, orientation: "vertical" | "horizontal") =>
  layOut({
    orientation,
    width: 900,
    queryTexts: texts,
    keyTexts: texts,
    queryWindow: [start, start + 64],
    keyWindow: [start, start + 64],
    barSides: ["key"],
    keepRoom: true,
    measure: (text) => 7 * text.length,
  });

describe("strips", () => {
  it("stand for all tokens before and behind the window, and for none that are in it", () => {
    for (const orientation of ["vertical", "horizontal"] as const) {
      const laid = layout(65_536, orientation);
      const { before, after } = laid.key;
      expect(before?.tokens).toEqual([0, 65_536]);
      expect(after?.tokens).toEqual([65_600, LONG]);
      const [first, last] = [laid.first - laid.step / 2, laid.first + 63.5 * laid.step];
      expect((before as Strip).stop).toBeLessThanOrEqual(first);
      expect((after as Strip).start).toBeGreaterThanOrEqual(last);
      const end = orientation === "vertical" ? laid.height : laid.width;
      expect((after as Strip).stop).toBeLessThan(end);
      for (const index of [0, 30_000, 65_535, 65_600, 100_000, LONG - 1]) {
        const strip = (index < 65_536 ? before : after) as Strip;
        const at = alongToken(laid, laid.key, index);
        expect(Math.abs(tokenIn(strip, at) - index)).toBeLessThanOrEqual(1);
      }
      expect(alongToken(laid, laid.key, 65_536)).toBe(laid.first);
    }
    expect(layout(0, "vertical").key.before).toBeNull();
    expect(layout(LONG - 64, "vertical").key.after).toBeNull();
  });

  it("keep a place's token at their ends", () => {
    const strip: Strip = { start: 10, stop: 20, tokens: [5, 8] };
    expect([0, 10, 14, 19.9, 99].map((at) => tokenIn(strip, at))).toEqual([5, 5, 6, 7, 7]);
  });

  it("take few marks of any text, and say what lies where", () => {
    const laid = layout(65_536, "vertical");
    const one = {
      keys: new Int32Array(64),
      weights: new Float32Array(64),
      sums: Float32Array.from({ length: 192 }, (_, i) => (i % 3 === 0 ? 1 : 0)),
      spread: new Float32Array(2048).fill(64 / 2048),
    };
    const far: Strongest = { rows: [65_536, 65_600], k: 1, binSize: 64, matrices: [one], done: 1 };
    const keyWindow: [number, number] = [65_536, 65_600];
    const options = { ...meant({}, LONG), keyWindow };
    const weights = { rows: keyWindow, columns: [65_536, 65_536] as [number, number] };
    const spread = spreadOf(far, weights, [], options, null);
    expect(spread.before).toBeCloseTo(0.5, 3);
    const marks = stripMarks(
      { layout: laid, palette: PALETTES.light, spread, pinned: "", signed: false, marked: [] },
      laid.key,
      (text) => 7 * text.length,
    );
    expect(marks.length).toBeLessThan(80);
    const words = marks.flatMap((mark) => (mark.kind === "text" ? [mark.text] : []));
    expect(words).toEqual(["50% before, 65,536 keys", "50% after, 65,472 keys"]);
    const strip = laid.key.before as Strip;
    const said = stripWords(strip, strip.start + 1, laid.key, {
      spread,
      quantity: { name: "weight", signed: false },
    });
    expect(said).toMatch(/^key 0–[\d,]+: 2% of the weight$/);
  });
});
