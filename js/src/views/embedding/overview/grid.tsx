/** All heads as small plots, layers downwards and heads to the right, with how far to trust each. */

// biome-ignore-all lint/a11y/useSemanticElements: a table cannot leave out what is not in sight.
// biome-ignore-all lint/a11y/noAriaHiddenOnFocusable: a canvas takes no focus.
// biome-ignore-all lint/a11y/useFocusableInteractive: the grid has the focus, and names its cell.

import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { ViewContext } from "../../../ui/define-view";
import { Choice } from "../../../ui/frame/frame";
import { bringIntoSight, cellId, cellOf, stepOf } from "../../../ui/head-grid/keys";
import { type Hint, HintBox } from "../../../ui/plot";
import { same } from "../../../ui/state";
import { findCell, type Grid, type ScoredCell } from "../../model/state";
import { formatCorrelation, TRUST_HELP } from "../phrases";
import { type EmbeddingState, type HeadPlace, headKey } from "../state";
import type { EmbeddingModel } from "../store";
import { type Beyond, beyondOf, MoreTiles } from "./edges";
import { Painter } from "./painter";
import type { OverviewTiles } from "./store";
import {
  figuresInShort,
  figuresOf,
  figuresSpoken,
  keyInWords,
  problemInShort,
  sameHead,
  type TileLayout,
  type TileOrder,
  usedColumns,
} from "./tiles";

export interface OverviewProps {
  context: ViewContext<EmbeddingState>;
  model: EmbeddingModel;
  tiles: OverviewTiles;
}

type Inner = OverviewProps & { box: RefObject<HTMLDivElement | null> };

/** Pinching or turning the wheel with Ctrl adds up to this before a head is gone into. */
const ENTER = 60;

const ORDERS: readonly (readonly [TileOrder, string])[] = [
  ["number", "number"],
  ["correlation", "correlation, best first"],
  ["recall", "recall, best first"],
];

let instances = 0;

export function EmbeddingOverview(props: OverviewProps) {
  const { model, tiles } = props;
  const box = useRef<HTMLDivElement>(null);
  const progress = model.overviewProgress.value;
  return (
    <div class="av-embedding-overview">
      <div class="av-row av-embedding-order">
        <Choice
          label="Heads by"
          value={tiles.order.value}
          options={ORDERS}
          onChange={(order) => {
            tiles.order.value = order;
          }}
        />
        <span class="av-muted av-embedding-key" title={TRUST_HELP}>
          {keyInWords(model.trust.value, tiles.layout.value?.figures)}
        </span>
      </div>
      {progress && (
        <p class="av-muted" role="status">
          {progress[0]} of {progress[1]} heads …
        </p>
      )}
      <Tiles {...props} box={box} />
    </div>
  );
}

function Tiles(props: Inner) {
  const { model, tiles, box } = props;
  const hint = useSignal<Hint | null>(null);
  const beyond = useSignal<Beyond>({ right: false, below: false });
  const place = useRef<HTMLDivElement>(null);
  const wheel = useRef<{ by: number; at: string }>({ by: 0, at: "" });
  // Names in the page must not meet those of another view.
  const prefix = useMemo(() => `av-embedding-${instances++}`, []);
  const grid = tiles.grid.value;
  const layout = tiles.layout.value;
  useKeptInSight(props);
  const look = (): void => {
    const now = beyondOf(box.current);
    if (!same(now, beyond.peek())) beyond.value = now;
  };
  useEffect(look, [layout]);

  const cellAt = (event: Event): HeadPlace | null => cellOf(event, prefix);

  // Not passive: a pinch would otherwise zoom the whole page. A plain wheel scrolls.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      const cell = cellAt(event);
      const at = cell ? headKey(cell) : "";
      const by = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      wheel.current = { at, by: at === wheel.current.at ? wheel.current.by + by : by };
      if (cell && wheel.current.by < -ENTER) {
        wheel.current = { by: 0, at: "" };
        tiles.open(cell);
      }
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [grid === null]);

  if (!grid || !layout) return null;
  const onPointerMove = (event: PointerEvent): void => {
    const cell = cellAt(event);
    const bounds = place.current?.getBoundingClientRect();
    hint.value =
      cell && bounds
        ? {
            ...hintOf(props, cell),
            x: event.clientX - bounds.left,
            y: event.clientY - bounds.top,
          }
        : null;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey || event.altKey || !pressed(event.key, tiles)) return;
    hint.value = null;
    event.preventDefault();
    event.stopPropagation();
  };
  const [first, last] = tiles.sight.value;
  const cursor = tiles.cursor.value;
  const active = cursor ?? model.head.value;
  const activeAt = findCell(grid, active);
  const inSight = activeAt && activeAt.row >= first && activeAt.row < last;
  const rows = Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
  return (
    <div class="av-embedding-place" ref={place} style={{ width: `${layout.boxWidth}px` }}>
      <div
        class="av-embedding-box"
        ref={box}
        role="grid"
        tabIndex={0}
        aria-label={
          grid.columns
            ? "Layers and their heads"
            : `Heads of all layers by ${grid.score}, best first`
        }
        aria-rowcount={grid.rows.length + (grid.columns ? 1 : 0)}
        aria-colcount={layout.columns + (grid.columns ? 1 : 0)}
        aria-activedescendant={inSight && active ? cellId(prefix, active) : undefined}
        style={`width:${layout.boxWidth}px;height:${layout.boxHeight}px`}
        onScroll={(event) => {
          tiles.scrollTop.value = event.currentTarget.scrollTop;
          hint.value = null;
          look();
        }}
        onPointerMove={onPointerMove}
        onPointerLeave={() => {
          hint.value = null;
        }}
        onClick={(event) => {
          const cell = cellAt(event);
          if (cell) tiles.open(cell);
        }}
        onKeyDown={onKeyDown}
        onBlur={() => {
          tiles.cursor.value = null;
        }}
      >
        <div
          class="av-embedding-whole"
          role="presentation"
          style={{ width: `${layout.width}px`, height: `${layout.height}px` }}
        >
          {grid.columns && <ColumnLabels columns={grid.columns} layout={layout} />}
          {rows.map((row) => (
            <Row key={row} row={row} prefix={prefix} {...props} grid={grid} layout={layout} />
          ))}
        </div>
      </div>
      <MoreTiles box={box} beyond={beyond.value} />
      {hint.value && <HintBox hint={hint.value} width={layout.boxWidth} />}
      <Painter {...props} />
    </div>
  );
}

/** Does what a key asks for; false where it asks for nothing here. */
function pressed(key: string, tiles: OverviewTiles): boolean {
  const step = stepOf(key, tiles.layout.peek());
  if (step) {
    tiles.step(...step);
    return true;
  }
  const at = tiles.at();
  const cell = at && tiles.grid.peek()?.rows[at.row]?.[at.column];
  if ((key === "Enter" || key === " " || key === "+") && cell) {
    tiles.open(cell);
    return true;
  }
  return false;
}

/** What is told of the head under the pointer. */
export function hintOf({ model, tiles }: OverviewProps, cell: HeadPlace): Omit<Hint, "x" | "y"> {
  const title = `layer ${cell.layer}, head ${cell.head}`;
  const problem = tiles.heads.peek().get(headKey(cell))?.problem;
  if (problem) return { title, rows: [{ color: "", text: problem, meant: true }] };
  const trust = model.trust.peek().get(headKey(cell));
  if (!trust) {
    const text = trust === null ? "no trust figure" : "not measured yet";
    return { title, rows: [{ color: "", text, meant: false }] };
  }
  const { correlation, recall, ofAll } = figuresOf(trust);
  const over = (all: boolean): string => (all ? " over all pairs" : "");
  const rows: Hint["rows"] = [];
  const { allowed, all_pairs } = trust.plot;
  if (correlation !== null) {
    const both = allowed !== null && all_pairs !== null;
    const all = both ? ` (all pairs ${formatCorrelation(all_pairs)})` : "";
    const text = `distance with q·k: r ${formatCorrelation(correlation)}${over(ofAll.correlation)}${all}`;
    rows.push({ color: "", text, meant: false });
  }
  if (recall !== null) {
    const chance = trust.recall_allowed === null ? trust.chance_all : trust.chance_allowed;
    const by = chance === null ? "" : ` (chance ${Math.round(100 * chance)}%)`;
    const text = `recall at 10: ${Math.round(100 * recall)}%${over(ofAll.recall)}${by}`;
    rows.push({ color: "", text, meant: false });
  }
  return { title, rows };
}

/** Scrolls to the head that the keyboard or another view comes to. */
function useKeptInSight({ model, tiles, box }: Inner): void {
  const grid = tiles.grid.value;
  const layout = tiles.layout.value;
  const cursor = tiles.cursor.value;
  const head = model.head.value;
  const show = (cell: HeadPlace | null): void => {
    const at = grid && findCell(grid, cell);
    if (at && layout && box.current) bringIntoSight(box.current, layout, at);
  };
  useEffect(() => {
    if (cursor) show(cursor);
  }, [cursor]);
  useEffect(() => show(head), [head?.layer, head?.head, grid?.stack, grid?.score]);
}

function ColumnLabels({ columns, layout }: { columns: number[]; layout: TileLayout }) {
  const words = layout.across >= 50 && layout.left > 40;
  return (
    <div
      class="av-embedding-columns"
      role="row"
      aria-rowindex={1}
      style={{ width: `${layout.width}px`, height: `${layout.top}px` }}
    >
      <div
        class="av-embedding-corner"
        role="columnheader"
        aria-colindex={1}
        style={{ width: `${layout.left}px` }}
      >
        <span class="av-unseen">Layer</span>
      </div>
      {columns.map((head, at) => (
        <div
          key={head}
          role="columnheader"
          aria-colindex={at + 2}
          aria-label={`head ${head}`}
          style={{ left: `${layout.left + at * layout.across}px`, width: `${layout.cell}px` }}
        >
          {words ? `head ${head}` : head}
        </div>
      ))}
    </div>
  );
}

type RowProps = Inner & { row: number; prefix: string; grid: Grid; layout: TileLayout };

function Row(props: RowProps) {
  const { grid, layout, row } = props;
  const cells = grid.rows[row] ?? [];
  const layer = cells.find((cell) => cell !== null)?.layer;
  const count = usedColumns(cells);
  return (
    <div
      class="av-embedding-row"
      role="row"
      aria-rowindex={row + (grid.columns ? 2 : 1)}
      style={{
        top: `${layout.top + row * layout.down}px`,
        width: `${layout.width}px`,
        height: `${layout.down}px`,
      }}
    >
      {grid.columns && (
        <div
          class="av-embedding-layer"
          role="rowheader"
          aria-colindex={1}
          aria-label={`layer ${layer}`}
          style={{ width: `${layout.left}px`, height: `${layout.cell}px` }}
        >
          {layout.left > 40 ? `layer ${layer}` : layer}
        </div>
      )}
      <canvas
        aria-hidden="true"
        data-row={row}
        style={{
          left: `${layout.left}px`,
          width: `${(count - 1) * layout.across + layout.cell}px`,
          height: `${layout.cell}px`,
        }}
      />
      {cells.map(
        (cell, column) => cell && <Tile key={headKey(cell)} {...props} {...{ cell, column }} />,
      )}
    </div>
  );
}

function Tile(props: RowProps & { cell: ScoredCell; column: number }) {
  const { context, model, tiles, grid, layout, prefix, cell, column } = props;
  const trust = model.trust.value.get(headKey(cell));
  const problem = tiles.heads.value.get(headKey(cell))?.problem ?? null;
  const at = sameHead(tiles.cursor.value, cell);
  const chosen = context.state.heads.value.length > 0 && sameHead(model.head.value, cell);
  const name = `layer ${cell.layer}, head ${cell.head}`;
  return (
    <>
      <div
        id={cellId(prefix, cell)}
        role="gridcell"
        class={`av-embedding-tile${at ? " av-embedding-cursor" : ""}`}
        aria-colindex={column + (grid.columns ? 2 : 1)}
        aria-label={`${name}, ${problem ?? figuresSpoken(trust)}`}
        aria-selected={chosen || undefined}
        style={{
          left: `${layout.left + column * layout.across}px`,
          width: `${layout.cell}px`,
          height: `${layout.cell}px`,
        }}
      >
        {problem && <span aria-hidden="true">{problemInShort(problem, layout.cell)}</span>}
      </div>
      <div
        class={`av-embedding-figures av-embedding-${layout.figures}`}
        aria-hidden="true"
        style={{
          left: `${layout.left + column * layout.across}px`,
          top: `${layout.cell + 2}px`,
          width: `${layout.cell}px`,
        }}
      >
        {layout.named && <b>{name.replace("layer ", "L").replace(", head ", " H")}</b>}
        {problem ? "" : figuresInShort(trust, layout.figures)}
      </div>
    </>
  );
}
