import { signal } from "@preact/signals";
import { describe, expect, it, vi } from "vitest";
import { Source } from "../../../src/client/source";
import type { Reply, Transport } from "../../../src/client/transport";
import {
  createRecordStore,
  orderHeads,
  RECORD_DEFAULTS,
  selectionOf,
} from "../../../src/ui/view/record";
import { makeSignals } from "../../../src/ui/view/state";
import { stackOf } from "../../builders";

describe("the order of heads", () => {
  it("is their number by default", () => {
    expect(orderHeads([0, 1, 2], null, null)).toEqual({ heads: [0, 1, 2], scores: null });
  });

  it("is by decreasing score, with heads without a score last", () => {
    expect(orderHeads([0, 1, 2, 3], [0.2, null, 0.9, 0.2], null)).toEqual({
      heads: [2, 0, 3, 1],
      scores: [0.9, 0.2, 0.2, null],
    });
  });

  it("has no head below the minimum score", () => {
    expect(orderHeads([0, 1, 2, 3], [0.2, null, 0.9, -0.2], 0).heads).toEqual([2, 0]);
  });

  it("has a head with exactly the minimum score", () => {
    expect(orderHeads([0, 1, 2], [0.2, 0.5, 0.49], 0.5)).toEqual({ heads: [1], scores: [0.5] });
  });
});

const tokens = { text: ["a", "b"], special: [], sequence: [0, 0] };
const description = {
  model: "m",
  notes: [],
  stacks: [
    stackOf({
      layers: [2, 4],
      heads_per_layer: [2, 3],
      query_tokens: tokens,
      patterns: ["induction"],
    }),
  ],
};

describe("a selection", () => {
  it("falls back to values that the record has", () => {
    const selection = selectionOf(description, {
      stack: "none",
      layer: 9,
      heads: [1, 7],
      token: 5,
      key: 1,
    });
    expect(selection.stack.name).toBe("self");
    expect(selection.layer).toBe(2);
    expect([selection.chosen, selection.heads]).toEqual([[1], [1]]);
    expect([selection.token, selection.key]).toEqual([null, 1]);
  });
});

/** Return a transport that answers requests by their name and fails for other names. */
function transport(answers: Record<string, () => Reply>): Transport & { requests: string[] } {
  const requests: string[] = [];
  return {
    requests,
    live: false,
    async request(name, args) {
      requests.push(`${name} ${JSON.stringify(args)}`);
      const answer = answers[name];
      if (!answer) throw new Error(`no ${name}`);
      return answer();
    },
    retry() {},
    watch(listener) {
      listener("ready");
    },
  };
}

function maps(): Reply {
  return {
    header: { shape: [2, 1, 1], encoding: "float32", maximum: 1, error: 0 },
    data: new Float32Array([0, 1]),
  };
}

describe("the record of a view", () => {
  it("asks a question once per requested answer", async () => {
    const ended = new AbortController();
    const fake = transport({ describe: () => ({ header: description, data: null }), maps });
    const state = makeSignals(RECORD_DEFAULTS);
    const record = createRecordStore(new Source(fake), state, ended.signal);
    await vi.waitFor(() => expect(record.selection.value).not.toBeNull());
    expect(fake.requests).toHaveLength(1);
    record.wantMaps();
    await vi.waitFor(() => expect(record.maps.value).not.toBeNull());
    state.token.value = 1;
    state.heads.value = [1];
    expect(fake.requests).toHaveLength(2);
    state.layer.value = 4;
    await vi.waitFor(() => expect(fake.requests).toHaveLength(3));
    ended.abort();
  });

  it("switches to a new record and its traits in one step", async () => {
    const ended = new AbortController();
    const [stack] = description.stacks;
    const number = signal(0);
    const other = { ...stack, layers: [7], heads_per_layer: [2] };
    const expected = {
      ...transport({
        describe: () => ({
          header: number.value === 0 ? description : { ...description, stacks: [other] },
          data: null,
        }),
        maps,
      }),
      record: number,
    };
    const state = makeSignals({ ...RECORD_DEFAULTS, stack: "self", layer: 2 });
    const takeUp = vi.fn(() => {
      if (number.value > 0) state.layer.value = 7;
    });
    const record = createRecordStore(new Source(expected), state, ended.signal, signal(""), takeUp);
    const seen: unknown[] = [];
    record.live(() => {
      seen.push(
        record.selection.value && [record.selection.value.stack.name, record.selection.value.layer],
      );
      return undefined;
    });
    record.wantMaps();
    await vi.waitFor(() => expect(record.maps.value).not.toBeNull());
    number.value = 1;
    await vi.waitFor(() => expect(record.selection.value?.layer).toBe(7));
    expect(takeUp.mock.calls).toEqual([[0], [1]]);
    // A layer and a stack of different records are never selected together.
    expect(seen).toEqual([null, ["self", 2], ["self@1", 7]]);
    await vi.waitFor(() => expect(expected.requests.at(-1)).toMatch(/^maps .*"self@1","layer":7/));
    ended.abort();
  });

  it("requests the maps of a long text for a few heads at a time", async () => {
    const ended = new AbortController();
    const [stack] = description.stacks;
    const long = { text: new Array<string>(300_000).fill("a"), special: [], sequence: [] };
    const stacks = [{ ...stack, heads_per_layer: [8, 8], query_tokens: long }];
    const fake = transport({
      describe: () => ({ header: { ...description, stacks }, data: null }),
      maps: () => ({
        header: { shape: [3, 1, 1], encoding: "float32", maximum: 1, error: 0, sampled: [1, 2] },
        data: new Float32Array([0, 1, 0]),
      }),
    });
    const state = makeSignals(RECORD_DEFAULTS);
    const record = createRecordStore(new Source(fake), state, ended.signal);
    record.wantMaps();
    await vi.waitFor(() => expect(record.maps.value?.sampled).toEqual([1, 2]));
    const heads = fake.requests.slice(1).map((request) => /"heads":(\[.*?\])/.exec(request)?.[1]);
    expect(heads).toEqual(["[0,1,2]", "[3,4,5]", "[6,7]"]);
    expect(record.maps.value?.heads).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    ended.abort();
  });

  it("keeps an error until its own question has an answer", async () => {
    const ended = new AbortController();
    const answers: Record<string, () => Reply> = {
      describe: () => ({ header: description, data: null }),
    };
    const record = createRecordStore(
      new Source(transport(answers)),
      makeSignals(RECORD_DEFAULTS),
      ended.signal,
    );
    record.wantMaps();
    await vi.waitFor(() => expect(record.error.value).toBe("no maps"));
    record.answer(signal({}), async () => 1);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(record.error.value).toBe("no maps");
    answers.maps = maps;
    record.retry();
    await vi.waitFor(() => expect(record.maps.value).not.toBeNull());
    expect(record.error.value).toBeNull();
    ended.abort();
  });

  it("drops the error of a question that is no longer asked, and no other error", async () => {
    const ended = new AbortController();
    const source = new Source(
      transport({ describe: () => ({ header: description, data: null }), maps }),
    );
    const record = createRecordStore(source, makeSignals(RECORD_DEFAULTS), ended.signal);
    const pinned = signal<number | null>(3);
    const other = signal<number | null>(4);
    for (const question of [pinned, other]) {
      record.answer(question, async (token) => {
        throw new Error(`no row ${token}`);
      });
    }
    await vi.waitFor(() => expect(record.error.value).toBe("no row 3"));
    pinned.value = null;
    expect(record.error.value).toBe("no row 4");
    other.value = null;
    expect(record.error.value).toBeNull();
    record.fail(new Error("nothing to export"));
    pinned.value = 5;
    pinned.value = null;
    expect(record.error.value).toBe("nothing to export");
    ended.abort();
  });
});
