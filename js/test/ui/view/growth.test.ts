import { computed, signal } from "@preact/signals";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Carrier, Reply } from "../../../src/client/carrier";
import { type GrownMessage, withoutLength, withToken } from "../../../src/client/growth";
import type { BlockRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { generatingInWords } from "../../../src/ui/frame/frame";
import { createRecordStore, RECORD_DEFAULTS } from "../../../src/ui/view/record";
import { makeSignals } from "../../../src/ui/view/state";

const PROMPT = 3;
const WORDS = ["the", "cat", "sat", "on", "the", "mat", ".", "it", "slept"];

function candidate(position: number) {
  return { text: WORDS[position] ?? "?", id: position, probability: 0.5 };
}

function prediction(query: number, row: number | null) {
  return { query, token: candidate(query + 1), candidates: [candidate(query + 1)], row };
}

/** What the kernel says of the first tokens of the text. */
function described(count: number, state = "running") {
  const texts = WORDS.slice(0, count);
  const last = state === "running" ? count : count - 1;
  return {
    model: "m",
    notes: [],
    generating: { came: count - PROMPT + 1, most: 9, rate: null, state },
    stacks: [
      {
        name: state === "running" ? `self@${count}` : "self",
        layers: [0, 1],
        heads_per_layer: [2, 2],
        query_tokens: {
          text: texts,
          special: [],
          sequence: texts.map((_, at) => (at < PROMPT ? 0 : 1)),
          predictions: Array.from({ length: last - PROMPT + 1 }, (_, step) => {
            const query = PROMPT - 1 + step;
            return prediction(query, query + 1 < count ? query + 1 : null);
          }),
        },
        key_tokens: null,
        normalized: true,
        maximum: 1,
        causal: true,
        vectors: true,
        patterns: [],
      },
    ],
  };
}

/** Weights that say where they are; no query looks ahead. */
function weight(head: number, row: number, column: number): number {
  return column > row ? 0 : ((head + 1) * (10 * row + column) + 1) / 255;
}

function grown(count: number, layer?: number): [GrownMessage, Uint8Array | null] {
  const codes = [1, 0].flatMap((head) =>
    Array.from({ length: count }, (_, column) =>
      Math.round(255 * Math.sqrt(weight(head, count - 1, column))),
    ),
  );
  const message: GrownMessage = {
    count,
    generating: { came: count - PROMPT + 1, most: 9, rate: 2.5, state: "running" },
    text: WORDS[count - 1] as string,
    prediction: prediction(count - 1, null),
    stack: "self",
  };
  if (layer === undefined) return [message, null];
  const header = {
    shape: [2, 1, count] as [number, number, number],
    encoding: "uint8-sqrt" as const,
    maximum: 1,
    error: 0.004,
    heads: [1, 0],
  };
  return [{ ...message, layer, header }, new Uint8Array(codes)];
}

/** A kernel with a text that grows. */
class Kernel implements Carrier {
  readonly live = true;
  count = PROMPT;
  state = "running";
  asked: string[] = [];
  told: object[] = [];
  #listener: Parameters<NonNullable<Carrier["hear"]>>[0] = () => {};

  ask(name: string, args: object): Promise<Reply> {
    this.asked.push(name);
    if (name === "describe")
      return Promise.resolve({ header: described(this.count, this.state), data: null });
    const { heads, rows, columns } = args as BlockRequest;
    const values = heads.flatMap((head) =>
      Array.from({ length: rows[1] - rows[0] }, (_, row) =>
        Array.from({ length: columns[1] - columns[0] }, (_, column) =>
          weight(head, rows[0] + row, columns[0] + column),
        ),
      ).flat(),
    );
    const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
    return Promise.resolve({
      header: { shape, encoding: "float32", maximum: 1, error: 0 },
      data: new Float32Array(values),
    });
  }
  retry(): void {}
  watch(): void {}
  hear(listener: typeof this.send): void {
    this.#listener = listener;
  }
  tell(message: object): void {
    this.told.push(message);
  }
  send = (message: GrownMessage, data: ArrayBufferView | ArrayBuffer | null): void =>
    this.#listener(message, data);
  grow(to: number, layer?: number): void {
    while (this.count < to) this.send(...grown(++this.count, layer));
  }
}

function opened(calm = false) {
  const kernel = new Kernel();
  const ended = new AbortController();
  const source = new Source(kernel);
  const state = { ...makeSignals(RECORD_DEFAULTS), query_window: signal<number[] | null>(null) };
  const held = signal<readonly string[]>([]);
  const record = createRecordStore(source, state, ended.signal, signal(""), {
    held,
    calm,
  });
  const texts = computed(() => record.place.value?.queries.text ?? []);
  return { kernel, source, state, held, record, texts };
}

describe("a description", () => {
  it("gets a token and what was predicted from it, and the last one is read", () => {
    const [message] = grown(PROMPT + 1);
    const next = withToken(described(PROMPT) as never, message);
    expect(next).toEqual({
      ...described(PROMPT + 1),
      generating: message.generating,
    });
  });

  it("does not take a token behind one that is missing", () => {
    expect(withToken(described(PROMPT) as never, grown(PROMPT + 2)[0])).toBeNull();
    expect(withToken(described(5, "ended") as never, grown(PROMPT + 1)[0])).toBeNull();
  });

  it("calls a stack by its name whatever its length", () => {
    expect(["self@57", "self", "self@5 · after"].map(withoutLength)).toEqual([
      "self",
      "self",
      "self@5 · after",
    ]);
  });
});

describe("a generation in words", () => {
  it("says how far it is", () => {
    const now = { came: 12, most: 200, rate: 8.14, state: "running" } as const;
    expect(generatingInWords(now)).toBe("Generating: 12 of at most 200 tokens · 8.1 a second");
    expect(generatingInWords({ ...now, most: null, rate: null })).toBe("Generating: 12 tokens");
    expect(generatingInWords({ ...now, rate: 83.2 })).toContain("83 a second");
    expect(generatingInWords({ ...now, state: "stopped" })).toBe(
      "The generation was stopped after 12 of at most 200 tokens.",
    );
    expect(generatingInWords({ ...now, state: "failed", problem: "RuntimeError: x" })).toBe(
      "The generation failed after 12 tokens: RuntimeError: x",
    );
  });
});

describe("a record that grows", () => {
  beforeEach(() => {
    vi.useRealTimers();
  });

  it("shows tokens as they come, at the newest, and the kernel is asked for nothing", async () => {
    const { kernel, state, held, record, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    expect(record.growth.generating.value?.came).toBe(1);
    expect([state.prediction.value, state.token.value]).toEqual([0, PROMPT - 1]);
    expect(held.value).toContain("token");
    kernel.grow(PROMPT + 3);
    await vi.waitFor(() => expect(texts.value).toEqual(WORDS.slice(0, PROMPT + 3)));
    expect([state.prediction.value, state.token.value]).toEqual([3, PROMPT + 2]);
    expect(kernel.asked).toEqual(["describe"]);
    expect(kernel.told).toEqual([{ attnviz: "grown seen", count: PROMPT + 3 }]);
  });

  it("takes the rows that come into what it has of the layer", async () => {
    const { kernel, source, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    const block = (count: number, layer: number, rows = [0, count]): BlockRequest => ({
      ...{ stack: `self@${count}`, layer, heads: [0, 1], precision: "float32" },
      ...{ rows: rows as [number, number], columns: [0, count] },
    });
    await source.block(block(PROMPT, 0, [0, 2]));
    await source.block(block(PROMPT, 0));
    await source.block(block(PROMPT, 1));
    const asked = kernel.asked.length;
    kernel.grow(PROMPT + 2, 0);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 2));
    const count = PROMPT + 2;
    for (const rows of [
      [0, count],
      [0, 2],
    ]) {
      const piece = await source.block(block(count, 0, rows));
      expect(piece.error).toBe(rows[1] === count ? 0.004 : 0);
      piece.matrices.forEach((matrix, head) => {
        matrix.forEach((value, at) => {
          const expected = weight(head, Math.floor(at / count), at % count);
          expect(Math.abs(value - expected)).toBeLessThan(0.004);
        });
      });
    }
    expect(kernel.asked).toHaveLength(asked);
    // Of another layer no rows have come.
    await source.block(block(count, 1));
    expect(kernel.asked).toHaveLength(asked + 1);
  });

  it("stays where the reader goes, and follows again when it is told to", async () => {
    const { kernel, state, held, record, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    kernel.grow(PROMPT + 2);
    await vi.waitFor(() => expect(state.prediction.value).toBe(2));
    state.prediction.value = 0;
    kernel.grow(PROMPT + 3);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 3));
    expect([state.prediction.value, state.token.value]).toEqual([0, PROMPT - 1]);
    expect([record.growth.following.value, held.value]).toEqual([false, []]);
    record.growth.follow();
    expect(state.prediction.value).toBe(3);
    // Elsewhere in a long text, too.
    state.query_window.value = [0, 2];
    kernel.grow(PROMPT + 4);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 4));
    expect(record.growth.following.value).toBe(false);
    expect(state.prediction.value).toBe(3);
  });

  it("does not follow where a token was chosen before", async () => {
    const kernel = new Kernel();
    const state = makeSignals({ ...RECORD_DEFAULTS, token: 1 });
    const ended = new AbortController();
    const record = createRecordStore(new Source(kernel), state, ended.signal);
    await vi.waitFor(() => expect(record.place.value).not.toBeNull());
    kernel.grow(PROMPT + 2);
    await vi.waitFor(() => expect(record.place.value?.queries.text).toHaveLength(PROMPT + 2));
    expect(state.token.value).toBe(1);
    ended.abort();
  });

  it("asks what was missed, as after a page that was away", async () => {
    const { kernel, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    kernel.count = PROMPT + 3;
    kernel.grow(PROMPT + 4);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 4));
    expect(kernel.asked).toEqual(["describe", "describe"]);
    kernel.send(...grown(PROMPT + 2));
    kernel.grow(PROMPT + 5);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 5));
  });

  it("is the usual record in the end, and where the reader is stays", async () => {
    const { kernel, state, held, record, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    kernel.grow(PROMPT + 2);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 2));
    record.growth.stop();
    expect(kernel.told.at(-1)).toEqual({ attnviz: "stop generating" });
    kernel.count = PROMPT + 3;
    kernel.state = "stopped";
    const [message] = grown(PROMPT + 3);
    kernel.send({ ...message, generating: { ...message.generating, state: "stopped" } }, null);
    await vi.waitFor(() => expect(record.place.value?.stack.name).toBe("self"));
    expect(texts.value).toHaveLength(PROMPT + 3);
    expect([state.prediction.value, held.value]).toEqual([2, []]);
    expect(record.growth.generating.value?.state).toBe("stopped");
    expect(record.growth.calm.value).toBeNull();
  });

  it("keeps what is there where the model failed", async () => {
    const { kernel, record, texts } = opened();
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT));
    kernel.grow(PROMPT + 1);
    const generating = { ...grown(4)[0].generating, state: "failed" as const, problem: "x" };
    kernel.send({ count: PROMPT + 1, generating }, null);
    await vi.waitFor(() => expect(texts.value).toHaveLength(PROMPT + 1));
    expect(record.growth.generating.value?.problem).toBe("x");
    expect(kernel.asked).toEqual(["describe"]);
  });

  it("is shown from time to time where pictures are asked for as a whole", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "setInterval", "clearInterval", "clearTimeout"] });
    const { kernel, texts } = opened(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(texts.value).toHaveLength(PROMPT);
    kernel.grow(PROMPT + 3);
    await vi.advanceTimersByTimeAsync(900);
    expect(texts.value).toHaveLength(PROMPT);
    await vi.advanceTimersByTimeAsync(200);
    expect(texts.value).toHaveLength(PROMPT + 3);
    vi.useRealTimers();
  });
});
