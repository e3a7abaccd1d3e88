/** Zoom by the mouse wheel or by pinching on a touchpad. */

import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

/**
 * Call `zoom` for each wheel event with Ctrl or Meta over an element. Browsers also report a pinch
 * on a touchpad as such an event. The first argument of `zoom` is the movement in pixels, which is
 * negative if the wheel zooms in.
 *
 * @param inputs values whose change may replace the element. After a change, the listener is
 *   attached to the current element.
 */
export function useZoomWheel(
  element: RefObject<HTMLElement | null>,
  zoom: (by: number, event: WheelEvent) => void,
  inputs: readonly unknown[] = [],
): void {
  // The listener is not passive, because it must keep a pinch from zooming the whole page. A wheel
  // event without Ctrl or Meta scrolls the notebook as usual.
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      zoom(event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY, event);
    };
    target.addEventListener("wheel", onWheel, { passive: false });
    return () => target.removeEventListener("wheel", onWheel);
  }, inputs);
}
