/**
 * Zoom of a plot with the mouse wheel and Ctrl, or with two fingers on a touchpad.
 */

import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

/**
 * Call `zoom` for each wheel event with Ctrl or Meta over an element. Browsers report a pinch on a
 * touchpad as such an event, too.
 *
 * @param zoom its argument `by` is the movement of the wheel in pixels: negative to zoom in,
 *   positive to zoom out.
 * @param inputs values whose change may replace the element. After such a change, the listener is
 *   attached to the new element.
 */
export function useZoomWheel(
  element: RefObject<HTMLElement | null>,
  zoom: (by: number, event: WheelEvent) => void,
  inputs: readonly unknown[] = [],
): void {
  // The listener must prevent the browser from zooming the whole page, which a passive listener
  // cannot. Without Ctrl or Meta, the wheel scrolls the notebook as usual.
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
