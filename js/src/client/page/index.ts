/** Answers from the data that an exported page contains, as a kernel would. */

import type { Carrier, Connection, Reply } from "../carrier";
import type {
  BlockRequest,
  Description,
  EmbeddedShare,
  ImageHeader,
  ImageRequest,
  MapsRequest,
  PieceHeader,
  Pooled,
  RecordRequests,
  ScoresRequest,
  StackDescription,
  StrongestRequest,
  TileRequest,
} from "../protocol";
import type { Scores } from "../source";
import { type EmbeddedBlock, EmbeddedLayers } from "./layers";
import type { EmbeddedPiece, Rows } from "./rows";
import { pageStrongest } from "./strongest";
import { inflatedText } from "./texts";
import { parts, pooledMean, runs, type Starts, tileRange } from "./tiles";
import { type EmbeddedVectors, VectorCarrier } from "./vectors";

/** What an exported page contains. Deflated bytes are texts; see `texts.ts`. */
export interface PageData {
  format: 2;
  view: string;
  /** The view's traits when the page was made. */
  state: Record<string, unknown>;
  description: Description;
  /** Weights, layer by layer; none where queries and keys are embedded for them. */
  blocks: EmbeddedBlock[];
  /** How much of the weights they are. */
  embedded?: EmbeddedShare;
  /** Small maps of all heads, where pooling the weights would take long. */
  maps: EmbeddedPiece[];
  /** Scores of all heads, by pattern. */
  scores?: { stack: string; pattern: string; scores: Scores }[];
  /** Queries and keys, where the view shows them, or weights are computed from them. */
  vectors?: EmbeddedVectors;
  /** Pictures that the model saw, where there are any: deflated bytes, three a pixel. */
  images?: (ImageHeader & { data: string })[];
}

/** At most this many weights of a layer are pooled here to maps that are finer than the embedded ones. */
const POOLED_WEIGHTS = 4_000_000;

/** What a page answers, by the request's name. */
export type Answers<R> = { [N in keyof R]?: (args: R[N]) => Reply | Promise<Reply> };

/** A carrier that always answers. */
export class PageCarrier implements Carrier {
  readonly live = false;
  readonly #data: PageData;
  readonly #layers: EmbeddedLayers;
  readonly #answers: Answers<RecordRequests>;

  /** @throws Error when the data are of a format that this bundle does not know. */
  constructor(data: PageData) {
    if (data.format !== 2) {
      throw new Error(`The page’s data have format ${String(data.format)}; format 2 is known.`);
    }
    this.#data = data;
    const { blocks, maps, description, embedded } = data;
    const vectors = new VectorCarrier(data.vectors ?? { layers: [], arrays: [] });
    this.#layers = new EmbeddedLayers(blocks, maps, vectors);
    this.#answers = {
      describe: () => ({ header: saidOf(description, embedded), data: null }),
      block: (args) => this.#block(args),
      maps: (args) => this.#maps(args),
      tile: (args) => this.#tile(args),
      scores: (args) => this.#scores(args),
      strongest: (args) => this.#strongest(args),
      vectors: (args) => vectors.reply(args),
      image: (args) => this.#image(args),
    };
  }

  async ask(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
    const answer = (this.#answers as Answers<Record<string, object>>)[name];
    if (!answer) throw new Error(`An exported page cannot answer “${name}”.`);
    const reply = await answer(args);
    signal?.throwIfAborted();
    return reply;
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async #block(request: BlockRequest): Promise<Reply> {
    return blockReply(await this.#layers.rows(request), request);
  }

  async #maps(request: MapsRequest): Promise<Reply> {
    const small = await this.#layers.maps(request);
    const part = request.rows !== undefined || request.columns !== undefined;
    const weights = this.#layers.size(request);
    // The embedded maps are of all weights. Those pooled from strongest keys would show, in place of
    // weak weights, where a row's keys end.
    const all = this.#data.embedded?.form !== "strongest" && weights <= POOLED_WEIGHTS;
    const finer = small !== null && request.size > Math.max(small.shape[1], small.shape[2]);
    // They are of the whole text; a part of them would be coarse.
    const pooled = !small || (weights > 0 && (part || (finer && all)));
    const from = pooled ? await this.#layers.rows(request) : small;
    const [count, rows, columns] = from.shape;
    const heads = request.heads ?? Array.from({ length: count }, (_, head) => head);
    if (!pooled) return blockReply(from, { heads, rows: [0, rows], columns: [0, columns] });
    const starts = {
      rows: parts(request.rows ?? [0, rows], request.size),
      columns: parts(request.columns ?? [0, columns], request.size),
    };
    const groups = heads.map((head) => [head]);
    return pooledReply(from, groups, starts, "max");
  }

  async #tile(request: TileRequest): Promise<Reply> {
    const rows = await this.#layers.rows(request);
    const each = 2 ** request.level;
    const starts = {
      rows: runs(tileRange(request.row, request.level, rows.shape[1]), each),
      columns: runs(tileRange(request.column, request.level, rows.shape[2]), each),
    };
    return pooledReply(rows, [request.heads], starts, request.pooled);
  }

  #scores(request: ScoresRequest): Reply {
    const found = this.#data.scores?.find(
      (each) => each.stack === request.stack && each.pattern === request.pattern,
    );
    if (!found) throw new Error(`This page does not contain scores for “${request.pattern}”.`);
    return { header: found, data: null };
  }

  async #strongest(request: StrongestRequest): Promise<Reply> {
    const stack = this.#data.description.stacks.find((each) => each.name === request.stack);
    const rows = await this.#layers.rows(request);
    return pageStrongest(rows, request, stack as StackDescription);
  }

  async #image({ index }: ImageRequest): Promise<Reply> {
    const image = this.#data.images?.[index];
    if (!image) throw new Error(`This page does not contain image ${index}.`);
    return { header: image, data: await inflatedText(image.data) };
  }
}

/** A description with what the page leaves out of the record. */
function saidOf(description: Description, embedded?: EmbeddedShare): Description {
  if (!embedded) return description;
  const stacks = description.stacks.map((stack) => ({ ...stack, embedded }));
  return { ...description, stacks };
}

/** Floats, no less exact than what they come from. */
function replyOf(from: Rows, values: Float32Array, shape: [number, number, number]): Reply {
  const { maximum, error, sampled } = from;
  const header: PieceHeader = { shape, encoding: "float32", maximum, error };
  return { header: { ...header, ...(sampled && { sampled }) }, data: values };
}

/** Some heads' weights of some queries and keys. */
function blockReply(
  from: Rows,
  { heads, rows, columns }: Pick<BlockRequest, "heads" | "rows" | "columns">,
): Reply {
  const [top, bottom] = rows;
  const [left, right] = columns;
  const width = right - left;
  const values = new Float32Array(heads.length * (bottom - top) * width);
  const write = from.write ?? ((head, ...where) => from.add([head], ...where));
  let offset = 0;
  for (const head of heads) {
    for (let row = top; row < bottom; row++) {
      write(head, row, left, values.subarray(offset, offset + width));
      offset += width;
    }
  }
  return replyOf(from, values, [heads.length, bottom - top, width]);
}

/** One pooled matrix for each group of heads, whose mean it is of. */
function pooledReply(
  from: Rows,
  groups: readonly (readonly number[])[],
  starts: Starts,
  pooled: Pooled,
): Reply {
  const [numRows, numColumns] = [starts.rows.length - 1, starts.columns.length - 1];
  const values = new Float32Array(groups.length * numRows * numColumns);
  groups.forEach((heads, i) => {
    values.set(pooledMean(from, heads, starts, pooled), i * numRows * numColumns);
  });
  return replyOf(from, values, [groups.length, numRows, numColumns]);
}
