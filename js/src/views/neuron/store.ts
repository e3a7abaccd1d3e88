/** The neuron view's live state: from its traits to what is drawn, as signals. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Vectors } from "../../client/requests/vectors";
import { measureText } from "../../draw/canvas";
import { type Scene, sceneOf } from "../../draw/marks";
import type { ViewContext } from "../../ui/define-view";
import { answerStart } from "../../ui/generated-token/state";
import type { Place } from "../../ui/record";
import { same } from "../../ui/state";
import { type Said, summaryOf } from "./captions";
import { type At, type Layout, type Line, layOut, type NumberColumn } from "./layout";
import { backMarks, frontMarks, type Picture } from "./marks";
import { dimensionsOf, type Table, tableOf } from "./rows";
import {
  load,
  type MovedWindow,
  type NeuronState,
  type Question,
  questionOf,
  tokenOf,
} from "./state";

export interface NeuronModel {
  place: ReadonlySignal<Place | null>;
  question: ReadonlySignal<Question | null>;
  table: ReadonlySignal<Table | null>;
  layout: ReadonlySignal<Layout | null>;
  picture: ReadonlySignal<Picture | null>;
  scene: ReadonlySignal<Scene | null>;
  said: ReadonlySignal<Said | null>;
  summary: ReadonlySignal<string>;
  /** Whether what is drawn is what the state asks for. */
  current: ReadonlySignal<boolean>;
  hovered: Signal<At | null>;
  /** The window of keys, where the reader moved it. */
  moved: Signal<MovedWindow | null>;
  /** Whether every dimension has a cell, though not all of them fit. */
  everyDimension: Signal<boolean>;
}

/** Numbers beside the cells: what there is on the way from the sum to the logit. */
export function columnsOf(vectors: Vectors): NumberColumn[] {
  const { softcap, has_bias } = vectors.header;
  return [
    "sum",
    ...(softcap === null ? [] : (["capped"] as const)),
    ...(has_bias ? (["bias", "logit"] as const) : []),
  ];
}

/** The lines of the table: the keys, then what shares the softmax with them. */
export function linesOf(vectors: Vectors, numKeys: number): Line[] {
  const shown = vectors.weights.length;
  return [
    ...Array.from(
      vectors.allowed,
      (allowed, place): Line => ({ kind: "key", place, masked: allowed !== 1 }),
    ),
    ...(shown < numKeys ? [{ kind: "elsewhere" } as const] : []),
    ...(vectors.header.sink ? [{ kind: "sink" } as const] : []),
  ];
}

export function makeNeuronModel(context: ViewContext<NeuronState>): NeuronModel {
  const { source, state, record } = context;
  const hovered = signal<At | null>(null);
  const moved = signal<MovedWindow | null>(null);
  const everyDimension = signal(false);

  const question = computed<Question | null>(
    () => record.place.value && questionOf(record.place.value, moved.value),
  );
  const answered = record.answer(question, (asked, signal) => load(source, asked, signal));

  // The place that the answer is of: what is drawn stays until the next has come.
  const place = computed<Place | null>(() => {
    const [now, asked] = [record.place.value, answered.value?.question];
    const stack = record.description.value?.stacks.find((each) => each.name === asked?.stack);
    if (!now || !asked || !stack) return null;
    const queries = stack.query_tokens;
    return {
      ...now,
      stack,
      queries,
      keys: stack.key_tokens ?? queries,
      layer: asked.layer,
      chosen: [asked.head],
      token: asked.token,
    };
  });
  const table = computed<Table | null>(() => {
    const answer = answered.value?.answer;
    return answer ? tableOf(answer, place.value?.key ?? null) : null;
  });

  const layout = computed<Layout | null>(() => {
    const [here, now] = [place.value, table.value];
    if (!here || !now) return null;
    return layOut({
      width: context.width.value,
      headDim: now.vectors.headDim,
      keyTexts: now.rows.map((row) => here.keys.text[row.key] ?? ""),
      queryText: here.queries.text[tokenOf(here)] ?? "",
      lines: linesOf(now.vectors, here.keys.text.length),
      columns: columnsOf(now.vectors),
      everyDimension: everyDimension.value,
      measure: measureText,
    });
  });

  const picture = computed<Picture | null>(() => {
    const [here, now, places] = [place.value, table.value, layout.value];
    if (!here || !now || !places) return null;
    return {
      layout: places,
      palette: context.palette.value,
      table: now,
      dimensions: dimensionsOf(now, state.sort_dimensions.value, places.count),
      queryText: here.queries.text[tokenOf(here)] ?? "",
      keyTexts: here.keys.text,
      answer: answerStart(here.keys),
      special: new Set(here.keys.special),
      measure: measureText,
    };
  });
  const back = computed(() => (picture.value ? backMarks(picture.value) : []));
  const scene = computed(() => {
    const now = picture.value;
    return now && sceneOf(now.layout, back.value, frontMarks(now, hovered.value));
  });
  const said = computed<Said | null>(() => {
    const [here, now] = [place.value, picture.value];
    if (!here || !now) return null;
    const { table: numbers, dimensions } = now;
    return { place: here, table: numbers, dimensions, sorted: state.sort_dimensions.value };
  });

  return {
    place,
    question,
    table,
    layout,
    picture,
    scene,
    said,
    summary: computed(() => (said.value ? summaryOf(said.value) : "")),
    current: computed(
      () => question.value !== null && same(answered.value?.question ?? null, question.value),
    ),
    hovered,
    moved,
    everyDimension,
  };
}
