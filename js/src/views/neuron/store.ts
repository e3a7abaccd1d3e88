/** Signals of the neuron view. They compute the drawn scene and its captions from the traits. */

import { computed, signal } from "@preact/signals";
import type { Range } from "../../client/protocol";
import { requestVectors, type Vectors } from "../../client/requests/vectors";
import type { Source } from "../../client/source";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { answerStart } from "../../ui/generated-token/state";
import { type Pair, pairOf, pairRange } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import type { Selection } from "../../ui/view/record";
import { same } from "../../ui/view/state";
import { type CaptionInput, summaryOf } from "./captions";
import { type Hit, type Layout, type Line, layOut, type NumberColumn } from "./layout";
import { backMarks, type DrawnTable, frontMarks } from "./marks";
import { headOf, type NeuronState, tokenOf } from "./state";
import { dimensionsOf, type Table, tableOf } from "./table";

/** Maximum number of displayed keys. */
export const MAX_KEYS = 64;

/** Request for the vectors of one query and of the keys to display. */
interface Question {
  stack: string;
  layer: number;
  head: number;
  token: number;
  /** Keys that may be displayed. For a pair of texts, these are the keys of the chosen text. */
  within: Range;
  /**
   * Keys to display. Null stands for the keys around the query's strongest key, which is known only
   * from a first reply.
   */
  keys: Range | null;
}

/**
 * Window of `MAX_KEYS` keys that the reader chose with the buttons. It is ignored if another stack
 * is shown or another key is pinned.
 */
interface MovedWindow {
  stack: string;
  key: number | null;
  start: number;
}

/** Return the window of `MAX_KEYS` keys that is centred on a key, or moved to fit `within`. */
export function windowAround(key: number, within: Range): Range {
  return windowFrom(key - MAX_KEYS / 2, within);
}

/** Return the window of `MAX_KEYS` keys that begins at `start`, or moved to fit `within`. */
function windowFrom(start: number, [lower, end]: Range): Range {
  const first = Math.max(lower, Math.min(start, end - MAX_KEYS));
  return [first, Math.min(end, first + MAX_KEYS)];
}

/** Return the request for a selection, or null if the record has no vectors of its stack. */
export function questionOf(
  selection: Selection,
  moved: MovedWindow | null,
  pair: Pair = "all",
): Question | null {
  if (!selection.stack.vectors) return null;
  const stack = selection.stack.name;
  const within = pairRange(selection.keys, pairOf(selection, pair), "key");
  let keys: Range | null = null;
  if (within[1] - within[0] <= MAX_KEYS) keys = within;
  else if (moved && moved.stack === stack && moved.key === selection.key) {
    keys = windowFrom(moved.start, within);
  } else if (selection.key !== null) keys = windowAround(selection.key, within);
  const token = tokenOf(selection, pair);
  return { stack, layer: selection.layer, head: headOf(selection), token, within, keys };
}

async function load(source: Source, question: Question, signal: AbortSignal): Promise<Vectors> {
  const { stack, layer, head, token, within } = question;
  const request = (keys: Range): Promise<Vectors> =>
    requestVectors(source, { stack, layer, head, token, keys }, signal);
  if (question.keys) return request(question.keys);
  const first = await request(windowFrom(within[0], within));
  const strongest = first.header.strongest.find(([key]) => key >= within[0] && key < within[1]);
  if (!strongest || strongest[0] < first.keys[1]) return first;
  return request(windowAround(strongest[0], within));
}

/** Return the numbers to show. The last of them equals the logit. */
export function columnsOf(vectors: Vectors): NumberColumn[] {
  const { softcap, has_bias } = vectors.header;
  return [
    "sum",
    ...(softcap === null ? [] : (["capped"] as const)),
    ...(has_bias ? (["bias", "logit"] as const) : []),
  ];
}

/**
 * Return the lines of the table: the displayed keys, a line for all other keys if there are any,
 * and a line for the sink if the head has one.
 */
export function linesOf(vectors: Vectors, numKeys: number): Line[] {
  const numShown = vectors.weights.length;
  return [
    ...Array.from(
      vectors.allowed,
      (allowed, index): Line => ({ kind: "key", index, masked: allowed !== 1 }),
    ),
    ...(numShown < numKeys ? [{ kind: "elsewhere" } as const] : []),
    ...(vectors.header.sink ? [{ kind: "sink" } as const] : []),
  ];
}

export function createNeuronStore(context: ViewContext<NeuronState>) {
  const { source, state, record } = context;
  const hovered = signal<Hit | null>(null);
  /** Window of keys that the reader chose, or null. */
  const moved = signal<MovedWindow | null>(null);
  /** Whether to give every dimension a cell, even if the picture must then scroll. */
  const everyDimension = signal(false);

  const question = computed<Question | null>(
    () =>
      record.selection.value && questionOf(record.selection.value, moved.value, state.pair.value),
  );
  const reply = record.answer(question, (request, signal) => load(source, request, signal));

  // Selection to which the last reply belongs. While a new reply is loading, the old one stays
  // drawn and must have its own captions.
  const selection = computed<Selection | null>(() => {
    const [selected, replied] = [record.selection.value, reply.value?.question];
    const stack = record.description.value?.stacks.find((item) => item.name === replied?.stack);
    if (!selected || !replied || !stack) return null;
    const queries = stack.query_tokens;
    return {
      ...selected,
      stack,
      queries,
      keys: stack.key_tokens ?? queries,
      layer: replied.layer,
      chosen: [replied.head],
      token: replied.token,
    };
  });
  const table = computed<Table | null>(() => {
    const answer = reply.value?.answer;
    return answer ? tableOf(answer, selection.value?.key ?? null) : null;
  });

  const layout = computed<Layout | null>(() => {
    const [current, shownTable] = [selection.value, table.value];
    if (!current || !shownTable) return null;
    return layOut({
      width: context.width.value,
      headDim: shownTable.vectors.headDim,
      keyTexts: shownTable.rows.map((row) => current.keys.text[row.key] ?? ""),
      queryText: current.queries.text[tokenOf(current)] ?? "",
      lines: linesOf(shownTable.vectors, current.keys.text.length),
      columns: columnsOf(shownTable.vectors),
      everyDimension: everyDimension.value,
      printed: isPrinted(context.figure),
      measure: measureText,
    });
  });

  const drawnTable = computed<DrawnTable | null>(() => {
    const [current, shownTable, drawnLayout] = [selection.value, table.value, layout.value];
    if (!current || !shownTable || !drawnLayout) return null;
    return {
      layout: drawnLayout,
      palette: context.palette.value,
      table: shownTable,
      dimensions: dimensionsOf(shownTable, state.sort_dimensions.value, drawnLayout.count),
      queryText: current.queries.text[tokenOf(current)] ?? "",
      keyTexts: current.keys.text,
      answer: answerStart(current.keys),
      special: new Set(current.keys.special),
      measure: measureText,
    };
  });
  const back = computed(() => (drawnTable.value ? backMarks(drawnTable.value) : []));
  const scene = computed(() => {
    const drawn = drawnTable.value;
    return drawn && sceneOf(drawn.layout, back.value, frontMarks(drawn, hovered.value));
  });
  const captionInput = computed<CaptionInput | null>(() => {
    const [current, drawn] = [selection.value, drawnTable.value];
    if (!current || !drawn) return null;
    const { table: numbers, dimensions } = drawn;
    return { selection: current, table: numbers, dimensions, sorted: state.sort_dimensions.value };
  });

  return {
    selection,
    question,
    table,
    layout,
    drawnTable,
    scene,
    captionInput,
    summary: computed(() => (captionInput.value ? summaryOf(captionInput.value) : "")),
    /** Whether the drawn table belongs to the current traits, so that nothing is loading. */
    current: computed(
      () => question.value !== null && same(reply.value?.question ?? null, question.value),
    ),
    hovered,
    moved,
    everyDimension,
  };
}

export type NeuronStore = ReturnType<typeof createNeuronStore>;
