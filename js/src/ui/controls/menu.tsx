/** Button that opens a menu of actions or a box of controls. */

import type { Signal } from "@preact/signals";
import type { ComponentChildren, Ref } from "preact";
import { useDropdown } from "./dropdown";

export interface MenuEntry {
  label: string;
  run: () => void;
}

/** Render the button that opens and closes a menu or a box of controls. */
function DropdownButton(props: {
  label: string;
  button: Ref<HTMLButtonElement>;
  open: Signal<boolean>;
  popup: "menu" | "dialog";
}) {
  const { label, button, open, popup } = props;
  return (
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
  );
}

/**
 * Render a button with a menu. A click, Enter or Space opens the menu. The arrow keys move between
 * its entries, and Esc and Tab close it.
 */
export function Menu({ label, entries }: { label: string; entries: MenuEntry[] }) {
  const { open, box, button, close } = useDropdown("[role=menuitem]");

  const onKeyDown = (event: KeyboardEvent): void => {
    if (!open.value) return;
    const items = Array.from(
      box.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [],
    );
    const root = box.current?.getRootNode() as Document | ShadowRoot | undefined;
    const at = items.indexOf(root?.activeElement as HTMLButtonElement);
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown") items[(at + 1) % items.length]?.focus();
    else if (event.key === "ArrowUp") items[(at + items.length - 1) % items.length]?.focus();
    else {
      // Close the menu, which focuses the button. The browser then moves the focus to the next
      // element.
      if (event.key === "Tab") close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the buttons inside.
    <div class="av-menu" ref={box} onKeyDown={onKeyDown}>
      <DropdownButton label={label} button={button} open={open} popup="menu" />
      {open.value && (
        <div class="av-menu-list" role="menu">
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
    </div>
  );
}

/**
 * Render a button that opens a box of controls. Esc, a click elsewhere or a loss of focus closes
 * the box.
 */
export function Panel({ label, children }: { label: string; children: ComponentChildren }) {
  const { open, box, button, close } = useDropdown("select, input, button", ".av-panel");
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the controls inside.
    <div
      class="av-panel-place"
      ref={box}
      onKeyDown={(event) => {
        if (!open.value || event.key !== "Escape") return;
        close();
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <DropdownButton label={label} button={button} open={open} popup="dialog" />
      {open.value && (
        <div class="av-panel" role="dialog" aria-label={label}>
          {children}
        </div>
      )}
    </div>
  );
}
