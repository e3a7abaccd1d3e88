/**
 * Gestures on a plot: dragging with a mouse or with one finger, clicks, and two fingers that zoom.
 */

import type { RefObject } from "preact";
import { useRef } from "preact/hooks";
import { pointIn } from "./plot";

/** Position in a plot, in pixels (see `pointIn`). */
interface Point {
  x: number;
  y: number;
}

/**
 * Distance, in pixels, that a pressed pointer must move to drag. With a smaller distance, releasing
 * the pointer is a click.
 */
const MIN_DRAG_DISTANCE = 4;

interface Gestures<From> {
  /** Return whether one finger drags. If false, one finger scrolls the page. */
  moves: () => boolean;
  /** Return what a drag from here needs, or null if nothing can be dragged. */
  press: (event: PointerEvent) => From | null;
  /** Called when the pressed pointer moves. `from` also has the point at which it was pressed. */
  drag: (to: Point, from: From & Point) => void;
  /** Called when the pointer moves without a drag, and with null when it leaves or drags. */
  hover: (at: Point | null) => void;
  click: (at: Point) => void;
  /**
   * Called when the distance of two fingers has changed by the factor `pinch` or more, with the
   * change and the point midway between them. By default, every change is reported.
   */
  zoom: (factor: number, around: Point) => void;
  pinch?: number;
}

/**
 * Return listeners for gestures on a plot. They also keep the browser from scrolling or zooming the
 * page while fingers zoom or drag the plot.
 */
export function useGestures<From extends object>(
  plot: RefObject<HTMLElement | null>,
  { moves, press, drag, hover, click, zoom, pinch = 1 }: Gestures<From>,
) {
  const pressed = useRef<(From & Point & { moved: boolean }) | null>(null);
  /** Distance of two fingers at the last zoom, or 0 if fewer touched the plot at the last touch. */
  const apart = useRef(0);

  const onPointerDown = (event: PointerEvent): void => {
    // A second finger ends the drag of the first.
    pressed.current = null;
    if (event.button !== 0) return;
    if (event.pointerType === "touch" && !(event.isPrimary && moves())) return;
    const from = press(event);
    pressed.current = from && { ...from, ...pointIn(plot.current, event), moved: false };
  };
  const onPointerMove = (event: PointerEvent): void => {
    if (apart.current > 0 && event.pointerType === "touch") return;
    if (event.buttons === 0) pressed.current = null;
    const at = pointIn(plot.current, event);
    const from = pressed.current;
    if (from && !from.moved && Math.hypot(at.x - from.x, at.y - from.y) >= MIN_DRAG_DISTANCE) {
      from.moved = true;
      plot.current?.setPointerCapture(event.pointerId);
    }
    hover(from?.moved ? null : at);
    if (from?.moved) drag(at, from);
  };
  const onPointerLeave = (): void => {
    if (!pressed.current?.moved) hover(null);
  };
  const onClick = (event: MouseEvent): void => {
    const moved = pressed.current?.moved ?? false;
    pressed.current = null;
    if (!moved && event.detail <= 1) click(pointIn(plot.current, event));
  };
  const onTouchMove = (event: TouchEvent): void => {
    const [one, other] = event.targetTouches;
    // Once the browser has begun to scroll the page, the event is not cancelable. The plot must
    // then ignore the gesture.
    if (!one || !event.cancelable || !(other || moves())) return;
    event.preventDefault();
    if (!other) return;
    const before = apart.current;
    const now = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    if (before > 0 && now > 0 && Math.max(now / before, before / now) < pinch) return;
    apart.current = now;
    const clientX = (one.clientX + other.clientX) / 2;
    const clientY = (one.clientY + other.clientY) / 2;
    if (before > 0 && now > 0) zoom(now / before, pointIn(plot.current, { clientX, clientY }));
  };
  const onTouchStart = (event: TouchEvent): void => {
    apart.current = 0;
    // With two fingers, `onTouchMove` stores their distance, to which the next one is compared. Do
    // not call it for one finger, because it would prevent the click after a tap.
    if (event.targetTouches.length > 1) onTouchMove(event);
  };
  // After a drag with a mouse, `onClick` ends the drag. After a drag with a finger, no click
  // follows.
  const onTouchEnd = (): void => {
    if (pressed.current?.moved) pressed.current = null;
  };
  return {
    ...{ onPointerDown, onPointerMove, onPointerLeave, onClick },
    ...{ onTouchStart, onTouchMove, onTouchEnd, onTouchCancel: onTouchEnd },
  };
}
