/** Undo: the last choices of a view, step by step, and what makes up one step. */

import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { same } from "./state";

/** The values of all that is kept, by name. */
export type Values = Readonly<Record<string, unknown>>;

/** Where in its history a view is. */
export interface Step {
  /** Counts on from the first choice. */
  number: number;
  values: Values;
  /** Whether undo or redo led here, and not a choice. */
  travelled: boolean;
}

export interface History {
  now: ReadonlySignal<Step>;
  canUndo: ReadonlySignal<boolean>;
  canRedo: ReadonlySignal<boolean>;
  undo: () => void;
  redo: () => void;
  /** To a step by its number; its values are for one that is not kept any more. */
  go: (to: number, values: Values) => void;
  /** Keeps a value that is not a trait, such as the position of a window that only this view has. */
  keep: (name: string, value: Signal<unknown>) => void;
  /** A gesture begins: what changes from now on is one step, until the next. */
  begin: (kind: "gesture" | "double-click") => void;
  /** Something is about to change from outside: from Python, a linked view, or the address. */
  outside: () => void;
}

/** Steps that are kept. */
const MOST_STEPS = 100;
/** Changes from outside that follow each other within so many milliseconds are one step. */
const TOGETHER = 400;

/** Traits that the reader does not choose. */
const NOT_KEPT = [
  "theme",
  "scores",
  "score_notes",
  "score_errors",
  "roles",
  "token_scores",
  "token_score_notes",
  "controls",
  "outcomes",
  "known_edges",
  "changed_run",
];

/** Whether two steps have the same values. A value that is the same object is not read. */
function sameValues(a: Values, b: Values): boolean {
  return Object.keys({ ...a, ...b }).every((name) => same(a[name], b[name]));
}

export function createHistory(
  signals: Readonly<Record<string, Signal<unknown>>>,
  ended: AbortSignal,
): History {
  const kept = signal<ReadonlyMap<string, Signal<unknown>>>(
    new Map(Object.entries(signals).filter(([name]) => !NOT_KEPT.includes(name))),
  );
  const read = (): Values =>
    Object.fromEntries([...kept.peek()].map(([name, each]) => [name, each.peek()]));

  // The number of the first step that is kept, all steps from there on, and which of them is shown.
  const line = signal({ first: 0, steps: [read()], at: 0, travelled: false });
  // Changes while the view opens, or that follow from undo, are not choices and do not start a step.
  let gesture: object | null = null;
  let recorded: object | null = null;
  // Where the view was before the last two gestures: the two clicks of a double click.
  let starts: [number, number] = [0, 0];
  let back: number | null = null;
  let lastOutside = Number.NEGATIVE_INFINITY;
  let outside: object | null = null;

  const numberNow = (): number => line.peek().first + line.peek().at;

  const record = (): void => {
    const now = line.peek();
    const next = read();
    if (sameValues(next, now.steps[now.at] as Values)) return;
    const steps = now.steps.slice(0, now.at + 1);
    if (gesture === null) {
      // The steps ahead stay: nothing was chosen.
      line.value = { ...now, steps: now.steps.map((each, i) => (i === now.at ? next : each)) };
      return;
    }
    if (back !== null && back >= now.first && back < now.first + now.at) {
      // A double click takes back what its clicks did.
      steps.length = back - now.first + 1;
      steps.push(next);
    } else if (recorded === gesture && steps.length > 1) steps[steps.length - 1] = next;
    else steps.push(next);
    back = null;
    recorded = gesture;
    // A gesture that ends where it began, such as a slider that returns, does not count as a step.
    if (steps.length > 1 && sameValues(steps.at(-2) as Values, next)) {
      steps.pop();
      recorded = null;
    }
    const dropped = Math.max(0, steps.length - MOST_STEPS - 1);
    line.value = {
      first: now.first + dropped,
      steps: steps.slice(dropped),
      at: steps.length - 1 - dropped,
      travelled: false,
    };
  };

  const stop = effect(() => {
    for (const each of kept.value.values()) each.value;
    record();
  });
  ended.addEventListener("abort", stop);

  const show = (values: Values): void => {
    gesture = null;
    batch(() => {
      for (const [name, each] of kept.peek()) {
        if (name in values && !same(each.peek(), values[name])) each.value = values[name];
      }
    });
  };
  const go: History["go"] = (to, values) => {
    const { first, steps } = line.peek();
    const known = steps[to - first];
    const step = { ...read(), ...values };
    batch(() => {
      if (known) line.value = { first, steps, at: to - first, travelled: true };
      // A page that was loaded again has only where it is; the others come as they are gone to.
      else if (to === first - 1)
        line.value = { first: to, steps: [step, ...steps], at: 0, travelled: true };
      else if (to === first + steps.length)
        line.value = { first, steps: [...steps, step], at: steps.length, travelled: true };
      else line.value = { first: to, steps: [step], at: 0, travelled: true };
      show(known ?? values);
    });
  };
  const by = (steps: number): void => {
    const { first, at, steps: all } = line.peek();
    if (all[at + steps]) go(first + at + steps, {});
  };

  return {
    now: computed(() => {
      const { first, steps, at, travelled } = line.value;
      return { number: first + at, values: steps[at] as Values, travelled };
    }),
    canUndo: computed(() => line.value.at > 0),
    canRedo: computed(() => line.value.at < line.value.steps.length - 1),
    undo: () => by(-1),
    redo: () => by(1),
    go,
    keep: (name, value) => {
      const now = line.peek();
      batch(() => {
        // No step is made of it: what it was before is not known.
        line.value = {
          ...now,
          steps: now.steps.map((each) => ({ ...each, [name]: value.peek() })),
        };
        kept.value = new Map(kept.peek()).set(name, value);
      });
    },
    begin: (kind) => {
      if (kind === "double-click") back = starts[0];
      else {
        back = null;
        starts = [starts[1], numberNow()];
        gesture = {};
      }
    },
    outside: () => {
      const now = performance.now();
      const together = now - lastOutside < TOGETHER && gesture === outside;
      lastOutside = now;
      if (together) return;
      back = null;
      outside = {};
      gesture = outside;
    },
  };
}

/** Wheel events that follow each other within so many milliseconds are one gesture. */
const WHEEL_PAUSE = 400;

function isTextField(target: EventTarget | undefined): boolean {
  return (
    target instanceof Element &&
    target.matches(
      "textarea, [contenteditable], input:not([type=checkbox], [type=radio], [type=range], [type=button])",
    )
  );
}

/** The letter of a key, also on keyboards that write no Latin letters. */
function letterOf(event: KeyboardEvent): string {
  const { key, code } = event;
  return (/^[a-z]$/i.test(key) ? key : /^Key[A-Z]$/.test(code) ? code.slice(3) : "").toLowerCase();
}

/** What a key asks of the history; null for all other keys. */
export function historyKey(event: KeyboardEvent): "undo" | "redo" | null {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return null;
  const letter = letterOf(event);
  if (letter === "z") return event.shiftKey ? "redo" : "undo";
  return letter === "y" && event.ctrlKey && !event.shiftKey ? "redo" : null;
}

/**
 * Tells a view's gestures apart, and hears Ctrl-Z.
 *
 * @param wholePage whether keys that are pressed nowhere in particular are the view's.
 */
export function followGestures(
  root: HTMLElement,
  history: History,
  ended: AbortSignal,
  wholePage: boolean,
): void {
  const options = { capture: true, signal: ended };
  let typing: EventTarget | null = null;
  let wheeled = Number.NEGATIVE_INFINITY;
  const begin = (): void => {
    typing = null;
    wheeled = Number.NEGATIVE_INFINITY;
    history.begin("gesture");
  };
  const on = <K extends keyof HTMLElementEventMap>(
    name: K,
    listener: (event: HTMLElementEventMap[K]) => void,
  ): void => root.addEventListener(name, listener, options);

  on("pointerdown", (event) => {
    if (event.isPrimary) begin();
  });
  on("dblclick", () => history.begin("double-click"));
  on("click", (event) => {
    // By a key, by a screen reader or by a script, without a pointer before it.
    if (event.detail === 0) begin();
  });
  on("change", (event) => {
    const field = event.composedPath()[0];
    if (field instanceof Element && !field.matches("[type=range]")) begin();
  });
  root.addEventListener(
    "wheel",
    (event) => {
      if (event.timeStamp - wheeled > WHEEL_PAUSE) begin();
      wheeled = event.timeStamp;
    },
    { ...options, passive: true },
  );
  const onKey = (event: KeyboardEvent): void => {
    const target = event.composedPath()[0] ?? null;
    const field = isTextField(target ?? undefined);
    const asked = historyKey(event);
    if (asked && !field) {
      // Also where there is nothing to undo: the host's undo would be another.
      event.preventDefault();
      event.stopPropagation();
      history[asked]();
      keepFocus(root);
      return;
    }
    if (["Control", "Shift", "Meta", "Alt"].includes(event.key)) return;
    if (event.repeat || (field && typing === target)) return;
    begin();
    if (field) typing = target;
  };
  root.addEventListener("keydown", onKey, options);
  if (!wholePage) return;
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.target === document.body || event.target === document.documentElement) onKey(event);
    },
    { signal: ended },
  );
}

/** Gives the keyboard to the picture where what had it went away with the step. */
function keepFocus(root: HTMLElement): void {
  const tree = root.getRootNode() as Document | ShadowRoot;
  if (!root.contains(tree.activeElement)) return;
  requestAnimationFrame(() => {
    if (root.contains(tree.activeElement)) return;
    root.querySelector<HTMLElement>(".av-plot, .av-grid-box")?.focus({ preventScroll: true });
  });
}
