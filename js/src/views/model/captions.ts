/**
 * Captions, labels and tooltips of the model view.
 *
 * The map of a head is its attention matrix, pooled to few cells for a thumbnail. A gallery is a
 * grid of heads that are ordered by a score.
 */

import type { Range, StackDescription } from "../../client/protocol";
import type { Matrix } from "../../client/source";
import { effectsInWords, headEffectInWords } from "../../ui/effects/effects";
import { predictingInWords } from "../../ui/generated-token/state";
import { CLOSED_GATE, gateInWords, gateOf, gatesInWords, isClosed } from "../../ui/head-grid/gates";
import {
  type HeadGrid,
  type HeadIndex,
  isSameHead,
  type ScoredHead,
} from "../../ui/head-grid/grid";
import { rolesInWords } from "../../ui/head-grid/head-roles";
import { scoreText } from "../../ui/head-grid/head-strip";
import { pairInWords, pairOf } from "../../ui/pairs";
import type { Hint } from "../../ui/plot/plot";
import {
  apartFromForced,
  BY_PIN,
  capital,
  counted,
  headName,
  isAttention,
  pluralOf,
  precision,
  quantityOf,
  quotedAt,
  quotedSpan,
  several,
  stackName,
  tokensInWords,
  waysOf,
  withWay,
  written,
  writtenSmall,
} from "../../ui/text/captions";
import { silenceTimes } from "../../ui/text/places";
import type { ViewContext } from "../../ui/view/define-view";
import { baseName, otherListsInWords } from "../../ui/view/model-layers";
import type { Selection } from "../../ui/view/record";
import { changedInWords } from "../../ui/what-if/changed-run";
import { strongestOf } from "./maps";
import { MIN_LINE_OPACITY, maxLinesFor } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/** Scores that are computed from all queries of a long text, because they need no weights. */
const OF_ALL_QUERIES = ["output norm", "gate"];

/** Maximum number of heads with closed gates that the caption names. */
const MAX_CLOSED = 12;

/** Return "6 layers of 12 heads", or "5 layers of 2 to 12 heads". */
export function layersInWords({ layers, heads_per_layer }: StackDescription): string {
  const [minHeads, maxHeads] = [Math.min(...heads_per_layer), Math.max(...heads_per_layer)];
  const atLeast = minHeads === maxHeads ? "" : `${minHeads} to `;
  return `${several(layers.length, "layer")} of ${atLeast}${several(maxHeads, "head")}`;
}

/** Return the name of a stack, with the numbers of its layers and heads. */
function namedLayers(stack: StackDescription): string {
  return `${stackName(baseName(stack))}: ${layersInWords(stack)}`;
}

/** Return the subtitle: the stacks, the numbers of layers, heads and tokens, and the precision. */
export function subtitleOf(store: ModelStore, selection: Selection, grid: HeadGrid): string {
  const exact = (stack: StackDescription): string[] => {
    const map = store.anyMap(stack);
    return map ? [precision(map.error, stack)].filter(Boolean) : [];
  };
  const stacks = store.stacks.value;
  const { stack } = selection;
  const several = stacks.length > 1;
  return [
    ...(several
      ? stacks.map((one) => [namedLayers(one), ...exact(one)].join(", "))
      : [stackName(baseName(stack)), layersInWords(stack)]),
    ...(grid.shown < grid.all ? [`${grid.shown} of ${grid.all} heads included`] : []),
    tokensInWords(selection),
    ...(several ? [] : exact(stack)),
  ].join(" · ");
}

/**
 * Return the name of a head with its score, role, gate and effect, if it has them: "Layer 3, head 1,
 * induction 0.97".
 */
export function headLabel(store: ModelStore, head: ScoredHead, grid: HeadGrid): string {
  const [effects, role] = [store.effects.value, store.roleOf(head)];
  const gate = gateInWords(gateOf(store.stackOf(head), head));
  const isScored =
    grid.score !== null &&
    effects?.name !== grid.score &&
    !store.byRole.value &&
    !(gate && grid.score === "gate");
  return [
    nameInWords(head, grid),
    ...(isScored ? [`${grid.score} ${scoreText(head.score)}`] : []),
    ...(role ? [role.label] : []),
    ...(gate ? [gate] : []),
    ...(effects ? [headEffectInWords(effects, head)] : []),
  ].join(", ");
}

/** Return the name of a head, with the kind of its layer: "Layer 3, head 1, linear". */
export function nameInWords(head: HeadIndex, { kinds }: HeadGrid): string {
  const kind = kinds?.[head.stack ?? ""];
  return capital(headName(head)) + (kind ? `, ${kind}` : "");
}

/** Describe the order of the heads in a gallery, without the name of the score. */
export function orderName({ effects, byRole }: ModelStore, grid: HeadGrid): string {
  if (byRole.value) return "those of the rarest role first";
  return effects.value && effects.value.name === grid.score ? "ordered by size" : "strongest first";
}

/**
 * Describe the strongest weight of a head with its query and key, for example "strongest: “it” to
 * “animal”, 0.81". If its cell of the map covers several queries or keys, name their ranges
 * instead.
 */
function strongestInWords(store: ModelStore, map: Matrix, { stack, ...texts }: Selection): string {
  const quantity = quantityOf(stack);
  const sample = map.sampled ? ` of ${map.sampled.length} queries` : "";
  const adjective = isAttention(quantity) ? "strongest" : `largest ${quantity.name}`;
  const name = adjective + sample + apartFromForced(stack);
  const best = strongestOf(map, store.part.peek(), stack);
  if (!best) return `${name}: no ${quantity.name} at all`;
  const { rows, columns } = best;
  const weight = withWay(quantity, best.weight, written(quantity, best.weight));
  const pair = [quotedSpan(texts.queries, rows), quotedSpan(texts.keys, columns)];
  return best.isSingle
    ? `${name}: ${pair.join(" to ")}, ${weight}`
    : `${name}: ${weight}, between ${pair.join(" and ")}`;
}

/** Return the tooltip for the head under the pointer. */
export function hintOf(
  store: ModelStore,
  head: HeadIndex,
  grid: HeadGrid,
): Pick<Hint, "title" | "rows"> | null {
  const selection = store.selection.peek();
  if (!selection) return null;
  const map = store.map(head);
  const ofHead = { ...selection, stack: store.stackOf(head) };
  const scored = grid.rows.flat().find((other) => other && isSameHead(other, head));
  return {
    title: headLabel(store, scored ?? { ...head, score: null }, grid),
    rows: map ? [{ color: "", meant: false, text: strongestInWords(store, map, ofHead) }] : [],
  };
}

/**
 * Return the sentence below the view: about the open head, or about the grid if no head is open.
 *
 * @param live whether the reader can click a head. False for a figure.
 */
export function sentenceOf(
  store: ModelStore,
  selection: Selection,
  grid: HeadGrid,
  live: boolean,
): string {
  const opened = store.opened.value;
  const { token, queries } = selection;
  if (grid.rows.length === 0) return "No head of this stack is included.";
  if (opened) {
    // In a dashboard, other panes describe the weights of the open head.
    const map = store.showsDetail.value ? store.map(opened) : undefined;
    const best = map ? ` ${capital(strongestInWords(store, map, selection))}.` : "";
    const gates = gatesInWords(store.stackOf(opened), opened.layer, [opened.head]);
    return `${nameInWords(opened, grid)}.${gates}${best}`;
  }
  const included = grid.shown < grid.all ? `; ${grid.shown} of ${grid.all} are included` : "";
  const predicting = token === null ? "" : predictingInWords(selection, token).slice(0, -1);
  const outlined =
    store.outlinedRow.value && token !== null
      ? ` Outlined: ${quotedAt(queries.text, token)}${predicting}.`
      : "";
  const click = live ? " Click a head to see it in detail." : "";
  const stacks = store.stacks.value;
  const layers =
    stacks.length > 1
      ? capital(stacks.map(namedLayers).join("; "))
      : layersInWords(selection.stack);
  return `${layers}${included}.${outlined}${click}`;
}

/**
 * Return the second caption: the order of the heads, what is drawn below them, and how the
 * thumbnails are pooled.
 *
 * @param drawn any map of a figure, whose resolution may differ from the view's. Omitted for the
 * caption of the view itself.
 */
export function coverageOf(
  context: ViewContext<ModelState>,
  store: ModelStore,
  grid: HeadGrid,
  drawn?: Matrix | null,
): string {
  const selection = store.selection.value;
  if (!selection) return "";
  const effects = store.effects.value;
  const choose = context.embedded ? ": choose one of its layers" : ": choose this stack";
  const pair = pairInWords(pairOf(selection, context.state.pair.value), selection.queries);
  const silence = silenceTimes(selection.keys) || silenceTimes(selection.queries);
  return [
    orderInWords(context, store, grid, selection.stack),
    grid.score === null ? "" : otherListsInWords(selection, drawn === undefined ? choose : ""),
    effects ? effectsInWords(effects, "below heads") : "",
    ...store.stacks.value.map((stack) =>
      rolesInWords(context.state.roles.value[baseName(stack)] ?? null, stack),
    ),
    closedInWords(store, grid),
    pair === "" ? "" : `Only ${pair}.`,
    ...thumbnailKinds(context, store).map((stack) =>
      thumbnailsInWords(context, store, stack, drawn),
    ),
    silence && `They include the silence after the sound, ${silence}.`,
    // Only a figure needs the sentence about an intervention. The view has it in a separate line.
    drawn === undefined ? "" : changedInWords(selection.stack),
  ]
    .filter(Boolean)
    .join(" ");
}

/** Return a sentence that names the heads of a grid whose gate is closed, or "" if none is. */
function closedInWords({ stackOf }: ModelStore, grid: HeadGrid): string {
  const closed = grid.rows.flat().filter((head) => head && isClosed(gateOf(stackOf(head), head)));
  if (closed.length === 0) return "";
  const names = closed.slice(0, MAX_CLOSED).map((head) => `${head?.layer}.${head?.head}`);
  const more = closed.length > MAX_CLOSED ? ` and ${closed.length - MAX_CLOSED} more` : "";
  const heads = several(closed.length, "head");
  return `Grey: ${heads} with a closed gate (mean below ${CLOSED_GATE}): ${names.join(", ")}${more}.`;
}

/** Return the sentence about the score that orders the heads, and the number of displayed heads. */
function orderInWords(
  { state }: ViewContext<ModelState>,
  store: ModelStore,
  grid: HeadGrid,
  { sampled, signed }: StackDescription,
): string {
  if (grid.score === null) return "";
  const order = orderName(store, grid);
  const byRole = store.byRole.value;
  const hasOwnScores = state.order.value === BY_PIN || grid.score in state.scores.value;
  const isOfOutputs = OF_ALL_QUERIES.includes(grid.score);
  const shares = signed && !hasOwnScores && !byRole ? " (shares of the absolute weight)" : "";
  // Some sampled queries have no key of the pattern, because the mask hides all of these keys. The
  // score is the mean over the other queries.
  const estimated =
    sampled === undefined || hasOwnScores || isOfOutputs || byRole
      ? ""
      : `, estimated from the queries of a sample of ${sampled} that have such keys`;
  return `By ${grid.score}${shares}${estimated}, ${order}: all ${grid.shown} heads.`;
}

/**
 * Return the stacks whose thumbnails have separate captions. If heat maps of all stacks are sampled
 * and pooled alike, return one stack, whose measure names the quantities of all stacks.
 */
function thumbnailKinds(
  { state }: ViewContext<ModelState>,
  store: ModelStore,
): readonly StackDescription[] {
  const stacks = store.stacks.value;
  const [first] = stacks;
  const alike = stacks.every(({ sampled }) => sampled === first?.sampled);
  if (!first || stacks.length === 1 || !alike || state.thumbnails.value === "lines") return stacks;
  const names = [...new Set(stacks.map((stack) => quantityOf(stack).name))];
  return [{ ...first, measure: names.join(" or "), signed: true }];
}

/** Return the caption of the thumbnails: how they are drawn, and how they are sampled or pooled. */
function thumbnailsInWords(
  { state }: ViewContext<ModelState>,
  store: ModelStore,
  stack: StackDescription,
  drawn?: Matrix | null,
): string {
  const map = drawn ?? store.anyMap(stack);
  if (!map) return "";
  const part = store.part.value;
  const cell = store.layout.value?.cell ?? 0;
  const quantity = quantityOf(stack);
  const hasLines = state.thumbnails.value === "lines";
  const countOf = ([start, stop]: Range): number => stop - start;
  const [queries, keys] = [countOf(part.rows), countOf(part.columns)];
  // If a thumbnail of the view has fewer pixels than its map has cells, each pixel shows several
  // cells. A figure shows all cells.
  const pixels = Math.round(cell * (globalThis.devicePixelRatio || 1));
  const maxSide = hasLines || drawn !== undefined ? Number.POSITIVE_INFINITY : pixels;
  const [rows, columns] = [Math.min(map.rows, maxSide), Math.min(map.columns, maxSide)];
  const isPooled = rows < queries || columns < keys;
  const inSize = quantity.signed ? " in size" : "";
  const largest = `a cell shows its largest ${quantity.name}${inSize}`;
  const pooled = map.sampled
    ? `Thumbnails are a sample: each row is one query, ${map.sampled.length} of ${counted(queries)}; columns are pooled to ${columns}, and ${largest}.`
    : !isPooled
      ? `Thumbnails show every ${quantity.name}.`
      : quantity.signed
        ? `Thumbnails are pooled to ${rows} × ${columns}: ${largest}.`
        : `Thumbnails are pooled by maximum to ${rows} × ${columns}.`;
  if (!hasLines) {
    const size = quantity.signed ? " of its size" : "";
    const more = isAttention(quantity) ? "more" : "larger";
    const ink = `${more} ${quantity.name} (square root${size})`;
    return `${pooled} More ink, ${ink}; queries downwards, keys to the right.`;
  }
  const minWeight = writtenSmall({ ...quantity, signed: false }, MIN_LINE_OPACITY * map.maximum);
  const [less, more] = waysOf(quantity);
  const dashed = quantity.signed ? `, dashed where ${less}, not where ${more}` : "";
  const lines = `Up to ${maxLinesFor(cell)} ${isAttention(quantity) ? "strongest" : "largest"} ${pluralOf(quantity)} per head, at least ${minWeight}${inSize}${dashed}`;
  return `${lines}; queries on the left, keys on the right.${isPooled ? ` ${pooled}` : ""}`;
}
