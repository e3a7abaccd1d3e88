/** Maps of single heads: those in sight are asked for, and those that left it no longer. */

import { type Signal, signal } from "@preact/signals";
import { Recent } from "../channel/recent";
import { LARGEST_REPLY, type Range, type Source } from "../channel/source";
import { same } from "../ui/state";

/** One head's matrix, pooled by the largest weight where it is too big. */
export interface HeadMap {
  /** Row-major, `rows * columns`. */
  values: Float32Array;
  rows: number;
  columns: number;
  /** The largest weight that can occur. */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
}

/** The queries and keys that maps are of; null for all. */
export interface Part {
  rows: Range;
  columns: Range;
}

/** What maps are of, and how fine they are. */
export interface MapSet {
  stack: string;
  size: number;
  part: Part | null;
}

/** Which maps are wanted. */
export interface Wanted extends MapSet {
  /** Heads by layer. */
  layers: [number, number[]][];
}

/** What is the same in all maps of a set. */
export interface Sample extends Omit<HeadMap, "values"> {
  stack: string;
}

interface Asked {
  keys: Set<string>;
  answered: Promise<void>;
  controller: AbortController;
}

/** Bytes of maps that are kept: some 4,000 heads at 32 x 32. */
const KEPT_BYTES = 64_000_000;

function keyOf({ stack, size, part }: MapSet, layer: number, head: number): string {
  const of = part ? `${part.rows} ${part.columns}` : "";
  return `${layer} ${head} ${size} ${of} ${stack}`;
}

export class HeadMaps {
  /** Counts what has come, so that who draws hears of it. */
  readonly arrivals: Signal<number> = signal(0);
  /** Of the maps that came last. */
  readonly sample: Signal<Sample | null> = signal(null);
  readonly #source: Source;
  readonly #kept = new Recent<HeadMap>(KEPT_BYTES);
  readonly #asked = new Set<Asked>();
  /** How many heads were kept of a layer: all of them are asked for by no list. */
  readonly #numHeads: (stack: string, layer: number) => number;

  constructor(source: Source, numHeads: (stack: string, layer: number) => number) {
    this.#source = source;
    this.#numHeads = numHeads;
  }

  get(set: MapSet, layer: number, head: number): HeadMap | undefined {
    return this.#kept.get(keyOf(set, layer, head));
  }

  /** Asks for what is missing, and gives up on what was asked for and is wanted no longer. */
  async load(wanted: Wanted): Promise<void> {
    const needed = new Set<string>();
    for (const [layer, heads] of wanted.layers)
      for (const head of heads) needed.add(keyOf(wanted, layer, head));
    for (const asked of this.#asked)
      if (![...asked.keys].some((key) => needed.has(key))) asked.controller.abort();
    const coming = [...this.#asked].filter((asked) => !asked.controller.signal.aborted);
    const onTheWay = new Set(coming.flatMap((asked) => [...asked.keys]));
    for (const [layer, heads] of wanted.layers) {
      const missing = heads.filter((head) => {
        const key = keyOf(wanted, layer, head);
        return !onTheWay.has(key) && this.#kept.get(key) === undefined;
      });
      const atOnce = Math.max(1, Math.floor(LARGEST_REPLY / wanted.size ** 2));
      for (let from = 0; from < missing.length; from += atOnce)
        coming.push(this.#ask(wanted, layer, missing.slice(from, from + atOnce)));
    }
    await Promise.all(coming.map((asked) => asked.answered));
  }

  #ask(wanted: Wanted, layer: number, heads: number[]): Asked {
    const { stack, size, part } = wanted;
    const controller = new AbortController();
    const every = heads.length === this.#numHeads(stack, layer);
    const request = { stack, layer, size, ...(every ? {} : { heads }), ...part };
    const answered = this.#source
      .maps(request, controller.signal)
      .then((piece) => {
        const { rows, columns, maximum, error } = piece;
        heads.forEach((head, i) => {
          const values = piece.matrices[i] as Float32Array;
          const map = { values, rows, columns, maximum, error };
          this.#kept.set(keyOf(wanted, layer, head), map, values.byteLength);
        });
        const sample = { stack, rows, columns, maximum, error };
        if (!same(this.sample.peek(), sample)) this.sample.value = sample;
        this.arrivals.value += 1;
      })
      .finally(() => this.#asked.delete(asked));
    const asked: Asked = {
      keys: new Set(heads.map((head) => keyOf(wanted, layer, head))),
      answered,
      controller,
    };
    this.#asked.add(asked);
    return asked;
  }

  /** Gives up on everything. */
  end(): void {
    for (const asked of this.#asked) asked.controller.abort();
  }
}

/** The strongest weight of a map: its cell, row by row, and its value; null where all are 0. */
export function strongest(map: HeadMap): { row: number; column: number; weight: number } | null {
  let best = -1;
  let weight = 0;
  for (let i = 0; i < map.values.length; i++) {
    const value = map.values[i] as number;
    if (value > weight) {
      best = i;
      weight = value;
    }
  }
  if (best < 0) return null;
  return { row: Math.floor(best / map.columns), column: best % map.columns, weight };
}

/** Of a range of queries or keys, those that row or column `at` of `cells` covers. */
export function covered(at: number, cells: number, [start, stop]: Range): Range {
  const count = stop - start;
  return [start + Math.floor((at * count) / cells), start + Math.floor(((at + 1) * count) / cells)];
}
