import { render } from "preact";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type {
  AnswerToken,
  BlockRequest,
  ChangedStack,
  EdgeHeader,
  EdgeRequest,
  InterveneRequest,
  OutcomeHeader,
  RequestedChange,
  StackDescription,
} from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import type { ViewContext } from "../../../src/ui/view/define-view";
import { createRecordStore, RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";
import { assign, makeSignals, readHash, writeHash } from "../../../src/ui/view/state";
import { readChanges, readShownRun } from "../../../src/ui/what-if/changed-run";
import { edgeInWords, PinnedEdge } from "../../../src/ui/what-if/pinned-edge";
import { changeInWords, offeredAt, whyUnchanged, withChange } from "../../../src/ui/what-if/state";
import { CAVEAT, WhatIf } from "../../../src/ui/what-if/what-if";
import { stackOf, tokensOf, transportOf } from "../../builders";

const EDGE: RequestedChange = {
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
    stackOf({
      layers: [2, 4],
      heads_per_layer: [2, 3],
      query_tokens: tokensOf(["the", "<b>"]),
    }),
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

const READY: EdgeHeader = { model: "ready", share: null, share_problem: "", cuts: [], noise: "" };
const WAITS: EdgeHeader = { ...READY, model: "waits" };

/**
 * Return the reply to a request with changes. It has two candidates before and two after the
 * changes.
 */
function outcomeOf(sentence: string): OutcomeHeader {
  const [street, canal, animal] = ["street", "canal", "<i>animal"].map((text, id) => ({
    text,
    id,
    probability: 0.5 - id / 10,
  })) as [AnswerToken, AnswerToken, AnswerToken];
  return {
    sentence,
    described: [],
    effect: "",
    measure: "logit of “street” minus logit of “animal”",
    before: 1,
    after: -1,
    noise: 0,
    divergence: 0,
    candidates_before: [street, canal],
    candidates_after: [animal, street],
  };
}

/** Return the stacks of a changed run, as a kernel describes them. */
function changedStacks(): ChangedStack[] {
  const { query_tokens, key_tokens, ...numbers } = DESCRIPTION.stacks[0] as StackDescription;
  const after = { ...numbers, name: "self · after: without head 2.1" };
  const name = "self · difference after: without head 2.1";
  const difference = { ...numbers, name, signed: true, measure: "difference", normalized: false };
  return [{ stack: "self", after, difference, predictions: [] }];
}

/** Return the text of the line with the pinned edge. */
const line = (): string => root.querySelector(".av-pinned-edge")?.textContent ?? "";

/** Render the panel. Its transport records the requests. */
function drawn(options: {
  live?: boolean;
  state?: Partial<RecordState>;
  answer?: (
    changes: RequestedChange[],
    signal: AbortSignal | undefined,
    measured: (number | string)[],
  ) => Promise<string>;
  /** Whether the model has logits. */
  hasLogits?: boolean;
  edge?: (edgeRequest: EdgeRequest) => EdgeHeader;
  description?: object;
}) {
  const requests: RequestedChange[][] = [];
  const measured: (number | string)[][] = [];
  const blocks: BlockRequest[] = [];
  const named: string[] = [];
  const answer = options.answer ?? (async (changes) => `Answer to ${changes.length} changes.`);
  const ask = async (name: string, args: object, signal?: AbortSignal): Promise<Reply> => {
    named.push(name);
    if (name === "describe") return { header: options.description ?? DESCRIPTION, data: null };
    if (name === "block") {
      blocks.push(args as BlockRequest);
      const count = (args as BlockRequest).heads.length;
      const header = { shape: [count, 1, 1], encoding: "float32", maximum: 1, error: 0 };
      return { header, data: new Float32Array(count).fill(0.25) };
    }
    if (name === "edge") return { header: options.edge?.(args as EdgeRequest), data: null };
    if (name === "changed") return { header: { stacks: changedStacks() }, data: null };
    const request = args as Required<InterveneRequest>;
    requests.push(request.changes);
    measured.push(request.measured);
    const sentence = await answer(request.changes, signal, request.measured);
    const outcome = outcomeOf(sentence);
    const none = { candidates_before: [], candidates_after: [] };
    return { header: options.hasLogits === false ? { ...outcome, ...none } : outcome, data: null };
  };
  const transport = transportOf(ask, { live: options.live ?? true });
  const state = makeSignals<RecordState>({
    ...RECORD_DEFAULTS,
    runs_model: options.live ?? true,
    layer: 2,
    heads: [1],
    token: 1,
    key: 0,
    ...options.state,
  });
  const source = new Source(transport);
  const record = createRecordStore(source, state, ended.signal);
  const context = { source, state, common: state, record, controls: { value: "full" } };
  const shown = context as unknown as ViewContext<RecordState>;
  const both = (
    <>
      <WhatIf context={shown} />
      <PinnedEdge context={shown} />
    </>
  );
  render(both, root);
  const open = async (): Promise<void> => {
    await vi.waitFor(() => expect(root.querySelector("details")).not.toBeNull());
    const details = root.querySelector("details") as HTMLDetailsElement;
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  };
  const press = async (label: string): Promise<void> => {
    const buttons = (): HTMLButtonElement[] => [...root.querySelectorAll("button")];
    const named = (element: HTMLButtonElement): boolean =>
      (element.getAttribute("aria-label") ?? element.textContent ?? "").startsWith(label);
    await vi.waitFor(() => expect(buttons().some(named)).toBe(true));
    buttons().find(named)?.click();
  };
  const choose = async (label: string, value: string): Promise<void> => {
    const select = (): HTMLSelectElement | undefined =>
      [...root.querySelectorAll("label")]
        .find((element) => element.textContent?.startsWith(label))
        ?.querySelector("select") ?? undefined;
    await vi.waitFor(() => expect(select()).toBeDefined());
    const element = select() as HTMLSelectElement;
    element.value = value;
    element.dispatchEvent(new Event("change", { bubbles: true }));
    await vi.waitFor(() => expect(select()?.value).toBe(value));
  };
  const expectText = (text: string): Promise<void> =>
    vi.waitFor(() => expect(root.querySelector(".av-what-if-answer")?.textContent).toBe(text));
  return {
    requests,
    measured,
    named,
    blocks,
    state,
    record,
    open,
    press,
    choose,
    expectText,
  };
}

it("runs no model before it is opened, then the unchanged one", async () => {
  const { requests, open, expectText } = drawn({});
  await vi.waitFor(() => expect(root.querySelector("summary")).not.toBeNull());
  expect(requests).toEqual([]);
  await open();
  await expectText("Answer to 0 changes.");
  expect(requests).toEqual([[]]);
  expect(root.textContent).not.toContain(CAVEAT);
});

it("cuts the pinned edge, and lists changes that can be removed", async () => {
  const { requests, state, open, press, expectText } = drawn({});
  await open();
  await expectText("Answer to 0 changes.");
  await press("What if this edge were cut?");
  await expectText("Answer to 1 changes.");
  expect(state.changes.value).toEqual([EDGE]);
  expect(root.textContent).toContain(CAVEAT);
  await press("Without head 2.1");
  await expectText("Answer to 2 changes.");
  await press("Hide the token “the” (0)");
  await expectText("Answer to 3 changes.");
  expect(requests.at(-1)?.map((change) => change.kind)).toEqual(["knockout", "ablate", "hide"]);
  await press("Remove: “<b>” (1) to “the” (0), layer 2, head 1, before the softmax");
  await expectText("Answer to 2 changes.");
  expect(requests.at(-1)?.map((change) => change.kind)).toEqual(["ablate", "hide"]);
  // Answers that arrived earlier are cached, so nothing is requested.
  const before = requests.length;
  assign(state, { changes: [] });
  await expectText("Answer to 0 changes.");
  expect(requests.length).toBe(before);
});

it("cuts after the softmax, and in all layers", async () => {
  const { state, open, press, choose } = drawn({});
  await open();
  await choose("Cut", "after");
  await choose("Where", "all");
  await press("What if this edge were cut?");
  expect(state.changes.value).toEqual([{ ...EDGE, layer: null, head: null, renormalize: false }]);
});

it("shows errors, and offers no changes without the unchanged run", async () => {
  const words = "inputs: the 4 queries in the record are not the 5 that the model reads";
  const { open, expectText } = drawn({ answer: () => Promise.reject(new Error(words)) });
  await open();
  await expectText(words);
  expect(root.querySelectorAll(".av-what-if button").length).toBe(0);
});

it("is absent without a model that can run again", async () => {
  const { named, state } = drawn({ state: { runs_model: false } });
  await vi.waitFor(() => expect(line()).toBe("Pinned: “<b>” to “the”, head 2.1. Weight 0.25."));
  expect(root.querySelector(".av-what-if")).toBeNull();
  expect(named).not.toContain("edge");
  assign(state, { runs_model: true });
  await vi.waitFor(() => expect(root.querySelector(".av-what-if")).not.toBeNull());
});

it("offers no answers for a model without logits", async () => {
  const { open, expectText } = drawn({ hasLogits: false });
  await open();
  await expectText("Answer to 0 changes.");
  expect(root.querySelector(".av-measured")).toBeNull();
});

it("names the measured function, and requests again for another function of the same name", async () => {
  const answer = (id: number) => ({ function: "start_logit", id });
  const { measured, state, open, expectText } = drawn({ state: { answer: answer(1) } });
  await open();
  await expectText("Answer to 0 changes.");
  expect(root.querySelector(".av-measured option:checked")?.textContent).toBe(
    "value of start_logit",
  );
  for (const next of [answer(2), null]) {
    assign(state, { answer: next });
    await vi.waitFor(() => expect(measured.length).toBe(next ? 2 : 3));
  }
  expect(measured).toEqual([undefined, undefined, []]);
});

it("shows the run after a new change, and keeps showing a difference", async () => {
  const { state, open, press, expectText } = drawn({});
  await open();
  await expectText("Answer to 0 changes.");
  await press("Without head 2.1");
  expect(state.run.value).toBe("after");
  await press("difference");
  await press("What if this edge were cut?");
  expect(state.run.value).toBe("difference");
});

it("opens for changes that come from Python, and can be closed", async () => {
  const { state, expectText } = drawn({});
  await vi.waitFor(() => expect(root.querySelector("details")).not.toBeNull());
  const details = root.querySelector("details") as HTMLDetailsElement;
  expect(details.open).toBe(false);
  assign(state, { changes: [EDGE] });
  await expectText("Answer to 1 changes.");
  expect(details.open).toBe(true);
  details.open = false;
  details.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => expect(details.textContent).not.toContain("Answer to 1"));
  // Removing the last change does not close the panel.
  assign(state, { changes: [] });
  assign(state, { changes: [{ ...EDGE, key: 1 }] });
  await vi.waitFor(() => expect(details.open).toBe(true));
  assign(state, { changes: [] });
  await expectText("Answer to 0 changes.");
  expect(details.open).toBe(true);
});

it("explains why the weights of a head are unchanged", () => {
  const selection = {
    stack: { ...DESCRIPTION.stacks[0], layers: [0, 1, 2] },
    layer: 1,
    heads: [0],
  } as unknown as Parameters<typeof whyUnchanged>[1];
  const ablate = { ...EDGE, kind: "ablate" as const, layer: 1, head: 0, query: null, key: null };
  const why = (change: Partial<RequestedChange>, where: Partial<typeof selection> = {}): string =>
    whyUnchanged([{ ...ablate, ...change }], { ...selection, ...where });
  expect(why({})).toBe(
    "An ablated head keeps its weights, and only its output is 0. The weights are the same as " +
      "before, and their difference is 0. Later layers show the effect of the change.",
  );
  expect(why({}, { layer: 2 })).toBe("");
  expect(why({ layer: 2 }, { layer: 2 })).toContain("No later layer is in this view.");
  expect(why({ layer: 2 })).toContain("These weights are computed before the change");
  expect(why({ head: 1 })).toContain("or parallel to it");
  expect(why({ kind: "hide", layer: null, head: null })).toBe("");
  expect(why({ kind: "hide", layer: 1, head: 3 })).toContain("or parallel to it");
  expect(why({ kind: "knockout" })).toBe("");
  // The ablation covers all layers. The weights of later layers may change, but those of the first
  // layer are the same.
  expect(why({ layer: null })).toBe("");
  expect(why({ layer: null }, { layer: 0 })).toContain("keeps its weights");
  expect(why({ stack: "encoder" })).toBe("");
  expect(whyUnchanged([], selection)).toBe("");
  expect(whyUnchanged([ablate, EDGE, { ...ablate, layer: 0 }], selection)).toBe("");
});

it("cancels a request when the changes differ, and retries on demand", async () => {
  let failing = true;
  const signals: AbortSignal[] = [];
  const { state, press, expectText } = drawn({
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
  await expectText("The kernel was interrupted.");
  expect(signals[0]?.aborted).toBe(true);
  failing = false;
  await press("Try again");
  await expectText("Ok.");
});

it("shows nothing on a page without outcomes", async () => {
  drawn({ live: false, state: { changes: [EDGE] } });
  await vi.waitFor(() => expect(root.querySelector(".av-pinned-heads")).not.toBeNull());
  expect(root.children.length).toBe(1);
});

it("describes a pinned edge by weight, norm, effect and noise, in this order", async () => {
  let header: EdgeHeader = WAITS;
  const { named, blocks, open, press } = drawn({ edge: () => header });
  const begin = "Pinned: “<b>” to “the”, head 2.1. Weight 0.25; ";
  await vi.waitFor(() =>
    expect(line()).toBe(
      `${begin}share of the value norm and effect of cutting it: open “What if the attention were changed?”.`,
    ),
  );
  header = { ...READY, share: 0.5 };
  await open();
  await vi.waitFor(() =>
    expect(line()).toBe(
      `${begin}share of the value norm 0.50; effect of cutting it: press “What if this edge were cut?”.`,
    ),
  );
  // The panel shows the answer that was measured last, so the line does not repeat its name.
  const [one, other] = ["logit of “street” minus logit of “animal”", "logit"];
  const cuts = [
    { description: "cut before the softmax 1 to 2", measure: one },
    { description: "cut after the softmax 1 to 3", measure: other },
  ];
  header = { ...header, cuts, noise: "0.1" };
  await press("What if this edge were cut?");
  await vi.waitFor(() =>
    expect(line()).toBe(
      `${begin.replace(". Weight", " in the unchanged run. Weight")}share of the value norm 0.50; effect: cut before the softmax 1 to 2; cut after the softmax 1 to 3 (logit); noise 0.1.`,
    ),
  );
  // The weight of the edge is requested once. The weights of all heads are requested once per
  // layer, and the other numbers after each answer.
  expect(blocks.filter(({ stack }) => stack === "self").length).toBe(2);
  expect(named.filter((name) => name === "edge").length).toBe(3);
});

it("explains an unknown share of the value norm, and names the measure on a page", () => {
  const cuts = [{ description: "cut before the softmax 1 to 2", measure: "logit" }];
  expect(edgeInWords({ ...READY, share_problem: "no projection", cuts }, false)).toEqual([
    "share of the value norm unknown: no projection",
    "effect: cut before the softmax 1 to 2 (logit)",
  ]);
});

it("asks the reader to choose one head, and shows nothing without two pins", async () => {
  const { state, named } = drawn({ state: { heads: [0, 1] }, edge: () => WAITS });
  await vi.waitFor(() => expect(line()).toContain("Choose one head"));
  assign(state, { key: null });
  await vi.waitFor(() => expect(root.querySelector(".av-pinned-edge")).toBeNull());
  expect(root.querySelector(".av-pinned-heads")).toBeNull();
  expect(named).not.toContain("edge");
});

it("shows the stored numbers of a pinned edge on a page", async () => {
  const edge = { stack: "self", layer: 2, head: 1, query: 1, key: 0 };
  const carried = { ...edge, ...READY, share: 0.125 };
  const { state } = drawn({ live: false, state: { known_edges: [carried] } });
  await vi.waitFor(() => expect(line()).toContain("share of the value norm 0.13"));
  assign(state, { token: 0 });
  await vi.waitFor(() =>
    expect(line()).toContain("share of the value norm and effect of cutting it: not in this page."),
  );
});

it("shows the stored stacks on a page under one name", async () => {
  const own = DESCRIPTION.stacks[0] as StackDescription;
  const [changed] = changedStacks();
  const { after, difference } = changed as ChangedStack;
  const stacks = [own, { ...own, ...after }, { ...own, ...difference }];
  const names = { self: { after: after.name, difference: difference.name } };
  const { record, state } = drawn({
    live: false,
    description: { ...DESCRIPTION, stacks },
    state: {
      changes: [EDGE],
      run: "after",
      outcomes: [{ changes: [EDGE], described: ["Cut."], sentence: "." }],
      changed_run: { changes: [EDGE], stacks: names },
    },
  });
  await vi.waitFor(() => expect(record.selection.value?.stack.name).toBe(after.name));
  expect(record.description.value?.stacks.length).toBe(1);
  expect(root.querySelectorAll(".av-shown-run button").length).toBe(3);
  assign(state, { changes: [] });
  expect(record.selection.value?.stack.name).toBe("self");
  expect(record.description.value?.stacks.length).toBe(1);
});

it("writes changes to a URL fragment and parses them", () => {
  const ablate = { ...EDGE, kind: "ablate" as const, stack: "a.b,c", query: null, key: null };
  type Shown = Pick<RecordState, "changes" | "run">;
  const state: Shown = { changes: [EDGE, ablate], run: "after" };
  const fields = { changes: readChanges, run: readShownRun };
  const hash = writeHash(state, fields);
  expect(hash).toBe("changes=knockout.self.2.1.1.0.true,ablate.a%252Eb%252Cc.2.1...true&run=after");
  expect(readHash(`#${hash}`, fields)).toEqual(state);
  // A field that equals its `off` value is omitted, unless the page opened with another value.
  const off: Shown = { changes: [], run: "before" };
  expect(writeHash(off, fields)).toBe("");
  expect(writeHash(off, fields, state)).toBe("changes=&run=before");
  for (const wrong of ["knockout", "burn.self.1.1.1.1.true", "hide.self.x....true", "a.b"])
    expect(readHash(`#changes=${wrong}&run=never`, fields)).toEqual({});
});

it("offers the changes that the pins and one head allow", () => {
  const selection = {
    stack: DESCRIPTION.stacks[0],
    queries: DESCRIPTION.stacks[0]?.query_tokens,
    keys: DESCRIPTION.stacks[0]?.query_tokens,
    layer: 2,
    heads: [0, 1],
    token: null,
    key: 0,
  } as unknown as Parameters<typeof offeredAt>[0];
  const offered = offeredAt(selection);
  expect([offered.edge, offered.head]).toEqual([null, null]);
  expect(offered.reaches).toEqual(["layer", "all"]);
  expect(offered.token).toEqual({ ...EDGE, kind: "hide", layer: null, head: null, query: null });
  const edge = offeredAt({ ...selection, token: 1 }).edge;
  expect(edge?.("layer", true)).toEqual({ ...EDGE, head: null });
  const words = (change: Partial<RequestedChange>): string =>
    changeInWords({ ...EDGE, ...change }, selection);
  expect(words({ kind: "ablate" })).toBe("Without head 2.1");
  expect(words({ kind: "ablate", head: null })).toBe("Without layer 2");
  expect(words({ kind: "hide", layer: null, head: null })).toBe("“the” (0) hidden");
  expect(words({ stack: "cross", renormalize: false })).toBe(
    "1 to 0, layer 2, head 1 of cross, after the softmax",
  );
});

it("has at most one cut of an edge, and no duplicate changes", () => {
  const after = { ...EDGE, renormalize: false };
  const other = { ...EDGE, key: 1 };
  expect(withChange([EDGE, other], after)).toEqual([other, after]);
  expect(withChange([EDGE], EDGE)).toEqual([EDGE]);
});
