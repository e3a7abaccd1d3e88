/** A button that opens a short list of actions. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface MenuEntry {
  label: string;
  run: () => void;
}

/** Opens by click, Enter or Space; arrows move, Esc closes. */
export function Menu({ label, entries }: { label: string; entries: MenuEntry[] }) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (!open.value) return;
    box.current?.querySelector<HTMLButtonElement>("[role=menuitem]")?.focus();
    const outside = (event: Event): void => {
      // In a shadow tree the event's target is its host; the path is not.
      if (box.current && !event.composedPath().includes(box.current)) open.value = false;
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open.value]);

  const onKeyDown = (event: KeyboardEvent): void => {
    if (!open.value) return;
    const items = Array.from(
      box.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [],
    );
    const root = box.current?.getRootNode() as Document | ShadowRoot | undefined;
    const at = items.indexOf(root?.activeElement as HTMLButtonElement);
    if (event.key === "Escape") {
      open.value = false;
      button.current?.focus();
    } else if (event.key === "ArrowDown") items[(at + 1) % items.length]?.focus();
    else if (event.key === "ArrowUp") items[(at + items.length - 1) % items.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: hears the keys of the buttons inside.
    <div class="av-menu" ref={box} onKeyDown={onKeyDown}>
      <button
        type="button"
        class="av-plain"
        ref={button}
        aria-haspopup="menu"
        aria-expanded={open.value}
        onClick={() => {
          open.value = !open.value;
        }}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open.value && (
        <div class="av-menu-list" role="menu">
          {entries.map((entry) => (
            <button
              type="button"
              role="menuitem"
              key={entry.label}
              onClick={() => {
                open.value = false;
                button.current?.focus();
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
