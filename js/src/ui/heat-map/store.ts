/** The live state of a heat map, as signals: from its traits to what is drawn. */

import { computed, signal } from "@preact/signals";
import type { Range, TileRequest } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import type { Source } from "../../client/source";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { type Mark, sceneOf } from "../../draw/marks";
import { shapesOf } from "../../draw/patches";
import { type Scaling, scaleEnd } from "../colors/color-scales";
import type { Focus } from "../image/state";
import { createImagePanel, type ImagePanel, imagesDrawn } from "../image/store";
import { tokenMatcher } from "../text/token-search";
import type { ViewContext } from "../view/define-view";
import { assign, same } from "../view/state";
import { type CaptionInput, summary, whatInWords } from "./captions";
import { type Layout, layOut } from "./layout";
import {
  backMarks,
  type CellAt,
  frontMarks,
  type HeatMap,
  type Line,
  type TokensAt,
} from "./marks";
import type { HeatMapState } from "./state";
import {
  composeGrid,
  type Grid,
  isLarge,
  Tiles,
  tileLevel,
  tileSetOf,
  tilesOf,
  wantedTiles,
} from "./tiles";
import {
  type Axis,
  cellOf,
  isPooled,
  isWhole,
  movedBy,
  type Point,
  tokensOf,
  type Viewport,
  zoomed,
} from "./viewport";

/** Steps of a pixel that cells end at in a figure of a stated width. */
const PRINT_RATIO = 16;
/** The heat map is no higher than this. */
const MOST_HEIGHT = 640;
const MOST_HEIGHT_EMBEDDED = 520;
/** Below and beside the cells bars may need weights of so many keys and heads, and not of more. */
const MOST_LINE_VALUES = 1_000_000;
const WHOLE_LINE_VALUES = 50_000;

/** The mean over heads of a piece. */
function meanOf(matrices: readonly Float32Array[]): Float32Array {
  // As the kernel does, so that it is the same number.
  const sums = new Float64Array(matrices[0]?.length ?? 0);
  for (const matrix of matrices) {
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] as number) + (matrix[i] as number);
  }
  return Float32Array.from(sums, (sum) => sum / matrices.length);
}

/** The share of the cells with weight that a scale of means reaches. */
const REACHED = 0.995;

/** The weight that so many of the cells with weight do not exceed. */
function quantile(values: Float32Array): number {
  const sorted = values
    .map(Math.abs)
    .filter((value) => value > 0)
    .sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * REACHED))] ?? 0;
}

/** What a pinned token's line is asked for. */
interface LineQuestion {
  stack: string;
  layer: number;
  heads: number[];
  token: number;
  side: "query" | "key";
  window: Range;
}

async function loadLine(source: Source, asked: LineQuestion, ended: AbortSignal): Promise<Line> {
  const { stack, layer, heads, token, window } = asked;
  const one: Range = [token, token + 1];
  const [rows, columns] = asked.side === "query" ? [one, window] : [window, one];
  const request = { stack, layer, heads, rows, columns };
  const piece = await source.block(request, ended);
  return { token, window, values: meanOf(piece.matrices), error: piece.error };
}

export function createHeatMapStore(context: ViewContext<HeatMapState>) {
  const { source, state, record } = context;
  const hovered = signal<CellAt | null>(null);
  const cursor = signal<TokensAt | null>(null);
  const search = signal("");
  const scaling = context.scale?.scaling ?? signal<Scaling>("auto");
  const tiles = new Tiles(source);
  // Counts tiles that have come, so that what is drawn of them follows.
  const arrivals = signal(0);

  const printed = isPrinted(context.figure);
  const layout = computed<Layout | null>(() => {
    const selection = record.selection.value;
    if (!selection) return null;
    const description = record.description.value;
    return layOut({
      selection,
      shapes: {
        query: shapesOf(selection.queries, description),
        key: shapesOf(selection.keys, description),
      },
      state: {
        query_window: state.query_window.value,
        key_window: state.key_window.value,
        pair: state.pair.value,
        pooled: state.pooled.value,
      },
      width: context.width.value,
      mostHeight: context.embedded ? MOST_HEIGHT_EMBEDDED : MOST_HEIGHT,
      // In print cells need not end at whole pixels.
      ratio: printed ? PRINT_RATIO : globalThis.devicePixelRatio || 1,
      printed,
      below: selection.token !== null,
      beside: selection.key !== null,
      effects: record.tokenEffects.value !== null,
      measure: measureText,
    });
  });
  const viewport = computed(() => layout.value?.viewport ?? null);

  // A page has no kernel that could be kept waiting: it is asked for what is in sight alone.
  const tilesIn = (now: Viewport): TileRequest[] =>
    source.transport.live ? wantedTiles(now) : tilesOf(now);
  const wanted = computed(() => viewport.value && tilesIn(viewport.value));
  record.answer(wanted, (requests, ended) =>
    tiles.load(requests, ended, () => {
      arrivals.value++;
    }),
  );

  // Until something of what is asked for has come, what was drawn stays.
  let last: { layout: Layout; grid: Grid } | null = null;
  const shown = computed(() => {
    arrivals.value;
    const next = layout.value;
    if (!next) return null;
    const grid = composeGrid(next.viewport, tiles);
    const cells = grid.rows * grid.columns;
    if (grid.missing === cells) return last;
    last = { layout: next, grid };
    return last;
  });

  const lineable = (now: Viewport, side: "query" | "key"): boolean => {
    const grid = shown.value?.grid;
    return side === "query" || !isLarge(now) || (grid?.fine === true && grid.every === undefined);
  };
  const lineOf = (side: "query" | "key") => {
    const question = computed<LineQuestion | null>(() => {
      const now = viewport.value;
      const token = side === "query" ? now?.token : now?.key;
      if (!now || token === null || token === undefined) return null;
      // A key's weights take all that its queries' rows sum up to, which is known in the end.
      if (!lineable(now, side)) return null;
      const axis = side === "query" ? now.columns : now.rows;
      const valuesOf = ([start, stop]: Range): number => (stop - start) * now.heads.length;
      // Whole where that is little, so that panning asks for nothing.
      const whole = valuesOf(axis.extent) <= WHOLE_LINE_VALUES && !(side === "key" && isLarge(now));
      const window = whole ? axis.extent : axis.window;
      if (valuesOf(window) > MOST_LINE_VALUES) return null;
      const { stack, layer, heads } = now;
      return { stack: stack.name, layer, heads, token, side, window };
    });
    const answered = record.answer(question, (asked, ended) => loadLine(source, asked, ended));
    return computed(() => {
      const had = answered.value;
      return had && same(had.question, question.value) ? had.answer : null;
    });
  };
  const row = lineOf("query");
  const column = lineOf("key");

  const largest = computed(() => {
    const values = shown.value?.grid.values ?? [];
    return Math.abs(largestOf(values));
  });

  /** Of signed numbers, unless it is that of pictures beside each other. */
  const ownScale = ({ stack }: Viewport): boolean => stack.signed === true && !context.scale;

  // Means of many weights, and signed numbers, are small but for a few, which would leave all others
  // pale.
  const own = computed(() => {
    const now = shown.value;
    const viewport = now?.layout.viewport;
    const averaged =
      viewport && (ownScale(viewport) || (isPooled(viewport) && viewport.pooled === "mean"));
    return now && averaged && scaling.value === "auto" ? quantile(now.grid.values) : largest.value;
  });

  const most = context.scale?.largest(own) ?? own;

  const base = computed<HeatMap | null>(() => {
    const now = shown.value;
    if (!now) return null;
    const signed = ownScale(now.layout.viewport);
    const end = scaleEnd(most.value, now.grid.maximum, scaling.value, signed) || 1;
    return {
      ...now,
      palette: context.palette.value,
      theme: context.theme.value,
      scale: state.color_scale.value,
      end,
      beyond: largest.value > end * 1.0001,
      queries: now.layout.viewport.queries,
      keys: now.layout.viewport.keys,
      images: context.image?.images.value ?? [],
      effects: record.tokenEffects.value,
      token: null,
      key: null,
      row: null,
      column: null,
      hovered: null,
      cursor: null,
      isFound: null,
    };
  });

  // Of another stack the pins say nothing here.
  const pinned = computed<HeatMap | null>(() => {
    const now = base.value;
    if (!now) return null;
    const same = viewport.value?.stack.name === now.layout.viewport.stack.name;
    return {
      ...now,
      token: same ? (viewport.value?.token ?? null) : null,
      key: same ? (viewport.value?.key ?? null) : null,
      row: now.layout.barsBelow > 0 ? row.value : null,
      column: now.layout.barsBeside > 0 ? column.value : null,
      isFound: tokenMatcher(search.value),
    };
  });

  const heatMap = computed<HeatMap | null>(
    () => pinned.value && { ...pinned.value, hovered: hovered.value, cursor: cursor.value },
  );

  // Does not follow the pointer: the cells are coloured anew only when they change.
  const back = computed<Mark[]>(() => (base.value ? backMarks(base.value) : []));

  const scene = computed(() => {
    const now = heatMap.value;
    return now && sceneOf(now.layout, back.value, frontMarks(now));
  });

  const captionInput = computed<CaptionInput | null>(() => {
    const now = shown.value;
    const asked = viewport.value;
    if (!now || !asked) return null;
    const { token, key } = asked;
    return {
      viewport: now.layout.viewport,
      grid: now.grid,
      token,
      key,
      row: row.value,
      column: column.value,
      effects: record.tokenEffects.value,
    };
  });

  const current = computed(() => {
    const now = shown.value;
    const asked = viewport.value;
    const whole = imagesDrawn(context);
    if (!now || !asked || !now.grid.fine || !whole) return false;
    const drawn = now.layout.viewport;
    const what = (each: Viewport): unknown => [
      tileSetOf(each),
      tileLevel(each),
      each.rows.window,
      each.columns.window,
    ];
    if (!same(what(drawn), what(asked))) return false;
    // Bars are part of the heat map.
    return (
      (now.layout.barsBelow === 0 || row.value !== null) &&
      (now.layout.barsBeside === 0 || column.value !== null || !lineable(asked, "key"))
    );
  });

  const middle = (window: readonly [number, number]): number => (window[0] + window[1]) / 2;
  /** Windows that have a token of a side in sight; none where it is. */
  const windowsAt = (side: "query" | "key", token: number): Partial<HeatMapState> => {
    const now = viewport.peek();
    if (!now || isWhole(now)) return {};
    const around = (axis: Viewport["rows"]): Range | null => {
      const { window } = axis;
      if (token >= window[0] && token < window[1]) return null;
      return movedBy(axis, window, token - Math.floor(middle(window)));
    };
    // Of the same tokens both sides are moved to it, so that its own row and column are seen.
    const both = now.stack.key_tokens === null;
    const query_window = side === "query" || both ? around(now.rows) : null;
    const key_window = side === "key" || both ? around(now.columns) : null;
    return { ...(query_window && { query_window }), ...(key_window && { key_window }) };
  };

  return {
    /** The plan that the state asks for. */
    viewport,
    /** The picture without pins and pointer; the previous one until tiles of the next have come. */
    base,
    /** The same with pins and pointer. */
    heatMap,
    scene,
    captionInput,
    /** The text for a screen reader; the pointer does not change it. */
    summary: computed(() => (captionInput.value ? summary(captionInput.value) : "")),
    /** Whether what is drawn is what the state asks for, as fine as it should be. */
    current,
    hovered,
    cursor,
    search,
    scaling,
    /** A step nearer or farther; around a point, which stays where it is, or else the middle. */
    zoom: (nearer: boolean, around?: Point) => {
      const now = layout.peek();
      if (!now) return;
      const point = around ?? { right: now.cellsWidth / 2, down: now.cellsHeight / 2 };
      const windows = zoomed(now.viewport, now.room, nearer, point);
      if (windows) assign(state, windows);
    },
    /** Whether nothing is to be seen from nearer. */
    nearest: computed(() => {
      const now = layout.value;
      return !now || zoomed(now.viewport, now.room, true, { right: 0, down: 0 }) === null;
    }),
    /** Everything in sight. */
    fit: () => assign(state, { query_window: null, key_window: null }),
    /** Moves what is in sight by whole tokens. */
    pan: (queries: number, keys: number) => {
      const now = viewport.peek();
      if (!now) return;
      assign(state, {
        query_window: movedBy(now.rows, now.rows.window, queries),
        key_window: movedBy(now.columns, now.columns.window, keys),
      });
    },
    windowsAt,
    /** Moves a token into sight, and the keyboard to it. */
    show: (side: "query" | "key", token: number) => {
      const now = viewport.peek();
      if (!now) return;
      assign(state, windowsAt(side, token));
      const both = now.stack.key_tokens === null;
      cursor.value = {
        query: side === "query" || both ? token : null,
        key: side === "key" || both ? token : null,
      };
    },
    /** The picture of an export, without the pointer. */
    forExport: () => pinned.peek(),
  };
}

export type HeatMapStore = ReturnType<typeof createHeatMapStore>;

/** The one token that a cell stands for; null where it stands for several. */
function onlyToken(axis: Axis, cell: number | null): number | null {
  if (cell === null) return null;
  const [start, stop] = tokensOf(axis, cell);
  return stop - start === 1 ? start : null;
}

/** One heat-map: of the head, or of the mean of several, as the matrix is. */
export function createHeatMapImage(
  context: ViewContext<HeatMapState>,
  store: HeatMapStore,
): ImagePanel {
  const { record, palette } = context;
  return createImagePanel(context, {
    series: computed(() => {
      const selection = record.selection.value;
      const { positive: color, ink: textColor } = palette.value;
      if (!selection) return [];
      return [
        { name: whatInWords(selection), color, textColor, heads: selection.heads, how: "mean" },
      ];
    }),
    focus: computed<Focus>(() => {
      const viewport = store.base.value?.layout.viewport;
      const [cell, cursor] = [store.hovered.value, store.cursor.value];
      if (viewport && cell) {
        const query = onlyToken(viewport.rows, cell.row);
        const key = onlyToken(viewport.columns, cell.column);
        if (query !== null || key !== null) return { query, key };
      }
      const { token = null, key = null } = record.selection.value ?? {};
      return cursor ?? { query: token, key };
    }),
    reveal: (side, token) => assign(context.state, store.windowsAt(side, token)),
    point: (to) => {
      const viewport = store.viewport.peek();
      const row = viewport && to ? cellOf(viewport.rows, to.query) : null;
      const column = viewport && to ? cellOf(viewport.columns, to.key) : null;
      store.hovered.value = row === null && column === null ? null : { row, column };
    },
  });
}
