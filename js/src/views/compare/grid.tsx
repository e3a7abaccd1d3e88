/**
 * Grid of all heads, coloured by distance, with a description of the chosen head beside it. Members
 * are the compared records. The distance of a head is measured from the same head of the first
 * member.
 */

import { type Signal, useComputed } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { paintMarks, prepareCanvas } from "../../draw/canvas";
import { ColorLegend } from "../../ui/colors/legend";
import { pinColor } from "../../ui/colors/palette";
import type { ScoredHead } from "../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { capital, formatSmall, headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { distanceInWords, orderInWords, sentenceOf } from "./captions";
import { cellMarks, distanceScale, TREND, trendMarks, trendX } from "./marks";
import { type CompareState, distanceOf } from "./state";
import type { CompareStore } from "./store";

interface GridProps {
  context: ViewContext<CompareState>;
  store: CompareStore;
  /** Identifier of the drawn content. It is null until all visible cells are painted. */
  drawn: Signal<string | null>;
  box: RefObject<HTMLDivElement | null>;
}

export function CompareGrid({ context, store, drawn, box }: GridProps) {
  const selection = store.selection.value;
  const grid = store.grid.value;
  const layout = store.layout.value;
  if (!selection || !grid || !layout) return null;
  const palette = context.palette.value;
  const style = { theme: context.theme.value, palette, end: store.end.value };
  const nameOf = (cell: ScoredHead): string =>
    `Layer ${cell.layer}, head ${cell.head}, ${distanceInWords(selection, cell)}`;
  return (
    <VirtualHeadGrid
      store={store.heads}
      box={box}
      label={orderInWords(grid)}
      corner="head"
      look={(cell) => {
        const selected = cell.layer === selection.layer && cell.head === selection.head;
        return {
          label: nameOf(cell),
          selected,
          style: selected ? `;--av-chosen:${pinColor(palette)}` : "",
        };
      }}
      {...(grid.columns
        ? {}
        : {
            below: (cell: ScoredHead, x: number) => (
              <div
                class="av-compare-caption"
                aria-hidden="true"
                style={`left:${x + layout.cell / 2}px;top:${layout.cell + 3}px`}
              >
                {cell.layer}.{cell.head}
              </div>
            ),
          })}
      hint={(cell) => ({
        title: `Layer ${cell.layer}, head ${cell.head}`,
        rows: distanceInWords(selection, cell)
          .split("; ")
          .map((text) => ({ color: "", text, meant: false })),
      })}
      painting={{
        follows: [store.selection, store.end, context.palette],
        sources: (cells) => [
          ...cells.flatMap((cell) => {
            const at = cell && distanceOf(selection, cell.layer, cell.head);
            return at ? [at.distance, at.rounding] : [null];
          }),
          palette,
          style.end,
        ],
        paint: (canvas, cells) => {
          cells.forEach((cell, at) => {
            if (!cell) return;
            const headDistance = distanceOf(selection, cell.layer, cell.head);
            paintMarks(canvas, cellMarks(headDistance, at * layout.across, 0, layout.cell, style));
          });
        },
        onPainted: (complete) => {
          drawn.value = complete ? `${selection.stack.name}:${selection.layer}` : null;
        },
      }}
      open={store.choose}
      onMove={store.choose}
      layer={selection.layer}
      scrollAgain={JSON.stringify(layout)}
    />
  );
}

/** Description of the chosen head, chart of its distances, and legend of the grid. */
export function ChosenHead({ context, store }: Pick<GridProps, "context" | "store">) {
  const selection = store.selection.value;
  if (!selection) return null;
  const { layer, head } = selection;
  return (
    <div class="av-compare-side">
      <p class="av-compare-head">{capital(headName({ layer, head }))}</p>
      <p class="av-sentence">{sentenceOf(selection, store.moved.value)}</p>
      {distanceInWords(selection, { layer, head })
        .split("; ")
        .map((text) => (
          <p class="av-muted" key={text}>
            {text}
          </p>
        ))}
      {selection.compared.members.length > 2 && <Trend context={context} store={store} />}
      <div class="av-compare-legends">
        <ColorLegend scale={distanceScale(context.theme.value, store.end.value)} />
        <p class="av-muted av-compare-key">
          <span class="av-compare-hatch" aria-hidden="true" />
          no more than rounding alone may cause
        </p>
      </div>
    </div>
  );
}

/** Chart of the distance of the chosen head for each member. */
function Trend({ context, store }: Pick<GridProps, "context" | "store">) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const selection = store.selection.value;
  const trend = store.trend.value;
  const palette = context.palette.value;
  const end = store.end.value;
  useEffect(() => {
    const now = store.selection.peek();
    const drawing = canvas.current && prepareCanvas(canvas.current, TREND.width, TREND.height);
    if (drawing && now) paintMarks(drawing, trendMarks(trend, now.member, end, palette));
  }, [trend, selection?.member, end, palette]);
  const words = useComputed(() => {
    const names = store.selection.value?.names ?? [];
    return store.trend.value
      .map(
        (distance, at) => `${names[at]} ${distance === null ? "unknown" : formatSmall(distance)}`,
      )
      .join(", ");
  });
  if (!selection) return null;
  return (
    <figure class="av-compare-trend">
      <p class="av-muted">
        distance from {selection.names[0]}, 0 to {formatSmall(end)}
      </p>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Distance from ${selection.names[0]} by member: ${words.value}`}
        style={{ width: `${TREND.width}px`, height: `${TREND.height}px` }}
        onClick={(event) => {
          const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
          const count = trend.length;
          const near = trend
            .map((_, at) => Math.abs(trendX(at, count) - x))
            .reduce((best, away, at, all) => (away < (all[best] as number) ? at : best), 0);
          context.state.member.value = Math.max(1, near);
        }}
      />
      <figcaption class="av-muted">
        <span>{selection.names[0]}</span>
        <span>{selection.names.at(-1)}</span>
      </figcaption>
    </figure>
  );
}
