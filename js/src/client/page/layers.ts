/** The layers that an exported page contains, inflated when they are asked for. */

import type { Range, StackDescription } from "../protocol";
import { once, Recent } from "../recent";
import { keptHeads } from "../source";
import { type EmbeddedPiece, type Rows, wholeRows } from "./rows";
import { type EmbeddedKeys, sparseRows } from "./sparse";
import type { VectorCarrier } from "./vectors";

/** Bytes that are kept; a layer that was dropped is inflated again when it is asked for. */
const KEPT_BYTES = 64_000_000;

/** A layer's weights, in one of the forms; where there are none, its queries and keys are embedded. */
export type EmbeddedBlock = EmbeddedPiece | EmbeddedKeys;

/** Rows of a layer that the page has once more by themselves: those that its view opens with. */
export type EmbeddedRows = EmbeddedBlock & { rows: Range };

/** Where a layer is: the model's own number. */
export interface LayerPlace {
  stack: string;
  layer: number;
}

function isOf(piece: LayerPlace, wanted: LayerPlace): boolean {
  return piece.stack === wanted.stack && piece.layer === wanted.layer;
}

function has({ rows }: EmbeddedRows, [top, bottom]: Range): boolean {
  return rows[0] <= top && bottom <= rows[1];
}

/** Rows that are asked for by their numbers in the layer. */
async function rowsFrom(block: EmbeddedRows): Promise<Rows> {
  const [first] = block.rows;
  const rows = await (block.encoding === "strongest-keys" ? sparseRows(block) : wholeRows(block));
  const { write } = rows;
  return {
    ...rows,
    add: (heads, row, ...to) => rows.add(heads, row - first, ...to),
    ...(write && { write: (head, row, ...to) => write(head, row - first, ...to) }),
    range: (head, row) => rows.range(head, row - first),
  };
}

/** Finds a layer's weights, whichever form they are embedded in. */
export class EmbeddedLayers {
  readonly #stacks: StackDescription[];
  readonly #blocks: EmbeddedBlock[];
  readonly #firstRows: EmbeddedRows[];
  readonly #maps: EmbeddedPiece[];
  readonly #vectors: VectorCarrier;
  readonly #kept = new Recent<Promise<Rows>>(KEPT_BYTES);

  constructor(
    stacks: StackDescription[],
    blocks: EmbeddedBlock[],
    maps: EmbeddedPiece[],
    vectors: VectorCarrier,
    firstRows: EmbeddedRows[] = [],
  ) {
    this.#stacks = stacks;
    this.#blocks = blocks;
    this.#firstRows = firstRows;
    this.#maps = maps;
    this.#vectors = vectors;
  }

  /**
   * All weights of a layer, or at least those of some rows.
   *
   * @throws Error where the page does not contain it.
   */
  async rows(at: LayerPlace, wanted?: Range): Promise<Rows> {
    const first = wanted && this.#firstRows.find((each) => isOf(each, at) && has(each, wanted));
    if (first) return this.#once("first rows", at, async () => rowsFrom(first));
    return this.#once("rows", at, async () => {
      const block = this.#blocks.find((each) => isOf(each, at));
      if (block?.encoding === "strongest-keys") return sparseRows(block);
      if (block) return wholeRows(block);
      const computed = await this.#vectors.rows(at);
      if (computed) return computed;
      throw new Error(`This page does not contain layer ${at.layer} of "${at.stack}".`);
    });
  }

  /** How many weights the page contains of a layer; 0 where none. */
  size(at: LayerPlace): number {
    const block = this.#blocks.find((each) => isOf(each, at));
    const [heads, rows, columns] = block?.shape ?? this.#vectors.shape(at);
    return heads * rows * columns;
  }

  /** Small maps of a layer, where they are embedded beside its weights. */
  async maps(at: LayerPlace): Promise<Rows | null> {
    const maps = this.#maps.find((each) => isOf(each, at));
    return maps ? this.#once("maps", at, () => wholeRows(maps)) : null;
  }

  /** Where heads stand among those of a layer that were kept. */
  places({ stack: name, layer }: LayerPlace, heads: readonly number[]): number[] {
    const stack = this.#stacks.find((each) => each.name === name);
    const kept = stack?.heads && keptHeads(stack, layer);
    if (!kept) return [...heads];
    return heads.map((head) => {
      const place = kept.indexOf(head);
      if (place < 0) throw new Error(`Head ${head} of layer ${layer} was not kept.`);
      return place;
    });
  }

  #once(kind: string, { stack, layer }: LayerPlace, make: () => Promise<Rows>): Promise<Rows> {
    return once(this.#kept, JSON.stringify([kind, stack, layer]), make, ({ bytes }) => bytes);
  }
}
