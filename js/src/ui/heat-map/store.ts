/**
 * State of a heat map as signals: from the traits to the scene that is drawn. The viewport is the
 * visible part of the matrix. A tile is a part of the matrix that is loaded with one request. A
 * line holds the weights of a pinned query or key.
 */

import { computed, signal } from "@preact/signals";
import type { Range } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import { figureScale, isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import {
  type BySide,
  bySide,
  type Focus,
  isVisible,
  otherSide,
  pinsOf,
  positionOf,
  SIDES,
  type Side,
  sizeOf,
  tokenIn,
  tokensAt,
  windowAround,
  windowAt,
} from "../axis";
import { scaleEnd } from "../colors/color-scales";
import { effectsOf, widestNumber } from "../effects/effects";
import type { WithImages } from "../image/state";
import { createImagePanel, type ImagePanel } from "../image/store";
import { tokenMatcher } from "../text/token-search";
import type { ViewContext } from "../view/define-view";
import { createQueryNumbers } from "../view/query-numbers";
import { assign, follow } from "../view/state";
import { summary, whatInWords } from "./captions";
import { layOut } from "./layout";
import { backMarks, frontMarks, type HeatMap, type Line } from "./marks";
import type { HeatMapState } from "./state";
import { composeGrid, isLarge, loadTiles, readOf, tilesOf, wantedTiles } from "./tiles";
import { isPooled, isWhole, type Viewport, WHOLE, zoomed } from "./viewport";

/**
 * Device pixels per CSS pixel, assumed for the layout of a printed figure. Small cells are rounded
 * down to whole device pixels. A printed figure needs no whole pixels, so with this ratio its cells
 * are rounded down only to 1/16 CSS pixel.
 */
const PRINT_RATIO = 16;
/** Maximum number of rows and of columns of cells in an exported figure. */
const MAX_FIGURE_CELLS = 4096;
/** Maximum height of all cells together, in pixels: in a view, and in a pane of another view. */
const MAX_HEIGHT = 640;
const MAX_HEIGHT_EMBEDDED = 520;
/**
 * If a pinned token has at most this many weights in all shown heads together, its weights at
 * hidden tokens are requested, too. Panning then needs no request.
 */
const WHOLE_LINE_VALUES = 50_000;

/**
 * Share of the non-zero cells that a colour scale must include, if a few values are
 * typically much larger than the others (see `ownLargest`). Other scales include all cells.
 */
const COVERED_SHARE = 0.995;

/** Return the quantile `COVERED_SHARE` of the absolute values of all cells that are not 0. */
function quantile(values: Float32Array): number {
  const sorted = values
    .map(Math.abs)
    .filter((value) => value > 0)
    .sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * COVERED_SHARE))] ?? 0;
}

export function createHeatMapStore(context: WithImages<ViewContext<HeatMapState>>) {
  const { source, state, record } = context;
  const effects = effectsOf(record).tokens;
  const hovered = signal<Focus | null>(null);
  const cursor = signal<Focus | null>(null);
  const search = signal("");
  // Count of tile arrivals. Signals that read it are computed again when tiles arrive.
  const arrivals = signal(0);

  const printed = isPrinted(context.figure);
  // A figure of a script combines weights only if it has fewer pixels than weights.
  const figurePixels = figureScale(context.figure) * (context.figure?.scale ?? 0);
  const { query_window, key_window, pair, pooled } = state;
  const layout = computed(() => {
    const selection = record.selection.value;
    if (!selection) return null;
    return layOut({
      selection,
      state: follow({ query_window, key_window, pair, pooled }),
      width: context.width.value,
      mostHeight: context.embedded ? MAX_HEIGHT_EMBEDDED : MAX_HEIGHT,
      ratio: printed ? PRINT_RATIO : globalThis.devicePixelRatio || 1,
      minCell: figurePixels
        ? Math.max(1 / figurePixels, context.width.value / MAX_FIGURE_CELLS)
        : 1,
      printed,
      widestEffect: effects.value && widestNumber(effects.value),
      images: record.description.value?.images !== undefined,
    });
  });
  const viewport = computed(() => layout.value?.viewport ?? null);

  // If the matrix is large, a kernel first computes a coarse tile, because exact tiles may take
  // long. An exported page never estimates tiles, so it computes only the visible ones.
  const ordered = source.transport.live ? wantedTiles : tilesOf;
  const tileRequests = computed(() => {
    const now = viewport.value;
    return now && ordered(now).map((tile) => readOf(now, tile));
  });
  record.answer(tileRequests, (requests, ended) =>
    loadTiles(source, requests, ended, () => {
      arrivals.value++;
    }),
  );

  // Last picture with loaded cells. It is shown until the first tiles of a new picture arrive.
  let last: Pick<HeatMap, "layout" | "grid"> | null = null;
  const shown = computed(() => {
    arrivals.value;
    const next = layout.value;
    if (!next) return null;
    const grid = composeGrid(next.viewport, source);
    if (grid.missing < grid.rows * grid.columns) last = { layout: next, grid };
    return last;
  });

  // The weights on a pinned key need the softmax normalizers of all visible queries. For a large
  // matrix, wait until the finest tiles have arrived, because the kernel then has these normalizers.
  const lineable = (now: Viewport, side: Side): boolean => {
    const grid = shown.value?.grid;
    return (
      side === "query" ||
      !isLarge(now) ||
      (grid?.fine === true && grid.samplingInterval === undefined)
    );
  };
  const lineOf = (side: Side) => {
    const question = computed(() => {
      const now = viewport.value;
      const token = now && pinsOf(now)[side];
      if (!now || token === null || !lineable(now, side)) return null;
      const axis = now.axes[otherSide(side)];
      const numValues = sizeOf(axis.extent) * now.heads.length;
      // For a pinned key of a large matrix, request only the visible queries, because the kernel
      // may not have the softmax normalizers of hidden queries.
      const whole = numValues <= WHOLE_LINE_VALUES && !(side === "key" && isLarge(now));
      const window = whole ? axis.extent : axis.window;
      const { stack, layer, heads } = now;
      const one: Range = [token, token + 1];
      const [rows, columns] = side === "query" ? [one, window] : [window, one];
      return { stack: stack.name, layer, heads, rows, columns, combine: "mean" as const };
    });
    const { current } = record.answer(question, async (asked, ended): Promise<Line> => {
      const { matrices, error } = await source.block(asked, ended);
      const [[token], window] =
        side === "query" ? [asked.rows, asked.columns] : [asked.columns, asked.rows];
      return { token, window, values: matrices[0] as Float32Array, error };
    });
    return current;
  };
  const lines = bySide(lineOf);
  const queryNumbers = createQueryNumbers(context);

  const largest = computed(() => Math.abs(largestOf(shown.value?.grid.values ?? [])));
  const isSigned = ({ stack }: Viewport): boolean => stack.signed === true;
  // Among means of several weights, and among signed numbers, a few values are typically much
  // larger than the others. A scale up to these values would make all others pale, so ignore them.
  const ownLargest = computed(() => {
    const now = shown.value;
    const drawn = now?.layout.viewport;
    const averaged = drawn && (isSigned(drawn) || (isPooled(drawn) && drawn.pooled === "mean"));
    return now && averaged ? quantile(now.grid.values) : largest.value;
  });
  const scaleLargest = context.scale?.largest(ownLargest) ?? ownLargest;
  const ownMaximum = computed(() => shown.value?.grid.maximum ?? 0);
  const scaleMaximum = context.scale?.maximum(ownMaximum) ?? ownMaximum;

  const base = computed<HeatMap | null>(() => {
    const now = shown.value;
    if (!now) return null;
    const signed = isSigned(now.layout.viewport);
    const end = scaleEnd(scaleLargest.value, scaleMaximum.value, signed) || 1;
    return {
      ...now,
      palette: context.palette.value,
      theme: context.theme.value,
      scale: state.color_scale.value,
      end,
      beyond: largest.value > end * 1.0001,
      images: context.image?.images.value ?? [],
      effects: effects.value,
      pins: { query: null, key: null },
      lines: { query: null, key: null },
      isFound: null,
      queryNumbers: "",
    };
  });

  const pinned = computed<HeatMap | null>(() => {
    const [now, requested] = [base.value, viewport.value];
    if (!now || !requested) return null;
    // Until a new stack is drawn, its pins do not fit the drawn stack and are omitted.
    const fits = requested.stack.name === now.layout.viewport.stack.name;
    if (!fits) return now;
    return {
      ...now,
      pins: pinsOf(requested),
      lines: bySide((side) => lines[side].value),
      isFound: tokenMatcher(search.value),
      queryNumbers: queryNumbers.value ?? "",
    };
  });

  // Separate signal for the coloured cells, because their colours would otherwise be computed again
  // whenever the pointer moves.
  const back = computed(() => (base.value ? backMarks(base.value) : []));

  const current = computed(() => {
    const [now, requested] = [shown.value, viewport.value];
    const hasImages = context.image?.complete.value ?? true;
    if (!now?.grid.fine || !requested || !hasImages) return false;
    if (now.layout.viewport !== requested) return false;
    // A heat map with bars of pinned tokens is complete only after the weights of these tokens are
    // loaded.
    const isLoaded = (side: Side): boolean =>
      now.layout.bars[side] === 0 || lines[side].value !== null || !lineable(requested, side);
    return isLoaded("query") && isLoaded("key") && queryNumbers.value !== null;
  });

  /**
   * Return the new values of the traits `query_window` and `key_window` that make a token visible,
   * or {} if the token is visible.
   */
  const windowsAt = (side: Side, token: number): Partial<HeatMapState> => {
    const now = viewport.peek();
    if (!now || isWhole(now)) return {};
    const changes: Partial<HeatMapState> = {};
    for (const moved of sidesOf(now, side)) {
      const axis = now.axes[moved];
      if (!isVisible(axis, token))
        changes[`${moved}_window`] = windowAround(token, sizeOf(axis.window), axis.extent);
    }
    return changes;
  };

  return {
    /** Viewport of the current state, which may not be drawn yet. */
    viewport,
    /**
     * Drawn heat map without pins and pointer. An earlier heat map stays until tiles of `viewport`
     * arrive.
     */
    base,
    /** Drawn heat map with pins, and without pointer and keyboard cursor. */
    pinned,
    scene: computed(() => {
      const now = pinned.value;
      if (!now) return null;
      const front = frontMarks(now, hovered.value, cursor.value);
      return sceneOf(now.layout, back.value, front);
    }),
    /** Summary for screen readers, which does not depend on the pointer. */
    summary: computed(() => (pinned.value ? summary(pinned.value) : "")),
    /** Whether the drawn heat map shows the current state at full resolution. */
    current,
    hovered,
    cursor,
    search,
    /**
     * Zoom by one step. The query and the key at the point `around` stay in place. The point is in
     * pixels from the upper left corner of the cells. By default, it is their centre.
     */
    zoom: (nearer: boolean, around?: BySide<number>) => {
      const now = layout.peek();
      if (!now) return;
      const point = around ?? { query: now.cellsHeight / 2, key: now.cellsWidth / 2 };
      const windows = zoomed(now.viewport, now.room, nearer, point);
      if (windows) assign(state, windows);
    },
    /** Whether the heat map is at the largest zoom. */
    nearest: computed(() => {
      const now = layout.value;
      return !now || zoomed(now.viewport, now.room, true, { query: 0, key: 0 }) === null;
    }),
    /** Show all tokens. */
    fit: () => assign(state, WHOLE),
    /**
     * Move the windows by a number of queries and a number of keys, within the extents of the axes.
     * `from` are the windows before the move (default: the current ones).
     */
    pan: (by: BySide<number>, from?: BySide<Range>) => {
      const axes = viewport.peek()?.axes;
      if (!axes) return;
      const moved = bySide((side) => {
        const window = from?.[side] ?? axes[side].window;
        return windowAt(tokenIn(window, by[side]), sizeOf(window), axes[side].extent);
      });
      assign(state, { query_window: moved.query, key_window: moved.key });
    },
    windowsAt,
    /** Make a token visible, and move the keyboard cursor to the token. */
    show: (side: Side, token: number) => {
      const now = viewport.peek();
      if (!now) return;
      assign(state, windowsAt(side, token));
      const shownSides = sidesOf(now, side);
      cursor.value = bySide((candidate) => (shownSides.includes(candidate) ? token : null));
    },
    /**
     * Pin a query, a key or both. If their cells are already pinned, remove these pins instead. A
     * side for which `tokens` has null does not change.
     */
    pin: (tokens: Focus) => {
      const now = viewport.peek();
      if (!now) return;
      const isPinned = SIDES.every((side) => {
        const [token, pin] = [tokens[side], state[PIN[side]].peek()];
        const axis = now.axes[side];
        return (
          token === null || (pin !== null && positionOf(axis, token) === positionOf(axis, pin))
        );
      });
      const { query, key } = tokens;
      assign(state, {
        ...(query !== null && { token: isPinned ? null : query }),
        ...(key !== null && { key: isPinned ? null : key }),
      });
    },
  };
}

/** Names of the traits that have the pinned query and the pinned key. */
const PIN = { query: "token", key: "key" } as const;

/**
 * Return the sides on which the tokens of `side` occur: both if queries and keys are the same
 * tokens, otherwise only `side`. A token is made visible on all of these sides.
 */
function sidesOf({ stack }: Viewport, side: Side): readonly Side[] {
  return stack.key_tokens === null ? SIDES : [side];
}

export type HeatMapStore = ReturnType<typeof createHeatMapStore>;

/**
 * Create the panel that draws weights over an image of the record: those of the shown head, or the
 * means over all shown heads.
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
      const { heads } = selection;
      return [{ name: whatInWords(selection), color, textColor, heads, how: "mean" }];
    }),
    focus: computed(() => {
      const axes = store.base.value?.layout.viewport.axes;
      // The panel shows the weights of one token, so ignore rows and columns that cover several
      // tokens.
      const hovered = bySide((side) => {
        const cell = store.hovered.value?.[side] ?? null;
        const tokens = axes && cell !== null ? tokensAt(axes[side], cell) : null;
        return tokens && sizeOf(tokens) === 1 ? tokenIn(tokens, 0) : null;
      });
      if (hovered.query !== null || hovered.key !== null) return hovered;
      const { token = null, key = null } = record.selection.value ?? {};
      return store.cursor.value ?? { query: token, key };
    }),
    axes: computed(() => store.viewport.value?.axes ?? null),
    reveal: (side, token) => assign(context.state, store.windowsAt(side, token)),
    point: (to) => {
      const axes = store.viewport.peek()?.axes;
      const at = axes && to ? bySide((side) => positionOf(axes[side], to[side])) : null;
      store.hovered.value = at?.query === null && at.key === null ? null : at;
    },
  });
}
