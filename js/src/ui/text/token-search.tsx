/**
 * Search for tokens by text or index, and the search field.
 */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type BySide, type Countable, canShow, type Side } from "../axis";
import { counted } from "./captions";

/** Result of a search. `indices` are those of the matching queries or keys, in ascending order. */
interface Matches {
  side: Side;
  indices: number[];
}

/**
 * Characters at the start or end of a token that only mark the start, inside or end of a word: "##"
 * and spaces. A search for a whole token ignores them.
 */
const JOINTS = /^(##| )+| +$/g;

/**
 * Return a function that checks whether a token matches a search, or null if the search is empty.
 *
 * A token matches if it contains the search text. If the search text is in double quotes, it must
 * be the whole token. Upper and lower case are the same.
 */
export function tokenMatcher(query: string): ((token: string) => boolean) | null {
  if (query === "") return null;
  // Treat "·" as a space. Tokens show a space as "·", and most keyboards lack this character.
  const fold = (text: string): string => text.toLowerCase().replaceAll("·", " ");
  const whole = /^"(.+)"$/.exec(query)?.[1];
  if (whole === undefined) {
    const part = fold(query);
    return (token) => fold(token).includes(part);
  }
  const word = fold(whole).replace(JOINTS, "");
  return (token) => fold(token).replace(JOINTS, "") === word;
}

/**
 * Return the indices of the tokens that windows can show and that match a search. The search
 * "#65536" matches only the token with this index.
 */
function find(axis: Countable, query: string) {
  const number = /^#(\d+)$/.exec(query)?.[1];
  const matches = tokenMatcher(query);
  const isFound = (token: string, index: number) =>
    number === undefined ? matches?.(token) : index === Number(number);
  return axis.tokens.text.flatMap((token, index) =>
    canShow(axis, index) && isFound(token, index) ? [index] : [],
  );
}

/**
 * Search among the queries and, if no query matches, among the keys. Return null for an empty
 * search.
 */
export function findTokens(axes: BySide<Countable>, query: string): Matches | null {
  if (query === "") return null;
  const indices = find(axes.query, query);
  return indices.length > 0
    ? { side: "query", indices }
    : { side: "key", indices: find(axes.key, query) };
}

/**
 * Return the position in `indices`, which is sorted, of the first match at or after the token
 * `from`. If there is none, it is that of the first of all matches. If `by` is negative, it is the
 * last match at or before the token `from` or, if there is none, the last of all. It is -1 if
 * `indices` is empty.
 */
export function nextMatch(indices: readonly number[], from: number, by: number): number {
  const after = indices.findIndex((index) => (by > 0 ? index >= from : index > from));
  const next = after < 0 ? indices.length : after;
  const { length } = indices;
  return length === 0 ? -1 : by > 0 ? next % length : (next - 1 + length) % length;
}

export function SearchField(props: {
  class?: string;
  title: string;
  value: string;
  onInput: (text: string) => void;
  /** Called when the reader presses Enter, with 1, or with −1 if Shift is pressed, too. */
  onEnter?: (by: number) => void;
  /** Called when the reader presses Esc. */
  onClear: () => void;
  children: ComponentChildren;
}) {
  return (
    <search class={`av-field av-find ${props.class ?? ""}`}>
      <input
        type="search"
        placeholder="Find token"
        aria-label="Find token"
        title={props.title}
        value={props.value}
        onInput={(event) => props.onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") props.onClear();
          if (event.key !== "Enter" || !props.onEnter) return;
          props.onEnter(event.shiftKey ? -1 : 1);
          event.preventDefault();
        }}
      />
      {props.children}
    </search>
  );
}

/**
 * Render a token search: the field, buttons for the previous and the next match, and the number of
 * matches.
 */
export function TokenSearch(props: {
  search: Signal<string>;
  matches: Matches | null;
  /**
   * Return the index of the first visible query or key. The search for a match starts there, until
   * a match has been shown.
   */
  from: (side: Side) => number;
  show: (side: Side, index: number) => void;
  /** Called when the reader presses Esc, which empties the field. */
  onClear: () => void;
}) {
  const { search } = props;
  const at = useSignal(-1);
  const { side, indices } = props.matches ?? { side: "query", indices: [] };
  const { length } = indices;
  const jump = (by: number): void => {
    at.value =
      at.value < 0
        ? nextMatch(indices, props.from(side), by)
        : (at.value + by + length) % Math.max(1, length);
    const index = indices[at.value];
    if (index !== undefined) props.show(side, index);
  };
  const count = counted(length);
  return (
    <SearchField
      title="Part of a token, a whole token in quotes, or # and its number. Enter: next match. Shift-Enter: previous match."
      value={search.value}
      onInput={(text) => {
        at.value = -1;
        search.value = text;
      }}
      onEnter={jump}
      onClear={() => {
        search.value = "";
        props.onClear();
      }}
    >
      {length > 0 &&
        ([-1, 1] as const).map((by) => (
          <button
            type="button"
            class="av-step"
            key={by}
            aria-label={by < 0 ? "Previous match" : "Next match"}
            onClick={() => jump(by)}
          >
            {by < 0 ? "‹" : "›"}
          </button>
        ))}
      <output class="av-number" aria-live="polite">
        {search.value === ""
          ? ""
          : length === 0
            ? "none"
            : at.value >= 0
              ? `${counted(at.value + 1)} of ${count}`
              : `${count} found`}
      </output>
    </SearchField>
  );
}
