/** Panes: views that share a frame. Each view has its own root element, width and exports. */

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { pictureWidth } from "../../draw/figure";
import type { FigureRequest } from "../../draw/figure-request";
import { type Scene, translate } from "../../draw/marks";
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
      const inner = entries[0]?.contentRect.width ?? 0;
      const now = Math.floor(inner);
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
  const front: Scene["front"] = [];
  for (const column of columns) {
    let top = 0;
    for (const scene of column) {
      // In the combined figure, `backOpacity` would affect all figures. Apply it to the marks
      // instead.
      const back = scene.back.map((mark) => dimmed(mark, scene.backOpacity));
      front.push(...translate([...back, ...scene.front], left, top));
      top += scene.height + PANE_GAP;
    }
    left += Math.max(...column.map((scene) => scene.width)) + PANE_GAP;
    height = Math.max(height, top - PANE_GAP);
  }
  const background = columns[0]?.[0]?.background ?? null;
  const description = columns
    .flat()
    .map((scene) => scene.description ?? "")
    .join(" ")
    .trim();
  return {
    width: left - PANE_GAP,
    height,
    background,
    back: [],
    backOpacity: 1,
    front,
    ...(description && { description }),
  };
}

function dimmed(mark: Scene["back"][number], opacity: number): Scene["back"][number] {
  if (opacity === 1 || mark.kind === "image") return mark;
  if (mark.kind === "curves") {
    return { ...mark, opacity: mark.opacity.map((value) => value * opacity) };
  }
  return { ...mark, opacity: (mark.opacity ?? 1) * opacity };
}
