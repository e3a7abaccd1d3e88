/** What the neuron view's state asks of a record, and the loading of it. */

import { askVectors, type Vectors } from "../../client/requests/vectors";
import type { Range, Source } from "../../client/source";
import { type Place, RECORD_DEFAULTS, type RecordState } from "../../ui/record";

/** The neuron view's traits; the names are Python's. */
export interface NeuronState extends RecordState {
  sort_dimensions: boolean;
}

export const NEURON_DEFAULTS: NeuronState = { ...RECORD_DEFAULTS, sort_dimensions: true };

/** Keys that are shown at once. */
export const MOST_KEYS = 64;

/** What has to be asked for. */
export interface Question {
  stack: string;
  layer: number;
  head: number;
  token: number;
  numKeys: number;
  /** null: around the strongest key, which nobody knows yet. */
  keys: Range | null;
}

/** A window that the reader moved; it counts while the place is the one that it was moved at. */
export interface MovedWindow {
  stack: string;
  key: number | null;
  start: number;
}

/** The query that is shown: the pinned one, or the last that is no special token. */
export function tokenOf(place: Place): number {
  if (place.token !== null) return place.token;
  const { text, special } = place.queries;
  const left = new Set(special);
  for (let token = text.length - 1; token >= 0; token--) if (!left.has(token)) return token;
  return Math.max(0, text.length - 1);
}

/** The head that is shown. */
export function headOf(place: Place): number {
  return place.chosen[0] ?? place.kept[0] ?? 0;
}

/** Neighbouring keys with this one in their middle, as far as there are keys. */
export function windowAround(key: number, numKeys: number): Range {
  return windowFrom(key - MOST_KEYS / 2, numKeys);
}

/** Neighbouring keys from this one on, as far as there are keys. */
export function windowFrom(start: number, numKeys: number): Range {
  const first = Math.max(0, Math.min(start, numKeys - MOST_KEYS));
  return [first, Math.min(numKeys, first + MOST_KEYS)];
}

/** What a place asks for; null where only its weights are known. */
export function questionOf(place: Place, moved: MovedWindow | null): Question | null {
  if (!place.stack.vectors) return null;
  const stack = place.stack.name;
  const numKeys = place.keys.text.length;
  let keys: Range | null = null;
  if (numKeys <= MOST_KEYS) keys = [0, numKeys];
  else if (moved && moved.stack === stack && moved.key === place.key) {
    keys = windowFrom(moved.start, numKeys);
  } else if (place.key !== null) keys = windowAround(place.key, numKeys);
  return { stack, layer: place.layer, head: headOf(place), token: tokenOf(place), numKeys, keys };
}

/** Loads what a question asks for. */
export async function load(
  source: Source,
  question: Question,
  signal: AbortSignal,
): Promise<Vectors> {
  const { stack, layer, head, token, numKeys } = question;
  const ask = (keys: Range): Promise<Vectors> =>
    askVectors(source, { stack, layer, head, token, keys }, signal);
  if (question.keys) return ask(question.keys);
  const first = await ask(windowFrom(0, numKeys));
  const strongest = first.header.strongest[0]?.[0] ?? 0;
  return strongest < first.keys[1] ? first : ask(windowAround(strongest, numKeys));
}
