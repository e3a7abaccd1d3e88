/** Copying the number under the pointer, the keyboard or the pins, and the row that it is in. */

import type { Signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { isAbort } from "../../client/kernel";
import type { MenuEntry } from "../controls/menu";
import type { Notice } from "../frame/notice";
import { pluralOf, quantityOf, quoted } from "../text/captions";
import type { Place, RecordStore } from "../view/record";
import { copyText } from "./clipboard";
import { columnName, roundedTo, tabbedText, writtenError } from "./csv";

/** What is copied, and what it is, in words. */
export interface Copied {
  text: string;
  words: string;
}

/** What a picture can copy; each throws an Error that says what has to be chosen first. */
export interface Copying {
  value: (ended: AbortSignal) => Copied | Promise<Copied>;
  row: (ended: AbortSignal) => Copied | Promise<Copied>;
}

/** Thrown where a reader has to choose something first. */
export class NothingChosen extends Error {}

/** Where the reader is in a picture. */
export interface PairAt {
  query: number | null;
  key: number | null;
}

const CHOOSE_A_VALUE = "Nothing copied: point at a query and a key, or pin them, and copy then.";
const CHOOSE_A_ROW = "Nothing copied: point at a query, or pin one, and copy then.";

/** The first of several places that has query and key. */
export function firstPair(places: readonly PairAt[]): { query: number; key: number } {
  for (const { query, key } of places) if (query !== null && key !== null) return { query, key };
  throw new NothingChosen(CHOOSE_A_VALUE);
}

/** The first query that any of several places has. */
export function firstQuery(places: readonly PairAt[]): number {
  for (const { query } of places) if (query !== null) return query;
  throw new NothingChosen(CHOOSE_A_ROW);
}

/** The weights of one query in one or several series. */
export interface QueryRow {
  query: number;
  series: readonly { name: string; weights: ArrayLike<number> }[];
  /** How far the weights may be off; of single keys, where that is known, in `errors`. */
  error: number;
  errors?: readonly ((key: number) => number)[];
}

/** How far the weights of a key may be off. */
function errorAt({ error, errors }: QueryRow, key: number): number {
  return errors ? Math.max(...errors.map((each) => each(key))) : error;
}

function tokenAt(texts: readonly string[], index: number): string {
  return `${quoted(texts[index] ?? "")} (${index})`;
}

/** One key's weight of a row: the number alone, or one a line where there are several. */
export function copiedValue(place: Place, row: QueryRow, key: number): Copied {
  const error = errorAt(row, key);
  const [first, ...more] = row.series.map(({ name, weights }) => ({
    name,
    number: roundedTo(weights[key] as number, error),
  }));
  if (!first) throw new NothingChosen(CHOOSE_A_VALUE);
  const at = `${tokenAt(place.queries.text, row.query)} → ${tokenAt(place.keys.text, key)}`;
  const within = error > 0 ? ` ± ${writtenError(error)}` : "";
  if (more.length === 0) {
    return { text: String(first.number), words: `Copied ${first.number}${within}: ${at}.` };
  }
  const all = [first, ...more];
  return {
    text: all.map(({ name, number }) => `${name}\t${number}`).join("\n"),
    words: `Copied ${all.length} ${pluralOf(quantityOf(place.stack))}${within}: ${at}.`,
  };
}

/** A row as a table: one key a line, with the texts of the tokens. */
export function copiedRow(place: Place, row: QueryRow): Copied {
  const { query, series, error } = row;
  const names = series.length === 1 ? [columnName(place.stack)] : series.map(({ name }) => name);
  const columns = ["query", "query_token", "key", "key_token", ...names];
  const rows = place.keys.text.map((text, key) => {
    const own = errorAt(row, key);
    return [
      query,
      place.queries.text[query] ?? "",
      key,
      text,
      ...series.map(({ weights }) => roundedTo(weights[key] as number, own)),
      ...(error > 0 ? [writtenError(own)] : []),
    ];
  });
  const of = series.length === 1 ? "" : `, ${series.length} for each key`;
  return {
    text: tabbedText(error > 0 ? [...columns, "largest_error"] : columns, rows),
    words: `Copied the ${pluralOf(quantityOf(place.stack))} of ${tokenAt(place.queries.text, query)} to ${rows.length} keys${of}.`,
  };
}

/** What of a view copying needs. */
interface CopyingRoom {
  root: HTMLElement;
  copying: Signal<Copying | null>;
  notice: Signal<Notice | null>;
  record: Pick<RecordStore, "fail">;
  ended: AbortSignal;
}

/** Offers what a picture can copy while the picture is there. */
export function useCopying({ copying }: Pick<CopyingRoom, "copying">, offered: Copying): void {
  useLayoutEffect(() => {
    copying.value = offered;
    return () => {
      if (copying.peek() === offered) copying.value = null;
    };
  }, []);
}

/** Copies, and says what or why not. */
async function copy(
  { copying, notice, root, record, ended }: CopyingRoom,
  what: keyof Copying,
): Promise<void> {
  const offered = copying.peek();
  if (!offered) return;
  let copied: Copied;
  try {
    copied = await offered[what](ended);
  } catch (reason) {
    if (isAbort(reason)) return;
    if (reason instanceof NothingChosen) notice.value = { words: reason.message };
    else record.fail(reason);
    return;
  }
  if (await copyText(copied.text, root)) notice.value = { words: copied.words };
  else {
    notice.value = {
      words: "This page may not use the clipboard. Copy the text by hand.",
      offer: { kind: "text", name: what === "value" ? "Value" : "Row", text: copied.text },
    };
  }
}

/** The entries of a view's menu. */
export function copyEntries(context: CopyingRoom): MenuEntry[] {
  if (!context.copying.value) return [];
  return [
    { label: "Copy value", run: () => copy(context, "value") },
    { label: "Copy row", run: () => copy(context, "row") },
  ];
}

/** Does what a key asks for; false where it asks for nothing here. */
export function copyByKey(context: CopyingRoom, event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || !context.copying.peek()) return false;
  const what = ({ c: "value", C: "row" } as const)[event.key];
  if (!what) return false;
  copy(context, what);
  return true;
}
