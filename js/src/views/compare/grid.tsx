/**
 * Grid of all heads, coloured by distance, with a description of the chosen head beside it. Members
 * are the compared records. The distance of a head says how much its weights differ from those of
 * the same head in the first member.
 */

import { ColorLegend } from "../../ui/colors/legend";
import { pinColor } from "../../ui/colors/palette";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { MarkCanvas } from "../../ui/plot/mark-canvas";
import { capital, formatSmall, headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { distanceLines, numSame, sentenceOf } from "./captions";
import { distanceScale, headMarks, memberAt, TREND, trendMarks } from "./marks";
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

/**
 * Description of the chosen head and legend of the grid. If there are more than two members, also a
 * chart of the head's distances.
 */
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
      {selection.compared.members.length > 2 && <Trend context={context} store={store} />}
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

/**
 * Chart of the distance of the chosen head for each member. A click chooses the compared member.
 */
function Trend({ context, store }: GridProps) {
  const selection = store.selection.value;
  const trend = store.trend.value;
  const end = store.end.value;
  if (!selection) return null;
  const { names } = selection;
  const words = trend.map(
    (distance, at) => `${names[at]} ${distance === null ? "unknown" : formatSmall(distance)}`,
  );
  return (
    <figure class="av-compare-trend">
      <p class="av-muted">
        distance from {names[0]}, 0 to {formatSmall(end)}
      </p>
      <MarkCanvas
        marks={trendMarks(trend, selection.member, end, context.palette.value)}
        width={TREND.width}
        height={TREND.height}
        role="img"
        aria-label={`Distance from ${names[0]} by member: ${words.join(", ")}`}
        onClick={(event) => {
          const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
          context.state.member.value = memberAt(x, trend.length);
        }}
      />
      <figcaption class="av-muted">
        <span>{names[0]}</span>
        <span>{names.at(-1)}</span>
      </figcaption>
    </figure>
  );
}
