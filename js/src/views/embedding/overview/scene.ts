/** All heads' small plots as one picture, also those that are not in sight. */

import { measureText } from "../../../draw/canvas";
import { textMark, wrap } from "../../../draw/figure";
import { fontOf, type Mark, type Scene } from "../../../draw/marks";
import type { Palette } from "../../../ui/palette";
import type { Grid } from "../../model/state";
import type { OverviewHead } from "../client/requests";
import { headKey } from "../state";
import {
  figuresInShort,
  problemInShort,
  strengthOf,
  type TileLayout,
  type TileLook,
  type TrustMap,
  tileDots,
} from "./tiles";

export interface OverviewPicture {
  grid: Grid;
  layout: TileLayout;
  look: TileLook;
  heads: ReadonlyMap<string, OverviewHead>;
  trust: TrustMap;
  palette: Palette;
}

/** The whole grid, however much of it is in sight. */
export function overviewScene(picture: OverviewPicture): Scene {
  const { grid, layout, look, heads, trust, palette } = picture;
  const { cell, across, down, left, top } = layout;
  const marks: Mark[] = [];
  grid.columns?.forEach((head, column) => {
    const words = across >= 50 && left > 40 ? `head ${head}` : String(head);
    const x = left + column * across + cell / 2;
    marks.push(textMark(words, x, top - 11, palette.muted, 11, { align: "middle" }));
  });
  grid.rows.forEach((cells, row) => {
    const y = top + row * down;
    const layer = cells.find((each) => each !== null)?.layer;
    if (grid.columns && layer !== undefined) {
      const words = left > 40 ? `layer ${layer}` : String(layer);
      const more = { align: "end" as const };
      marks.push(textMark(words, left - 10, y + cell / 2, palette.ink, 11.5, more));
    }
    cells.forEach((each, column) => {
      if (!each) return;
      const square = { x: left + column * across, y, side: cell };
      const head = heads.get(headKey(each));
      const measured = trust.get(headKey(each));
      marks.push({
        kind: "rect",
        x: square.x + 0.5,
        y: y + 0.5,
        width: cell - 1,
        height: cell - 1,
        stroke: palette.rule,
      });
      if (head?.problem)
        marks.push(...problemMarks(problemInShort(head.problem, cell), square, palette));
      else if (head) marks.push(...tileDots(head, look, square, strengthOf(measured)));
      const middle = square.x + cell / 2;
      const size = layout.figures === "words" ? 10.5 : 9.5;
      let line = y + cell + 9;
      const centred = { align: "middle" as const };
      if (layout.named) {
        const name = `layer ${each.layer}, head ${each.head}`;
        marks.push(textMark(name, middle, line, palette.ink, 10, centred));
        line += 14;
      }
      const said = head?.problem ? "" : figuresInShort(measured, layout.figures);
      marks.push(textMark(said, middle, line, palette.muted, size, centred));
    });
  });
  const { width, height } = layout;
  return { width, height, background: null, back: [], backOpacity: 1, front: marks };
}

function problemMarks(
  problem: string,
  square: { x: number; y: number; side: number },
  palette: Palette,
): Mark[] {
  const measure = (text: string): number => measureText(text, fontOf({ size: 10, font: "text" }));
  const lines = wrap(problem, square.side - 8, measure);
  const first = square.y + square.side / 2 - ((lines.length - 1) * 12) / 2;
  return lines.map((line, i) =>
    textMark(line, square.x + square.side / 2, first + i * 12, palette.muted, 10, {
      align: "middle",
    }),
  );
}
