/** Exports of the matrix view: a figure, and a CSV table of the visible cells. */

import { zeroInWords } from "../../client/zeros";
import { namedColors } from "../../draw/figure";
import { sceneOf } from "../../draw/marks";
import { tokensAt } from "../../ui/axis";
import { effectColors, effectColumns } from "../../ui/effects/effects";
import type { ViewFigure } from "../../ui/exports/exports";
import { whatInWords } from "../../ui/heat-map/captions";
import { withoutSpareRoom } from "../../ui/heat-map/layout";
import { heatMapScale } from "../../ui/heat-map/legend";
import { backMarks, frontMarks, type HeatMap } from "../../ui/heat-map/marks";
import { isPooled } from "../../ui/heat-map/viewport";
import { columnName, csvText, roundedTo, writtenError } from "../../ui/text/csv";
import { spanOf } from "../../ui/text/places";

/**
 * Return the parts of the figure without its captions. Pinned queries and keys are highlighted. The
 * pointer, the cursor and search matches are not.
 */
export function figureParts(heatMap: HeatMap): Omit<ViewFigure, "captions"> {
  const layout = withoutSpareRoom(heatMap.layout);
  const still = { ...heatMap, layout, isFound: null };
  const { palette, effects } = heatMap;
  const { viewport } = layout;
  const entries = [
    { name: `layer ${viewport.layer}, ${whatInWords(viewport)}` },
    ...(effects ? effectColors(effects, palette) : []),
  ];
  return {
    legend: (width) => namedColors(entries, width, palette.ink),
    picture: sceneOf(layout, backMarks(still), frontMarks(still)),
    scales: [heatMapScale(still)],
  };
}

const CELL_COLUMNS = ["stack", "layer", "heads", "query", "query_token", "key", "key_token"];
const POOLED_COLUMNS = ["query_stop", "key_stop", "pooled"];

/**
 * Return a CSV table with one row per visible cell. Cells without a weight are omitted. A pooled
 * cell stands for several queries or keys: `query` and `key` are the first of them, `query_stop` and
 * `key_stop` are the indices after the last, and a token is the name of the range. If the stack
 * chooses keys, the column `not_scored` says why a weight is 0: "masked" or "not chosen".
 */
export function cellsCsv(heatMap: HeatMap): string {
  const { grid, layout } = heatMap;
  const { viewport } = layout;
  const { axes, queries, keys } = viewport;
  const pooled = isPooled(viewport);
  const effects = effectColumns(heatMap.effects);
  const heads = viewport.heads.join(" ");
  // If the heat map was computed from a sample of the queries, its error is unknown. The weights
  // may all be very small, so they are rounded to significant digits.
  const estimate = grid.samplingInterval !== undefined;
  const error = estimate ? null : writtenError(grid.error);
  const rounded = (weight: number): number =>
    estimate ? Number(weight.toPrecision(4)) : roundedTo(weight, grid.error);
  const rows: (string | number | null)[][] = [];
  for (let row = 0; row < grid.rows; row++) {
    const [query, queryStop] = tokensAt(axes.query, row);
    for (let column = 0; column < grid.columns; column++) {
      const weight = grid.values[row * grid.columns + column] as number;
      if (Number.isNaN(weight)) continue;
      const [key, keyStop] = tokensAt(axes.key, column);
      rows.push([
        viewport.stack.name,
        viewport.layer,
        heads,
        query,
        spanOf(queries, [query, queryStop]),
        key,
        spanOf(keys, [key, keyStop]),
        rounded(weight),
        error,
        ...(viewport.stack.chooses_keys ? [zeroInWords(viewport.stack, weight)] : []),
        ...effects.cells([key, keyStop]),
        ...(pooled ? [queryStop, keyStop, viewport.pooled] : []),
      ]);
    }
  }
  const columns = [
    ...[...CELL_COLUMNS, columnName(viewport.stack), "largest_error"],
    ...(viewport.stack.chooses_keys ? ["not_scored"] : []),
    ...effects.names,
  ];
  return csvText(pooled ? [...columns, ...POOLED_COLUMNS] : columns, rows);
}
