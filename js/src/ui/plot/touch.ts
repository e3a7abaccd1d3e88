/**
 * Touch gestures on a plot: two fingers zoom. One finger pans if a part of the plot is hidden.
 */

import { useRef } from "preact/hooks";

/** Position in the browser window, in pixels. */
type Point = Pick<MouseEvent, "clientX" | "clientY">;

/**
 * Return touch listeners for a plot, and `several`, whose `current` is true while more than one
 * finger touches the plot.
 *
 * When two fingers move, the listeners call `zoom` with the new distance between the fingers
 * divided by the old one, and with the point midway between them. The pointer listeners of the
 * plot, not those of this function, pan with one finger. They must do nothing while
 * `several.current` is true.
 *
 * While a gesture zooms or pans the plot, the browser neither scrolls nor zooms the page.
 *
 * @param moves returns whether one finger pans the plot. If not, it scrolls the page.
 */
export function useFingers(options: {
  moves: () => boolean;
  zoom: (factor: number, around: Point) => void;
}) {
  const { moves, zoom } = options;
  const apart = useRef(0);
  const several = useRef(false);
  const onTouchMove = (event: TouchEvent): void => {
    const [one, other] = event.targetTouches;
    // Once the browser has begun to scroll the page, the event is not cancelable. The plot must
    // then ignore the gesture.
    if (!one || !event.cancelable || !(other || moves())) return;
    event.preventDefault();
    if (!other) return;
    const before = apart.current;
    apart.current = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    const clientX = (one.clientX + other.clientX) / 2;
    const clientY = (one.clientY + other.clientY) / 2;
    if (before > 0 && apart.current > 0) zoom(apart.current / before, { clientX, clientY });
  };
  const onTouchStart = (event: TouchEvent): void => {
    apart.current = 0;
    several.current = event.targetTouches.length > 1;
    // With two fingers, store their first distance. A single finger may be a tap, so do not prevent
    // its default yet.
    if (several.current) onTouchMove(event);
  };
  return { several, onTouchStart, onTouchMove };
}
