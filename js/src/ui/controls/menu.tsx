/** Buttons that open a box below them: a menu of actions or a panel of controls. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { runKey } from "./keys";

export interface MenuEntry {
  label: string;
  run: () => void;
}

/**
 * Render a button and the box that it opens. The box closes when the reader presses Esc, clicks
 * elsewhere or moves the focus to an element outside. In a menu, the arrow keys move between the
 * entries, and Tab closes the menu.
 */
function Dropdown(props: {
  label: string;
  popup: "menu" | "dialog";
  /** Render the content of the box. `close` closes the box and moves the focus to the button. */
  children: (close: () => void) => ComponentChildren;
}) {
  const { label, popup } = props;
  const isMenu = popup === "menu";
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const controls = () => [
    ...(box.current?.lastElementChild?.querySelectorAll<HTMLElement>(
      ":is(select, input, button):not(:disabled)",
    ) ?? []),
  ];
  // A layout effect runs before the browser paints. Therefore, the first control has the focus when
  // the reader presses the next key.
  useLayoutEffect(() => {
    if (!open.value) return;
    controls()[0]?.focus();
    const outside = (event: Event): void => {
      // If the view is in a shadow tree, `event.target` is the host element of this tree. Only the
      // composed path contains the clicked element.
      if (box.current && !event.composedPath().includes(box.current)) open.value = false;
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open.value]);
  const close = (): void => {
    open.value = false;
    button.current?.focus();
  };
  const move = (by: number) => (): void => {
    const entries = controls();
    const focused = entries.findIndex((entry) => entry.matches(":focus"));
    entries.at((focused + by) % entries.length)?.focus();
  };
  const closeAndMoveOn = (): boolean => {
    // `close` moves the focus to the button. The result false lets the browser handle Tab, too,
    // which then moves the focus from the button to the next element.
    close();
    return false;
  };
  const menuKeys = { ArrowDown: move(1), ArrowUp: move(-1), Tab: closeAndMoveOn };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the controls inside.
    <div
      class={isMenu ? "av-menu" : "av-panel-place"}
      ref={box}
      onKeyDown={(event) => {
        if (open.value) runKey(event, { Escape: close, ...(isMenu && menuKeys) });
      }}
      onFocusOut={({ relatedTarget }) => {
        // Without `relatedTarget`, the window lost the focus, or the focused element was removed.
        // Keep the box open in both cases.
        if (relatedTarget instanceof Node && !box.current?.contains(relatedTarget))
          open.value = false;
      }}
    >
      <button
        type="button"
        class="av-plain"
        ref={button}
        aria-haspopup={popup}
        aria-expanded={open.value}
        onClick={() => {
          open.value = !open.value;
        }}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open.value && props.children(close)}
    </div>
  );
}

/** Render a button with a menu. */
export function Menu({ label, entries }: { label: string; entries: MenuEntry[] }) {
  return (
    <Dropdown label={label} popup="menu">
      {(close) => (
        <div class="av-vertical av-menu-list" role="menu">
          {entries.map((entry) => (
            <button
              type="button"
              role="menuitem"
              tabIndex={-1}
              key={entry.label}
              onClick={() => {
                close();
                entry.run();
              }}
            >
              {entry.label}
            </button>
          ))}
        </div>
      )}
    </Dropdown>
  );
}

/** Render a button that opens a panel of controls. */
export function Panel({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <Dropdown label={label} popup="dialog">
      {() => (
        <div class="av-panel" role="dialog" aria-label={label}>
          {children}
        </div>
      )}
    </Dropdown>
  );
}
