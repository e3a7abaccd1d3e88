/** Functions that mount components, act on elements like a user, read texts and fake the clock. */

import { type ComponentChild, render } from "preact";
import { afterEach, beforeEach, expect, onTestFinished, vi } from "vitest";

/** Functions that unmount the components of the running test. */
const unmounts = new Set<() => void>();

/** Add `root` to the page until the test ends, and render `node` in it. Return `root`. */
export function mount(node: ComponentChild, root: HTMLElement = document.createElement("div")) {
  document.body.append(root);
  render(node, root);
  const unmount = (): void => {
    unmounts.delete(unmount);
    render(null, root);
    root.remove();
  };
  unmounts.add(unmount);
  onTestFinished(unmount);
  return root;
}

/** Use a fake clock in all tests of a file. Only `until` and `pass` advance the clock. */
export function useFakeClock(): void {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    // Unmount before the clock is real again. Otherwise Preact could start a real timer, which runs
    // when the page no longer exists.
    for (const unmount of unmounts) unmount();
    // Run the frame that Preact has requested. Until it has run, Preact requests no other frame,
    // even in the next test.
    vi.runOnlyPendingTimers();
    vi.useRealTimers();
  });
}

/** Advance the fake clock, and run all timers that become due. */
export async function pass(milliseconds: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(milliseconds);
}

/** Advance the fake clock, by at most 30 seconds, until `hold` runs without an error. */
export async function until(hold: () => unknown): Promise<void> {
  for (let step = 0; step < 3000; step++) {
    try {
      await hold();
      return;
    } catch {
      await pass(10);
    }
  }
  await hold();
}

/**
 * Wait until the root of a view has the attribute `data-attnviz-drawn` (with the value `drawn`, if
 * given). Then wait 40 ms for updates of the view's controls.
 */
export async function drawnIn(root: Element, drawn?: string): Promise<void> {
  await until(() => {
    const mark = root.getAttribute("data-attnviz-drawn");
    expect(mark).not.toBeNull();
    if (drawn) expect(mark).toBe(drawn);
  });
  await pass(40);
}

export function pressKey(target: Element | null, key: string, init: KeyboardEventInit = {}): Event {
  const options = { bubbles: true, cancelable: true, composed: true };
  const event = new KeyboardEvent("keydown", { key, ...options, ...init });
  target?.dispatchEvent(event);
  return event;
}

/** Set the value of an input or select element, and dispatch the event that a user would cause. */
export function enter(field: Element | null | undefined, value: string, event = "change"): void {
  const input = field as HTMLInputElement;
  input.value = value;
  input.dispatchEvent(new Event(event, { bubbles: true }));
}

/** Return the first button whose name (`aria-label` or else text) starts with `name`, or null. */
export function buttonOf(root: Element, name: string): HTMLButtonElement | null {
  const buttons = [...root.querySelectorAll("button")];
  const nameOf = (button: Element): string =>
    button.getAttribute("aria-label") ?? button.textContent ?? "";
  return buttons.find((button) => nameOf(button).startsWith(name)) ?? null;
}

/** Return the input or select element in the label whose text starts with `name`, or null. */
export function fieldOf<Field extends Element = HTMLInputElement>(
  root: Element,
  name: string,
): Field | null {
  const labels = [...root.querySelectorAll("label")];
  const label = labels.find((element) => element.textContent?.startsWith(name));
  return label?.querySelector<Field & Element>("input, select") ?? null;
}

export function textsOf(root: Element, selector: string): string[] {
  return Array.from(root.querySelectorAll(selector), (element) => element.textContent ?? "");
}

/** Return the accessible names of all cells of a grid. */
export function cellNamesOf(root: Element): string[] {
  const cells = root.querySelectorAll("[role=gridcell]");
  return Array.from(cells, (cell) => cell.getAttribute("aria-label") ?? "");
}
