/** Touch gestures on a plot: two fingers zoom, and one finger pans if a part is hidden. */

import { useRef } from "preact/hooks";

/** Position in the browser window. */
type Point = Pick<MouseEvent, "clientX" | "clientY">;

/**
 * Return touch listeners. With two fingers, they call `zoom` with the ratio of the new to the old
 * distance between the fingers and with their midpoint. If the gesture zooms or pans the plot, they
 * prevent the browser from scrolling and zooming the page.
 *
 * The plot's pointer listeners pan with one finger. They must ignore fingers while
 * `several.current` is true, because two fingers zoom.
 *
 * @param moves returns whether one finger pans the plot. Otherwise it scrolls the page.
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
    // Once the browser scrolls the page, the event is not cancelable. The gesture then only
    // scrolls.
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
    // Do not handle a single finger yet, because it may be a tap.
    if (several.current) onTouchMove(event);
  };
  return { several, onTouchStart, onTouchMove };
}
