/** Paints the small plots: all rows that are in sight in one go. */

import type { RefObject } from "preact";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { paintMarks, prepare } from "../../../draw/canvas";
import type { ScoredCell } from "../../model/state";
import { headKey } from "../state";
import type { EmbeddingModel } from "../store";
import type { OverviewProps } from "./grid";
import type { OverviewTiles } from "./store";
import { strengthOf, tileDots, usedColumns } from "./tiles";

type PainterProps = OverviewProps & { box: RefObject<HTMLDivElement | null> };

/** Paints the canvases that lie in the grid, all that are in sight in one go. */
export function Painter({ context, model, tiles, box }: PainterProps) {
  const painted = useMemo(() => new WeakMap<HTMLCanvasElement, unknown[]>(), []);
  // Read so that this is rendered, and paints, when one of them changes: after the grid has.
  for (const each of [tiles.grid, tiles.layout, tiles.sight, tiles.look, tiles.heads]) each.value;
  for (const each of [model.trust, model.current]) each.value;
  useLayoutEffect(() => {
    const [grid, layout, look] = [tiles.grid.peek(), tiles.layout.peek(), tiles.look.peek()];
    if (!box.current || !grid || !layout || !look) return;
    for (const canvas of box.current.querySelectorAll("canvas"))
      paintRow(canvas, grid.rows[Number(canvas.dataset.row)] ?? [], { model, tiles, painted });
    const drawn = model.current.peek() && !context.state.enlarged.peek();
    context.setDrawn(drawn ? `embedding:${grid.stack}:all` : null);
  });
  return null;
}

interface Painting {
  model: EmbeddingModel;
  tiles: OverviewTiles;
  painted: WeakMap<HTMLCanvasElement, unknown[]>;
}

function paintRow(
  canvas: HTMLCanvasElement,
  cells: readonly (ScoredCell | null)[],
  { model, tiles, painted }: Painting,
): void {
  const [layout, look] = [tiles.layout.peek(), tiles.look.peek()];
  if (!layout || !look) return;
  const plots = cells.map((cell) => (cell && tiles.heads.peek().get(headKey(cell))) ?? null);
  const strengths = cells.map((cell) =>
    cell ? strengthOf(model.trust.peek().get(headKey(cell))) : 0,
  );
  const ratio = globalThis.devicePixelRatio || 1;
  const wanted = [...plots, ...strengths, look, layout.cell, layout.across, ratio];
  const before = painted.get(canvas);
  if (before?.length === wanted.length && wanted.every((each, i) => each === before[i])) return;
  painted.set(canvas, wanted);
  const count = usedColumns(cells);
  const width = (count - 1) * layout.across + layout.cell;
  const context = prepare(canvas, width, layout.cell, ratio);
  if (!context) return;
  plots.forEach((plot, column) => {
    if (!plot || plot.problem) return;
    const square = { x: column * layout.across, y: 0, side: layout.cell };
    paintMarks(context, tileDots(plot, look, square, strengths[column] as number));
  });
}
