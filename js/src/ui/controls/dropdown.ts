/** A panel below a button that closes when the reader clicks elsewhere or the focus leaves it. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

/**
 * Whether it is open, and the elements that it belongs to.
 *
 * @param first what gets the focus when it opens.
 * @param within where that is looked for; the whole box by default.
 */
export function useDropdown(first: string, within?: string) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  // Before the box is seen: a key that is pressed as soon as it is there meets its first control.
  useLayoutEffect(() => {
    if (!open.value) return;
    const inside = within === undefined ? box.current : box.current?.querySelector(within);
    inside?.querySelector<HTMLElement>(`:is(${first}):not(:disabled)`)?.focus();
    const outside = (event: Event): void => {
      // In a shadow tree the event's target is its host; the path is not.
      if (box.current && !event.composedPath().includes(box.current)) open.value = false;
    };
    const left = ({ relatedTarget }: FocusEvent): void => {
      // Without a target the window lost the focus, or the element that had it went away.
      if (relatedTarget instanceof Node && !box.current?.contains(relatedTarget))
        open.value = false;
    };
    const element = box.current;
    document.addEventListener("pointerdown", outside);
    element?.addEventListener("focusout", left);
    return () => {
      document.removeEventListener("pointerdown", outside);
      element?.removeEventListener("focusout", left);
    };
  }, [open.value]);
  const close = (): void => {
    open.value = false;
    button.current?.focus();
  };
  return { open, box, button, close };
}
