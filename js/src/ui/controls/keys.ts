/**
 * Keys of a view. One table contains the action of each key and the help that "?" shows, so a new
 * key is one row of the table. `shortcuts.ts` has the rows that all views of records share.
 */

/** Action of a key. It returns false if it does nothing, so that the notebook handles the key. */
type KeyAction = (event: KeyboardEvent) => unknown;

/** Actions by `KeyboardEvent.key`. */
export type KeyActions = Readonly<Record<string, KeyAction>>;

/**
 * Row of the help: the keys or the gesture, and their meaning. Rows of keys also contain their
 * actions.
 */
export type Shortcut = readonly [keys: string, meaning: string, actions?: KeyActions];

/** Return the actions of all rows of a table. */
export function actionsOf(shortcuts: readonly Shortcut[]): KeyActions {
  return Object.assign({}, ...shortcuts.map(([, , actions]) => actions));
}

/**
 * Run the action of a pressed key, except with Ctrl, Alt or Meta. Return whether it did something.
 */
export function runKey(event: KeyboardEvent, actions: KeyActions): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return false;
  const action = actions[event.key];
  if (!action || action(event) === false) return false;
  // Otherwise the notebook would handle the same key, too, for example to select another cell.
  event.preventDefault();
  event.stopPropagation();
  return true;
}
