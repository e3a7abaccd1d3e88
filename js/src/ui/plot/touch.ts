/**
 * Touch gestures on a plot: two fingers zoom. One finger pans if a part of the plot is hidden.
 */

import { useRef } from "preact/hooks";

/** Position in the browser window, in pixels. */
type Point = Pick<MouseEvent, "clientX" | "clientY">;

/**
 * Return touch listeners for a plot, and `several`, whose `current` is true while more than one
 * finger touches the plot. The listeners zoom with two fingers. They also keep the browser from
 * scrolling or zooming the page while fingers zoom or pan the plot. They do not pan: the plot does
 * this in its pointer listeners, and must not do it while `several.current` is true.
 *
 * @param moves returns whether one finger pans the plot. If false, one finger scrolls the page.
 * @param zoom called when two fingers move, with their new distance divided by their old one, and
 *   with the point midway between them.
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
    // With two fingers, `onTouchMove` stores their distance, to which the next one is compared. Do
    // not call it for one finger, because it would prevent the click after a tap.
    if (several.current) onTouchMove(event);
  };
  return { several, onTouchStart, onTouchMove };
}
