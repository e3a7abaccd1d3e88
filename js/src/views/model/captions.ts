/**
 * Captions, labels and tooltips of the model view.
 *
 * The map of a head is its attention matrix, pooled to few cells for a thumbnail. A gallery is a
 * grid of heads that are ordered by a score.
 */

import type { StackDescription } from "../../client/protocol";
import type { HeadMap } from "../../client/source";
import { scoreText } from "../../ui/controls/heads";
import {
  effectText,
  type HeadEffects,
  headEffect,
  headError,
  shortEffectText,
} from "../../ui/effects/effects";
import { predictingInWords } from "../../ui/generated-token/state";
import {
  type GridLayout,
  type HeadGrid,
  type HeadIndex,
  isSameHead,
  type ScoredHead,
  wholeInSight,
} from "../../ui/head-grid/grid";
import type { HeadRole } from "../../ui/head-grid/head-roles";
import type { Hint } from "../../ui/plot/plot";
import {
  capital,
  counted,
  headName,
  pluralOf,
  precision,
  type Quantity,
  quantityOf,
  quotedAt,
  rangeInWords,
  stackName,
  tokensInWords,
  waysOf,
  withWay,
  written,
} from "../../ui/text/captions";
import type { Selection } from "../../ui/view/record";
import { baseName } from "../../ui/what-if/changed-run";
import { coveredRange, type Part, queriesOf, strongestCell } from "./maps";
import { MIN_LINE_OPACITY, maxLinesFor } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/** Return "6 layers of 12 heads", or "5 layers of 2 to 12 heads". */
export function layersInWords(stack: StackDescription): string {
  const count = stack.layers.length;
  const minHeads = Math.min(...stack.heads_per_layer);
  const maxHeads = Math.max(...stack.heads_per_layer);
  const heads = minHeads === maxHeads ? `${maxHeads}` : `${minHeads} to ${maxHeads}`;
  return `${count} ${count === 1 ? "layer" : "layers"} of ${heads} ${heads === "1" ? "head" : "heads"}`;
}

/** Return the subtitle: the stack, the numbers of layers, heads and tokens, and the precision. */
export function subtitleOf(selection: Selection, grid: HeadGrid, error: number | null): string {
  const { stack, queries, keys } = selection;
  const same = stack.key_tokens === null;
  return [
    stackName(baseName(stack)),
    layersInWords(stack),
    ...(grid.offered < grid.all ? [`${grid.offered} of ${grid.all} heads included`] : []),
    tokensInWords(queries.text.length, keys.text.length, same),
    ...(error === null ? [] : [precision(error, stack)]),
  ].join(" · ");
}

/**
 * Return the name of a head with its score: "Layer 3, head 1, induction 0.97".
 *
 * @param score name of the score, or null for the name of the head alone.
 */
export function cellName(
  cell: HeadIndex & { score?: number | null },
  score: string | null,
): string {
  const name = capital(headName(cell));
  return score === null ? name : `${name}, ${score} ${scoreText(cell.score ?? null)}`;
}

/** Return the name of a head with its score, role and effect, if it has them. */
export function headLabel(store: ModelStore, cell: ScoredHead, grid: HeadGrid): string {
  const effects = store.effects.peek();
  const selection = store.selection.peek();
  const bare = effects?.name === grid.score || store.byRole.peek();
  const role = store.roleOf(cell);
  const name = cellName(cell, bare ? null : grid.score) + (role ? `, ${role.label}` : "");
  if (!effects || !selection) return name;
  const [value, error] = [headEffect, headError].map((read) =>
    read(effects, selection.stack, cell),
  );
  return `${name}, ${effects.name} ${effectText(effects, value ?? null, error)}`;
}

/** Describe the order of the heads in a gallery, without the name of the score. */
export function orderName(grid: HeadGrid, effects: HeadEffects | null, byRole = false): string {
  if (byRole) return "those of the rarest role first";
  return effects && effects.name === grid.score ? "ordered by size" : "strongest first";
}

/**
 * Return the two lines below a thumbnail of a gallery: the head, and its score, effect or role.
 *
 * @param words whether to write "layer 3, head 1" instead of "3.1".
 * @param role role of the head, or null if it has none. Pass it only if heads are ordered by role.
 */
export function captionLines(
  cell: ScoredHead,
  words: boolean,
  effects: HeadEffects | null = null,
  role?: HeadRole | null,
): [string, string] {
  return [
    words ? headName(cell) : `${cell.layer}.${cell.head}`,
    role !== undefined
      ? (role?.name ?? "no role")
      : effects
        ? shortEffectText(effects, cell.score)
        : scoreText(cell.score ?? null),
  ];
}

/**
 * Return the strongest weight of a head with its query and key. If the map is pooled, return the
 * ranges of queries and keys that contain them.
 */
export function strongestInWords(map: HeadMap, selection: Selection, part: Part): string {
  const best = strongestCell(map);
  const quantity = quantityOf(selection.stack);
  if (!best) return `no ${quantity.name} at all`;
  const rows = queriesOf(best.row, map, part.rows);
  const columns = coveredRange(best.column, map.columns, part.columns);
  const weight = withWay(quantity, best.weight, written(quantity, best.weight));
  if (rows[1] - rows[0] === 1 && columns[1] - columns[0] === 1) {
    const query = quotedAt(selection.queries.text, rows[0]);
    const key = quotedAt(selection.keys.text, columns[0]);
    return `${query} to ${key}, ${weight}`;
  }
  const from = rangeInWords(rows, "query", "queries");
  return `${weight}, between ${from} and ${rangeInWords(columns, "key", "keys")}`;
}

/** Return "strongest", or "largest difference" for a signed quantity. Name the size of a sample. */
function strongestName({ stack }: Selection, { sampled }: HeadMap): string {
  const { name, signed } = quantityOf(stack);
  const sample = sampled ? ` of ${sampled.length} queries` : "";
  return (signed ? `largest ${name}` : "strongest") + sample;
}

/** Return the tooltip for the head under the pointer. */
export function hintOf(
  store: ModelStore,
  cell: HeadIndex,
  grid: HeadGrid,
): Pick<Hint, "title" | "rows"> | null {
  const selection = store.selection.peek();
  if (!selection) return null;
  const map = store.map(cell);
  const scored = grid.rows.flat().find((item) => item && isSameHead(item, cell)) ?? {
    ...cell,
    score: null,
  };
  const rows = map
    ? [
        {
          color: "",
          meant: false,
          text: `${strongestName(selection, map)}: ${strongestInWords(map, selection, store.part.peek())}`,
        },
      ]
    : [];
  return { title: headLabel(store, scored, grid), rows };
}

/**
 * Return the sentence about the score that orders the heads, and the number of displayed heads.
 *
 * @param least minimum score of the displayed heads, or null.
 * @param estimatedFrom number of sampled queries if the score is estimated from a sample, or null.
 * @param byRole whether the heads are ordered by role.
 */
export function orderInWords(
  grid: HeadGrid,
  least: number | null,
  effects: HeadEffects | null,
  estimatedFrom: number | null = null,
  byRole = false,
): string {
  if (grid.score === null) return "";
  const order = orderName(grid, effects, byRole);
  const size = order === "ordered by size" ? " in size" : "";
  const which =
    least === null || byRole
      ? `all ${grid.shown} heads`
      : `${grid.shown} of ${grid.offered} heads, with at least ${Number(least.toPrecision(4))}${size}`;
  // Some sampled queries have no key of the pattern, because the mask hides all of these keys. The
  // score is the mean over the other queries.
  const estimated = estimatedFrom !== null && !byRole;
  const from = estimated
    ? `, estimated from the queries of a sample of ${estimatedFrom} that have such keys`
    : "";
  const orderText = `By ${grid.score}${from}`;
  return `${orderText}, ${order}: ${which}.`;
}

/** Say which heads and layers the scroll box shows completely. Return "" if it shows all. */
export function inSightInWords(
  grid: HeadGrid,
  layout: GridLayout,
  scroll: { x: number; y: number },
): string {
  const { rows, columns } = wholeInSight(layout, grid.rows.length, scroll);
  if (grid.columns === null) {
    const cells = grid.rows.slice(...rows).flatMap((row) => row.slice(...columns));
    const count = cells.filter((cell) => cell !== null).length;
    return count < grid.shown ? `In sight: ${count} of ${grid.shown} heads.` : "";
  }
  const layers = grid.rows.map((row) => row.find((cell) => cell !== null)?.layer ?? 0);
  const parts = [partInWords("head", grid.columns, columns), partInWords("layer", layers, rows)];
  const text = parts.filter((part) => part !== "").join(", ");
  return text === "" ? "" : `In sight: ${text}.`;
}

/** Return "heads 0 to 6 of 12", or "heads 1 to 9 (3 of 6)" if the numbers have gaps. */
function partInWords(name: string, numbers: readonly number[], [start, stop]: [number, number]) {
  const [count, all] = [stop - start, numbers.length];
  if (count >= all) return "";
  if (count === 0) return `no ${name} as a whole`;
  const [first, last] = [numbers[start] as number, numbers[stop - 1] as number];
  const range = count === 1 ? `${name} ${first}` : `${name}s ${first} to ${last}`;
  const gapless = numbers[0] === 0 && numbers[all - 1] === all - 1;
  return gapless ? `${range} of ${all}` : `${range} (${count} of ${all})`;
}

/**
 * Return the caption of the thumbnails: how they are drawn, and how they are sampled or pooled.
 *
 * @param map properties of the maps, or null before any map has arrived.
 * @param live whether the caption is for the view. A figure shows all cells of the maps.
 */
export function thumbnailsInWords(
  part: Part,
  map: Pick<HeadMap, "rows" | "columns" | "maximum" | "sampled"> | null,
  cell: number,
  thumbnails: ModelState["thumbnails"],
  live: boolean,
  quantity: Quantity,
): string {
  if (!map) return "";
  const [queries, keys] = [part.rows[1] - part.rows[0], part.columns[1] - part.columns[0]];
  // If a thumbnail has fewer pixels than its map has cells, each pixel shows several cells.
  const pixels = Math.round(cell * (globalThis.devicePixelRatio || 1));
  const maxSide = thumbnails === "lines" || !live ? Number.POSITIVE_INFINITY : pixels;
  const [rows, columns] = [Math.min(map.rows, maxSide), Math.min(map.columns, maxSide)];
  const few = map.sampled;
  const pooled =
    few !== undefined
      ? `Thumbnails are a sample: each row is one query, ${few.length} of ${counted(queries)}; columns are pooled to ${columns}, and a cell shows its largest ${quantity.name}${quantity.signed ? " in size" : ""}.`
      : rows < queries || columns < keys
        ? quantity.signed
          ? `Thumbnails are pooled to ${rows} × ${columns}: a cell shows its largest ${quantity.name} in size.`
          : `Thumbnails are pooled by maximum to ${rows} × ${columns}.`
        : `Thumbnails show every ${quantity.name}.`;
  const [less, more] = waysOf(quantity);
  if (thumbnails === "heat-map") {
    const ink = quantity.signed
      ? `More ink, larger ${quantity.name} (square root of its size)`
      : `More ink, more ${quantity.name} (square root)`;
    return `${pooled} ${ink}; queries downwards, keys to the right.`;
  }
  const minWeight = written({ ...quantity, signed: false }, MIN_LINE_OPACITY * map.maximum);
  const sizes = quantity.signed ? ` in size, dashed where ${less}, not where ${more}` : "";
  const drawn = `Up to ${maxLinesFor(cell)} strongest ${pluralOf(quantity)} per head, at least ${minWeight}${sizes}`;
  const sides = "queries on the left, keys on the right";
  return rows < queries || columns < keys ? `${drawn}; ${sides}. ${pooled}` : `${drawn}; ${sides}.`;
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
  if (grid.rows.length === 0)
    return grid.offered === 0 ? "No head of this stack is included." : "No head has this score.";
  if (!opened) {
    const suffix = grid.offered < grid.all ? `; ${grid.offered} of ${grid.all} are included` : "";
    const stackText = `${layersInWords(selection.stack)}${suffix}`;
    const predicting =
      selection.token === null ? "" : predictingInWords(selection, selection.token).slice(0, -1);
    const row =
      store.outlinedRow.value && selection.token !== null
        ? ` Outlined: ${quotedAt(selection.queries.text, selection.token)}${predicting}.`
        : "";
    return `${stackText}.${row}${live ? " Click a head to see it in detail." : ""}`;
  }
  // In a dashboard, other panes describe the weights of the open head.
  const map = store.showsDetail.value ? store.map(opened) : undefined;
  const best = map
    ? ` ${capital(strongestName(selection, map))}: ${strongestInWords(map, selection, store.part.peek())}.`
    : "";
  return `${capital(headName(opened))}.${best}`;
}
