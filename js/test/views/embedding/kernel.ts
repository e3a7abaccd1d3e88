/** This file has a small corpus and a fake kernel that replies with its data. */

import { deflateSync } from "node:zlib";
import type {
  CorpusPoints,
  Description,
  NormsRequest,
  PlotRequest,
  StackDescription,
  TrustRequest,
  Work,
} from "../../../src/client/protocol";
import { headsOf, Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { type Corpus, createCorpus } from "../../../src/views/embedding/client/corpus";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../src/views/embedding/store";
import { stackOf as plainStackOf } from "../../builders";
import { EMBEDDING_DEFAULTS } from "../../defaults";
import { FakeKernel } from "../../fakes";
import { setUpView, type ViewSetup } from "../../view-context";

/**
 * Corpus with points of text 1, "the cat , the", and of text 2, "The dog" plus "</s>". Text 0 was
 * skipped, and the middle token of text 2 has no point.
 */
export const ANSWER: CorpusPoints = {
  num_queries: 6,
  num_keys: 6,
  total_points: 20,
  total_texts: 9,
  whole: false,
  seed: 7,
  stride: 1,
  names: ["left out", "first", "second"],
  vocabulary: ["the", " cat", ",", "The", " dog", "</s>"],
  frequency: [10, 3, 8, 2, 1, 9],
  punctuation: [2],
  special: [5],
  queries: { text: [1, 1, 1, 1, 2, 2], position: [0, 1, 2, 3, 0, 2], token: [0, 1, 2, 0, 3, 5] },
  keys: null,
  columns: [
    {
      name: "tag",
      categories: ["noun", "other"],
      queries: [1, 0, 1, 1, 1, null],
      keys: [1, 0, 1, 1, 1, null],
    },
    { name: "score", categories: null, queries: [0, 0.5, 1, 0, 0, null], keys: [2, 2, 2, 2, 2, 2] },
  ],
  caveats: [{ layers: [5], words: "Sinks.", kind: "moving" }],
  images: 0,
};

export const COUNT = ANSWER.num_queries + ANSWER.num_keys;

export function corpusWith(changed: Partial<CorpusPoints> = {}): Corpus {
  return createCorpus("self", { ...ANSWER, ...changed });
}

const HEADS = { layers: [0, 5, 6], heads_per_layer: [2, 3, 2] };

export function stackOf(changed: Partial<StackDescription> = {}): StackDescription {
  return plainStackOf({ ...HEADS, causal: true, vectors: true, ...changed });
}

export const DESCRIPTION: Description = {
  model: "m",
  notes: [],
  stacks: [stackOf(), stackOf({ name: "cross", layers: [1], heads_per_layer: [1] })],
};

/** Return trust figures, which rate how faithful a plot is. The figure `plot` is -layer / 10. */
export function trustFor(layer: number, head: number) {
  return {
    head,
    plot: -layer / 10,
    recall: null,
    recall_baseline: null,
    num_queries: 4,
    num_total: 6,
  };
}

/** Fake kernel that has the corpus `ANSWER`. */
export class Kernel extends FakeKernel {
  points = ANSWER;
  /** Progress of the projection that the kernel reports. */
  work: Work = { state: "done", done: 5, num_total: 5, words: "" };

  protected override reply(name: string, args: object): Reply {
    if (name === "describe") return { header: DESCRIPTION, data: null };
    if (name === "points") {
      return { header: { parts: 1 }, data: deflateSync(JSON.stringify(this.points)) };
    }
    if (name === "plot") {
      const { stack, layer, method, dimensions = 2, head, action } = args as PlotRequest;
      if (head === undefined) {
        const described = DESCRIPTION.stacks.find(({ name }) => name === stack) ?? stackOf();
        const heads = headsOf(described, layer).map((head) => ({
          problem: layer === 6 && head === 1 ? "all points are the same" : null,
        }));
        // All coordinates are the number of the layer, so tests can identify the layer.
        return { header: { heads }, data: new Uint8Array(2 * COUNT * heads.length).fill(layer) };
      }
      if (action === "cancel") this.work = { ...this.work, state: "cancelled" };
      // All codes are 65,535, except that of the first point's first axis.
      const data = new Uint8Array(2 * dimensions * COUNT).fill(255);
      data[0] = 0;
      data[dimensions * COUNT] = 0;
      const low = Array.from({ length: dimensions }, () => head);
      const explained = method === "pca" ? low.map(() => 0.25) : null;
      const work = method === "pca" ? null : this.work;
      const header = { dimensions, count: COUNT, parts: 1, low, size: 2, explained, factor: 1.5 };
      return { header: { ...header, problem: null, work }, data };
    }
    if (name === "trust") {
      const { stack, layer, head } = args as TrustRequest;
      const described = DESCRIPTION.stacks.find(({ name }) => name === stack) ?? stackOf();
      const heads = head === undefined ? headsOf(described, layer) : [head];
      return { header: { heads: heads.map((head) => trustFor(layer, head)) }, data: null };
    }
    if (name === "norms") {
      const { head } = args as NormsRequest;
      const codes = Uint16Array.from({ length: COUNT }, (_, point) => 5000 * point);
      return {
        header: { low: head, high: head + 1 },
        data: new Uint8Array(codes.buffer),
      };
    }
    if (name === "lines") {
      const header = { points: [6, 7], weights: [0.75, 0.25], covered: 1 };
      return { header, data: null };
    }
    throw new Error(`No answer to ${name}.`);
  }
}

export interface Setup<AnyKernel extends Kernel = Kernel> extends ViewSetup<EmbeddingState> {
  kernel: AnyKernel;
  store: EmbeddingStore;
}

/** Create the state and the context of an embedding view with a fake kernel. */
export function contextWith(changed: Partial<EmbeddingState>, kernel: Kernel) {
  const state = { ...EMBEDDING_DEFAULTS, stack: "self", ...changed };
  return setUpView<EmbeddingState>(state, new Source(kernel));
}

/** Create the state, context and store of an embedding view with a fake kernel. */
export function setUp<AnyKernel extends Kernel = Kernel>(
  changed: Partial<EmbeddingState> = {},
  kernel = new Kernel() as AnyKernel,
): Setup<AnyKernel> {
  const setup = contextWith(changed, kernel);
  return { ...setup, kernel, store: createEmbeddingStore(setup.context) };
}
