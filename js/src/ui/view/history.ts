/**
 * Undo and redo. The history stores snapshots of the traits of a view: the current one, one for
 * each step that can be undone, and one for each step that can be redone. A step is an action of
 * the reader, with all changes of the traits that follow from it.
 */

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type Declared, type Signals, same } from "./state";

/** Values of the traits that undo and redo can change, by name of the trait. */
type Snapshot = Readonly<Record<string, unknown>>;

export type History = ReturnType<typeof createHistory>;

/** Maximum number of steps that can be undone. */
const MAX_STEPS = 100;
/**
 * Longest pause, in milliseconds, between two actions of the reader that belong to the same step.
 * For example, one turn of the mouse wheel counts as many actions.
 */
const MAX_PAUSE_MS = 300;

/** @param traits declarations of the signals. */
export function createHistory<S extends object>(
  signals: Signals<S>,
  traits: Declared<S>,
  ended: AbortSignal,
) {
  const choices = Object.entries<Signal<unknown>>(signals).filter(([name]) => {
    const { kind, undo = kind !== undefined } = traits[name as keyof S];
    return undo;
  });
  const now = computed<Snapshot>(() =>
    Object.fromEntries(choices.map(([name, trait]) => [name, trait.value])),
  );
  const steps = signal({ past: [] as Snapshot[], present: now.peek(), future: [] as Snapshot[] });
  // Whether the next change of the traits begins a new step. `act` sets this to true. While it is
  // false, changes are added to the last step: they follow from the same action, or they were made
  // by Python or by the view itself.
  let beginsStep = false;
  let lastAct = Number.NEGATIVE_INFINITY;

  const stop = now.subscribe((next) => {
    const { past, present, future } = steps.peek();
    if (same(present, next)) return;
    steps.value = beginsStep
      ? { past: [...past, present].slice(-MAX_STEPS), present: next, future: [] }
      : { past, present: next, future };
    beginsStep = false;
  });
  ended.addEventListener("abort", stop);

  const show = (snapshot: Snapshot, past: Snapshot[], future: Snapshot[]): void => {
    beginsStep = false;
    batch(() => {
      steps.value = { past, present: snapshot, future };
      for (const [name, trait] of choices) {
        if (!same(trait.peek(), snapshot[name])) trait.value = snapshot[name];
      }
    });
  };

  return {
    /** Current snapshot: all traits that the reader can change. */
    now: now as ReadonlySignal<Snapshot>,
    canUndo: computed(() => steps.value.past.length > 0),
    canRedo: computed(() => steps.value.future.length > 0),
    undo: () => {
      const { past, present, future } = steps.peek();
      const before = past.at(-1);
      if (before) show(before, past.slice(0, -1), [present, ...future]);
    },
    redo: () => {
      const { past, present, future } = steps.peek();
      const [next, ...later] = future;
      if (next) show(next, [...past, present], later);
    },
    /**
     * Record that the reader acted. If the previous action was more than `MAX_PAUSE_MS` earlier,
     * the next change of the traits begins a new step.
     */
    act: () => {
      const time = performance.now();
      if (time - lastAct > MAX_PAUSE_MS) beginsStep = true;
      lastAct = time;
    },
    /**
     * Remove all snapshots except the current one. Call this when the view shows another record,
     * because the snapshots may not fit that record.
     */
    clear: () => {
      beginsStep = false;
      steps.value = { past: [], present: now.peek(), future: [] };
    },
  };
}

function isTextField(target: EventTarget | undefined): boolean {
  return (
    target instanceof Element &&
    target.matches(
      "textarea, [contenteditable], input:not([type=checkbox], [type=radio], [type=range], [type=button])",
    )
  );
}

/**
 * Return "undo" for Ctrl-Z, "redo" for Shift-Ctrl-Z, and null for other keys. The Meta key (Cmd on
 * a Mac) counts as Ctrl.
 */
export function historyKey(event: KeyboardEvent): "undo" | "redo" | null {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return null;
  // On a keyboard without Latin letters, no key has the value "z". There, use the key at the
  // physical position of Z on a US keyboard.
  const isZ = /^[a-z]$/i.test(event.key) ? /z/i.test(event.key) : event.code === "KeyZ";
  if (!isZ) return null;
  return event.shiftKey ? "redo" : "undo";
}

/**
 * Report each action of the reader in a view to the history, and undo or redo a step when the
 * reader presses one of the keys of `historyKey`.
 *
 * @param wholePage whether keys have an effect even if the focus is outside the view.
 */
export function followReader(
  root: HTMLElement,
  history: History,
  ended: AbortSignal,
  wholePage: boolean,
): void {
  const options = { capture: true, signal: ended };
  for (const name of ["pointerdown", "click", "change", "wheel"]) {
    root.addEventListener(name, history.act, { ...options, passive: true });
  }
  const onKey = (event: KeyboardEvent): void => {
    const command = historyKey(event);
    if (command && !isTextField(event.composedPath()[0])) {
      // Prevent the default even without a step to undo. Otherwise, the notebook or browser
      // would undo something else.
      event.preventDefault();
      event.stopPropagation();
      history[command]();
      keepFocus(root);
    } else if (!event.repeat && !["Control", "Shift", "Meta", "Alt"].includes(event.key)) {
      history.act();
    }
  };
  const target: HTMLElement | Document = wholePage ? document : root;
  target.addEventListener("keydown", onKey as EventListener, options);
}

/** If undo or redo removes the focused element, move the focus to the plot or the grid of heads. */
function keepFocus(root: HTMLElement): void {
  const tree = root.getRootNode() as Document | ShadowRoot;
  if (!root.contains(tree.activeElement)) return;
  requestAnimationFrame(() => {
    if (root.contains(tree.activeElement)) return;
    root.querySelector<HTMLElement>(".av-plot, .av-grid-box")?.focus({ preventScroll: true });
  });
}
