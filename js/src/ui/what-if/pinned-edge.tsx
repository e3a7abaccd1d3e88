/**
 * Line with the numbers of the pinned edge, in a fixed order: weight, share of the value norm,
 * effect of cutting the edge, and noise. An edge is a query and a key in one head.
 */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { EdgeHeader, EdgeRequest } from "../../client/protocol";
import { withNumber } from "../../client/record-number";
import { PinnedHeads } from "../head-grid/pinned-heads";
import {
  capital,
  formatWeight,
  quantityOf,
  quotedAt,
  written,
  writtenSmall,
} from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState, Selection } from "../view/record";
import { same } from "../view/state";
import { baseName, changedInWords } from "./changed-run";

/** Numbers of one edge that are loaded so far. */
interface EdgeNumbers {
  edge: EdgeRequest;
  /** Weight in the unchanged run as text, or null until it is loaded. */
  weight: string | null;
  header: EdgeHeader | null;
}

/**
 * Return the pinned edge in the shown head. Return null unless a query and a key are pinned and
 * exactly one head is shown.
 */
function edgeAt(selection: Selection): EdgeRequest | null {
  const { layer, heads, token, key } = selection;
  const [head, ...others] = heads;
  if (token === null || key === null || head === undefined || others.length > 0) return null;
  return { stack: baseName(selection.stack), layer, head, query: token, key };
}

/**
 * Describe the numbers that follow the weight. Numbers that are missing are replaced by
 * instructions.
 *
 * @param named name of the measured answer, which is not repeated because the panel shows it.
 */
export function edgeInWords(header: EdgeHeader | null, live: boolean, named = ""): string[] {
  const asks = "press “What if this edge were cut?”";
  if (!header)
    return [
      live
        ? "share of the value norm and effect of cutting it: loading"
        : "share of the value norm and effect of cutting it: not in this page",
    ];
  const { model, share, share_problem: why, cuts, noise } = header;
  if (model === "waits")
    return [
      "share of the value norm and effect of cutting it: open “What if the attention were changed?”",
    ];
  const norm = share === null ? `unknown: ${why}` : formatWeight(share);
  const effects = cuts.map(({ description: words, measure }) =>
    measure === named ? words : `${words} (${measure})`,
  );
  return [
    `share of the value norm ${norm}`,
    effects.length > 0
      ? `effect: ${effects.join("; ")}`
      : `effect of cutting it: ${live ? asks : "not in this page"}`,
    ...(noise === "" ? [] : [`noise ${noise}`]),
  ];
}

/**
 * Render the changes of the shown run, the heads with the most weight at the pinned tokens, and the
 * line of the pinned edge.
 *
 * All of these are below the captions, so they move nothing when they appear. A page has the line
 * only if it contains results of changes.
 */
export function PinnedEdge<S extends RecordState>({ context }: { context: ViewContext<S> }) {
  const common = context as unknown as ViewContext<RecordState>;
  const selection = common.record.selection.value;
  const form = common.controls.value;
  const { live } = common.source.transport;
  const carried = [common.state.outcomes, common.state.known_edges].some(
    ({ value }) => value.length > 0,
  );
  if (!selection) return null;
  const changed = changedInWords(selection.stack);
  const hasLine = live ? form !== "none" : carried;
  return (
    <>
      {changed !== "" && <p class="av-muted av-changed-run">{changed}</p>}
      {form !== "none" && <PinnedHeads context={common} />}
      {hasLine && <Line key={common.record.number.value} context={common} selection={selection} />}
    </>
  );
}

function Line({ context, selection }: { context: ViewContext<RecordState>; selection: Selection }) {
  const { source, record, state } = context;
  const numbers = useSignal<EdgeNumbers | null>(null);
  const edge = edgeAt(selection);
  const { live } = source.transport;
  const runs = state.runs_model.value;
  const pinned = selection.token !== null && selection.key !== null;
  const answers = record.changedRun.answers.value;
  const text = JSON.stringify(edge);
  useEffect(() => {
    if (!edge) return;
    const ended = new AbortController();
    const { stack: name, layer, head, query, key } = edge;
    const before = numbers.peek();
    const previous = before && same(before.edge, edge) ? before : null;
    const say = (more: Partial<EdgeNumbers>): void => {
      if (ended.signal.aborted) return;
      const now = numbers.peek();
      const first = { edge, weight: null, header: null };
      numbers.value = { ...(now && same(now.edge, edge) ? now : first), ...more };
    };
    const nothing = (): void => {};
    if (!previous?.weight) {
      const stack = withNumber(name, record.number.peek());
      const request = { stack, layer, heads: [head] };
      source
        .block({ ...request, rows: [query, query + 1], columns: [key, key + 1] }, ended.signal)
        .then(({ matrices, maximum }) => {
          const value = matrices[0]?.[0] ?? Number.NaN;
          const shownQuantity = quantityOf({ ...selection.stack, maximum });
          const quantity = stack === selection.stack.name ? shownQuantity : WEIGHT;
          const number = (selection.keys.text.length < MANY_KEYS ? written : writtenSmall)(
            quantity,
            value,
          );
          say({ weight: `${quantity.name} ${number}` });
        }, nothing);
    }
    if (!live) {
      const carried = state.known_edges
        .peek()
        .find((candidate) => JSON.stringify(edge) === JSON.stringify(pick(candidate)));
      say({ header: carried ?? null });
    } else if (runs) {
      source.transport
        .request("edge", edge, ended.signal)
        .then(({ header }) => say({ header: header as EdgeHeader }), nothing);
    }
    return () => ended.abort();
  }, [text, answers, runs]);
  if (!pinned) return null;
  const from = quotedAt(selection.queries.text, selection.token ?? 0);
  const to = quotedAt(selection.keys.text, selection.key ?? 0);
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
  const now = numbers.value && same(numbers.value.edge, edge) ? numbers.value : null;
  const unchanged = record.changedRun.shown.value === "before" ? "" : " in the unchanged run";
  const named = live ? record.changedRun.latest.value?.outcome?.measure : "";
  const otherNumbers = live && !runs ? [] : edgeInWords(now?.header ?? null, live, named);
  const parts = [now?.weight ?? "weight …", ...otherNumbers];
  return (
    <p class="av-muted av-pinned-edge" role="status">
      {`${between}, head ${edge.layer}.${edge.head}${unchanged}. ${capital(parts.join("; "))}.`}
    </p>
  );
}

const WEIGHT = { name: "weight", signed: false, maximum: 1 };
/**
 * With at least this many keys, nearly all weights are below 0.01. They are then written with two
 * significant digits.
 */
const MANY_KEYS = 1000;

function pick({ stack, layer, head, query, key }: EdgeRequest): EdgeRequest {
  return { stack, layer, head, query, key };
}
