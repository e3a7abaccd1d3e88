/** Paints the thumbnails: each row's at once, when their maps have come. */

import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { paintMarks, prepare } from "../../draw/canvas";
import type { Palette } from "../../ui/palette";
import type { GridProps } from "./grid";
import { type HeadMap, isStrip, type Thumb } from "./maps";
import { lineMarks, paintHeat, rowMark, type Square } from "./marks";
import { chunkOf, type Layout, type ModelState } from "./state";
import { stripMarks } from "./strips";

/** Strips with a map missing are drawn without it after so long. */
const LATE_MS = 120;

/** Paints the canvases that lie in the grid, as far as their maps have come. */
export function Painter({ context, model, drawn, box }: GridProps) {
  const painted = useMemo(() => new WeakMap<HTMLCanvasElement, unknown[]>(), []);
  // Read so that this is rendered, and paints, when one of them changes: after the grid, which
  // stands above it, has.
  for (const each of [model.grid, model.layout, model.sight, model.mapSet, model.sign]) each.value;
  model.maps.arrivals.value;
  const palette = context.palette.value;
  const thumbnails = context.state.thumbnails.value;
  const walked = model.walked.value;

  const paint = (partly: boolean): boolean => {
    const grid = model.grid.peek();
    const layout = model.layout.peek();
    if (!box.current || !grid || !layout) return false;
    let complete = true;
    for (const canvas of box.current.querySelectorAll("canvas")) {
      const row = grid.rows[Number(canvas.dataset.row)] ?? [];
      const cells = chunkOf(row, Number(canvas.dataset.chunk));
      const maps = cells.map((cell) => (cell ? model.thumb(cell) : null));
      if (maps.includes(undefined)) {
        complete = false;
        if (!partly) continue;
      }
      const look = [...maps, palette, thumbnails, layout.cell, layout.across, String(walked)];
      const before = painted.get(canvas);
      if (before?.length === look.length && look.every((each, i) => each === before[i])) continue;
      paintStrip(canvas, maps, layout, thumbnails, palette, walked);
      painted.set(canvas, look);
    }
    return complete;
  };
  const waiting = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(waiting.current), []);
  useLayoutEffect(() => {
    const complete = paint(false);
    drawn.value = complete ? model.sign.peek() : null;
    clearTimeout(waiting.current);
    // Most maps come together: what has to wait for them is drawn only where they are late.
    if (!complete) waiting.current = setTimeout(() => paint(true), LATE_MS);
  });
  return null;
}

/** Some cells of one row side by side; undefined is still to come, null is no head. */
function paintStrip(
  canvas: HTMLCanvasElement,
  thumbs: (Thumb | null | undefined)[],
  layout: Layout,
  thumbnails: ModelState["thumbnails"],
  palette: Palette,
  walked: [number, number] | null,
): void {
  const { cell, across } = layout;
  const ink = palette.neutral;
  const scale = globalThis.devicePixelRatio || 1;
  const context = prepare(canvas, (thumbs.length - 1) * across + cell, cell, scale);
  if (!context) return;
  const there: [HeadMap, number][] = [];
  const strips = thumbs.flatMap((thumb, i) => {
    if (isStrip(thumb))
      return stripMarks(thumb, { x: i * across, y: 0, side: cell }, palette, scale);
    if (thumb) there.push([thumb, i * across]);
    return [];
  });
  if (strips.length > 0) paintMarks(context, strips);
  else if (thumbnails === "lines") {
    const squares = there.map(([map, x]): [HeadMap, Square] => [map, { x, y: 0, side: cell }]);
    paintMarks(context, lineMarks(squares, ink));
  } else {
    paintHeatStrip(canvas, context, there, cell * scale, scale, ink);
    const squares = there.map(([, x]): Square => ({ x, y: 0, side: cell }));
    if (walked)
      paintMarks(
        context,
        squares.map((square) => rowMark(square, walked, palette)),
      );
  }
  context.fillStyle = palette.raised;
  thumbs.forEach((thumb, i) => {
    if (thumb === undefined) context.fillRect(i * across, 0, cell, cell);
  });
}

/** Heat maps pixel by pixel of the screen, so that nothing is lost or blurred on the way. */
function paintHeatStrip(
  canvas: HTMLCanvasElement,
  context: CanvasRenderingContext2D,
  maps: [HeadMap, number][],
  wanted: number,
  scale: number,
  ink: string,
): void {
  const side = Math.min(canvas.height, Math.round(wanted));
  const image = new ImageData(canvas.width, canvas.height);
  for (const [map, x] of maps) {
    const left = Math.min(canvas.width - side, Math.round(x * scale));
    paintHeat(image.data, canvas.width, map, { x: left, y: 0, side }, ink);
  }
  context.putImageData(image, 0, 0);
}
