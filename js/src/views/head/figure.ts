/** Exports of the head view: a figure with captions, and a CSV table of the drawn lines. */

import { withoutNumber } from "../../client/record-number";
import { type LegendScale, namedColors } from "../../draw/figure";
import { sceneOf } from "../../draw/marks";
import { rampOf } from "../../ui/colors/color-scales";
import { effectColors, effectColumns } from "../../ui/effects/effects";
import type { ViewFigure } from "../../ui/exports/exports";
import { columnName, csvText, roundedTo, writtenError } from "../../ui/text/csv";
import { coverage, scaleInWords, sentence, subtitleOf } from "./captions";
import { colorsSigns, type LinePlot, legendOf } from "./line-plot";
import { backMarks, backOpacity, frontMarks } from "./marks";

/** Return the legend of the scale of the lines' opacity. */
export function opacityScale(linePlot: LinePlot): LegendScale {
  const { palette } = linePlot;
  return {
    color: rampOf(colorsSigns(linePlot) ? palette : palette.neutral),
    ...scaleInWords(linePlot),
  };
}

/** Return the parts of the figure. */
export function figureParts(linePlot: LinePlot): ViewFigure {
  const { palette, layout, effects } = linePlot;
  const entries = [
    { name: `layer ${linePlot.plan.layer}` },
    ...legendOf(linePlot),
    ...(effects ? effectColors(effects, palette) : []),
  ];
  return {
    captions: {
      subtitle: subtitleOf(linePlot.plan, linePlot),
      sentence: sentence(linePlot),
      coverage: coverage(linePlot, false),
    },
    legend: (width) => namedColors(entries, width, palette.ink),
    picture: sceneOf(layout, backMarks(linePlot), frontMarks(linePlot), backOpacity(linePlot)),
    scales: [opacityScale(linePlot)],
  };
}

const LINE_COLUMNS = ["stack", "layer", "head", "query", "query_token", "key", "key_token"];

/** Return a CSV table with one row per drawn line. */
export function linesCsv(linePlot: LinePlot): string {
  const { plan, lines, weights, effects, quantity } = linePlot;
  const { queries, keys } = plan;
  const columns = effectColumns(effects);
  const rows = lines.drawn.map(({ series, query, key, weight }) => [
    withoutNumber(plan.stack.name),
    plan.layer,
    lines.series[series]?.head ?? lines.series[series]?.name ?? "",
    query,
    queries.text[query] ?? "",
    key,
    keys.text[key] ?? "",
    roundedTo(weight, weights.error),
    writtenError(lines.error),
    ...columns.cells([key, key + 1]),
  ]);
  const number = columnName({ measure: quantity.name });
  return csvText([...LINE_COLUMNS, number, "largest_error", ...columns.names], rows);
}
