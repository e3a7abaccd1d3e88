/**
 * Grid of all heads, coloured by distance, with a description of the chosen head beside it. Members
 * are the compared records. The distance of a head says how much its weights differ from those of
 * the same head in the first member.
 */

import { ColorLegend } from "../../ui/colors/legend";
import { pinColor } from "../../ui/colors/palette";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { capital, headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { distanceLines, numSame, sentenceOf } from "./captions";
import { distanceScale, headMarks } from "./marks";
import type { CompareState } from "./state";
import type { CompareStore } from "./store";

interface GridProps {
  context: ViewContext<CompareState>;
  store: CompareStore;
}

export function CompareGrid({ context, store }: GridProps) {
  const selection = store.selection.value;
  const grid = store.grid.value;
  const layout = store.layout.value;
  if (!selection || !grid || !layout) return null;
  const palette = context.palette.value;
  const style = { theme: context.theme.value, palette, end: store.end.value };
  return (
    <VirtualHeadGrid
      store={store.heads}
      label={
        grid.columns
          ? "Distances of all layers and their heads"
          : "Heads of all layers, the largest distance first"
      }
      corner="head"
      look={(cell) => {
        const selected = cell.layer === selection.layer && cell.head === selection.head;
        return {
          label: `${capital(headName(cell))}, ${distanceLines(selection, cell).join("; ")}`,
          selected,
          style: selected ? `;--av-chosen:${pinColor(palette)}` : "",
        };
      }}
      hint={(cell) => ({
        title: capital(headName(cell)),
        rows: distanceLines(selection, cell).map((text) => ({ color: "", text, meant: false })),
      })}
      painting={{
        sources: () => [selection.compared, selection.member, grid, palette, style.end],
        marks: (cell, square) => headMarks(selection, !grid.columns, style, cell, square),
        onPainted: (complete) => {
          store.gridDrawn.value = complete ? `${selection.stack.name}:${selection.layer}` : null;
        },
      }}
      open={store.choose}
      onMove={store.choose}
      layer={selection.layer}
      scrollAgain={JSON.stringify(layout)}
    />
  );
}

/** Description of the chosen head and legend of the grid. */
export function ChosenHead({ context, store }: GridProps) {
  const [selection, grid] = [store.selection.value, store.grid.value];
  if (!selection) return null;
  const { layer, head } = selection;
  return (
    <div class="av-compare-side">
      <p class="av-compare-head">{capital(headName({ layer, head }))}</p>
      <p class="av-sentence">{sentenceOf(selection, store.moved.value)}</p>
      {distanceLines(selection, { layer, head }).map((text) => (
        <p class="av-muted" key={text}>
          {text}
        </p>
      ))}
      <div class="av-vertical av-compare-legends">
        <ColorLegend scale={distanceScale(context.theme.value, store.end.value)} />
        {grid && numSame(selection, grid) > 0 && (
          <p class="av-muted av-compare-key">
            <span class="av-compare-hatch" aria-hidden="true" />
            no more than rounding alone may cause
          </p>
        )}
      </div>
    </div>
  );
}
