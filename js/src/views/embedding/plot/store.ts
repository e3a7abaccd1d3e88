/** Signals of one head's plot: camera, lasso and scene. */

import { computed, effect, type ReadonlySignal, signal } from "@preact/signals";
import type { Scene } from "../../../draw/marks";
import type { ViewContext } from "../../../ui/view/define-view";
import { standingOut } from "../overview/store";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";
import {
  type Camera,
  type Cloud,
  createCloud,
  type HitGrid,
  hitGrid,
  inLasso,
  type Lasso,
  mixedOrder,
  nearestIndex,
  project,
  type Room,
  wholeCamera,
} from "./cloud";
import {
  axesMarks,
  backOpacity,
  cloudMark,
  hoverMarks,
  lassoMarks,
  lookOf,
  type Shown,
  type Standing,
  standingMarks,
} from "./marks";

/** Effect of dragging: moving or rotating the plot, or drawing a lasso. */
export type Tool = "move" | "lasso";

/** Maximum distance in pixels between the pointer and the point that it selects. */
const REACH = 9;

/**
 * Create the signals of one head's plot.
 *
 * @param width width of the picture in pixels.
 */
export function createPlotStore(
  context: ViewContext<EmbeddingState>,
  store: EmbeddingStore,
  width: ReadonlySignal<number>,
) {
  const { palette } = context;
  const camera = signal<Camera>(wholeCamera(2));
  const tool = signal<Tool>("move");
  const lasso = signal<Lasso | null>(null);
  const room = computed<Room>(() => ({
    width: width.value,
    height: Math.round(Math.max(320, Math.min(640, width.value * 0.72))),
  }));
  const order = computed(() => {
    const corpus = store.corpus.value;
    return corpus && mixedOrder(corpus.count, store.shown);
  });
  const cloud = computed<Cloud | null>(() => {
    const [plot, points] = [store.projection.value, order.value];
    if (!plot || !points || plot.problem !== null) return null;
    return createCloud(plot.coordinates, plot.dimensions, points);
  });
  // Keep the camera while a projection runs and changes the plot. A plot of another request starts
  // with all points visible.
  const subject = computed(() => {
    const plot = store.projection.value;
    return plot && JSON.stringify([plot.request, plot.dimensions]);
  });
  const stop = effect(() => {
    if (subject.value === null) return;
    camera.value = wholeCamera(store.projection.peek()?.dimensions ?? 2);
  });
  context.ended.addEventListener("abort", stop);

  const look = computed(() => {
    const [points, corpus] = [cloud.value, store.corpus.value];
    return points && corpus ? lookOf(points, corpus, store.colors.value, palette.value) : null;
  });
  const shown = computed<Shown | null>(() => {
    const [points, corpus, looks] = [cloud.value, store.corpus.value, look.value];
    if (!points || !corpus || !looks) return null;
    const at = camera.value;
    const projected = project(points, at, room.value);
    return {
      corpus,
      cloud: points,
      look: looks,
      projected,
      room: room.value,
      zoom: at.zoom,
      palette: palette.value,
    };
  });
  const points = standingOut(context, store);
  const standing = computed<Standing>(() => ({
    points: points.value,
    chosen: store.chosen.value,
    lines: store.lines.value,
  }));
  const back = computed(() => (shown.value ? [cloudMark(shown.value)] : []));
  const over = computed(() => {
    const now = shown.value;
    if (!now) return [];
    const axes =
      now.cloud.dimensions === 3 ? axesMarks(camera.value.turn, now.room, now.palette) : [];
    return [...axes, ...standingMarks(now, standing.value)];
  });
  const sceneWith = (pointer: boolean): Scene | null => {
    const now = shown.value;
    if (!now) return null;
    const front = pointer
      ? [
          ...over.value,
          ...hoverMarks(now, store.hovered.value),
          ...lassoMarks(lasso.value, now.palette),
        ]
      : over.value;
    const { width: wide, height } = now.room;
    return {
      width: wide,
      height,
      background: null,
      back: back.value,
      backOpacity: backOpacity(standing.value),
      front,
    };
  };
  const scene = computed(() => sceneWith(true));

  let grid: { of: Shown; squares: HitGrid } | null = null;
  /** Return the point nearest to a position of the picture, or null if none is within `REACH`. */
  const pointAt = (x: number, y: number): number | null => {
    const now = shown.peek();
    if (!now) return null;
    // Sort the points only when a point is searched. While the picture is dragged, its points move
    // in every frame, but none is searched.
    if (grid?.of !== now) grid = { of: now, squares: hitGrid(now.projected, now.room) };
    const index = nearestIndex(grid.squares, now.projected, x, y, REACH);
    return index < 0 ? null : (now.cloud.points[index] as number);
  };

  return {
    camera,
    tool,
    lasso,
    room,
    cloud,
    shown,
    scene,
    /** Return the scene without marks of the pointer, or null if nothing is drawn yet. */
    still: () => sceneWith(false),
    pointAt,
    /** Return the points in the current lasso. */
    inside: (): number[] => {
      const [now, drawn] = [shown.peek(), lasso.peek()];
      return now && drawn ? inLasso(now.cloud, now.projected, drawn) : [];
    },
    /** Show all points. */
    fit: () => {
      camera.value = wholeCamera(cloud.peek()?.dimensions ?? 2);
    },
  };
}

export type PlotStore = ReturnType<typeof createPlotStore>;
