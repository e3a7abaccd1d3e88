/**
 * Line of text below the captions with the numbers of the pinned edge, in this order: weight, share
 * of the value norm, and effect of cutting the edge. An edge is a query and a key in one head.
 *
 * The value norm of a key is the norm of the vector that the key adds to the output of the head for
 * the query. The share is the value norm of the pinned key, divided by the sum of the value norms
 * of all keys. The effect is the change of the measured answer.
 */

import { useComputed, useSignalEffect } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { EdgeHeader, EdgeRequest } from "../../client/protocol";
import { withNumber } from "../../client/record-number";
import { PinnedHeads } from "../head-grid/pinned-heads";
import { capital, formatWeight, quantityOf, quotedAt, writtenAmong } from "../text/captions";
import { createAnswer } from "../view/answer";
import type { RecordContext } from "../view/define-view";
import type { Selection } from "../view/record";
import { same } from "../view/state";
import { baseName, changedInWords } from "./changed-run";

/**
 * Return the pinned edge: the pinned query and key in the only head that is shown. Return null if
 * one of the two is not pinned, or if several heads are shown.
 */
function edgeAt(selection: Selection): EdgeRequest | null {
  const { layer, heads, token, key } = selection;
  const [head, ...others] = heads;
  if (token === null || key === null || head === undefined || others.length > 0) return null;
  return { stack: baseName(selection.stack), layer, head, query: token, key };
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

/**
 * Describe the numbers of the line after the weight: one text each for share and effects. If a
 * number is missing, the text says that it is loading, that the page lacks it, or how the reader
 * can get it.
 *
 * @param live whether a kernel can answer. If false, a missing number is not in the page.
 */
export function edgeInWords(header: EdgeHeader | null, live: boolean): string[] {
  const both = "share of the value norm and effect of cutting it:";
  if (!header) return [`${both} ${live ? "loading" : "not in this page"}`];
  const { model, share, share_problem: why, cuts } = header;
  if (model === "waits") return [`${both} open “What if the attention were changed?”`];
  const asks = "press “What if this edge were cut?”";
  const effects = cuts.map(({ description, measure }) => `${description} (${measure})`);
  return [
    `share of the value norm ${share === null ? `unknown: ${why}` : formatWeight(share)}`,
    effects.length > 0
      ? `effect: ${effects.join("; ")}`
      : `effect of cutting it: ${live ? asks : "not in this page"}`,
  ];
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
  const { record, common, source } = context;
  const selection = record.selection.value;
  const hasControls = context.controls.value !== "none";
  const carried = common.outcomes.value.length > 0 || common.known_edges.value.length > 0;
  if (!selection) return null;
  const changed = changedInWords(selection.stack);
  const hasLine = source.transport.live ? hasControls : carried;
  return (
    <>
      {changed !== "" && <p class="av-muted av-changed-run">{changed}</p>}
      {hasControls && <PinnedHeads context={context} />}
      {hasLine && <Line context={context} selection={selection} />}
    </>
  );
}

const WEIGHT = { name: "weight", signed: false, maximum: 1 };

function Line({ context, selection }: { context: RecordContext; selection: Selection }) {
  const { source, record, common } = context;
  const { changedRun } = record;
  const { live } = source.transport;
  const runs = common.runs_model.value;
  // The question contains the number of the record, so that the weight is requested again when
  // another record replaces this one.
  const pinned = useComputed(() => {
    const edge = record.selection.value && edgeAt(record.selection.value);
    return edge && { edge, number: record.number.value };
  });
  const weight = useAnswer(pinned, async ({ edge, number }, ended) => {
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
  // Ask again after each reply about a changed run, because this run may have measured the effect
  // of cutting the pinned edge.
  const answered = useAnswer(
    useComputed(() => (live && common.runs_model.value ? pinned.value : null)),
    async ({ edge }, ended) =>
      (await source.transport.request("edge", edge, ended)).header as EdgeHeader,
    [changedRun.latest],
  );
  const edge = pinned.value?.edge;
  if (selection.token === null || selection.key === null) return null;
  const from = quotedAt(selection.queries.text, selection.token);
  const to = quotedAt(selection.keys.text, selection.key);
  const between = `Pinned: ${from} to ${to}`;
  if (!edge)
    return (
      <p class="av-muted av-pinned-edge">
        {between}. Choose one head to see{" "}
        {live && !runs
          ? "its weight."
          : "its share of the value norm and the effect of cutting it."}
      </p>
    );
  const carried = common.known_edges.value.find(({ stack, layer, head, query, key }) =>
    same({ stack, layer, head, query, key }, edge),
  );
  const unchanged = changedRun.shown.value === "before" ? "" : " in the unchanged run";
  const header = live ? answered : (carried ?? null);
  const numbers = live && !runs ? [] : edgeInWords(header, live);
  const parts = [weight ?? "weight …", ...numbers];
  return (
    <p class="av-muted av-pinned-edge" role="status">
      {`${between}, head ${edge.layer}.${edge.head}${unchanged}. ${capital(parts.join("; "))}.`}
    </p>
  );
}
