import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { Carrier, Connection, Reply } from "../../../src/client/carrier";
import { PageCarrier, type PageData } from "../../../src/client/page";
import type { StackDescription } from "../../../src/client/protocol";
import {
  askStrips,
  headsAtOnce,
  readStrips,
  type Strip,
  scoresOf,
} from "../../../src/client/requests/strips";
import { Source } from "../../../src/client/source";
import type { RectMark, TextMark } from "../../../src/draw/marks";
import { PALETTES } from "../../../src/ui/colors/palette";
import { stripInWords, windowInWords } from "../../../src/views/model/captions";
import { HeadMaps, isStrip, ownWindow } from "../../../src/views/model/maps";
import { bandsOf, stripColors, stripMarks } from "../../../src/views/model/marks";

const TOKENS = 32_768;
const text = Array.from({ length: TOKENS }, (_, place) => `t${place % 100}`);
const stack: StackDescription = {
  name: "self",
  layers: [0, 4],
  heads_per_layer: [20, 20],
  query_tokens: { text, special: [], sequence: [] },
  key_tokens: null,
  normalized: true,
  maximum: 1,
  causal: true,
  vectors: true,
  patterns: ["first token"],
  sampled: 64,
};

const HEADER = {
  parts: ["first token", "elsewhere", "own window", "previous token"],
  queries: 64,
  of: TOKENS,
  window: [64, 0] as [number, number],
  own_window: false,
};

/** Shares that tell layer and head. */
function numbers(layer: number, head: number): number[] {
  return [(head + 1) / 64, 0.01, 0.5 - (head + 1) / 64, 0.02, 0.25, 0.03, 0.25, (layer + 1) / 100];
}

interface Asked {
  name: string;
  args: { layer: number; heads: number[]; queries?: number };
  signal: AbortSignal | undefined;
}

/** Answers when it is told to. */
class SlowCarrier implements Carrier {
  readonly live = true;
  readonly asked: Asked[] = [];
  #waiting: (() => void)[] = [];
  retry(): void {}
  watch(_: (connection: Connection) => void): void {}
  ask(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
    const asked = { name, args, signal } as Asked;
    this.asked.push(asked);
    const { layer, heads } = asked.args;
    return new Promise((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(new DOMException("ended", "AbortError")));
      const reply: Reply =
        name === "scores"
          ? { header: { scores: [heads.map((head) => layer + head / 100)] }, data: null }
          : {
              header: HEADER,
              data: Float32Array.from(heads.flatMap((head) => numbers(layer, head))),
            };
      this.#waiting.push(() => resolve(reply));
    });
  }
  answer(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

const strip = (shares: number[], more: Partial<Strip> = {}): Strip => ({
  ...HEADER,
  shares,
  errors: shares.map(() => 0.01),
  ...more,
});

describe("what comes of strips", () => {
  it("parts shares from their errors, also where the bytes begin between two floats", () => {
    const bytes = new Uint8Array(1 + 4 * 16);
    const floats = Float32Array.from([...numbers(0, 0), ...numbers(0, 1)]);
    bytes.set(new Uint8Array(floats.buffer), 1);
    const read = readStrips({ header: HEADER, data: new DataView(bytes.buffer, 1) });
    expect(read.map(({ shares }) => shares)).toEqual([
      [1 / 64, 0.5 - 1 / 64, 0.25, 0.25],
      [2 / 64, 0.5 - 2 / 64, 0.25, 0.25],
    ]);
    expect(read[1]?.errors[1]).toBeCloseTo(0.02);
    expect(read[0]).toMatchObject({ queries: 64, of: TOKENS, window: [64, 0] });
  });

  it("asks for so few heads that a reply is soon there", () => {
    // 16.8 million weights: some tenths of a second at worst, and at least one head.
    expect(headsAtOnce(64, TOKENS)).toBe(8);
    expect(headsAtOnce(64, 131_072)).toBe(2);
    expect(headsAtOnce(64, 10_000_000)).toBe(1);
  });
});

describe("strips in sight", () => {
  const wanted = (layers: [number, number[]][]) => ({
    stack: "self",
    size: 0,
    part: null,
    layers,
  });

  it("asks for the heads in sight and for no others, each once", async () => {
    const carrier = new SlowCarrier();
    const maps = new HeadMaps(new Source(carrier), () => stack);
    const heads = Array.from({ length: 20 }, (_, head) => head);
    const coming = maps.load(wanted([[4, heads]]));
    const again = maps.load(wanted([[4, heads]]));
    carrier.answer();
    await Promise.all([coming, again]);
    expect(carrier.asked.map(({ name, args }) => [name, args.heads.length])).toEqual([
      ["strips", 8],
      ["strips", 8],
      ["strips", 4],
    ]);
    expect(carrier.asked.flatMap(({ args }) => args.heads)).toEqual(heads);
    expect(carrier.asked.every(({ args }) => args.layer === 4)).toBe(true);
    const found = maps.get(wanted([]), 4, 19);
    expect(isStrip(found) && found.shares[0]).toBe(20 / 64);
    expect(maps.get(wanted([]), 0, 19)).toBeUndefined();
    expect(maps.strips.value).toEqual({
      stack: "self",
      parts: HEADER.parts,
      windows: [{ window: [64, 0], own: false }],
    });
  });

  it("gives up on heads that left the sight", async () => {
    const carrier = new SlowCarrier();
    const maps = new HeadMaps(new Source(carrier), () => stack);
    const left = maps.load(wanted([[0, [0, 1, 2]]])).catch((reason: DOMException) => reason.name);
    const kept = maps.load(wanted([[4, [0, 1, 2]]]));
    carrier.answer();
    await kept;
    expect(await left).toBe("AbortError");
    expect(carrier.asked.map(({ signal }) => signal?.aborted)).toEqual([true, false]);
    expect(maps.get(wanted([]), 0, 0)).toBeUndefined();
  });
});

describe("scores of a text that is too long for all weights", () => {
  it("are asked for by and by, from the same queries, and told", async () => {
    const carrier = new SlowCarrier();
    const told: [number, number][] = [];
    const scores = scoresOf(
      new Source(carrier),
      { ...stack, heads: [[1, 19], [0]] },
      "first token",
      new AbortController().signal,
      (...now) => told.push(now),
    );
    carrier.answer();
    const [first, second] = await scores;
    expect(carrier.asked.map(({ args }) => [args.layer, args.heads, args.queries])).toEqual([
      [0, [1, 19], 64],
      [4, [0], 64],
    ]);
    expect(
      first?.map((score, head) => [head, score]).filter(([, score]) => score !== null),
    ).toEqual([
      [1, 0.01],
      [19, 0.19],
    ]);
    expect(second?.[0]).toBe(4);
    expect(told).toEqual([
      [0, 3],
      [2, 3],
      [3, 3],
    ]);
  });

  it("are on a page that contains them", async () => {
    const floats = Float32Array.from([...numbers(0, 3), ...numbers(0, 7)]);
    const data = {
      format: 2,
      view: "model",
      state: {},
      description: { model: "", notes: [], stacks: [{ ...stack, heads: [[3, 7], [0]] }] },
      blocks: [],
      maps: [],
      scores: [{ stack: "self", pattern: "first token", scores: [[null, 0.5], [0.25]] }],
      strips: [
        {
          stack: "self",
          layer: 0,
          ...HEADER,
          data: deflateSync(new Uint8Array(floats.buffer)).toString("base64"),
        },
      ],
    } as unknown as PageData;
    const source = new Source(new PageCarrier(data));
    const [only] = await askStrips(source, { stack: "self", layer: 0, heads: [7] });
    expect(only?.shares[0]).toBe(8 / 64);
    await expect(askStrips(source, { stack: "self", layer: 4, heads: [0] })).rejects.toThrow(
      'This page contains no strips of layer 4 of "self".',
    );
    const ended = new AbortController().signal;
    const few = { ...stack, heads: [[0, 1], [0]] };
    const scores = await scoresOf(source, few, "first token", ended, () => {});
    expect(scores[0]?.slice(0, 2)).toEqual([null, 0.5]);
    expect(scores[1]?.[0]).toBe(0.25);
  });
});

describe("a pile of bands", () => {
  const square = { x: 10, y: 20, side: 24 };
  const palette = PALETTES.light;

  it("fills the square, in whole pixels, from the start of the text to the query", () => {
    for (const scale of [1, 1.25, 2]) {
      const bands = bandsOf(strip([0.5, 0.1, 0.3, 0.1]), 24, scale);
      expect(bands.map(({ part }) => part)).toEqual([
        "first token",
        "elsewhere",
        "own window",
        "previous token",
      ]);
      expect(bands[0]?.top).toBe(0);
      expect(bands.at(-1)?.bottom).toBe(24);
      bands.forEach(({ top, bottom, share }, i) => {
        expect(Number.isInteger(top * scale)).toBe(true);
        expect(top).toBe(i === 0 ? 0 : bands[i - 1]?.bottom);
        expect(Math.abs(bottom - top - 24 * share)).toBeLessThanOrEqual(1 / scale);
      });
    }
  });

  it("draws no band that is thinner than half a pixel, and nothing where nothing is known", () => {
    expect(bandsOf(strip([0.99, 0.01, 0, 0]), 24, 1).map(({ part }) => part)).toEqual([
      "first token",
    ]);
    expect(bandsOf(strip([NaN, NaN, NaN, NaN]), 24, 1)).toEqual([]);
  });

  it("has a colour of its own for each part, and numbers where there is room", () => {
    const parts = [...HEADER.parts, "no key"];
    const colors = stripColors(parts, palette);
    expect(colors.map(({ name }) => name)).toEqual([
      "no key",
      "first token",
      "elsewhere",
      "own window",
      "previous token",
    ]);
    expect(new Set(colors.map(({ color }) => color)).size).toBe(5);
    // The first colour is that of the head which is open.
    expect(colors.map(({ color }) => color)).not.toContain(palette.headTexts[0]);
    const small = stripMarks(strip([0.5, 0.1, 0.3, 0.1]), square, palette, 1);
    expect(small.every(({ kind }) => kind === "rect")).toBe(true);
    expect((small[0] as RectMark).y).toBe(20);
    const written = (side: number): string[] =>
      stripMarks(strip([0.5, 0.1, 0.3, 0.1]), { ...square, side }, palette, 1)
        .filter((mark): mark is TextMark => mark.kind === "text")
        .map((mark) => mark.text);
    expect(written(48)).toEqual(["50%", "30%"]);
    expect(written(96)[0]).toBe("first 50%");
  });
});

describe("strips in words", () => {
  it("say shares with their errors, and exact ones without", () => {
    expect(stripInWords(strip([0.5, 0.1, 0.3, 0.1]))).toBe(
      "first token 0.50 ± 0.01, elsewhere 0.10 ± 0.01, own window 0.30 ± 0.01, " +
        "previous token 0.10 ± 0.01",
    );
    expect(stripInWords(strip([1, 0, 0, 0], { errors: [0, 0, 0, 0] }))).toContain(
      "first token 1.00, elsewhere 0.00",
    );
    expect(stripInWords(strip([NaN, NaN, NaN, NaN]))).toBe("no weight at all");
  });

  it("say what a window is", () => {
    const said = (more: Partial<Strip>): string => {
      const window = ownWindow(strip([], more));
      return window ? windowInWords(window) : "";
    };
    expect(said({})).toBe("the query and the 64 tokens before it");
    expect(said({ window: [64, 64] })).toBe("the query and the 64 tokens on either side");
    expect(said({ window: [4095, 0], own_window: true })).toBe(
      "the model's window, the query and the 4,095 tokens before it",
    );
    expect(said({ window: null, own_window: true })).toBe("the model's own window");
    expect(said({ window: null, parts: ["first token", "elsewhere"] })).toBe("");
  });
});
