/** The image beside the head view: its heat-maps, and what is pointed at in it. */

import { batch, computed } from "@preact/signals";
import type { ViewContext } from "../../ui/define-view";
import { createImagePanel, type ImagePanel } from "../../ui/image/store";
import { pairOf } from "../../ui/pairs";
import { headTextColor } from "../../ui/palette";
import { assign } from "../../ui/state";
import { revealed } from "./controls";
import { focusOf, seriesColor } from "./picture";
import type { HeadState } from "./state";
import type { HeadModel } from "./store";

/** A heat-map for each head that has lines of its own, or one for all together. */
export function makeHeadImage(context: ViewContext<HeadState>, model: HeadModel): ImagePanel {
  const series = computed(() => {
    const [ground, plan] = [model.ground.value, model.plan.value];
    const all = ground?.lines.series ?? [];
    if (!ground || !plan) return [];
    const { palette } = ground;
    return all.map(
      (each, place) =>
        ({
          name: each.name,
          // Grey over a picture without colours would say nothing.
          color: each.head === null ? palette.positive : seriesColor(ground, place),
          textColor: each.head === null ? palette.ink : headTextColor(palette, place, all.length),
          heads: each.head === null ? plan.heads : [each.head],
          how: each.head === null && context.state.combine.value === "max" ? "max" : "mean",
        }) as const,
    );
  });
  const note = computed(() => {
    const { renormalize, leave_out, pair } = context.state;
    const plan = model.plan.value;
    const parted = leave_out.value.length > 0 || (plan && pairOf(plan, pair.value) !== "all");
    return renormalize.value && parted
      ? "Over the image are the model's own weights, not renormalised."
      : "";
  });
  return createImagePanel(context, {
    series,
    note,
    reveal: (side, token) => {
      const plan = model.plan.peek();
      if (plan) assign(context.state, revealed(plan, token, side));
    },
    focus: computed(() => {
      const picture = model.picture.value;
      const place = context.record.place.value;
      // Pins out of sight are none of the picture's.
      const pins = { query: place?.token ?? null, key: place?.key ?? null };
      if (!picture || (!picture.hovered && !picture.cursor)) return pins;
      return focusOf({ ...picture, token: pins.query, key: pins.key });
    }),
    point: (to) =>
      batch(() => {
        const line = to && to.query !== null && to.key !== null;
        const drawn = (model.lines.peek()?.series.length ?? 0) > (to?.tile ?? 0);
        model.hoveredLine.value =
          line && drawn
            ? { series: to.tile, query: to.query as number, key: to.key as number }
            : null;
        const place = context.record.place.peek();
        const side = place?.key !== null && place?.token === null ? "query" : "key";
        const index = side === "query" ? to?.query : to?.key;
        model.hovered.value = typeof index === "number" ? { side, index } : null;
      }),
  });
}
