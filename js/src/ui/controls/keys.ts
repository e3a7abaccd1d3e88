/**
 * Keyboard shortcuts of a view: a table with one row for each entry of the keyboard help.
 * `shortcuts.ts` has the rows that all views of records share.
 */

/** Action of a key. It returns false if it did nothing, so that the notebook handles the key. */
type KeyAction = (event: KeyboardEvent) => unknown;

/** Actions, by the key that runs them (`KeyboardEvent.key`). */
export type KeyActions = Readonly<Record<string, KeyAction>>;

/**
 * Row of the keyboard help: names of keys or of a gesture, and what they do. A row about keys also
 * has their actions.
 */
export type Shortcut = readonly [keys: string, meaning: string, actions?: KeyActions];

/** Return the actions of all rows, by key. */
export function actionsOf(shortcuts: readonly Shortcut[]): KeyActions {
  return Object.assign({}, ...shortcuts.map(([, , actions]) => actions));
}

/**
 * Run the action of a pressed key, unless Ctrl, Alt or Meta is pressed, too. Return false if the
 * key has no action or its action returned false, otherwise true.
 */
export function runKey(event: KeyboardEvent, actions: KeyActions): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return false;
  const action = actions[event.key];
  if (!action || action(event) === false) return false;
  // Prevent the notebook from handling the key, too. For example, it would select another cell.
  event.preventDefault();
  event.stopPropagation();
  return true;
}
