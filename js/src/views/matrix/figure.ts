/** The matrix view as a figure for a paper and as a table: the same marks, with all that is said. */

import {
  type Box,
  composeFigure,
  type FigureParts,
  RAMP_WIDTH,
  textMark,
  type Words,
} from "../../draw/figure";
import type { Mark, Scene } from "../../draw/marks";
import { plainNumber } from "../../ui/captions";
import { colorAt, weightAt } from "../../ui/color-scales";
import { csvText, roundedTo, roundedUp } from "../../ui/csv";
import { backMarks, frontMarks, type Picture } from "../../ui/heat-map/marks";
import { tokensOf } from "../../ui/heat-map/viewport";

/** Numbers below the scale: where along it, and the weight. */
export function scaleNumbers(
  picture: Pick<Picture, "end" | "scale" | "beyond">,
): [number, string][] {
  return [0, 0.5, 1].map((share) => {
    const text = plainNumber(weightAt(share, picture.end, picture.scale));
    if (share === 0 && picture.scale === "log") return [share, `≤${text}`];
    return [share, share === 1 && picture.beyond ? `≥${text}` : text];
  });
}

/** What the colours mean: a swatch for no weight, then the scale with its numbers. */
export function scaleBox(picture: Picture): Box {
  const { palette, theme } = picture;
  const steps = 64;
  const pixels = new Uint8ClampedArray(steps * 4);
  for (let i = 0; i < steps; i++) pixels.set(colorAt(theme, i / (steps - 1)), i * 4);
  const place = { x: 0, y: 0, width: RAMP_WIDTH, height: 9 };
  const marks: Mark[] = [
    { kind: "image", ...place, pixels, columns: steps, rows: 1 },
    { kind: "rect", ...place, stroke: palette.rule },
  ];
  for (const [share, text] of scaleNumbers(picture)) {
    marks.push({
      kind: "text",
      text,
      x: share * RAMP_WIDTH,
      y: 19,
      fill: palette.muted,
      size: 11,
      font: "text",
      align: share === 0 ? "start" : share === 1 ? "end" : "middle",
    });
  }
  marks.push(textMark("weight", RAMP_WIDTH / 2, 34, palette.muted, 11, { align: "middle" }));
  return { width: RAMP_WIDTH, height: 43, marks };
}

/** The whole figure. What the pointer is on is not part of it. */
export function figure(
  picture: Picture,
  words: Words,
  /** Puts beside the picture what belongs to it. */
  beside: (drawn: FigureParts["picture"]) => FigureParts["picture"] = (drawn) => drawn,
): Scene {
  const still = { ...picture, hovered: null, cursor: null, search: "" };
  const { layout, palette } = picture;
  return composeFigure({
    palette,
    words,
    picture: beside({
      width: layout.width,
      height: layout.height,
      back: backMarks(still),
      backOpacity: 1,
      front: frontMarks(still),
    }),
    scale: scaleBox(still),
  });
}

const CELL_COLUMNS = [
  "stack",
  "layer",
  "heads",
  "query",
  "query_token",
  "key",
  "key_token",
  "weight",
  "largest_error",
];
const POOLED_COLUMNS = ["query_stop", "key_stop", "pooled"];

/** The cells in sight, one a row; where they are pooled, with the ranges that they stand for. */
export function cellsCsv(picture: Picture): string {
  const { grid, layout, queries, keys } = picture;
  const { viewport } = layout;
  const pooled = viewport.rows.level > 0 || viewport.columns.level > 0;
  const heads = viewport.heads.join(" ");
  // Of an estimate nobody knows how far it is off; of a long text weights are small throughout.
  const error = grid.estimate ? null : roundedUp(grid.error);
  const told = (weight: number): number =>
    grid.largest === undefined ? roundedTo(weight, grid.error) : Number(weight.toPrecision(4));
  const rows: (string | number | null)[][] = [];
  for (let row = 0; row < grid.rows; row++) {
    const [query, queryStop] = tokensOf(viewport.rows, row);
    for (let column = 0; column < grid.columns; column++) {
      const weight = grid.values[row * grid.columns + column] as number;
      if (Number.isNaN(weight)) continue;
      const [key, keyStop] = tokensOf(viewport.columns, column);
      rows.push([
        viewport.stack.name,
        viewport.layer,
        heads,
        query,
        queries.text[query] ?? "",
        key,
        keys.text[key] ?? "",
        told(weight),
        error,
        ...(pooled ? [queryStop, keyStop, viewport.pooled] : []),
      ]);
    }
  }
  return csvText(pooled ? [...CELL_COLUMNS, ...POOLED_COLUMNS] : CELL_COLUMNS, rows);
}
