import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type {
  EdgeHeader,
  InterveneRequest,
  OutcomeHeader,
  ReadRequest,
} from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import type { RecordState, Selection } from "../../../src/ui/view/record";
import { assign } from "../../../src/ui/view/state";
import {
  type Change,
  type ChangedRunState,
  type CutChange,
  changedRunOf,
} from "../../../src/ui/what-if/changed-run";
import { PinnedEdge } from "../../../src/ui/what-if/pinned-edge";
import { offeredAt, whyUnchanged, withChange } from "../../../src/ui/what-if/state";
import { CAVEAT, WhatIf } from "../../../src/ui/what-if/what-if";
import { described, stackOf, tokensOf } from "../../builders";
import { RECORD_DEFAULTS } from "../../defaults";
import { buttonOf, mount, until, useFakeClock } from "../../dom";
import { FakeKernel } from "../../fakes";
import { setUpView } from "../../view-context";

const EDGE: CutChange = {
  ...{ kind: "Knockout", stack: "self", layers: 2, heads: 1 },
  ...{ queries: 1, keys: 0, renormalize: true },
};
const HIDDEN: Change = {
  ...{ kind: "HideTokens", stack: "self", layers: null, heads: null, tokens: 3 },
};

const STACK = stackOf({
  layers: [2, 4],
  heads_per_layer: [2, 3],
  query_tokens: tokensOf(["the", "<b>"]),
});
const MEASURE = "logit of “street” minus logit of “animal”";

let root: HTMLElement;

useFakeClock();

const READY: EdgeHeader = { model: "ready", share: null, share_problem: "", cuts: [] };

/** Return the header of a reply to `intervene`, with the given sentence. */
function outcomeOf(sentence: string): OutcomeHeader {
  const tokens = ["street", "animal"].map((text, id) => ({ text, id }));
  const rank = { unranked: "", is_cheap: false };
  const candidates = { candidates_before: tokens, candidates_after: tokens };
  return { sentence, measure: MEASURE, ...rank, ...candidates };
}

/** Return the text that describes the pinned edge (a pair of a query and a key). */
const line = (): string => root.querySelector(".av-pinned-edge")?.textContent ?? "";

/** Fake kernel, whose answers name the number of changes. No model runs. */
class Kernel extends FakeKernel {
  protected override async reply(name: string, args: object): Promise<Reply> {
    if (name === "describe") return { header: described(STACK), data: null };
    if (name === "edge") return { header: READY, data: null };
    if (name === "changed") return { header: { stacks: [] }, data: null };
    if (name === "block") {
      const count = (args as ReadRequest).heads.length;
      const header = { shape: [count, 1, 1], encoding: "float32", maximum: 1, error: 0 };
      return { header, data: new Float32Array(count).fill(0.25) };
    }
    const { changes, ranks } = args as InterveneRequest;
    const outcome = outcomeOf(`Answer to ${changes.length} changes.`);
    if (!this.unranked || changes.length !== 1) return { header: outcome, data: null };
    if (ranks)
      return { header: { ...outcome, sentence: `${outcome.sentence} Rank 2.` }, data: null };
    return { header: { ...outcome, unranked: "16 heads", is_cheap: this.cheap }, data: null };
  }

  /** Whether a single change has a rank that is unknown at first, and is cheap to measure. */
  unranked = false;
  cheap = false;

  /** List of the changes of each request to run the model. */
  get runs(): Change[][] {
    return this.of("intervene").map(({ changes }) => changes as Change[]);
  }
}

/** Render the panel (a `details` element) and the text about the pinned edge. */
function draw(changed: Partial<RecordState & ChangedRunState> = {}, kernel = new Kernel()) {
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
  return { ...setup, kernel };
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

const expectAnswer = (text: string): Promise<void> =>
  until(() => expect(root.querySelector(".av-what-if-answer")?.textContent).toBe(text));

it("is absent without a model, and runs no model before it is opened", async () => {
  const { kernel, state } = draw({ runs_model: false });
  await until(() => expect(line()).toBe("Pinned: “<b>” to “the”, head 2.1. Weight 0.25."));
  expect(details()).toBeNull();
  assign(state, { runs_model: true });
  await until(() => expect(details()).not.toBeNull());
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
  await press("Hide the token “the” (0)");
  await expectAnswer("Answer to 2 changes.");
  expect(kinds()).toEqual(["Knockout", "HideTokens"]);
  await press("Remove: “<b>” (1) to “the” (0), layer 2, head 1, before the softmax");
  await expectAnswer("Answer to 1 changes.");
  expect(kinds()).toEqual(["HideTokens"]);
  // The answer for no changes is cached, so the model does not run.
  const numRuns = kernel.runs.length;
  assign(state, { changes: [] });
  await expectAnswer("Answer to 0 changes.");
  expect(kernel.runs.length).toBe(numRuns);
});

it("measures the rank of an effect at once if this is cheap, and otherwise on demand", async () => {
  const button = "Compare with the same change of all 16 heads";
  const cheap = Object.assign(new Kernel(), { unranked: true, cheap: true });
  draw({ changes: [EDGE] }, cheap);
  await expectAnswer("Answer to 1 changes. Rank 2.");
  expect(buttonOf(root, button)).toBeNull();
  const kernel = Object.assign(new Kernel(), { unranked: true });
  const { state } = draw({ changes: [EDGE] }, kernel);
  await expectAnswer("Answer to 1 changes.");
  kernel.held = (name) => name === "intervene";
  await press(button);
  await until(() =>
    expect(root.textContent).toContain("Measuring the same change of all 16 heads"),
  );
  await expectAnswer("Answer to 1 changes.");
  kernel.held = () => false;
  kernel.release();
  await expectAnswer("Answer to 1 changes. Rank 2.");
  // The reader asked only about the cut. Another change is compared after another press.
  assign(state, { changes: [HIDDEN] });
  await expectAnswer("Answer to 1 changes.");
  await until(() => expect(buttonOf(root, button)).not.toBeNull());
  expect(kernel.of("intervene").filter(({ ranks }) => ranks)).toHaveLength(1);
  kernel.failing = { intervene: "The copies need too much memory." };
  await press(button);
  await until(() => expect(root.textContent).toContain("The copies need too much memory."));
});

it("opens for changes that come from Python, and stays open without them", async () => {
  const { state } = draw();
  await until(() => expect(details()?.open).toBe(false));
  assign(state, { changes: [EDGE] });
  await expectAnswer("Answer to 1 changes.");
  expect(details()?.open).toBe(true);
  assign(state, { changes: [] });
  await expectAnswer("Answer to 0 changes.");
  expect(details()?.open).toBe(true);
});

describe("the reason why an ablation does not change the weights of head 0 in layer 1", () => {
  const stack = { ...STACK, layers: [0, 1, 2] };
  const ablate: Change = { kind: "Ablate", stack: "self", layers: 1, heads: 0 };

  it.each<[string, Partial<Pick<Change, "layers" | "heads">>, number, string]>([
    ["of this head", {}, 1, "An ablated head keeps its weights, and only its output is 0."],
    ["of an earlier layer", {}, 2, ""],
    ["of a later layer", { layers: 2 }, 1, "These weights are computed before the change"],
    ["of another head of the layer", { heads: 1 }, 1, "or parallel to it"],
  ])("%s", (_name, change, layer, words) => {
    const selection = { stack, layer, heads: [0] } as Partial<Selection> as Selection;
    const reason = whyUnchanged([{ ...ablate, ...change }], selection);
    if (words) expect(reason).toContain(words);
    else expect(reason).toBe("");
  });
});

it("cancels a request when the changes differ, and retries on demand", async () => {
  const kernel = new Kernel();
  kernel.held = (name) => name === "intervene";
  const { state } = draw({ changes: [EDGE] }, kernel);
  await until(() => expect(kernel.waiting).toHaveLength(1));
  kernel.held = () => false;
  kernel.failing = { intervene: "The kernel was interrupted." };
  assign(state, { changes: [EDGE, { ...EDGE, keys: 1 }] });
  await expectAnswer("The kernel was interrupted.");
  expect(kernel.aborted).toEqual(["intervene"]);
  kernel.failing = {};
  await press("Try again");
  await expectAnswer("Answer to 2 changes.");
});

it("asks again for another record, and drops the replies about the earlier one", async () => {
  const kernel = new Kernel();
  const record = signal(0);
  const { context } = draw({ changes: [EDGE] }, Object.assign(kernel, { record }));
  await expectAnswer("Answer to 1 changes.");
  await until(() => expect(line()).toContain("Weight 0.25"));
  kernel.held = (name) => ["intervene", "block"].includes(name);
  record.value = 1;
  await until(() => expect(line()).toContain("Weight …"));
  expect(changedRunOf(context.record).latest.value).toBeNull();
  expect(root.querySelector(".av-what-if-answer")?.textContent).toBe("The kernel runs the model …");
});

it("a page shows the stored numbers of a pinned edge", async () => {
  const kernel = new Kernel();
  kernel.live = false;
  const edge = { stack: "self", layer: 2, head: 1, query: 1, key: 0 };
  const { state } = draw({ known_edges: [{ ...edge, ...READY, share: 0.125 }] }, kernel);
  await until(() => expect(line()).toContain("share of the value norm 0.13"));
  assign(state, { token: 0 });
  const words = "share of the value norm and effect of cutting it: not in this page.";
  await until(() => expect(line()).toContain(words));
});

it("offers the changes that the pins and one head allow", () => {
  const tokens = { queries: STACK.query_tokens, keys: STACK.query_tokens };
  const pinned = { stack: STACK, layer: 2, heads: [0, 1], token: null, key: 0, ...tokens };
  const selection = pinned as Partial<Selection> as Selection;
  const offered = offeredAt(selection);
  expect([offered.edge, offered.head]).toEqual([null, null]);
  expect(offered.reaches).toEqual(["layer", "all"]);
  expect(offered.token).toEqual({ ...HIDDEN, tokens: 0 });
  const edge = offeredAt({ ...selection, token: 1 }).edge;
  expect(edge?.("layer", true)).toEqual({ ...EDGE, heads: null });
});

it("has at most one cut of an edge, and no duplicate changes", () => {
  const after = { ...EDGE, renormalize: false };
  const other = { ...EDGE, keys: 1 };
  expect(withChange([EDGE, other], after)).toEqual([other, after]);
  expect(withChange([EDGE], EDGE)).toEqual([EDGE]);
});
