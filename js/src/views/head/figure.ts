/** The head view as a figure for a paper and as a table: the same marks, with all captions. */

import { composeFigure, type FigureParts, namedColors, rampBox } from "../../draw/figure";
import type { FigureRequest } from "../../draw/figure-request";
import type { Scene } from "../../draw/marks";
import { csvText, roundedTo, writtenError } from "../../ui/csv";
import { rgbOf } from "../../ui/palette";
import type { Caption } from "./captions";
import { type LinePlot, legendOf } from "./line-plot";
import { backMarks, backOpacity, frontMarks } from "./marks";

/** The whole figure. What the pointer is on is not part of it. */
export function figure(
  linePlot: LinePlot,
  caption: Caption,
  /** Puts the image panel beside the plot. */
  beside: (drawn: FigureParts["picture"]) => FigureParts["picture"] = (drawn) => drawn,
  request?: FigureRequest,
): Scene {
  const still = {
    ...linePlot,
    hovered: null,
    hoveredLine: null,
    hoveredHeads: [],
    cursor: null,
    matches: null,
    isFound: null,
  };
  const { palette, layout } = linePlot;
  const [red, green, blue] = rgbOf(palette.neutral);
  const parts: FigureParts = {
    palette,
    captions: caption,
    legend: (width) => namedColors(legendOf(still), width, palette.ink),
    picture: beside({
      width: layout.width,
      height: layout.height,
      back: backMarks(still),
      backOpacity: backOpacity(still),
      front: frontMarks(still),
    }),
    scale: rampBox(palette, (share) => [red, green, blue, 255 * share], [
      "0",
      caption.scaleNote,
      caption.scale,
    ]),
  };
  return composeFigure(parts, request);
}

const LINE_COLUMNS = [
  "stack",
  "layer",
  "head",
  "query",
  "query_token",
  "key",
  "key_token",
  "weight",
  "largest_error",
];

/** The lines that are drawn, one a row. */
export function linesCsv(linePlot: LinePlot, stack: string, layer: number): string {
  const rows: (string | number)[][] = [];
  for (const series of linePlot.lines.series) {
    for (let i = 0; i < series.count; i++) {
      const query = series.query[i] as number;
      const key = series.key[i] as number;
      const error = series.error[i] as number;
      rows.push([
        stack,
        layer,
        series.head ?? series.name,
        query,
        linePlot.queries.text[query] ?? "",
        key,
        linePlot.keys.text[key] ?? "",
        roundedTo(series.weight[i] as number, error),
        writtenError(error),
      ]);
    }
  }
  return csvText(LINE_COLUMNS, rows);
}
