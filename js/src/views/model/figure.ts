/**
 * Exports of the model view: a figure of the complete grid, and a CSV table of all heads.
 *
 * The map of a head is its attention matrix, pooled to few cells. The effect of a head is a signed
 * number that is drawn as a bar. The role of a head names what it does, as found over a corpus.
 */

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
import { csvText } from "../../ui/text/csv";
import type { ViewContext } from "../../ui/view/define-view";
import type { Selection } from "../../ui/view/record";
import { groupByLayer, type Layout } from "./layout";
import { requestOf } from "./maps";
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

/** Return a CSV table with one row per displayed head, with its scores. */
export function headsCsv(store: ModelStore, grid: HeadGrid): string {
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

  const heads = grid.rows.flat().filter((head) => head !== null);
  return csvText(
    columns.map(([name]) => name),
    heads.map((head) => columns.map(([, read]) => read(head))),
  );
}
