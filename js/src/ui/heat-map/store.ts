/** State of a heat map as signals: from the traits to the scene that is drawn. */

import { computed, signal } from "@preact/signals";
import type { Range, TileRequest } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import type { Source } from "../../client/source";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { type Mark, sceneOf } from "../../draw/marks";
import { aspectRatios } from "../../draw/patches";
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
  loadTiles,
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

/**
 * Pixel ratio for figures of fixed width. Cells end at multiples of 1 / 16 pixel, because a figure
 * is not limited to whole pixels.
 */
const PRINT_RATIO = 16;
/** Maximum height of the heat map, in pixels. */
const MAX_HEIGHT = 640;
const MAX_HEIGHT_EMBEDDED = 520;
/**
 * Maximum number of weights that are requested for the bars of a pinned token. If there are at most
 * `WHOLE_LINE_VALUES`, the weights for hidden tokens are requested, too.
 */
const MAX_LINE_VALUES = 1_000_000;
const WHOLE_LINE_VALUES = 50_000;

/** Return the mean of the matrices of several heads. */
function meanOf(matrices: readonly Float32Array[]): Float32Array {
  // Sum in float64 as the kernel does, so both results are equal.
  const sums = new Float64Array(matrices[0]?.length ?? 0);
  for (const matrix of matrices) {
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] as number) + (matrix[i] as number);
  }
  return Float32Array.from(sums, (sum) => sum / matrices.length);
}

/**
 * Share of the non-zero cells whose values are at most the end of the scale, for means and for
 * signed numbers.
 */
const COVERED_SHARE = 0.995;

/** Return the absolute value at the quantile `COVERED_SHARE` of the non-zero cells. */
function quantile(values: Float32Array): number {
  const sorted = values
    .map(Math.abs)
    .filter((value) => value > 0)
    .sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * COVERED_SHARE))] ?? 0;
}

/**
 * Request for the weights of a pinned query on a window of keys, or of a window of queries on a
 * pinned key.
 */
interface LineQuestion {
  stack: string;
  layer: number;
  heads: number[];
  token: number;
  side: "query" | "key";
  window: Range;
}

async function loadLine(source: Source, question: LineQuestion, ended: AbortSignal): Promise<Line> {
  const { stack, layer, heads, token, window } = question;
  const one: Range = [token, token + 1];
  const [rows, columns] = question.side === "query" ? [one, window] : [window, one];
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
  // Count of tile arrivals. Signals that read it are computed again when tiles arrive.
  const arrivals = signal(0);

  const printed = isPrinted(context.figure);
  const layout = computed<Layout | null>(() => {
    const selection = record.selection.value;
    if (!selection) return null;
    const description = record.description.value;
    return layOut({
      selection,
      shapes: {
        query: aspectRatios(selection.queries, description),
        key: aspectRatios(selection.keys, description),
      },
      state: {
        query_window: state.query_window.value,
        key_window: state.key_window.value,
        pair: state.pair.value,
        pooled: state.pooled.value,
      },
      width: context.width.value,
      mostHeight: context.embedded ? MAX_HEIGHT_EMBEDDED : MAX_HEIGHT,
      // In a figure, cells need not end at whole pixels.
      ratio: printed ? PRINT_RATIO : globalThis.devicePixelRatio || 1,
      printed,
      below: selection.token !== null,
      beside: selection.key !== null,
      effects: record.tokenEffects.value !== null,
      measure: measureText,
    });
  });
  const viewport = computed(() => layout.value?.viewport ?? null);

  // Requests to a kernel are ordered, because other requests wait for the same kernel. A page
  // requests only the visible tiles.
  const tilesIn = (now: Viewport): TileRequest[] =>
    source.transport.live ? wantedTiles(now) : tilesOf(now);
  const tileRequests = computed(() => viewport.value && tilesIn(viewport.value));
  record.answer(tileRequests, (requests, ended) =>
    loadTiles(source, requests, ended, () => {
      arrivals.value++;
    }),
  );

  // Picture that is shown until the first tiles of a new picture arrive.
  let last: { layout: Layout; grid: Grid } | null = null;
  const shown = computed(() => {
    arrivals.value;
    const next = layout.value;
    if (!next) return null;
    const grid = composeGrid(next.viewport, source);
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
      // The weights on a pinned key need the softmax normalizers of all visible queries. For a
      // large matrix, wait until the finest tiles have arrived, because the kernel then has these
      // normalizers.
      if (!lineable(now, side)) return null;
      const axis = side === "query" ? now.columns : now.rows;
      const valuesOf = ([start, stop]: Range): number => (stop - start) * now.heads.length;
      // If a pinned token has few weights, request all of them, so panning needs no request.
      const whole = valuesOf(axis.extent) <= WHOLE_LINE_VALUES && !(side === "key" && isLarge(now));
      const window = whole ? axis.extent : axis.window;
      if (valuesOf(window) > MAX_LINE_VALUES) return null;
      const { stack, layer, heads } = now;
      return { stack: stack.name, layer, heads, token, side, window };
    });
    const answered = record.answer(question, (lineQuestion, ended) =>
      loadLine(source, lineQuestion, ended),
    );
    return computed(() => {
      const lastAnswer = answered.value;
      return lastAnswer && same(lastAnswer.question, question.value) ? lastAnswer.answer : null;
    });
  };
  const row = lineOf("query");
  const column = lineOf("key");

  const largest = computed(() => {
    const values = shown.value?.grid.values ?? [];
    return Math.abs(largestOf(values));
  });

  /** Return whether the plot shows signed numbers on a scale that no other plot shares. */
  const ownScale = ({ stack }: Viewport): boolean => stack.signed === true && !context.scale;

  // A few large values are typical of pooled means and of signed numbers. A scale up to the largest
  // value would make all others pale, so ignore the largest ones.
  const ownLargest = computed(() => {
    const now = shown.value;
    const viewport = now?.layout.viewport;
    const averaged =
      viewport && (ownScale(viewport) || (isPooled(viewport) && viewport.pooled === "mean"));
    return now && averaged && scaling.value === "auto" ? quantile(now.grid.values) : largest.value;
  });

  const scaleMaximum = context.scale?.largest(ownLargest) ?? ownLargest;

  const base = computed<HeatMap | null>(() => {
    const now = shown.value;
    if (!now) return null;
    const signed = ownScale(now.layout.viewport);
    const end = scaleEnd(scaleMaximum.value, now.grid.maximum, scaling.value, signed) || 1;
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

  // Until a new stack is drawn, its pins do not fit the drawn stack and are omitted.
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

  // The cells do not depend on the pointer. This signal colours them only when they change.
  const back = computed<Mark[]>(() => (base.value ? backMarks(base.value) : []));

  const scene = computed(() => {
    const now = heatMap.value;
    return now && sceneOf(now.layout, back.value, frontMarks(now));
  });

  const captionInput = computed<CaptionInput | null>(() => {
    const now = shown.value;
    const requested = viewport.value;
    if (!now || !requested) return null;
    const { token, key } = requested;
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
    const requested = viewport.value;
    const whole = imagesDrawn(context);
    if (!now || !requested || !now.grid.fine || !whole) return false;
    const drawn = now.layout.viewport;
    const resolutionOf = (plan: Viewport): unknown => [
      tileSetOf(plan),
      tileLevel(plan),
      plan.rows.window,
      plan.columns.window,
    ];
    if (!same(resolutionOf(drawn), resolutionOf(requested))) return false;
    // A heat map with bars is complete only after their weights are loaded.
    return (
      (now.layout.barsBelow === 0 || row.value !== null) &&
      (now.layout.barsBeside === 0 || column.value !== null || !lineable(requested, "key"))
    );
  });

  const middle = (window: readonly [number, number]): number => (window[0] + window[1]) / 2;
  /** Return the changes of the windows that make a token visible, or {} if the token is visible. */
  const windowsAt = (side: "query" | "key", token: number): Partial<HeatMapState> => {
    const now = viewport.peek();
    if (!now || isWhole(now)) return {};
    const around = (axis: Viewport["rows"]): Range | null => {
      const { window } = axis;
      if (token >= window[0] && token < window[1]) return null;
      return movedBy(axis, window, token - Math.floor(middle(window)));
    };
    // If queries and keys are the same tokens, move both windows, so the row and the column of the
    // token are visible.
    const both = now.stack.key_tokens === null;
    const query_window = side === "query" || both ? around(now.rows) : null;
    const key_window = side === "key" || both ? around(now.columns) : null;
    return { ...(query_window && { query_window }), ...(key_window && { key_window }) };
  };

  return {
    /** Viewport of the current state, which may not be drawn yet. */
    viewport,
    /** Drawn heat map without pins and pointer. It stays until tiles of `viewport` arrive. */
    base,
    /** Drawn heat map with pins, pointer and keyboard cursor. */
    heatMap,
    scene,
    captionInput,
    /** Summary for screen readers, which does not depend on the pointer. */
    summary: computed(() => (captionInput.value ? summary(captionInput.value) : "")),
    /** Whether the drawn heat map shows the current state at full resolution. */
    current,
    hovered,
    cursor,
    search,
    scaling,
    /** Zoom by one step. The point `around` (default: the centre) stays in place. */
    zoom: (nearer: boolean, around?: Point) => {
      const now = layout.peek();
      if (!now) return;
      const point = around ?? { right: now.cellsWidth / 2, down: now.cellsHeight / 2 };
      const windows = zoomed(now.viewport, now.room, nearer, point);
      if (windows) assign(state, windows);
    },
    /** Whether the heat map is at the largest zoom. */
    nearest: computed(() => {
      const now = layout.value;
      return !now || zoomed(now.viewport, now.room, true, { right: 0, down: 0 }) === null;
    }),
    /** Show all tokens. */
    fit: () => assign(state, { query_window: null, key_window: null }),
    /**
     * Move the windows by a number of queries and a number of keys. A window stops at the ends of
     * the text.
     */
    pan: (queries: number, keys: number) => {
      const now = viewport.peek();
      if (!now) return;
      assign(state, {
        query_window: movedBy(now.rows, now.rows.window, queries),
        key_window: movedBy(now.columns, now.columns.window, keys),
      });
    },
    windowsAt,
    /** Make a token visible, and move the keyboard cursor to the token. */
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
    /** Return the heat map for an export, without pointer and keyboard cursor. */
    forExport: () => pinned.peek(),
  };
}

export type HeatMapStore = ReturnType<typeof createHeatMapStore>;

/** Return the token of a cell, or null if the cell has several tokens. */
function onlyToken(axis: Axis, cell: number | null): number | null {
  if (cell === null) return null;
  const [start, stop] = tokensOf(axis, cell);
  return stop - start === 1 ? start : null;
}

/**
 * Create the image panel of a heat map. The panel shows one map, of the chosen head or of the mean
 * of the chosen heads.
 */
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
