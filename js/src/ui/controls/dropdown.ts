/** Box that opens below a button. It closes at a click elsewhere or when it loses the focus. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

/**
 * Return whether the box is open, refs for the box with its button and for the button alone, and a
 * function that closes the box and focuses the button.
 *
 * @param first selector of the element that gets the focus when the box opens.
 * @param within selector of the element in which `first` is searched. Default: the whole box.
 */
export function useDropdown(first: string, within?: string) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  // A layout effect runs before the browser paints, so a key that is pressed immediately reaches
  // the first control.
  useLayoutEffect(() => {
    if (!open.value) return;
    const inside = within === undefined ? box.current : box.current?.querySelector(within);
    inside?.querySelector<HTMLElement>(`:is(${first}):not(:disabled)`)?.focus();
    const outside = (event: Event): void => {
      // In a shadow tree, event.target is the host of the tree. The composed path contains the
      // clicked element.
      if (box.current && !event.composedPath().includes(box.current)) open.value = false;
    };
    const onFocusOut = ({ relatedTarget }: FocusEvent): void => {
      // Without relatedTarget, the window lost the focus or the focused element was removed. The
      // box then stays open.
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
