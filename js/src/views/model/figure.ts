/**
 * Exports of the model view: a figure of the complete grid, and a CSV table of all heads.
 *
 * The map of a head is its attention matrix, pooled to few cells. The effect of a head is a signed
 * number that is drawn as a bar. The role of a head names what it does, as found over a corpus.
 */

import type { StackDescription } from "../../client/protocol";
import type { Matrix, Source } from "../../client/source";
import { type Box, namedColors } from "../../draw/figure";
import { sceneOf, translate } from "../../draw/marks";
import { headColor, type Palette } from "../../ui/colors/palette";
import { effectColors, scoreColumn } from "../../ui/effects/effects";
import type { ViewFigure } from "../../ui/exports/exports";
import { gateOf } from "../../ui/head-grid/gates";
import type { HeadGrid, HeadIndex, ScoredHead } from "../../ui/head-grid/grid";
import { roleBox } from "../../ui/head-grid/head-roles";
import { frameMark, gridMarks } from "../../ui/head-grid/marks";
import { quantityOf } from "../../ui/text/captions";
import { columnName, csvText, roundedTo, roundedUp, writtenError } from "../../ui/text/csv";
import type { ViewContext } from "../../ui/view/define-view";
import type { Selection } from "../../ui/view/record";
import { groupByLayer, type Layout } from "./layout";
import { requestOf, strongestOf } from "./maps";
import { headMarks, thumbnailScale } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/** Content of an export, which may contain heads outside the scroll box. */
export interface Exported {
  grid: HeadGrid;
  selection: Selection;
  /** Return the map of a head. */
  map: (head: HeadIndex) => Matrix | undefined;
}

/**
 * Maximum number of values in all maps of an export. If there would be more, each map has only 32
 * by 32 cells.
 */
const MAX_VALUES = 4_000_000;

/**
 * Load the maps of all heads of a grid.
 *
 * @param onProgress called with the number of loaded maps after each layer.
 */
export async function loadAll(
  source: Source,
  store: ModelStore,
  { grid, selection }: Pick<Exported, "grid" | "selection">,
  onProgress: (done: number) => void,
): Promise<Exported> {
  const keyOf = ({ layer, head, stack }: HeadIndex): string => `${layer} ${head} ${stack}`;
  const all = new Map<string, Matrix>();
  for (const heads of groupByLayer(grid.rows.flat())) {
    const set = store.mapSetOf(heads[0]);
    const size = grid.shown * set.size ** 2 > MAX_VALUES ? 32 : set.size;
    const request = requestOf({ ...set, size }, heads);
    const maps = await source.maps(store.stackOf(heads[0]), request);
    heads.forEach((head, i) => {
      all.set(keyOf(head), maps[i] as Matrix);
    });
    onProgress(all.size);
  }
  return { grid, selection, map: (head) => all.get(keyOf(head)) };
}

/** Return the legend of a figure: the colours of the effects and the letters of the roles. */
function legendBox({ effects, roleSigns }: ModelStore, palette: Palette, width: number): Box {
  const bars = effects.value
    ? namedColors(effectColors(effects.value, palette), width, palette.ink)
    : { height: -6, marks: [] };
  const top = bars.height + 6;
  if (roleSigns.value.length === 0) return { width, height: top, marks: bars.marks };
  const roles = roleBox(roleSigns.value, palette, width);
  const marks = [...bars.marks, ...translate(roles.marks, 0, top)];
  return { width, height: top + roles.height, marks };
}

/** Return the parts of the figure of the complete grid. Each chosen head has a coloured frame. */
export function figureParts(
  context: ViewContext<ModelState>,
  store: ModelStore,
  layout: Layout,
  { grid, selection, map }: Exported,
): Omit<ViewFigure, "captions"> {
  const palette = context.palette.peek();
  const { stack, chosen, layer } = selection;
  const stacks = store.stacks.peek();
  const heads = grid.rows.flat().filter((head) => head !== null);
  const maxima = new Map(heads.map((head) => [store.stackOf(head), map(head)?.maximum]));
  const marksOf = headMarks(context, store, grid, layout, map);
  const marks = gridMarks(grid, layout, palette, (head, square) => {
    const isShown = layer === head.layer && store.stackOf(head) === stack;
    const index = isShown ? chosen.indexOf(head.head) : -1;
    const frame = index < 0 ? null : headColor(palette, index, chosen.length);
    return [...marksOf(head, square), frameMark(square, frame, palette)];
  });
  return {
    picture: sceneOf(layout, [], marks),
    scales: stacks.map((one) =>
      thumbnailScale(
        context.state.thumbnails.peek(),
        maxima.get(one) ?? one.maximum,
        quantityOf(one),
        palette,
      ),
    ),
    ...((store.effects.peek() || store.roleSigns.peek().length > 0) && {
      legend: (width: number) => legendBox(store, palette, width),
    }),
  };
}

interface Strongest {
  query: number;
  key: number;
  weight: number;
  error: number;
}

/**
 * Return the strongest weight of a head, or null if all weights are 0. If the map is pooled,
 * request the weights of its strongest cell to find the query and the key.
 */
async function findStrongest(
  source: Source,
  store: ModelStore,
  at: HeadIndex,
  map: Matrix | undefined,
): Promise<Strongest | null> {
  const best = map && strongestOf(map, store.part.peek(), store.stackOf(at));
  if (!best) return null;
  const { rows, columns, weight } = best;
  const [[query], [key]] = [rows, columns];
  if (best.isSingle) return { query, key, weight, error: errorOf(map) };
  const { layer, head } = at;
  const stack = store.stackOf(at).name;
  const block = await source.block({ stack, layer, heads: [head], rows, columns });
  const values = block.matrices[0] as Float32Array;
  const exact = strongestOf({ ...block, values }, { rows, columns }, store.stackOf(at));
  if (!exact) return null;
  const [[exactQuery], [exactKey]] = [exact.rows, exact.columns];
  return { query: exactQuery, key: exactKey, weight: exact.weight, error: block.error };
}

/**
 * Return the error of the strongest weight of a map: 0 if the map contains its exact value,
 * otherwise the largest error of the map's weights.
 */
function errorOf(map: Matrix | undefined): number {
  return !map || map.largest ? 0 : map.error;
}

/** Return a CSV table with one row per displayed head: its scores and its strongest weight. */
export async function headsCsv(
  source: Source,
  store: ModelStore,
  { grid, selection, map }: Exported,
): Promise<string> {
  const { queries, keys } = selection;
  const effects = store.effects.peek();
  const columns: [string, (head: ScoredHead) => string | number | null][] = [
    ["stack", (head) => store.stackOf(head).name],
    ["layer", ({ layer }) => layer],
    ["head", ({ head }) => head],
  ];
  if (grid.score !== null) columns.push([scoreColumn(grid.score), ({ score }) => score]);
  if (effects && effects.name !== grid.score)
    columns.push([scoreColumn(effects.name), (head) => effects.of(head).value]);
  if (effects?.errors)
    columns.push([scoreColumn(effects.name, "score error"), (head) => effects.of(head).error]);
  if (grid.score !== "gate" && store.stacks.peek().some(({ gates }) => gates))
    columns.push(["mean_gate", (head) => gateOf(store.stackOf(head), head)]);
  if (effects?.note) columns.push(["score_measure", () => effects.note]);

  const nameOf = (stack: StackDescription): string => columnName(stack, "strongest");
  const weights = [...new Set(store.stacks.peek().map(nameOf))];
  const rowOf = async (head: ScoredHead): Promise<(string | number | null)[]> => {
    const best = await findStrongest(source, store, head, map(head));
    // Numbers of stacks with different quantities are in different columns.
    const inColumn = (value: string | number): (string | number | null)[] =>
      weights.map((name) => (name === nameOf(store.stackOf(head)) ? value : null));
    return [
      ...columns.map(([, read]) => read(head)),
      ...(best
        ? [
            ...inColumn(roundedTo(best.weight, best.error)),
            best.query,
            queries.text[best.query] ?? "",
            best.key,
            keys.text[best.key] ?? "",
            writtenError(best.error),
          ]
        : // If all weights of a map are 0, small weights may have been rounded to 0. In this case,
          // write the error of the map.
          [...inColumn(0), null, null, null, null, roundedUp(errorOf(map(head)))]),
    ];
  };
  const rows: (string | number | null)[][] = [];
  for (const row of grid.rows) {
    const heads = row.filter((head) => head !== null);
    rows.push(...(await Promise.all(heads.map(rowOf))));
  }
  const names = [...columns.map(([name]) => name), ...weights];
  return csvText([...names, "query", "query_token", "key", "key_token", "largest_error"], rows);
}
