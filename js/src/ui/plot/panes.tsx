/** Panes: views that share a frame. Each view has its own root element, width and exports. */

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { pictureWidth } from "../../draw/figure";
import type { FigureRequest } from "../../draw/figure-request";
import { type Mark, type Scene, sceneOf, translate } from "../../draw/marks";
import { type AttnvizElement, markDrawn, type ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";

/** Gap between the figures of panes, in pixels. */
export const PANE_GAP = 20;

export interface PaneProps<S extends RecordState> {
  context: ViewContext<S>;
  name: string;
  view: ComponentType<{ context: ViewContext<S> }>;
  /** Settings of the exported figure. */
  figure: FigureRequest | undefined;
  onDrawn: (name: string, drawnId: string | null) => void;
  onRoot: (name: string, root: AttnvizElement) => void;
}

/** Render one view of a shared frame. */
export function Pane<S extends RecordState>(props: PaneProps<S>) {
  const { context, name, view: View, figure, onDrawn, onRoot } = props;
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
      // Wait for the next animation frame. Drawing may resize other panes, whose resize events the
      // browser has already delivered.
      requestAnimationFrame(() => {
        width.value = now;
      });
    });
    observer.observe(element);
    onRoot(name, element);
    setPane({
      ...context,
      root: element,
      width,
      offered: signal(null),
      figure,
      embedded: true,
      setDrawn: (drawnId) => {
        markDrawn(element, drawnId);
        onDrawn(name, drawnId);
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

/** Arrange figures in columns, as the panes are arranged on the screen. */
export function inColumns(columns: readonly (readonly Scene[])[]): Scene {
  let left = 0;
  let height = 0;
  const front: Mark[] = [];
  for (const column of columns) {
    let top = 0;
    for (const scene of column) {
      // `backOpacity` of the combined figure would affect all figures, so change the marks instead.
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
