/** The image beside the matrix view: its heat-map, and what is pointed at in it. */

import { computed } from "@preact/signals";
import type { ViewContext } from "../../ui/define-view";
import type { Focus } from "../../ui/image/state";
import { type ImagePanel, makeImagePanel } from "../../ui/image/store";
import { assign } from "../../ui/state";
import { whatInWords } from "./captions";
import { type Axis, cellOf, type MatrixState, tokensOf } from "./state";
import type { MatrixModel } from "./store";

/** The one token that a cell stands for; null where it stands for several. */
function onlyToken(axis: Axis, cell: number | null): number | null {
  if (cell === null) return null;
  const [start, stop] = tokensOf(axis, cell);
  return stop - start === 1 ? start : null;
}

/** One heat-map: of the head, or of the mean of several, as the matrix is. */
export function makeMatrixImage(context: ViewContext<MatrixState>, model: MatrixModel): ImagePanel {
  const { record, palette } = context;
  return makeImagePanel(context, {
    series: computed(() => {
      const place = record.place.value;
      const { positive: color, ink: textColor } = palette.value;
      if (!place) return [];
      return [{ name: whatInWords(place), color, textColor, heads: place.heads, how: "mean" }];
    }),
    focus: computed<Focus>(() => {
      const plan = model.ground.value?.layout.plan;
      const [cell, cursor] = [model.hovered.value, model.cursor.value];
      if (plan && cell) {
        const query = onlyToken(plan.rows, cell.row);
        const key = onlyToken(plan.columns, cell.column);
        if (query !== null || key !== null) return { query, key };
      }
      const { token = null, key = null } = record.place.value ?? {};
      return cursor ?? { query: token, key };
    }),
    reveal: (side, token) => assign(context.state, model.windowsAt(side, token)),
    point: (to) => {
      const plan = model.plan.peek();
      const row = plan && to ? cellOf(plan.rows, to.query) : null;
      const column = plan && to ? cellOf(plan.columns, to.key) : null;
      model.hovered.value = row === null && column === null ? null : { row, column };
    },
  });
}
