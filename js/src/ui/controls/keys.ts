/**
 * Keys of a view. Each view has a table of shortcuts. A row contains the action of keys and the
 * text with which the keyboard help describes them. `shortcuts.ts` has the rows that all views of
 * records share.
 */

/** Action of a key. It returns false if it did nothing. The notebook then handles the key. */
type KeyAction = (event: KeyboardEvent) => unknown;

/** Actions, by the key that runs them (`KeyboardEvent.key`). */
export type KeyActions = Readonly<Record<string, KeyAction>>;

/**
 * Row of the keyboard help: names of keys or of a gesture, and what they do. If the row is about
 * keys, it also has their actions.
 */
export type Shortcut = readonly [keys: string, meaning: string, actions?: KeyActions];

/** Return the actions of all rows, by key. */
export function actionsOf(shortcuts: readonly Shortcut[]): KeyActions {
  return Object.assign({}, ...shortcuts.map(([, , actions]) => actions));
}

/**
 * Run the action of a pressed key. Ignore keys that are pressed with Ctrl, Alt or Meta. Return
 * whether an action did something.
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
