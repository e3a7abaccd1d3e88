/**
 * Signals of the neuron view. They request the vectors for the current traits and compute the drawn
 * scene and its captions from them.
 */

import { computed, signal } from "@preact/signals";
import type { Range } from "../../client/protocol";
import { requestVectors, type Vectors } from "../../client/requests/vectors";
import type { Source } from "../../client/source";
import { isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { isWithin, sizeOf, windowAround, windowAt } from "../../ui/axis";
import { type Pair, pairOf, pairRange } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import type { Selection } from "../../ui/view/record";
import { summaryOf } from "./captions";
import { type Hit, layOut } from "./layout";
import { backMarks, type DrawnTable, frontMarks } from "./marks";
import { type NeuronState, tokenOf } from "./state";
import { dimensionsOf, tableOf } from "./table";

/** Maximum number of displayed keys. */
export const MAX_KEYS = 64;

/**
 * Window of `MAX_KEYS` keys that the reader chose with the buttons, from the key `start`. `stack`
 * and `key` are the shown stack and the pinned key at that time. The window is ignored after one of
 * them has changed.
 */
interface MovedWindow {
  stack: string;
  key: number | null;
  start: number;
}

/**
 * Return the request for the vectors of one query and of the keys to display, or null if the record
 * has no vectors of the stack. In the result, `within` is the range of keys that may be displayed,
 * which `pair` may limit to one of two texts. `keys` is the range of keys to display. It is null if
 * the query's strongest key must be displayed, which is known only from the reply to a first
 * request.
 */
export function questionOf(selection: Selection, moved: MovedWindow | null, pair: Pair = "all") {
  if (!selection.stack.vectors) return null;
  const { layer, key, chosen, allHeads } = selection;
  const stack = selection.stack.name;
  const within = pairRange(selection.keys, pairOf(selection, pair), "key");
  let keys: Range | null = null;
  if (sizeOf(within) <= MAX_KEYS) keys = within;
  else if (moved?.stack === stack && moved.key === key)
    keys = windowAt(moved.start, MAX_KEYS, within);
  else if (key !== null) keys = windowAround(key, MAX_KEYS, within);
  const head = chosen[0] ?? allHeads[0] ?? 0;
  return { stack, layer, head, token: tokenOf(selection, pair), within, keys };
}

type Question = NonNullable<ReturnType<typeof questionOf>>;

async function load(source: Source, question: Question, signal: AbortSignal): Promise<Vectors> {
  const { within, keys, ...row } = question;
  const window = keys ?? windowAt(0, MAX_KEYS, within);
  const first = await requestVectors(source, { ...row, keys: window }, signal);
  const [strongest] = first.header.strongest.find(([key]) => isWithin(within, key)) ?? [];
  if (keys || strongest === undefined || isWithin(window, strongest)) return first;
  const around = windowAround(strongest, MAX_KEYS, within);
  return requestVectors(source, { ...row, keys: around }, signal);
}

export function createNeuronStore(context: ViewContext<NeuronState>) {
  const { source, state, record, palette } = context;
  const hovered = signal<Hit | null>(null);
  const moved = signal<MovedWindow | null>(null);
  /** Whether to give every dimension a cell, even if the picture must then scroll. */
  const everyDimension = signal(false);

  const question = computed(
    () =>
      record.selection.value && questionOf(record.selection.value, moved.value, state.pair.value),
  );
  const reply = record.answer(question, (request, signal) => load(source, request, signal));

  // While a new reply is loading, the table of the last reply stays drawn and must have its own
  // captions.
  const table = computed(() => {
    const [selected, last] = [record.selection.value, reply.latest.value];
    const stack = record.description.value?.stacks.find(
      ({ name }) => name === last?.question.stack,
    );
    if (!selected || !last || !stack) return null;
    const { layer, head, token } = last.question;
    const queries = stack.query_tokens;
    const keys = stack.key_tokens ?? queries;
    return tableOf(last.answer, { ...selected, stack, queries, keys, layer, head, token });
  });
  const drawn = computed<DrawnTable | null>(() => {
    if (!table.value) return null;
    const printed = isPrinted(context.figure);
    const layout = layOut(table.value, context.width.value, everyDimension.value, printed);
    const dimensions = dimensionsOf(table.value, state.sort_dimensions.value, layout.count);
    return { layout, palette: palette.value, table: table.value, dimensions };
  });
  const back = computed(() => (drawn.value ? backMarks(drawn.value) : []));
  const scene = computed(
    () =>
      drawn.value &&
      sceneOf(drawn.value.layout, back.value, frontMarks(drawn.value, hovered.value)),
  );
  /** Identifier of the picture, or null while the table of the current traits is loading. */
  const drawnId = computed(() => {
    const asked = question.value;
    return asked && reply.current.value ? `neuron:${asked.stack}:${asked.layer}` : null;
  });
  const summary = computed(() => (table.value ? summaryOf(table.value) : ""));
  return { table, drawn, scene, drawnId, summary, hovered, moved, everyDimension };
}

export type NeuronStore = ReturnType<typeof createNeuronStore>;
