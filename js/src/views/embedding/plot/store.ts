/** Signals of one head's plot: camera, lasso and scene. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { type Scene, sceneOf } from "../../../draw/marks";
import { problemOf } from "../captions";
import { lookOf } from "../colors";
import type { Context } from "../state";
import type { EmbeddingStore } from "../store";
import {
  type Camera,
  createCloud,
  inLasso,
  type Lasso,
  mixedOrder,
  movedBy,
  nearestIndex,
  project,
  type Room,
  turnedBy,
  WHOLE,
  zoomedAt,
} from "./cloud";
import {
  backOpacity,
  cloudMark,
  hoverMarks,
  lassoMarks,
  type Shown,
  type Standing,
  standingMarks,
} from "./marks";

/** Maximum distance in pixels between the pointer and the point that it selects. */
const REACH = 9;

/**
 * Create the signals of one head's plot.
 *
 * @param width width of the picture in pixels.
 */
export function createPlotStore(
  context: Context,
  store: EmbeddingStore,
  width: ReadonlySignal<number>,
) {
  const { palette } = context;
  const camera = signal<Camera>(WHOLE);
  /** Effect of dragging: moving or rotating the plot, or drawing a lasso. */
  const tool = signal<"move" | "lasso">("move");
  const lasso = signal<Lasso>([]);
  const room = computed<Room>(() => ({
    width: width.value,
    height: Math.round(Math.max(320, Math.min(640, width.value * 0.72))),
  }));
  const order = computed(
    () => store.corpus.value && mixedOrder(store.corpus.value.count, store.shown),
  );
  const cloud = computed(() => {
    const [plot, points] = [store.projection.value, order.value];
    if (!plot || !points || plot.problem !== null) return null;
    return createCloud(plot.coordinates, plot.dimensions, points);
  });
  const showAll = (): void => {
    camera.value = WHOLE;
  };
  // Keep the camera while a projection runs and changes the plot. A plot of another request starts
  // with all points visible.
  const subject = computed(() => {
    const plot = store.projection.value;
    return plot && JSON.stringify([plot.request, plot.dimensions]);
  });
  context.record.live(() => {
    if (subject.value !== null) showAll();
    return undefined;
  });

  const look = computed(() => {
    const [points, corpus, colors] = [cloud.value, store.corpus.value, store.colors.value];
    return points && corpus && colors && lookOf(points.points, corpus, colors);
  });
  const shown = computed<Shown | null>(() => {
    const [points, corpus] = [cloud.value, store.corpus.value];
    if (!points || !corpus || !look.value) return null;
    const { zoom } = camera.value;
    const projected = project(points, camera.value, room.value);
    const dots = cloudMark(points, look.value, projected, room.value, zoom);
    return { corpus, cloud: points, dots, zoom, palette: palette.value };
  });
  const standing = computed<Standing>(() => ({
    points: store.standing.value,
    chosen: store.chosen.value,
    lines: store.lines.value,
  }));
  const back = computed(() => (shown.value ? [shown.value.dots] : []));
  const over = computed(() => (shown.value ? standingMarks(shown.value, standing.value) : []));
  const still = computed<Scene | null>(() => {
    // The caption says why a head has no plot.
    if (problemOf(context, store)) return sceneOf(room.value, [], []);
    return shown.value && sceneOf(room.value, back.value, over.value, backOpacity(standing.value));
  });

  return {
    camera,
    tool,
    lasso,
    room,
    cloud,
    scene: computed<Scene | null>(() => {
      const [scene, now] = [still.value, shown.value];
      if (!scene || !now) return scene;
      const pointer = [
        ...hoverMarks(now, store.hovered.value),
        ...lassoMarks(lasso.value, now.palette),
      ];
      return { ...scene, front: [...scene.front, ...pointer] };
    }),
    /**
     * The scene without marks of the pointer. Null if nothing is drawn yet.
     */
    still,
    /** Return the point nearest to a position of the picture, or null if none is within `REACH`. */
    pointAt: (x: number, y: number): number | null => {
      const now = shown.peek();
      const index = now ? nearestIndex(now.dots, x, y, REACH) : -1;
      return now?.cloud.points[index] ?? null;
    },
    /** Return the points in the current lasso. */
    inside: (): number[] => {
      const now = shown.peek();
      return now ? inLasso(now.cloud, now.dots, lasso.peek()) : [];
    },
    /** Show all points. */
    fit: showAll,
    /**
     * Move a two-dimensional plot, or rotate a three-dimensional plot, by (dx, dy) pixels.
     *
     * @param from camera before the movement.
     */
    push: (dx: number, dy: number, from: Camera = camera.peek()): void => {
      const points = cloud.peek();
      if (!points) return;
      camera.value =
        points.dimensions === 3
          ? turnedBy(from, dx, dy)
          : movedBy(from, points, room.peek(), dx, dy);
    },
    /**
     * Zoom by a factor at a position of the picture, or at its centre without `at`.
     */
    zoomBy: (factor: number, at?: { x: number; y: number }): void => {
      const points = cloud.peek();
      if (!points) return;
      const size = room.peek();
      const { x, y } = at ?? { x: size.width / 2, y: size.height / 2 };
      camera.value = zoomedAt(camera.peek(), points, size, x, y, factor);
    },
  };
}

export type PlotStore = ReturnType<typeof createPlotStore>;
