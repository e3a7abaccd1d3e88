/** What keys do in one head's plot. */

import type { ViewContext } from "../../../ui/define-view";
import { assign } from "../../../ui/state";
import type { EmbeddingState } from "../state";
import type { EmbeddingModel } from "../store";
import { movedBy, turned, zoomedAt } from "./scatter";
import type { PlotModel } from "./store";

export interface PlotRoom {
  context: ViewContext<EmbeddingState>;
  model: EmbeddingModel;
  plot: PlotModel;
}

/** A step of the keyboard's, in pixels. */
const STEP = 40;
/** A step nearer. */
const NEARER = 1.5;
/** Farther away than this means to see all heads. */
export const LEAVE_AT = 0.62;

/** Goes back to all heads. */
export function leave({ context }: Pick<PlotRoom, "context">): void {
  assign(context.state, { enlarged: false });
}

/** Nearer or farther, at a place of the picture or in its middle; far enough away leads to all heads. */
export function zoomBy(room: PlotRoom, factor: number, at?: { x: number; y: number }): void {
  const { plot } = room;
  const cloud = plot.cloud.peek();
  if (!cloud) return;
  const { width, height } = plot.room.peek();
  const { x, y } = at ?? { x: width / 2, y: height / 2 };
  const next = zoomedAt(plot.camera.peek(), cloud, plot.room.peek(), x, y, factor);
  if (next.zoom < LEAVE_AT) leave(room);
  else plot.camera.value = next;
}

/** Moves the picture, or turns it where it has three dimensions. */
function push({ plot }: PlotRoom, dx: number, dy: number): void {
  const cloud = plot.cloud.peek();
  if (!cloud) return;
  const camera = plot.camera.peek();
  plot.camera.value =
    cloud.dimensions === 3
      ? { ...camera, turn: turned(camera.turn, dx, dy) }
      : movedBy(camera, cloud, plot.room.peek(), -dx, -dy);
}

/** The chosen point's neighbour in its text, or its other side; the first press chooses one. */
function walk({ model, plot }: PlotRoom, by: number, otherSide: boolean): void {
  const corpus = model.corpus.peek();
  if (!corpus) return;
  const chosen = model.chosen.peek();
  if (chosen === null) {
    const { width, height } = plot.room.peek();
    const middle = plot.pointAt(width / 2, height / 2);
    const first = middle ?? plot.cloud.peek()?.points.reduce((a, b) => Math.min(a, b));
    if (first !== undefined) model.choose(first);
    return;
  }
  const kind = corpus.kindOf(chosen);
  const text = corpus.textOf(chosen);
  if (otherSide) {
    const other = kind === "query" ? "key" : "query";
    const point = corpus.pointOf(other, text, corpus.positionOf(chosen));
    if (point >= 0 && model.shown(point)) model.choose(point);
    return;
  }
  const [start, stop] = corpus.pointsOf(kind, text);
  model.choose(Math.max(start, Math.min(stop - 1, chosen + by)));
}

/** One step back: the lasso, the chosen point, the search's place in the picture, then all heads. */
function stepBack(room: PlotRoom): void {
  const { context, model, plot } = room;
  if (plot.lasso.peek()) plot.lasso.value = null;
  else if (context.state.selected.peek().length > 0) assign(context.state, { selected: [] });
  else if (model.chosen.peek() !== null) model.choose(null);
  else leave(room);
}

/** Does what a key asks for; false where it asks for nothing here. */
export function pressed(room: PlotRoom, key: string, shift: boolean): boolean {
  const { context, model, plot } = room;
  const actions: Record<string, () => void> = {
    ArrowLeft: () => (shift ? push(room, -STEP, 0) : walk(room, -1, false)),
    ArrowRight: () => (shift ? push(room, STEP, 0) : walk(room, 1, false)),
    ArrowUp: () => (shift ? push(room, 0, -STEP) : walk(room, 0, true)),
    ArrowDown: () => (shift ? push(room, 0, STEP) : walk(room, 0, true)),
    "+": () => zoomBy(room, NEARER),
    "=": () => zoomBy(room, NEARER),
    "-": () => zoomBy(room, 1 / NEARER),
    _: () => zoomBy(room, 1 / NEARER),
    Home: plot.fit,
    "[": () => model.neighbour(-1, 0),
    PageUp: () => model.neighbour(-1, 0),
    "]": () => model.neighbour(1, 0),
    PageDown: () => model.neighbour(1, 0),
    ",": () => model.neighbour(0, -1),
    ".": () => model.neighbour(0, 1),
    l: () => {
      plot.tool.value = plot.tool.peek() === "lasso" ? "move" : "lasso";
    },
    o: () => leave(room),
    f: () => context.root.querySelector<HTMLInputElement>(".av-find input")?.focus(),
    Escape: () => stepBack(room),
  };
  const action = actions[key];
  action?.();
  return action !== undefined;
}
