/** Panel below a button. It closes when the reader clicks elsewhere or the focus leaves it. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

/**
 * Return whether the panel is open, refs for its box and button, and a function that closes it.
 *
 * @param first selector of the element that gets the focus on opening.
 * @param within selector of the element that contains it. Default: the whole box.
 */
export function useDropdown(first: string, within?: string) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  // A layout effect runs before the box is painted, so an immediate key press reaches its first
  // control.
  useLayoutEffect(() => {
    if (!open.value) return;
    const inside = within === undefined ? box.current : box.current?.querySelector(within);
    inside?.querySelector<HTMLElement>(`:is(${first}):not(:disabled)`)?.focus();
    const outside = (event: Event): void => {
      // In a shadow tree, event.target is the host. The composed path has the inner elements.
      if (box.current && !event.composedPath().includes(box.current)) open.value = false;
    };
    const onFocusOut = ({ relatedTarget }: FocusEvent): void => {
      // Without relatedTarget, the window lost the focus or the focused element was removed.
      if (relatedTarget instanceof Node && !box.current?.contains(relatedTarget))
        open.value = false;
    };
    const element = box.current;
    document.addEventListener("pointerdown", outside);
    element?.addEventListener("focusout", onFocusOut);
    return () => {
      document.removeEventListener("pointerdown", outside);
      element?.removeEventListener("focusout", onFocusOut);
    };
  }, [open.value]);
  const close = (): void => {
    open.value = false;
    button.current?.focus();
  };
  return { open, box, button, close };
}
