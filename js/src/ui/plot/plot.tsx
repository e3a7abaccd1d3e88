/**
 * Plot of a scene, with a tooltip. A scene is a list of marks in two layers: `back`, and `front`,
 * which is drawn over it. Each layer has its own canvas. The plot reports when both are drawn.
 */

import { effect, type ReadonlySignal } from "@preact/signals";
import type { ComponentChildren, HTMLAttributes, Ref } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { paintMarks, prepareCanvas } from "../../draw/canvas";
import type { Mark, Scene } from "../../draw/marks";

/** Tooltip. `x` and `y` are the position of the pointer in the plot, in pixels. */
export interface Hint {
  x: number;
  y: number;
  title: string;
  /**
   * Lines of text. `color` is the colour of a dot before the line, for example that of a head. If
   * `meant`, the line is emphasized.
   */
  rows: { text: string; color?: string; meant?: boolean }[];
}

export interface ScenePlotProps {
  scene: ReadonlySignal<Scene | null>;
  /**
   * Identifier of what the scene shows, such as "matrix:self:3" for layer 3 of the self-attention.
   * null while the data of a newer picture are loading.
   */
  drawnId: ReadonlySignal<string | null>;
  /** Called with `drawnId` after the scene is drawn, and with null when `drawnId` becomes null. */
  onDrawn: (drawnId: string | null) => void;
  /** Kind of the plot in words. Screen readers read it before `label`. */
  kind: string;
  label: string;
  plot: Ref<HTMLDivElement>;
  hint: Hint | null;
  width: number;
  events: HTMLAttributes<HTMLDivElement>;
  children?: ComponentChildren;
}

/**
 * Return the position of the pointer in a plot, in pixels from the upper left corner of its
 * content. If the plot is scrolled sideways, the corner is outside the visible part.
 */
export function pointIn(
  plot: HTMLElement | null,
  event: Pick<MouseEvent, "clientX" | "clientY">,
): { x: number; y: number } {
  const box = plot?.getBoundingClientRect();
  const x = event.clientX - (box?.left ?? 0) + (plot?.scrollLeft ?? 0);
  return { x, y: event.clientY - (box?.top ?? 0) };
}

export function ScenePlot(props: ScenePlotProps) {
  const backCanvas = useRef<HTMLCanvasElement>(null);
  const frontCanvas = useRef<HTMLCanvasElement>(null);

  // A layout effect runs before the browser paints the new controls. Therefore, plot and controls
  // change in the same frame if the data are already loaded.
  useLayoutEffect(() => {
    const [back, front] = [backCanvas.current, frontCanvas.current];
    if (!back || !front) return undefined;
    let painted: Mark[] | null = null;
    let shown: Scene | null = null;
    let size = "";
    // One effect draws the scene and then calls `onDrawn`, so that `onDrawn` never reports a scene
    // that is only partly drawn.
    return effect(() => {
      const scene = props.scene.value;
      const drawnId = props.drawnId.value;
      if (drawnId === null) props.onDrawn(null);
      if (!scene) return;
      // This scene is already drawn. Only `drawnId` has changed.
      if (scene === shown) {
        props.onDrawn(drawnId);
        return;
      }
      shown = scene;
      // When the pointer moves, only the front marks change. Draw the back canvas again only if the
      // back marks or the size change.
      const newSize = `${scene.width} ${scene.height}`;
      if (painted !== scene.back || size !== newSize) {
        const context = prepareCanvas(back, scene.width, scene.height);
        if (context) paintMarks(context, scene.back);
        painted = scene.back;
        size = newSize;
        // If the scene is wider than the plot on the screen, let the browser scroll it when one
        // finger moves. Otherwise, the style sheet decides.
        const container = back.parentElement as HTMLElement;
        container.style.touchAction = scene.width > container.clientWidth ? "pan-x pan-y" : "";
      }
      back.style.opacity = String(scene.backOpacity);
      const context = prepareCanvas(front, scene.width, scene.height);
      if (context) paintMarks(context, scene.front);
      props.onDrawn(drawnId);
    });
  }, []);

  return (
    <div class="av-plot-place">
      <div
        class="av-plot"
        ref={props.plot}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrows move over what the picture shows.
        tabIndex={0}
        role="application"
        aria-roledescription={props.kind}
        aria-label={props.label}
        {...props.events}
      >
        <canvas class="av-back" ref={backCanvas} />
        <canvas class="av-front" ref={frontCanvas} />
        {props.children}
      </div>
      {props.hint && <HintBox hint={props.hint} width={props.width} />}
    </div>
  );
}

/** Render a tooltip beside the pointer. */
export function HintBox({ hint, width }: { hint: Hint; width: number }) {
  // Place the tooltip on the side of the pointer that has more room.
  const right = hint.x > width / 2;
  const across = right
    ? { right: `${Math.max(0, width - hint.x + 14)}px` }
    : { left: `${hint.x + 14}px` };
  return (
    <div class="av-hint" style={{ ...across, top: `${hint.y + 14}px` }}>
      <div>{hint.title}</div>
      {hint.rows.map((row) => (
        <div key={row.text} class={`av-hint-row${row.meant ? " av-meant" : ""}`}>
          {row.color && <span class="av-dot" style={{ background: row.color }} />}
          {row.text}
        </div>
      ))}
    </div>
  );
}
