/**
 * Panes: views that share a frame. Each pane has its own root element, width and exports.
 */

import { computed, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Figure, pictureWidth } from "../../draw/figure";
import { FigureError, type FigureRequest } from "../../draw/figure-request";
import { type Mark, type Scene, sceneOf, translate } from "../../draw/marks";
import { drawnYet } from "../exports/exports";
import {
  type AttnvizElement,
  type Exporter,
  markDrawn,
  type ViewContext,
} from "../view/define-view";
import type { RecordState } from "../view/record";

/** Gap in pixels between the panes' figures in a combined figure. */
const PANE_GAP = 20;

export type Panes = ReturnType<typeof usePanes>;

/**
 * Return what a frame and its panes share: the form of the controls, the root elements and export
 * functions of the panes, and which panes are drawn.
 */
export function usePanes<S extends RecordState>({ common, controls }: ViewContext<S>) {
  return useMemo(() => {
    const roots = new Map<string, AttnvizElement>();
    const drawnIds = signal<ReadonlyMap<string, string | null>>(new Map());
    const exporter = (name: string): Exporter => drawnYet(roots.get(name)?.attnviz);
    return {
      /**
       * Form of the controls in the panes. By default it is "compact", so that each pane shows
       * little more than its picture, and the pictures are aligned.
       */
      controls: computed(() => (common.controls.value === "auto" ? "compact" : controls.value)),
      /** Return whether all panes with these names have drawn their pictures. */
      areDrawn: (names: readonly string[]): boolean =>
        names.every((name) => drawnIds.value.get(name)),
      exporter,
      figures: (names: readonly string[]): Promise<Figure[]> =>
        allFigures(names.map(async (name) => exporter(name).figure())),
      setRoot: (name: string, root: AttnvizElement) => void roots.set(name, root),
      setDrawn: (name: string, drawnId: string | null): void => {
        drawnIds.value = new Map(drawnIds.peek()).set(name, drawnId);
      },
    };
  }, []);
}

/**
 * Wait for the figures of all panes.
 *
 * @throws FigureError of the pane that needs the largest width, so that its advice is sufficient.
 */
async function allFigures(figures: readonly Promise<Figure>[]): Promise<Figure[]> {
  const settled = await Promise.allSettled(figures);
  const widthOf = (error: unknown) => (error instanceof FigureError ? error.width : Infinity);
  const errors = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  if (errors.length > 0) throw errors.sort((a, b) => widthOf(b) - widthOf(a))[0];
  return await Promise.all(figures);
}

/**
 * Return the request for the figure of one pane: `request`, which is for the combined figure of all
 * panes, with the width of one of its `columns` columns. If `request` states no width, it is
 * returned unchanged.
 */
export function paneRequest(
  request: FigureRequest | undefined,
  columns: number,
): FigureRequest | undefined {
  if (!request?.width) return request;
  return {
    ...request,
    width: (request.width - (columns - 1) * PANE_GAP) / columns,
    columns: { count: columns, gap: PANE_GAP },
  };
}

/** Render one view inside a shared frame. */
export function Pane<S extends RecordState>(props: {
  panes: Panes;
  context: ViewContext<S>;
  name: string;
  view: ComponentType<{ context: ViewContext<S> }>;
  /** Settings for the figure of this pane, if a script opened the page to export a figure. */
  figure: FigureRequest | undefined;
}) {
  const { panes, context, name, view: View, figure } = props;
  const root = useRef<HTMLDivElement>(null);
  const [pane, setPane] = useState<ViewContext<S> | null>(null);
  useEffect(() => {
    const element = root.current as AttnvizElement | null;
    if (!element) return;
    const stated = pictureWidth(figure);
    const width = signal(stated ?? (element.clientWidth || 600));
    const observer = new ResizeObserver((entries) => {
      const now = Math.floor(entries[0]?.contentRect.width ?? 0);
      if (now <= 0 || stated !== null || now === width.peek()) return;
      // Change the width only in the next animation frame. The change may resize other panes, and a
      // browser reports an error if a ResizeObserver callback resizes elements whose sizes were
      // already reported in this frame.
      requestAnimationFrame(() => {
        width.value = now;
      });
    });
    observer.observe(element);
    panes.setRoot(name, element);
    setPane({
      ...context,
      controls: panes.controls,
      root: element,
      width,
      offered: signal(null),
      figure,
      embedded: true,
      setDrawn: (drawnId) => {
        markDrawn(element, drawnId);
        panes.setDrawn(name, drawnId);
      },
    });
    return () => observer.disconnect();
  }, []);
  return (
    <div class={`av-pane av-pane-${name}`} ref={root}>
      {pane && <View context={pane} />}
    </div>
  );
}

/**
 * Combine the figures of panes to one figure. Each inner array is one column, from top to bottom.
 */
export function inColumns(columns: readonly (readonly Scene[])[]): Scene {
  let left = 0;
  let height = 0;
  const front: Mark[] = [];
  for (const column of columns) {
    let top = 0;
    for (const scene of column) {
      // The combined figure has only one `backOpacity`, but each pane has its own. Therefore, apply
      // it to the marks of this pane.
      const back = scene.back.map((mark) => dimmed(mark, scene.backOpacity));
      front.push(...translate([...back, ...scene.front], left, top));
      top += scene.height + PANE_GAP;
    }
    left += Math.max(...column.map((scene) => scene.width)) + PANE_GAP;
    height = Math.max(height, top - PANE_GAP);
  }
  const scenes = columns.flat();
  const description = scenes.flatMap((scene) => scene.description ?? []).join(" ");
  return {
    ...sceneOf({ width: left - PANE_GAP, height }, [], front),
    background: scenes[0]?.background ?? null,
    ...(description && { description }),
  };
}

function dimmed(mark: Mark, opacity: number): Mark {
  if (opacity === 1 || mark.kind === "image") return mark;
  if (mark.kind === "curves") {
    return { ...mark, opacity: mark.opacity.map((value) => value * opacity) };
  }
  return { ...mark, opacity: (mark.opacity ?? 1) * opacity };
}
