import { expect, it, vi } from "vitest";
import { actionsOf, runKey, type Shortcut } from "../../../src/ui/controls/keys";

const pressed = (key: string, more: KeyboardEventInit = {}): KeyboardEvent =>
  new KeyboardEvent("keydown", { key, cancelable: true, ...more });

it("a key runs the action of its row, and the notebook does not handle the key, too", () => {
  const next = vi.fn();
  const rows: Shortcut[] = [
    ["↑ ↓", "previous, next token", { ArrowDown: next, ArrowUp: () => {} }],
    ["double-click", "show a head alone"],
  ];
  const event = pressed("ArrowDown");
  expect(runKey(event, actionsOf(rows))).toBe(true);
  expect(next).toHaveBeenCalledExactlyOnceWith(event);
  expect(event.defaultPrevented).toBe(true);
});

it("the notebook handles other keys, keys with modifiers, and keys whose action returns false", () => {
  const action = vi.fn(() => false);
  for (const event of [pressed("b"), pressed("a", { ctrlKey: true }), pressed("a")]) {
    expect(runKey(event, { a: action })).toBe(false);
    expect(event.defaultPrevented).toBe(false);
  }
  expect(action).toHaveBeenCalledOnce();
});
