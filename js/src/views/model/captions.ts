/** What the model view says in words. */

import type { StackDescription } from "../../client/protocol";
import type { Strip } from "../../client/requests/strips";
import type { Palette } from "../../ui/colors/palette";
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
  countKept,
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
  formatWeight,
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
import type { Place } from "../../ui/view/record";
import { covered, type HeadMap, type Part, type Sample, type StripWindow, strongest } from "./maps";
import { FAINTEST_LINE, mostLines, PARTS, partColor } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/** "6 layers of 12 heads", "5 layers of 2 to 12 heads", or "6 layers of 12 heads, 4 of 72 kept". */
export function layersInWords(stack: StackDescription): string {
  const count = stack.layers.length;
  const least = Math.min(...stack.heads_per_layer);
  const most = Math.max(...stack.heads_per_layer);
  const heads = least === most ? `${most}` : `${least} to ${most}`;
  const all = stack.heads_per_layer.reduce((sum, each) => sum + each, 0);
  const kept = stack.heads ? `, ${countKept(stack)} of ${all} kept` : "";
  return `${count} ${count === 1 ? "layer" : "layers"} of ${heads} ${heads === "1" ? "head" : "heads"}${kept}`;
}

/** The stack, its layers and heads, its tokens and the precision. */
export function subtitleOf(place: Place, grid: HeadGrid, error: number | null): string {
  const { stack, queries, keys } = place;
  const same = stack.key_tokens === null;
  return [
    stackName(stack.name),
    layersInWords(stack),
    ...(grid.offered < grid.all ? [`${grid.offered} of ${grid.all} heads offered`] : []),
    tokensInWords(queries.text.length, keys.text.length, same),
    ...estimateInWords(place),
    ...(error === null ? [] : [precision(error, stack)]),
  ].join(" · ");
}

/** "estimate from 64 of 32,768 queries", where a text is too long for whole maps. */
export function estimateInWords({ stack, queries }: Place): string[] {
  if (stack.sampled === undefined) return [];
  return [`estimate from ${takenInWords(stack.sampled, queries.text.length)}`];
}

/** "Layer 3, head 1", with its score where heads are ordered by one. */
export function cellName(
  cell: HeadIndex & { score?: number | null },
  score: string | null,
): string {
  const name = `Layer ${cell.layer}, head ${cell.head}`;
  return score === null ? name : `${name}, ${score} ${scoreText(cell.score ?? null)}`;
}

/** A head's name with its score and its effect. */
export function headName(store: ModelStore, cell: ScoredHead, grid: HeadGrid): string {
  const effects = store.effects.peek();
  const place = store.place.peek();
  const bare = effects?.name === grid.score || store.byRole.peek();
  const role = store.roleOf(cell);
  const name = cellName(cell, bare ? null : grid.score) + (role ? `, ${role.label}` : "");
  if (!effects || !place) return name;
  const [value, error] = [headEffect, headError].map((of) => of(effects, place.stack, cell));
  return `${name}, ${effects.name} ${effectText(effects, value ?? null, error)}`;
}

/** Which heads come first. */
export function orderName(grid: HeadGrid, effects: HeadEffects | null, byRole = false): string {
  if (byRole) return "those of the same role together";
  return effects && effects.name === grid.score ? "ordered by size" : "strongest first";
}

/** What is read out of the head that the keyboard is at. */
export function spokenName(store: ModelStore, cell: ScoredHead, grid: HeadGrid): string {
  const strip = store.strip(cell);
  const name = headName(store, cell, grid);
  return strip ? `${name}: ${stripInWords(strip)}` : name;
}

/** The two lines below a gallery's thumbnail. */
export function captionLines(
  cell: ScoredHead,
  words: boolean,
  effects: HeadEffects | null = null,
  role?: HeadRole | null,
): [string, string] {
  const { layer, head } = cell;
  return [
    words ? `layer ${layer}, head ${head}` : `L${layer} H${head}`,
    role !== undefined
      ? (role?.name ?? "no role")
      : effects
        ? shortEffectText(effects, cell.score)
        : scoreText(cell.score ?? null),
  ];
}

/** A head's strongest weight and where it is, as far as its map tells. */
export function strongestInWords(map: HeadMap, place: Place, part: Part): string {
  const best = strongest(map);
  const quantity = quantityOf(place.stack);
  if (!best) return `no ${quantity.name} at all`;
  const rows = covered(best.row, map.rows, part.rows);
  const columns = covered(best.column, map.columns, part.columns);
  const weight = withWay(quantity, best.weight, written(quantity, best.weight));
  if (rows[1] - rows[0] === 1 && columns[1] - columns[0] === 1) {
    const query = quotedAt(place.queries.text, rows[0]);
    const key = quotedAt(place.keys.text, columns[0]);
    return `${query} to ${key}, ${weight}`;
  }
  const from = rangeInWords(rows, "query", "queries");
  return `${weight}, between ${from} and ${rangeInWords(columns, "key", "keys")}`;
}

/** What a head's strongest weight is called. */
function strongestName({ stack }: Place): string {
  const { name, signed } = quantityOf(stack);
  return signed ? `largest ${name}` : "strongest";
}

/** The hint for the head under the pointer. */
export function hintOf(
  store: ModelStore,
  cell: HeadIndex,
  grid: HeadGrid,
  palette: Palette,
): Pick<Hint, "title" | "rows"> | null {
  const place = store.place.peek();
  if (!place) return null;
  const map = store.map(cell);
  const strip = store.strip(cell);
  const scored = grid.rows.flat().find((each) => each && isSameHead(each, cell)) ?? {
    ...cell,
    score: null,
  };
  const rows = strip
    ? [
        ...sharesInWords(strip).map(({ part, text }) => ({
          color: partColor(palette, part),
          meant: false,
          text,
        })),
        {
          color: "",
          meant: false,
          text: `${takenInWords(strip.queries, strip.of)}, ± standard error`,
        },
      ]
    : map
      ? [
          {
            color: "",
            meant: false,
            text: `${strongestName(place)}: ${strongestInWords(map, place, store.part.peek())}`,
          },
        ]
      : [];
  return { title: headName(store, scored, grid), rows };
}

/** How many heads are shown, and by what they are ordered. */
export function orderInWords(
  grid: HeadGrid,
  least: number | null,
  effects: HeadEffects | null,
  estimated = false,
  byRole = false,
): string {
  if (grid.score === null) return "";
  const order = orderName(grid, effects, byRole);
  const size = order === "ordered by size" ? " in size" : "";
  const which =
    least === null || byRole
      ? `all ${grid.shown} heads`
      : `${grid.shown} of ${grid.offered} heads, those from ${Number(least.toPrecision(4))}${size} on`;
  // A mask may hide a pattern's keys from most queries: only the others count in a score.
  const from = estimated && !byRole ? ", estimated from those queries that may attend there" : "";
  const by = `By ${grid.score}${from}`;
  return `${by}, ${order}: ${which}.`;
}

/** Which heads and layers are in sight, where not all of them are. */
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
  const said = parts.filter((part) => part !== "").join(", ");
  return said === "" ? "" : `In sight: ${said}.`;
}

/** "heads 0 to 6 of 12", or "heads 1 to 9 (3 of 6)" where numbers are left out. */
function partInWords(name: string, numbers: readonly number[], [start, stop]: [number, number]) {
  const [count, all] = [stop - start, numbers.length];
  if (count >= all) return "";
  if (count === 0) return `no ${name} as a whole`;
  const [first, last] = [numbers[start] as number, numbers[stop - 1] as number];
  const which = count === 1 ? `${name} ${first}` : `${name}s ${first} to ${last}`;
  const gapless = numbers[0] === 0 && numbers[all - 1] === all - 1;
  return gapless ? `${which} of ${all}` : `${which} (${count} of ${all})`;
}

/** What a thumbnail leaves out: where it is pooled, and lines that are not drawn. */
export function thumbnailsInWords(
  part: Part,
  map: Pick<Sample, "rows" | "columns" | "maximum" | "sampled"> | null,
  cell: number,
  thumbnails: ModelState["thumbnails"],
  live: boolean,
  quantity: Quantity,
): string {
  if (!map) return "";
  const [queries, keys] = [part.rows[1] - part.rows[0], part.columns[1] - part.columns[0]];
  // Where a thumbnail has fewer pixels than its map has cells, its pixels pool once more.
  const pixels = Math.round(cell * (globalThis.devicePixelRatio || 1));
  // A figure holds the maps as they are.
  const most = thumbnails === "lines" || !live ? Number.POSITIVE_INFINITY : pixels;
  const [rows, columns] = [Math.min(map.rows, most), Math.min(map.columns, most)];
  const few = map.sampled;
  const pooled =
    few !== undefined
      ? `Each row of a thumbnail is one query: ${takenInWords(few, queries)} are looked at; columns are pooled to ${columns}, and a cell shows its largest ${quantity.name}${quantity.signed ? " in size" : ""}.`
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
  const least = written({ ...quantity, signed: false }, FAINTEST_LINE * map.maximum);
  const sizes = quantity.signed ? ` in size, dashed where ${less}, not where ${more}` : "";
  const drawn = `A head's ${mostLines(cell)} strongest ${pluralOf(quantity)} at most, from ${least} on${sizes}`;
  const sides = "queries on the left, keys on the right";
  return rows < queries || columns < keys ? `${drawn}; ${sides}. ${pooled}` : `${drawn}; ${sides}.`;
}

/** What strips show, and from how many queries. */
export function stripsInWords(store: ModelStore, place: Place, live: boolean): string {
  const sample = store.stripSample.value;
  const windows = sample?.windows.map(windowInWords).join("; or ") ?? "";
  const waiting = store.waiting.value;
  const opened = store.showsDetail.value ? store.opened.value : null;
  const strip = opened && store.strip(opened);
  return [
    strip ? `${cellName(opened, null)}: ${stripInWords(strip)}.` : "",
    `Where each head's weight goes, from the start of the text, above, to the query, below: ${estimateInWords(place)[0]}, one from each part of the text.`,
    windows && `Own window: ${windows}.`,
    live && waiting > 0 ? `${waiting} heads in sight are still to come.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/** The one sentence: what is open, or what there is. */
export function sentenceOf(store: ModelStore, place: Place, grid: HeadGrid, live: boolean): string {
  const opened = store.opened.value;
  if (grid.rows.length === 0)
    return grid.offered === 0 ? "No head of this stack is offered." : "No head has this score.";
  if (!opened) {
    const what = layersInWords(place.stack);
    const predicting =
      place.token === null ? "" : predictingInWords(place, place.token).slice(0, -1);
    const row =
      store.outlinedRow.value && place.token !== null
        ? ` Outlined: ${quotedAt(place.queries.text, place.token)}${predicting}.`
        : "";
    return `${what}.${row}${live ? " Click a head to see it in detail." : ""}`;
  }
  const [map, strip] = [store.map(opened), store.strip(opened)];
  if (strip) return `Layer ${opened.layer}, head ${opened.head}: ${stripInWords(strip)}.`;
  const best = map
    ? ` ${capital(strongestName(place))}: ${strongestInWords(map, place, store.part.peek())}.`
    : "";
  return `Layer ${opened.layer}, head ${opened.head}.${best}`;
}

/** "64 of 32,768 queries". */
export function takenInWords(taken: number, of: number): string {
  return `${taken} of ${counted(of)} queries`;
}

/** "the query and the 64 tokens before it". */
export function windowInWords({ window, own }: StripWindow): string {
  if (!window) return "the model's own window";
  const [before, after] = window;
  const around = after === 0 ? "before it" : after === before ? "on either side" : "";
  const which = around
    ? `${counted(before)} tokens ${around}`
    : `${counted(before)} tokens before and ${counted(after)} after it`;
  return `${own ? "the model's window, " : ""}the query and the ${which}`;
}

/** A share with its standard error, where it is an estimate. */
function shareInWords(share: number, error: number): string {
  return error > 0 ? `${formatWeight(share)} ± ${formatWeight(error)}` : formatWeight(share);
}

/** Each part with its share: "first token 0.62 ± 0.03". */
export function sharesInWords(strip: Strip): { part: string; text: string }[] {
  const known = strip.shares.every(Number.isFinite);
  return PARTS.flatMap((part) => {
    const at = strip.parts.indexOf(part);
    if (at < 0 || !known) return [];
    const text = shareInWords(strip.shares[at] as number, strip.errors[at] as number);
    return [{ part, text: `${part} ${text}` }];
  });
}

/** A head's strip in one line. */
export function stripInWords(strip: Strip): string {
  return (
    sharesInWords(strip)
      .map(({ text }) => text)
      .join(", ") || "no weight at all"
  );
}
