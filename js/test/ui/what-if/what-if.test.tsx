import { describe, expect, it } from "vitest";
import type {
  AnswerToken,
  BlockRequest,
  ChangedStack,
  Description,
  EdgeHeader,
  InterveneRequest,
  OutcomeHeader,
  RequestedChange,
} from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";
import { assign, readHash, writeHash } from "../../../src/ui/view/state";
import { readChanges, readShownRun } from "../../../src/ui/what-if/changed-run";
import { edgeInWords, PinnedEdge } from "../../../src/ui/what-if/pinned-edge";
import { changeInWords, offeredAt, whyUnchanged, withChange } from "../../../src/ui/what-if/state";
import { CAVEAT, WhatIf } from "../../../src/ui/what-if/what-if";
import { described, stackOf, tokensOf } from "../../builders";
import { buttonOf, enter, fieldOf, mount, until, useFakeClock } from "../../dom";
import { FakeKernel } from "../../fakes";
import { setUpView } from "../../view-context";

const EDGE: RequestedChange = {
  kind: "knockout",
  stack: "self",
  layer: 2,
  head: 1,
  query: 1,
  key: 0,
  renormalize: true,
};

const STACK = stackOf({
  layers: [2, 4],
  heads_per_layer: [2, 3],
  query_tokens: tokensOf(["the", "<b>"]),
});
const MEASURE = "logit of “street” minus logit of “animal”";

let root: HTMLElement;

useFakeClock();

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
    measure: MEASURE,
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
  const { query_tokens, key_tokens, ...numbers } = STACK;
  const after = { ...numbers, name: "self · after: without head 2.1" };
  const name = "self · difference after: without head 2.1";
  const difference = { ...numbers, name, signed: true, measure: "difference", normalized: false };
  return [{ stack: "self", after, difference, predictions: [] }];
}

/** Return the text of the line with the pinned edge. */
const line = (): string => root.querySelector(".av-pinned-edge")?.textContent ?? "";

/** Fake kernel that replies as if it had run the model with changes. */
class Kernel extends FakeKernel {
  description: Description = described(STACK);
  /** Sentence of the reply to a request with changes. */
  answer = async (changes: RequestedChange[]): Promise<string> =>
    `Answer to ${changes.length} changes.`;
  /** Whether the model has logits. */
  hasLogits = true;
  edge: EdgeHeader = WAITS;

  protected override async reply(name: string, args: object): Promise<Reply> {
    if (name === "describe") return { header: this.description, data: null };
    if (name === "edge") return { header: this.edge, data: null };
    if (name === "changed") return { header: { stacks: changedStacks() }, data: null };
    if (name === "block") {
      const count = (args as BlockRequest).heads.length;
      const header = { shape: [count, 1, 1], encoding: "float32", maximum: 1, error: 0 };
      return { header, data: new Float32Array(count).fill(0.25) };
    }
    const outcome = outcomeOf(await this.answer((args as InterveneRequest).changes));
    const none = { candidates_before: [], candidates_after: [] };
    return { header: this.hasLogits ? outcome : { ...outcome, ...none }, data: null };
  }

  /** Changes of all requests to run the model. */
  get runs(): RequestedChange[][] {
    return this.of("intervene").map(({ changes }) => changes as RequestedChange[]);
  }
}

/** Render the panel and the line of the pinned edge. */
function draw(changed: Partial<RecordState> = {}, kernel = new Kernel()) {
  const source = new Source(kernel);
  const pinned = { layer: 2, heads: [1], token: 1, key: 0 };
  const state = { ...RECORD_DEFAULTS, runs_model: kernel.live, ...pinned, ...changed };
  const setup = setUpView<RecordState>(state, source);
  root = mount(
    <>
      <WhatIf context={setup.context} />
      <PinnedEdge context={setup.context} />
    </>,
  );
  return { ...setup, kernel, record: setup.context.record };
}

const details = (): HTMLDetailsElement | null => root.querySelector("details");

/** Click the summary of the panel, which opens or closes it. */
async function clickSummary(): Promise<void> {
  await until(() => expect(details()).not.toBeNull());
  root.querySelector("summary")?.click();
}

async function press(label: string): Promise<void> {
  await until(() => expect(buttonOf(root, label)).not.toBeNull());
  buttonOf(root, label)?.click();
}

async function choose(label: string, value: string): Promise<void> {
  await until(() => expect(fieldOf(root, label)).not.toBeNull());
  enter(fieldOf(root, label), value);
  await until(() => expect(fieldOf(root, label)?.value).toBe(value));
}

const expectAnswer = (text: string): Promise<void> =>
  until(() => expect(root.querySelector(".av-what-if-answer")?.textContent).toBe(text));

it("runs no model before it is opened, then the unchanged one", async () => {
  const { kernel } = draw();
  await until(() => expect(root.querySelector("summary")).not.toBeNull());
  expect(kernel.runs).toEqual([]);
  await clickSummary();
  await expectAnswer("Answer to 0 changes.");
  expect(kernel.runs).toEqual([[]]);
  expect(root.textContent).not.toContain(CAVEAT);
});

it("keeps a click that is followed by a rendering before the next event", async () => {
  const { state } = draw();
  await clickSummary();
  assign(state, { token: 0 });
  await expectAnswer("Answer to 0 changes.");
  expect(details()?.open).toBe(true);
});

it("cuts the pinned edge, and lists changes that can be removed", async () => {
  const { kernel, state } = draw();
  const kinds = () => kernel.runs.at(-1)?.map((change) => change.kind);
  await clickSummary();
  await expectAnswer("Answer to 0 changes.");
  await press("What if this edge were cut?");
  await expectAnswer("Answer to 1 changes.");
  expect(state.changes.value).toEqual([EDGE]);
  expect(root.textContent).toContain(CAVEAT);
  await press("Without head 2.1");
  await expectAnswer("Answer to 2 changes.");
  await press("Hide the token “the” (0)");
  await expectAnswer("Answer to 3 changes.");
  expect(kinds()).toEqual(["knockout", "ablate", "hide"]);
  await press("Remove: “<b>” (1) to “the” (0), layer 2, head 1, before the softmax");
  await expectAnswer("Answer to 2 changes.");
  expect(kinds()).toEqual(["ablate", "hide"]);
  // Answers that arrived earlier are cached, so nothing is requested.
  const numRuns = kernel.runs.length;
  assign(state, { changes: [] });
  await expectAnswer("Answer to 0 changes.");
  expect(kernel.runs.length).toBe(numRuns);
});

it("cuts after the softmax, and in all layers", async () => {
  const { state } = draw();
  await clickSummary();
  await choose("Cut", "after");
  await choose("Where", "all");
  await press("What if this edge were cut?");
  expect(state.changes.value).toEqual([{ ...EDGE, layer: null, head: null, renormalize: false }]);
});

it("shows errors, and offers no changes without the unchanged run", async () => {
  const words = "inputs: the 4 queries in the record are not the 5 that the model reads";
  const { kernel } = draw();
  kernel.failing = { intervene: words };
  await clickSummary();
  await expectAnswer(words);
  expect(root.querySelectorAll(".av-what-if button").length).toBe(0);
});

it("is absent without a model that can run again", async () => {
  const { kernel, state } = draw({ runs_model: false });
  await until(() => expect(line()).toBe("Pinned: “<b>” to “the”, head 2.1. Weight 0.25."));
  expect(root.querySelector(".av-what-if")).toBeNull();
  expect(kernel.of("edge")).toEqual([]);
  assign(state, { runs_model: true });
  await until(() => expect(root.querySelector(".av-what-if")).not.toBeNull());
});

it("offers no answers for a model without logits", async () => {
  const { kernel } = draw();
  kernel.hasLogits = false;
  await clickSummary();
  await expectAnswer("Answer to 0 changes.");
  expect(root.querySelector(".av-measured")).toBeNull();
});

it("names the measured function, and requests again for another function of the same name", async () => {
  const answer = (id: number) => ({ function: "start_logit", id });
  const { kernel, state } = draw({ answer: answer(1) });
  await clickSummary();
  await expectAnswer("Answer to 0 changes.");
  expect(root.querySelector(".av-measured option:checked")?.textContent).toBe(
    "value of start_logit",
  );
  for (const [i, next] of [answer(2), null].entries()) {
    assign(state, { answer: next });
    await until(() => expect(kernel.runs.length).toBe(2 + i));
  }
  expect(kernel.of("intervene").map(({ measured }) => measured)).toEqual([
    undefined,
    undefined,
    [],
  ]);
});

it("shows the run after a new change, and keeps showing a difference", async () => {
  const { state } = draw();
  await clickSummary();
  await expectAnswer("Answer to 0 changes.");
  await press("Without head 2.1");
  expect(state.run.value).toBe("after");
  await press("difference");
  await press("What if this edge were cut?");
  expect(state.run.value).toBe("difference");
});

it("opens for changes that come from Python, and can be closed", async () => {
  const { state } = draw();
  await until(() => expect(details()?.open).toBe(false));
  assign(state, { changes: [EDGE] });
  await expectAnswer("Answer to 1 changes.");
  expect(details()?.open).toBe(true);
  await clickSummary();
  await until(() => expect(root.textContent).not.toContain("Answer to 1"));
  // Removing the only change does not close the panel.
  assign(state, { changes: [] });
  assign(state, { changes: [{ ...EDGE, key: 1 }] });
  await until(() => expect(details()?.open).toBe(true));
  assign(state, { changes: [] });
  await expectAnswer("Answer to 0 changes.");
  expect(details()?.open).toBe(true);
});

it("explains why the weights of a head are unchanged", () => {
  const selection = {
    stack: { ...STACK, layers: [0, 1, 2] },
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
  // The ablation covers all layers. It may change the weights of all layers except the first.
  expect(why({ layer: null })).toBe("");
  expect(why({ layer: null }, { layer: 0 })).toContain("keeps its weights");
  expect(why({ stack: "encoder" })).toBe("");
  expect(whyUnchanged([], selection)).toBe("");
  expect(whyUnchanged([ablate, EDGE, { ...ablate, layer: 0 }], selection)).toBe("");
});

it("cancels a request when the changes differ, and retries on demand", async () => {
  const kernel = new Kernel();
  kernel.held = (name) => name === "intervene";
  const { state } = draw({ changes: [EDGE] }, kernel);
  await until(() => expect(kernel.waiting).toHaveLength(1));
  kernel.held = () => false;
  kernel.failing = { intervene: "The kernel was interrupted." };
  assign(state, { changes: [EDGE, { ...EDGE, key: 1 }] });
  await expectAnswer("The kernel was interrupted.");
  expect(kernel.aborted).toEqual(["intervene"]);
  kernel.failing = {};
  await press("Try again");
  await expectAnswer("Answer to 2 changes.");
});

it("describes a pinned edge by weight, norm, effect and noise, in this order", async () => {
  const { kernel } = draw();
  const expectLine = (words: string, begin = "Pinned: “<b>” to “the”, head 2.1. Weight 0.25; ") =>
    until(() => expect(line()).toBe(begin + words));
  await expectLine(
    "share of the value norm and effect of cutting it: open “What if the attention were changed?”.",
  );
  kernel.edge = { ...READY, share: 0.5 };
  await clickSummary();
  await expectLine(
    "share of the value norm 0.50; effect of cutting it: press “What if this edge were cut?”.",
  );
  // The measure of the first cut is the one that the panel shows, so the line does not name it.
  const cuts = [
    { description: "cut before the softmax 1 to 2", measure: MEASURE },
    { description: "cut after the softmax 1 to 3", measure: "logit" },
  ];
  kernel.edge = { ...kernel.edge, cuts, noise: "0.1" };
  await press("What if this edge were cut?");
  await expectLine(
    "share of the value norm 0.50; effect: cut before the softmax 1 to 2; cut after the softmax 1 to 3 (logit); noise 0.1.",
    "Pinned: “<b>” to “the”, head 2.1 in the unchanged run. Weight 0.25; ",
  );
  // The weight of the edge and the weights of all heads of its layer are requested once each. The
  // other numbers of the edge are requested after each answer.
  expect(kernel.of("block").filter(({ stack }) => stack === "self").length).toBe(2);
  expect(kernel.of("edge").length).toBe(3);
});

it("explains an unknown share of the value norm, and names the measure on a page", () => {
  const cuts = [{ description: "cut before the softmax 1 to 2", measure: "logit" }];
  expect(edgeInWords({ ...READY, share_problem: "no projection", cuts }, false)).toEqual([
    "share of the value norm unknown: no projection",
    "effect: cut before the softmax 1 to 2 (logit)",
  ]);
});

it("asks the reader to choose one head, and shows nothing without two pins", async () => {
  const { kernel, state } = draw({ heads: [0, 1] });
  await until(() => expect(line()).toContain("Choose one head"));
  assign(state, { key: null });
  await until(() => expect(root.querySelector(".av-pinned-edge")).toBeNull());
  expect(root.querySelector(".av-pinned-heads")).toBeNull();
  expect(kernel.of("edge")).toEqual([]);
});

describe("a page", () => {
  const kernel = new Kernel();
  kernel.live = false;

  it("shows nothing without outcomes", async () => {
    draw({ changes: [EDGE] }, kernel);
    await until(() => expect(root.querySelector(".av-pinned-heads")).not.toBeNull());
    expect(root.children.length).toBe(1);
  });

  it("shows the stored numbers of a pinned edge", async () => {
    const edge = { stack: "self", layer: 2, head: 1, query: 1, key: 0 };
    const { state } = draw({ known_edges: [{ ...edge, ...READY, share: 0.125 }] }, kernel);
    await until(() => expect(line()).toContain("share of the value norm 0.13"));
    assign(state, { token: 0 });
    const words = "share of the value norm and effect of cutting it: not in this page.";
    await until(() => expect(line()).toContain(words));
  });

  it("shows the stored stacks under one name", async () => {
    const [{ after, difference }] = changedStacks() as [ChangedStack];
    const stacks = [STACK, { ...STACK, ...after }, { ...STACK, ...difference }];
    const names = { self: { after: after.name, difference: difference.name } };
    const whole = new Kernel();
    whole.live = false;
    whole.description = described(...stacks);
    const outcomes = [{ changes: [EDGE], described: ["Cut."], sentence: "." }];
    const changed_run = { changes: [EDGE], stacks: names };
    const { record, state } = draw({ changes: [EDGE], run: "after", outcomes, changed_run }, whole);
    await until(() => expect(record.selection.value?.stack.name).toBe(after.name));
    expect(record.description.value?.stacks.length).toBe(1);
    expect(root.querySelectorAll(".av-shown-run button").length).toBe(3);
    assign(state, { changes: [] });
    expect(record.selection.value?.stack.name).toBe("self");
    expect(record.description.value?.stacks.length).toBe(1);
  });
});

it("writes changes to a URL fragment and parses them", () => {
  const ablate = { ...EDGE, kind: "ablate" as const, stack: "a.b,c", query: null, key: null };
  type Shown = Pick<RecordState, "changes" | "run">;
  const state: Shown = { changes: [EDGE, ablate], run: "after" };
  const fields = { changes: readChanges, run: readShownRun };
  const hash = writeHash(state, fields);
  expect(hash).toBe("changes=knockout.self.2.1.1.0.true,ablate.a%252Eb%252Cc.2.1...true&run=after");
  expect(readHash(`#${hash}`, fields)).toEqual(state);
  // A field with its default value is omitted, unless the page opened with another value.
  const unchanged: Shown = { changes: [], run: "before" };
  expect(writeHash(unchanged, fields)).toBe("");
  expect(writeHash(unchanged, fields, state)).toBe("changes=&run=before");
  for (const wrong of ["knockout", "burn.self.1.1.1.1.true", "hide.self.x....true", "a.b"])
    expect(readHash(`#changes=${wrong}&run=never`, fields)).toEqual({});
});

it("offers the changes that the pins and one head allow", () => {
  const selection = {
    stack: STACK,
    queries: STACK.query_tokens,
    keys: STACK.query_tokens,
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
