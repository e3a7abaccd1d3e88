/** Exports of the head view: a figure with captions, and a CSV table of the drawn lines. */

import { composeFigure, type FigureParts, namedColors, rampBox } from "../../draw/figure";
import type { FigureRequest } from "../../draw/figure-request";
import type { Scene } from "../../draw/marks";
import { signColor } from "../../ui/colors/color-scales";
import { rgbOf } from "../../ui/colors/palette";
import { effectCells, effectColors, effectColumns } from "../../ui/effects/effects";
import { columnName, csvText, roundedTo, writtenError } from "../../ui/exports/csv";
import { aroundZero } from "../../ui/text/captions";
import type { Caption } from "./captions";
import { colorsSigns, type LinePlot, legendOf } from "./line-plot";
import { backMarks, backOpacity, frontMarks } from "./marks";

/** Compose the figure. It highlights the pins, but not pointer, cursor and search matches. */
export function figure(
  linePlot: LinePlot,
  caption: Caption,
  /** Add the image panel, if there is one, to the picture. */
  beside: (drawn: FigureParts["picture"]) => FigureParts["picture"] = (drawn) => drawn,
  request?: FigureRequest,
): Scene {
  const still = {
    ...linePlot,
    hovered: null,
    hoveredLine: null,
    hoveredHeads: [],
    cursor: null,
    isFound: null,
  };
  const { palette, layout } = linePlot;
  const signs = colorsSigns(linePlot);
  const parts: FigureParts = {
    palette,
    captions: caption,
    legend: (width) =>
      namedColors(
        [...legendOf(still), ...(still.effects ? effectColors(still.effects, palette) : [])],
        width,
        palette.ink,
      ),
    picture: beside({
      width: layout.width,
      height: layout.height,
      back: backMarks(still),
      backOpacity: backOpacity(still),
      front: frontMarks(still),
    }),
    scale: rampBox(
      palette,
      (share) => {
        const value = signs ? 2 * share - 1 : share;
        const color = signs ? signColor(value, palette) : palette.neutral;
        return [...rgbOf(color), 255 * Math.abs(value)];
      },
      scaleLabels(caption, signs),
      caption.scaleNote,
    ),
  };
  return composeFigure(parts, request);
}

/**
 * Return the labels at the start, the middle and the end of the opacity scale.
 *
 * @param signs whether the scale extends from a negative to a positive number.
 */
export function scaleLabels(
  { scale }: Pick<Caption, "scale">,
  signs: boolean,
): [string, string, string] {
  return signs ? aroundZero(scale) : ["0", "", scale];
}

const LINE_COLUMNS = ["stack", "layer", "head", "query", "query_token", "key", "key_token"];

/** Return a CSV table with one row per drawn line. */
export function linesCsv(linePlot: LinePlot, stack: string, layer: number): string {
  const { error } = linePlot.lines;
  const rows: (string | number | null)[][] = [];
  for (const series of linePlot.lines.series) {
    for (let i = 0; i < series.query.length; i++) {
      const query = series.query[i] as number;
      const key = series.key[i] as number;
      rows.push([
        stack,
        layer,
        series.head ?? series.name,
        query,
        linePlot.queries.text[query] ?? "",
        key,
        linePlot.keys.text[key] ?? "",
        roundedTo(series.weight[i] as number, linePlot.weights.error),
        writtenError(error),
        ...effectCells(linePlot.effects, [key, key + 1]),
      ]);
    }
  }
  const number = columnName({ measure: linePlot.quantity.name });
  return csvText(
    [...LINE_COLUMNS, number, "largest_error", ...effectColumns(linePlot.effects)],
    rows,
  );
}
