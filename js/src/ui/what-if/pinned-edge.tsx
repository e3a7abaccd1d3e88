/**
 * Line of text below the captions with the numbers of the pinned edge, in this order: weight, share
 * of the value norm, and effect of cutting the edge. An edge is a query and a key in one head.
 *
 * The value norm of a key is the norm of the vector that the key adds to the output of the head for
 * the query. The share is the value norm of the pinned key, divided by the sum of the value norms
 * of all keys. The effect is the change of the measured answer.
 */

import { type ReadonlySignal, useComputed, useSignalEffect } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { EdgeHeader, EdgeRequest } from "../../client/protocol";
import { withNumber } from "../../client/record-number";
import { PinnedHeads } from "../head-grid/pinned-heads";
import { capital, formatWeight, quantityOf, quotedAt, writtenAmong } from "../text/captions";
import { createAnswer } from "../view/answer";
import type { RecordContext } from "../view/define-view";
import { baseName } from "../view/model-layers";
import type { Selection } from "../view/record";
import { same } from "../view/state";
import { changedInWords, changedRunOf, changedRunState } from "./changed-run";

/** Pinned edge, and the number of its record, with which a new record changes the question. */
interface PinnedQuestion {
  edge: EdgeRequest;
  number: number;
}

/**
 * Return the pinned edge: the pinned query and key in the only head that is shown. Return null if
 * one of the two is not pinned, or if several heads are shown.
 */
function pinnedAt({ selection, number }: RecordContext["record"]): PinnedQuestion | null {
  if (!selection.value) return null;
  const { stack, layer, heads, token, key } = selection.value;
  const [head, ...others] = heads;
  if (token === null || key === null || head === undefined || others.length > 0) return null;
  return {
    edge: { stack: baseName(stack), layer, head, query: token, key },
    number: number.value,
  };
}

/**
 * Ask a question whenever it changes (see `createAnswer`). Return the answer to the current
 * question, or null until it arrives or if there was an error. Only the arguments of the first
 * rendering are used.
 */
function useAnswer<Q, A>(...asked: Parameters<typeof createAnswer<Q, A>>): A | null {
  const { run, current } = useMemo(() => createAnswer(...asked), []);
  useSignalEffect(run);
  return current.value;
}

const WEIGHT = { name: "weight", signed: false, maximum: 1 };

/** Return the weight of the pinned edge in the unchanged run as words, or null until it is loaded. */
function useWeight(
  { source, record }: RecordContext,
  pinned: ReadonlySignal<PinnedQuestion | null>,
) {
  return useAnswer(pinned, async ({ edge, number }, ended) => {
    const { layer, head, query, key } = edge;
    const { stack: shown, keys } = record.selection.peek() as Selection;
    const stack = withNumber(edge.stack, number);
    const { matrices, maximum } = await source.block(
      { stack, layer, heads: [head], rows: [query, query + 1], columns: [key, key + 1] },
      ended,
    );
    const quantity = stack === shown.name ? quantityOf({ ...shown, maximum }) : WEIGHT;
    const value = matrices[0]?.[0] ?? Number.NaN;
    return `${quantity.name} ${writtenAmong(keys.text.length, quantity, value)}`;
  });
}

/**
 * Return the share and the effects of the pinned edge: those that a kernel computes, or those that
 * the page contains. Return null until they arrive, or if nothing has them.
 */
function useNumbers(
  { source, record, common }: RecordContext,
  pinned: ReadonlySignal<PinnedQuestion | null>,
): EdgeHeader | null {
  const { live } = source.transport;
  // Ask again after each reply about a changed run, because this run may have measured the effect
  // of cutting the pinned edge.
  const answered = useAnswer(
    useComputed(() => (live && common.runs_model.value ? pinned.value : null)),
    async ({ edge }, ended) =>
      (await source.transport.request("edge", edge, ended)).header as EdgeHeader,
    [changedRunOf(record).latest],
  );
  if (live) return answered;
  const carried = changedRunState(record).known_edges.value.find(
    ({ stack, layer, head, query, key }) =>
      same({ stack, layer, head, query, key }, pinned.value?.edge),
  );
  return carried ?? null;
}

const SHARE_AND_EFFECT = "share of the value norm and effect of cutting it:";

/**
 * Describe the share and the effects. If one is missing, say that it is loading, that the page lacks
 * it, or how the reader can get it.
 *
 * @param live whether a kernel can answer. If false, a missing number is not in the page.
 */
function numbersInWords(header: EdgeHeader | null, live: boolean): string[] {
  if (!header) return [`${SHARE_AND_EFFECT} ${live ? "loading" : "not in this page"}`];
  const { model, share, share_problem: why, cuts } = header;
  if (model === "waits") return [`${SHARE_AND_EFFECT} open “What if the attention were changed?”`];
  const missing = live ? "press “What if this edge were cut?”" : "not in this page";
  const effects = cuts.map(({ description, measure }) => `${description} (${measure})`);
  return [
    `share of the value norm ${share === null ? `unknown: ${why}` : formatWeight(share)}`,
    effects.length > 0 ? `effect: ${effects.join("; ")}` : `effect of cutting it: ${missing}`,
  ];
}

/** Render the line of the pinned edge. It is empty unless a query and a key are pinned. */
function Line({ context, selection }: { context: RecordContext; selection: Selection }) {
  const { source, record, common } = context;
  const { live } = source.transport;
  const pinned = useComputed(() => pinnedAt(record));
  const [weight, header] = [useWeight(context, pinned), useNumbers(context, pinned)];
  if (selection.token === null || selection.key === null) return null;
  const from = quotedAt(selection.queries.text, selection.token);
  const to = quotedAt(selection.keys.text, selection.key);
  // A kernel without a model knows only the weight.
  const hasNumbers = !live || common.runs_model.value;
  const edge = pinned.value?.edge;
  let words = `. Choose one head to see ${
    hasNumbers ? "its share of the value norm and the effect of cutting it" : "its weight"
  }.`;
  if (edge) {
    const run = changedRunOf(record).shown.value === "before" ? "" : " in the unchanged run";
    const parts = [weight ?? "weight …", ...(hasNumbers ? numbersInWords(header, live) : [])];
    words = `, head ${edge.layer}.${edge.head}${run}. ${capital(parts.join("; "))}.`;
  }
  return (
    <p class="av-muted av-pinned-edge" role="status">
      Pinned: {from} to {to}
      {words}
    </p>
  );
}

/**
 * Render up to three paragraphs. They are below the captions so that nothing moves when they
 * appear.
 *
 * The first states the changes of the shown run, if this is a changed run. The second names the
 * heads with the most weight from the pinned query to the pinned key. It is omitted if the view has
 * no controls. The third is the line of the pinned edge. A live view has it unless it has no
 * controls, and a page has it if it contains results of changes or about edges.
 */
export function PinnedEdge({ context }: { context: RecordContext }) {
  const { record, source } = context;
  const { outcomes, known_edges } = changedRunState(record);
  const selection = record.selection.value;
  if (!selection) return null;
  const hasControls = context.controls.value !== "none";
  const carried = outcomes.value.length > 0 || known_edges.value.length > 0;
  const hasLine = source.transport.live ? hasControls : carried;
  const changed = changedInWords(selection.stack);
  return (
    <>
      {changed !== "" && <p class="av-muted av-changed-run">{changed}</p>}
      {hasControls && <PinnedHeads context={context} />}
      {hasLine && <Line context={context} selection={selection} />}
    </>
  );
}
