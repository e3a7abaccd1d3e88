/** Fingers on a picture: two zoom it, and one moves it if there is more than is in sight. */

import { useRef } from "preact/hooks";

/** A point of the window. */
type Point = Pick<MouseEvent, "clientX" | "clientY">;

export interface Fingers {
  /** Whether one finger moves the picture. If not, it scrolls the page. */
  moves: () => boolean;
  /** Called with the factor by which two fingers went apart, and the point between them. */
  zoom: (factor: number, around: Point) => void;
}

/**
 * Returns listeners that call `zoom`, and that keep the browser from scrolling and zooming the page
 * under the fingers that the picture takes. The picture follows one finger by its pointer events, as
 * long as there are not `several`: after a second finger came the first moves nothing.
 */
export function useFingers({ moves, zoom }: Fingers) {
  const apart = useRef(0);
  const several = useRef(false);
  const onTouchMove = (event: TouchEvent): void => {
    const [one, other] = event.targetTouches;
    // Not cancelable once the page scrolls: then the fingers are the page's.
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
    // One finger may be a tap.
    if (several.current) onTouchMove(event);
  };
  return { several, onTouchStart, onTouchMove };
}
