import { render } from "preact";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Carrier, Reply } from "../../../src/client/carrier";
import type { WantedChange } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { ViewContext } from "../../../src/ui/define-view";
import { createRecordStore, RECORD_DEFAULTS, type RecordState } from "../../../src/ui/record";
import { assign, makeSignals } from "../../../src/ui/state";
import { changeInWords, offeredAt, withChange } from "../../../src/ui/what-if/state";
import { CAVEAT, WhatIf } from "../../../src/ui/what-if/what-if";

const EDGE: WantedChange = {
  kind: "knockout",
  stack: "self",
  layer: 2,
  head: 1,
  query: 1,
  key: 0,
  renormalize: true,
};

const DESCRIPTION = {
  model: "m",
  notes: [],
  stacks: [
    {
      name: "self",
      layers: [2, 4],
      heads_per_layer: [2, 3],
      query_tokens: { text: ["the", "<b>"], special: [], sequence: [0, 0] },
      key_tokens: null,
      normalized: true,
      maximum: 1,
      causal: false,
      vectors: false,
      patterns: [],
    },
  ],
};

let root: HTMLElement;
let ended: AbortController;

beforeEach(() => {
  root = document.createElement("div");
  document.body.append(root);
  ended = new AbortController();
});

afterEach(() => {
  render(null, root);
  ended.abort();
  root.remove();
});

/** The panel above a carrier, and what was asked. */
function drawn(options: {
  live?: boolean;
  state?: Partial<RecordState>;
  answer?: (changes: WantedChange[], signal?: AbortSignal) => Promise<string>;
}) {
  const asked: WantedChange[][] = [];
  const answer = options.answer ?? (async (changes) => `Answer to ${changes.length} changes.`);
  const carrier: Carrier = {
    live: options.live ?? true,
    ask: async (name, args, signal): Promise<Reply> => {
      if (name === "describe") return { header: DESCRIPTION, data: null };
      const { changes } = args as { changes: WantedChange[] };
      asked.push(changes);
      return { header: { sentence: await answer(changes, signal) }, data: null };
    },
    retry: () => undefined,
    watch: (listener) => listener("ready"),
  };
  const state = makeSignals<RecordState>({
    ...RECORD_DEFAULTS,
    layer: 2,
    heads: [1],
    token: 1,
    key: 0,
    ...options.state,
  });
  const source = new Source(carrier);
  const record = createRecordStore(source, state, ended.signal);
  const context = { source, state, record, controls: { value: "full" } };
  render(<WhatIf context={context as unknown as ViewContext<RecordState>} />, root);
  const open = async (): Promise<void> => {
    await vi.waitFor(() => expect(root.querySelector("details")).not.toBeNull());
    const details = root.querySelector("details") as HTMLDetailsElement;
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  };
  const press = async (label: string): Promise<void> => {
    const buttons = (): HTMLButtonElement[] => [...root.querySelectorAll("button")];
    const named = (each: HTMLButtonElement): boolean =>
      (each.getAttribute("aria-label") ?? each.textContent ?? "").startsWith(label);
    await vi.waitFor(() => expect(buttons().some(named)).toBe(true));
    buttons().find(named)?.click();
  };
  const said = (text: string): Promise<void> =>
    vi.waitFor(() => expect(root.querySelector("[role=status]")?.textContent).toBe(text));
  return { asked, state, open, press, said };
}

it("runs no model before it is opened, then the unchanged one", async () => {
  const { asked, open, said } = drawn({});
  await vi.waitFor(() => expect(root.querySelector("summary")).not.toBeNull());
  expect(asked).toEqual([]);
  await open();
  await said("Answer to 0 changes.");
  expect(asked).toEqual([[]]);
  expect(root.textContent).not.toContain(CAVEAT);
});

it("cuts the pinned edge, and collects changes that can be taken back", async () => {
  const { asked, state, open, press, said } = drawn({});
  await open();
  await press("What if this edge were cut?");
  await said("Answer to 1 changes.");
  expect(state.changes.value).toEqual([EDGE]);
  expect(root.textContent).toContain(CAVEAT);
  await press("Without head 2.1");
  await said("Answer to 2 changes.");
  await press("Hide the token “the” (0)");
  await said("Answer to 3 changes.");
  expect(asked.at(-1)?.map((each) => each.kind)).toEqual(["knockout", "ablate", "hide"]);
  await press("Take back: “<b>” (1) to “the” (0), layer 2, head 1, before the softmax");
  await said("Answer to 2 changes.");
  expect(asked.at(-1)?.map((each) => each.kind)).toEqual(["ablate", "hide"]);
  // What was answered before is not asked again.
  const before = asked.length;
  assign(state, { changes: [] });
  await said("Answer to 0 changes.");
  expect(asked.length).toBe(before);
});

it("cuts after the softmax, and in all layers", async () => {
  const { state, open, press } = drawn({});
  await open();
  await vi.waitFor(() => expect(root.querySelectorAll("select").length).toBe(2));
  const choose = async (i: number, value: string): Promise<void> => {
    const select = root.querySelectorAll("select")[i] as HTMLSelectElement;
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await vi.waitFor(() => expect(root.querySelectorAll("select")[i]?.value).toBe(value));
  };
  await choose(0, "after");
  await choose(1, "all");
  await press("What if this edge were cut?");
  expect(state.changes.value).toEqual([{ ...EDGE, layer: null, head: null, renormalize: false }]);
});

it("says in words what goes wrong, and offers nothing without a model", async () => {
  const words = "Make the view with show_head_view(model, text) to try it.";
  const { open, said } = drawn({ answer: () => Promise.reject(new Error(words)) });
  await open();
  await said(words);
  expect(root.querySelectorAll("button").length).toBe(0);
});

it("gives up an answer when the changes are others, and tries again when asked", async () => {
  let failing = true;
  const signals: AbortSignal[] = [];
  const { state, press, said } = drawn({
    state: { changes: [EDGE] },
    answer: (changes, signal) => {
      if (signal) signals.push(signal);
      if (changes.length === 1) return new Promise(() => undefined);
      return failing
        ? Promise.reject(new Error("The kernel was interrupted."))
        : Promise.resolve("Ok.");
    },
  });
  await vi.waitFor(() => expect(signals.length).toBe(1));
  assign(state, { changes: [EDGE, { ...EDGE, key: 1 }] });
  await said("The kernel was interrupted.");
  expect(signals[0]?.aborted).toBe(true);
  failing = false;
  await press("Try again");
  await said("Ok.");
});

it("shows on a page what was answered, and no button", async () => {
  const outcome = { changes: [EDGE], described: ["Cut <i>."], sentence: "The answer is <b>." };
  drawn({ live: false, state: { outcomes: [outcome] } });
  await vi.waitFor(() =>
    expect(root.querySelector("li")?.textContent).toBe("Cut <i>. The answer is <b>."),
  );
  expect(root.querySelectorAll("button, i").length).toBe(0);
  expect(root.textContent).toContain(CAVEAT);
});

it("shows nothing on a page without outcomes", async () => {
  drawn({ live: false, state: { changes: [EDGE] } });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(root.innerHTML).toBe("");
});

it("offers what the pins and one head allow", () => {
  const place = {
    stack: DESCRIPTION.stacks[0],
    queries: DESCRIPTION.stacks[0]?.query_tokens,
    keys: DESCRIPTION.stacks[0]?.query_tokens,
    layer: 2,
    heads: [0, 1],
    token: null,
    key: 0,
  } as unknown as Parameters<typeof offeredAt>[0];
  const offered = offeredAt(place);
  expect([offered.edge, offered.head]).toEqual([null, null]);
  expect(offered.reaches).toEqual(["layer", "all"]);
  expect(offered.token).toEqual({ ...EDGE, kind: "hide", layer: null, head: null, query: null });
  const edge = offeredAt({ ...place, token: 1 }).edge;
  expect(edge?.("layer", true)).toEqual({ ...EDGE, head: null });
  const words = (change: Partial<WantedChange>): string =>
    changeInWords({ ...EDGE, ...change }, place);
  expect(words({ kind: "ablate" })).toBe("Without head 2.1");
  expect(words({ kind: "ablate", head: null })).toBe("Without layer 2");
  expect(words({ kind: "hide", layer: null, head: null })).toBe("“the” (0) hidden");
  expect(words({ stack: "cross", renormalize: false })).toBe(
    "1 to 0, layer 2, head 1 of cross, after the softmax",
  );
});

it("has one cut of an edge, and no change twice", () => {
  const after = { ...EDGE, renormalize: false };
  const other = { ...EDGE, key: 1 };
  expect(withChange([EDGE, other], after)).toEqual([other, after]);
  expect(withChange([EDGE], EDGE)).toEqual([EDGE]);
});
