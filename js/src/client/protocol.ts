/**
 * Requests and what replies say of themselves. Written by `make protocol` from the classes in
 * `attnviz/server/server.py`, `attnviz/embedding/server/server.py` and `attnviz/atlas/server.py`:
 * change those.
 */

/** A half-open range [start, stop). */
export type Range = [number, number];

export type Scaling = "norms" | "none";

export interface Placing {
  scaling: Scaling;
  translate: boolean;
  lift: boolean;
}

export type Method = "pca" | "tsne" | "umap";

export type Dimensions = 2 | 3;

/** How the points of heads of a layer are placed, and how they are projected. */
export interface PlotOptions {
  stack: string;
  layer: number;
  way: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity: number;
  neighbors: number;
  seed: number;
}

/** The plot of one head. */
export interface HeadPlot {
  stack: string;
  layer: number;
  way: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity: number;
  neighbors: number;
  seed: number;
  head: number;
}

/** Of each point of one side: its text, its position in it and its entry of the vocabulary. */
export interface PointTokens {
  text: number[];
  position: number[];
  token: number[];
}

/** What points are coloured by that the reader gave. */
export interface ColumnValues {
  name: string;
  /** null: its values are numbers. */
  categories: string[] | null;
  /** Of each point a number or the index of a category; null where it is not known. */
  queries: (number | null)[];
  keys: (number | null)[];
}

/** What is not exact on the plots of some layers, in a sentence. */
export interface CorpusCaveat {
  layers: number[];
  words: string;
  /** "moving": only where the keys are moved. */
  kind?: "moving" | "bias";
}

/** A run of tokens that are the patches of one image, row by row from the top left. */
export interface CorpusGrid {
  text: number;
  side: "both" | "queries" | "keys";
  /** Which of the text's images. */
  image: number;
  /** Position of the first patch. */
  start: number;
  rows: number;
  columns: number;
}

/** What the points of a stack are. */
export interface CorpusPoints {
  num_queries: number;
  num_keys: number;
  /** How many points there would be without sampling, and of how many texts. */
  in_all: number;
  texts_in_all: number;
  /** Whether each text that has points has all its tokens. */
  whole: boolean;
  /** Texts that could not be read, being empty or too long. */
  left_out?: number;
  /** Whether texts or tokens are missing because there were points enough. */
  stopped?: boolean;
  seed: number;
  names: string[];
  /** How many tokens each text has, 0 where it has no points. */
  text_tokens: number[];
  vocabulary: string[];
  /** How often each entry of the vocabulary occurs in all texts that were read. */
  frequency: number[];
  /** Entries of the vocabulary. */
  punctuation: number[];
  special: number[];
  queries: PointTokens;
  /** null: the same tokens as the queries. */
  keys: PointTokens | null;
  columns: ColumnValues[];
  caveats: CorpusCaveat[];
  /** How many images there are whose patches are tokens. */
  images: number;
  grids?: CorpusGrid[];
}

/** An attention sink's logit, and the weight that it takes from a row. */
export interface SinkOfRow {
  logit: number;
  weight: number;
}

/** What a whole row shares, whichever of its keys were asked for. */
export interface RowHeader {
  scale: number;
  softcap: number | null;
  has_bias: boolean;
  sink: SinkOfRow | null;
  /** Of all logits and the sink; null where no key is allowed. */
  log_sum_exp: number | null;
  head: number;
  num_heads: number;
  /** The key head that this head reads. */
  key_head: number;
  num_key_heads: number;
  /** Keys of the whole row that the mask lets through. */
  num_allowed: number;
  /** The strongest keys of the whole row, with their weights. */
  strongest: [number, number][];
  /** Largest absolute error of a weight and of a logit. */
  error: number;
  logit_error: number;
  /** Queries of each head that these were measured on; all when left out. */
  measured?: number;
}

/** How far an answer is. */
export interface Later {
  /** What is being done. */
  doing: string;
  /** How far that is, 0 to 1. */
  progress: number;
  /** What it still takes, measured on what is done; null where that is not known yet. */
  seconds_left: number | null;
}

/** What any reply may say in place of its answer: the same request, sent again, goes on. */
export interface LaterHeader {
  later: Later;
}

/** A role that a head has, with the evidence. */
export interface AtlasRole {
  /** Index in `AtlasStack.roles`. */
  role: number;
  /** Mean over texts and its standard error. */
  score: number;
  error: number;
  /** Mean score of the baseline, and by how much the head's score exceeds it. */
  baseline: number;
  difference: number;
  /** 95% confidence interval of the difference. */
  low: number;
  high: number;
  /** Corrected for the number of heads and roles. */
  p: number;
  /** In how many texts it could be scored. */
  texts: number;
}

/** Numbers of every head of a stack. */
export interface AtlasTable {
  /**
   * By statistic, layer and head: the mean over texts and its standard error; null where it is not
   * defined.
   */
  means: (number | null)[][][];
  errors: (number | null)[][][];
  /** Likewise; an empty list where a statistic has no baseline. */
  baselines: (number | null)[][][];
  /** By statistic, layer and head: how many texts the mean is of. */
  texts: number[][][];
  /** By layer and head, the strongest first; an empty list where a head has none. */
  roles: AtlasRole[][][];
}

/** Tokens of one side that are kept, text by text, in the order of `AtlasTexts.numbers`. */
export interface AtlasTokens {
  /** Ascending, as the text has them. */
  positions: number[][];
  /** Entries of the vocabulary. */
  tokens: number[][];
  /** By system of classes, text and token; -1 where it is not known. */
  classes: number[][][];
}

/** What is kept of the texts that edges are in: the tokens around their queries and keys. */
export interface AtlasTexts {
  /** Of the texts, ascending, as they were given. */
  numbers: number[];
  /** Each different token once. */
  vocabulary: string[];
  queries: AtlasTokens;
  /** null: the same tokens as the queries. */
  keys: AtlasTokens | null;
}

/** Edges of a layer's heads, one after the other. */
export interface EdgeColumns {
  /** Index of the head in the layer, ascending. */
  head: number[];
  weight: number[];
  /** Number of the text. */
  text: number[];
  /** Positions in that text. */
  query: number[];
  key: number[];
}

/** Edges of a layer's heads. */
export interface AtlasEdges {
  /** The largest weights of all texts, descending within a head. */
  strongest: EdgeColumns;
  /**
   * A uniform sample of queries, and of each a key in proportion to its weight: a share of these
   * edges estimates a share of attention.
   */
  sampled: EdgeColumns;
}

/** What the record holds: in the header, or deflated in parts where the text is long. */
export interface DescribeRequest {
  part?: number;
}

/** What a reply says about the bytes in its buffer, three to a pixel. */
export interface ImageHeader {
  height: number;
  width: number;
}

export interface PatchGrid {
  image: number;
  start: number;
  rows: number;
  columns: number;
}

export interface Candidate {
  text: string;
  id: number;
  probability: number;
}

export interface Prediction {
  query: number;
  token: Candidate;
  candidates: Candidate[];
  row: number | null;
}

/** Display tokens of one side of a stack. */
export interface TokenList {
  text: string[];
  /** Indices of special tokens. */
  special: number[];
  /** 0 for the first sequence of a pair, 1 for the second, null for special tokens. */
  sequence: (number | null)[];
  /** Runs of patches, in order; left out where there are none. */
  grids?: PatchGrid[];
  /** Tokens that the model produced, in order; left out where there are none. */
  predictions?: Prediction[];
}

export type PageForm = "all" | "vectors" | "strongest";

/** How an exported page embeds weights, and how much of them. */
export interface EmbeddedShare {
  /** Every weight, queries and keys that weights are computed from, or the strongest keys. */
  form: PageForm;
  /** Share of all weight that is embedded as it is; of all sizes, where numbers are signed. */
  covered: number;
  /** Largest absolute error of a weight, as it was measured. */
  error: number;
}

/** One stack of attention layers: "self", "encoder", "decoder", "cross", ... */
export interface StackDescription {
  name: string;
  layers: number[];
  heads_per_layer: number[];
  normalized: boolean;
  signed?: boolean;
  measure?: string;
  maximum: number;
  causal: boolean;
  vectors: boolean;
  patterns: string[];
  sampled?: number;
  query_tokens: TokenList;
  /** null: the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** How much of its weights an exported page embeds; left out where there is a kernel. */
  embedded?: EmbeddedShare;
}

/** What a record holds. */
export interface Description {
  model: string;
  /** The model's name as a part of a file's name; left out where it has none. */
  file?: string;
  notes: string[];
  /** Sizes of the pictures that the model saw; left out where there are none. */
  images?: ImageHeader[];
  stacks: StackDescription[];
}

/** What a reply that comes in parts says. */
export interface PartHeader {
  /** How many there are. */
  parts: number;
}

/** Weights of some heads, rows and columns of a layer. */
export interface BlockRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  columns: Range;
}

export type Encoding = "uint8-sqrt" | "int8-sqrt" | "float32" | "float32-deflated";

/** What a reply says about the numbers in its buffer. */
export interface PieceHeader {
  /** Heads, rows (queries) and columns (keys), row-major. */
  shape: [number, number, number];
  encoding: Encoding;
  /**
   * The value that the largest code stands for: 1 for normalised weights. Of signed numbers the
   * largest size: the smallest code stands for minus as much.
   */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
}

/** Heads' maps, pooled by the largest weight (or size, with its sign) to at most `size` squared. */
export interface MapsRequest {
  stack: string;
  layer: number;
  size: number;
  /** All heads, all queries and all keys where they are left out. */
  heads?: number[];
  rows?: Range;
  columns?: Range;
}

/** What a reply says about maps. */
export interface MapsHeader {
  shape: [number, number, number];
  encoding: Encoding;
  maximum: number;
  error: number;
  pooled: string;
  /**
   * Of each map the cell with the largest weight, counted row by row, and that weight, exact. Of
   * signed numbers the one of the largest size, with its sign.
   */
  largest?: [number, number][];
  /** The queries that stand for all, one a row; left out where all were gone through. */
  sampled?: number[];
}

export type Combine = "separate" | "mean" | "max";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

/**
 * The strongest keys of some queries anywhere in a text.
 *
 * Of signed numbers the largest sizes, with their signs; sums are of sizes.
 */
export interface StrongestRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  /** Keys for each query. */
  k: number;
  /** A matrix for each head, or one for all. */
  combine: Combine;
  /** Keys that are none of the strongest: "special", "first", or their number. */
  leave_out: (string | number)[];
  /** Of a pair of texts, whose keys are looked at. */
  pair: Pair;
}

/** What a reply says about its buffer. */
export interface StrongestHeader {
  /** Matrices, rows, and keys a row. */
  shape: [number, number, number];
}

export type Pooled = "mean" | "max";

/**
 * A square of `TILE` by `TILE` cells of a head's matrix, or of the mean of several.
 *
 * At level l a cell stands for 2^l by 2^l weights, and tile (row, column) begins at query `row *
 * TILE * 2^l` and key `column * TILE * 2^l`; tiles at the end are smaller. Signed numbers do not
 * cancel out in a cell: it has the mean, or the largest, of those of one sign, the larger.
 */
export interface TileRequest {
  stack: string;
  layer: number;
  heads: number[];
  level: number;
  row: number;
  column: number;
  pooled: Pooled;
}

/** How to read the cells of a tile. */
export interface TileHeader {
  shape: [number, number, number];
  encoding: Encoding;
  maximum: number;
  error: number;
  /** One query in so many stands for all; left out where all were gone through. */
  every?: number;
}

/** A pattern's score of every head of a stack; of a long text estimated from some queries. */
export interface ScoresRequest {
  stack: string;
  pattern: string;
}

/** A pattern's scores. */
export interface ScoresHeader {
  /** Of every head of a stack, layer by layer; null where a score is not defined. */
  scores: (number | null)[][];
}

/** One row of a head: its query, some of its keys, and how its weights come from them. */
export interface VectorsRequest {
  stack: string;
  layer: number;
  head: number;
  /** The query. */
  token: number;
  keys: Range;
}

/** Name and shape of what a buffer holds next. */
export interface VectorsPart {
  name: string;
  shape: number[];
}

/** What a reply says about its buffer. */
export interface VectorsHeader {
  scale: number;
  softcap: number | null;
  has_bias: boolean;
  sink: SinkOfRow | null;
  log_sum_exp: number | null;
  head: number;
  num_heads: number;
  key_head: number;
  num_key_heads: number;
  num_allowed: number;
  strongest: [number, number][];
  error: number;
  logit_error: number;
  measured?: number;
  /**
   * `query` (head_dim), `keys` (keys, head_dim), and of each key `bias`, `allowed` (0 or 1),
   * `logits` (minus infinity where not allowed) and `weights`.
   */
  parts: VectorsPart[];
  /** Weight of the keys asked for, together. */
  weight_in_range: number;
}

/** One of the record's images, in as many pixels as fit into a reply. */
export interface ImageRequest {
  index: number;
}

/** One change of the attention: a pair of query and key, a head's output, or a token. */
export interface WantedChange {
  kind: "knockout" | "ablate" | "hide";
  stack: string;
  /** null is all. */
  layer: number | null;
  head: number | null;
  /** What the kind needs: both of a pair, the key of a token that is hidden. */
  query: number | null;
  key: number | null;
  /** Whether a pair is cut before the softmax, so that the other keys get its weight. */
  renormalize: boolean;
}

/** Run the view's model with its attention changed; without changes, as it is. */
export interface InterveneRequest {
  changes: WantedChange[];
  /** The view's `answer`: a token, or a token and another; empty for the default. */
  measured?: (number | string)[];
}

/** One of the likeliest answers, with its number and its probability. */
export interface Likely {
  text: string;
  id: number;
  probability: number;
}

/** What some changes do to the model's answer. */
export interface OutcomeHeader {
  /** The answer before and after, with the noise. */
  sentence: string;
  /** Each change, in words. */
  described: string[];
  /** The same by its numbers. */
  effect: string;
  measure: string;
  before: number;
  after: number;
  noise: number;
  divergence: number | null;
  likeliest_before: Likely[];
  likeliest_after: Likely[];
}

/** The stacks of the run that some changes make. */
export interface ChangedRequest {
  changes: WantedChange[];
}

/** One stack of attention layers, without its tokens. */
export interface StackNumbers {
  name: string;
  /** The model's own layer numbers. */
  layers: number[];
  /** How many heads each layer has: as many as `layers`. */
  heads_per_layer: number[];
  /** Whether rows sum to one. */
  normalized: boolean;
  /** Whether numbers may be negative; left out where they are not. */
  signed?: boolean;
  /** What the numbers are; left out where they are weights. */
  measure?: string;
  /** Largest weight that can occur: 1 where `normalized`. Largest size where `signed`. */
  maximum: number;
  causal: boolean;
  /** Whether queries and keys are known, and not the weights alone. */
  vectors: boolean;
  /** Names of the patterns that its heads can be scored by. */
  patterns: string[];
  /**
   * Queries that scores of heads are estimated from; only where whole maps of all heads take too
   * long, so that maps are of some queries as well.
   */
  sampled?: number;
}

/** A stack of a changed run, beside the one that it is of. */
export interface ChangedStack {
  /** The name of the stack that is described. */
  stack: string;
  /** Of the changed run, and of what it has more than the unchanged one. */
  after: StackNumbers;
  difference: StackNumbers;
  /** Tokens that the model produced in the changed run. */
  predictions: Prediction[];
}

/** The stacks of a changed run. */
export interface ChangedHeader {
  stacks: ChangedStack[];
}

/** What is known of a pair of query and key in one head beside its weight. */
export interface EdgeRequest {
  stack: string;
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** The effect of cutting a pair on the answer. */
export interface Cut {
  /** Which cut it was, and the answer before and after. */
  words: string;
  /** The answer in words. */
  measure: string;
}

/** What is known of a pair of query and key beside its weight. */
export interface EdgeHeader {
  /** "waits" where it has not run yet, "ready" where it has. */
  model: "waits" | "ready";
  /** Of the value norm: what the pair adds as a share of what its row does. */
  share: number | null;
  /** Why that is not known; "" where it is, or where the model has not run. */
  why: string;
  /** Those that were asked for. */
  cuts: Cut[];
  /** Their largest noise; "" where none was asked for. */
  noise: string;
}

/** A part of the exported page of a view in some state. */
export interface PageRequest {
  part: number;
  state: object;
}

/** What a reply says about a part of a page. */
export interface PageHeader {
  parts: number;
  /** Of the file. */
  name: string;
}

/** What the corpus holds, without its tokens. */
export type DescribeCorpusRequest = Record<string, never>;

/** What the points of a stack are: JSON of `CorpusPoints`, deflated, in parts. */
export interface CorpusRequest {
  stack: string;
  part?: number;
}

/**
 * Small plots of all heads of some layers, by their principal components.
 *
 * x and y of every point, one after the other, 0 to 255 over a square; y grows upwards.
 */
export interface OverviewRequest {
  stack: string;
  layers: number[];
  way: Placing;
  part?: number;
}

/** Which head a small plot is of, and why there is none, in words. */
export interface OverviewHead {
  layer: number;
  head: number;
  problem: string | null;
}

/** What a reply says about small plots. */
export interface OverviewHeader {
  /** One point of so many is on them: the first, the one at `stride`, ... */
  stride: number;
  /** How many are. */
  points: number;
  heads: OverviewHead[];
}

/** The plot of one head as far as it is known: 16-bit codes, point after point. */
export interface ProjectionRequest {
  stack: string;
  layer: number;
  way: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  head: number;
  part?: number;
  /** Whether a plot that was cancelled or has failed is begun anew. */
  restart?: boolean;
}

export type State = "running" | "failed" | "cancelled" | "done";

/** How far a projection is. */
export interface Work {
  state: State;
  /** Steps done, of how many; 0 where it is not known yet. */
  done: number;
  of: number;
  /** The same for readers. */
  words: string;
}

/** What a reply says about a plot. */
export interface ProjectionHeader {
  dimensions: Dimensions;
  count: number;
  /** The corner of the box that holds the points, and its side, the same along all axes. */
  low: number[];
  size: number;
  /** Shares of variance along the axes; null where the method is not PCA. */
  explained: number[] | null;
  /** What queries were divided by and keys multiplied by. */
  factor: number;
  /** Why there is no plot, in words. */
  problem: string | null;
  /** null where nothing had to be waited for. */
  work: Work | null;
}

/** End a projection that runs. */
export interface CancelRequest {
  stack: string;
  layer: number;
  way: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  head: number;
}

/** How far the plots of some heads of a layer can be trusted. */
export interface TrustRequest {
  stack: string;
  layer: number;
  way: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  heads: number[];
}

/** How far distances of a head's plot follow its logits. */
export interface HeadTrustFigures {
  head: number;
  /**
   * The correlation of distance with q . k: of the vectors as the model has them, as they were
   * placed, and on the plot.
   */
  before: number | null;
  placed: number | null;
  plot: number | null;
  /** Share of a query's ten strongest keys that are among its ten nearest on the plot. */
  recall: number | null;
  /** What that share would be by chance. */
  chance: number | null;
  /** How many queries were measured, of how many. */
  queries: number;
  of: number;
}

/** How far the plots of some heads can be trusted; null of one that has none. */
export interface TrustHeader {
  heads: (HeadTrustFigures | null)[];
}

/** The length of every point's vector as the model has it: 16-bit codes from low to high. */
export interface NormsRequest {
  stack: string;
  layer: number;
  head: number;
  part?: number;
}

/** The smallest and the largest norm. */
export interface NormsHeader {
  low: number;
  high: number;
}

/** Mean weight by position in at most `size` by `size` bins; -1 where no pair is allowed. */
export interface AggregateRequest {
  stack: string;
  layer: number;
  head: number;
  size: number;
}

/** What a reply says about mean weights by position. */
export interface AggregateHeader {
  rows: number;
  columns: number;
  /** Where the bins begin, and where the last ends: one more than there are. */
  query_edges: number[];
  key_edges: number[];
  /** How many texts it is of, and of how many. */
  texts: number;
  of_texts: number;
  /** How many of their queries, and of how many: long texts are sampled. */
  queries: number;
  of_queries: number;
}

/** The strongest keys of a query that are points, or the queries that give a key most. */
export interface LinesRequest {
  stack: string;
  layer: number;
  head: number;
  point: number;
}

/** The attention lines of a point, the strongest first. */
export interface LinesHeader {
  points: number[];
  weights: number[];
  /** Share of the query's weight that the lines show. */
  covered: number;
  /** How many there are in all. */
  of: number;
}

/** A part of the exported page of an embedding view in some state. */
export interface CorpusPageRequest {
  part: number;
  state: object;
}

/** What the atlas is of, and the names of all that it tells of heads. */
export type DescribeAtlasRequest = Record<string, never>;

/** What one number of each head is. */
export interface AtlasStatistic {
  name: string;
  /** "share" (0 to 1), "bits", ...; "" where it has none. */
  unit: string;
  /** One sentence. */
  definition: string;
  /** Whether there is a mean by chance to compare it with (`docs/heads.md`). */
  baseline: boolean;
}

/** A role that heads are tested for, and what it means in one sentence. */
export interface AtlasRoleKind {
  name: string;
  definition: string;
}

/** A system of classes of tokens: its name and its values, which are numbered from 0. */
export interface AtlasClasses {
  name: string;
  values: string[];
}

/** A stack of layers, and what is known of its heads. */
export interface AtlasStack {
  name: string;
  layers: number[];
  /** How many heads each layer has. */
  heads_per_layer: number[];
  /** Whether no query attends to a later key. */
  causal: boolean;
  /** Whether queries and keys are the same tokens. */
  same_tokens: boolean;
  /** In the order of `AtlasTable.means`. */
  statistics: AtlasStatistic[];
  /** All that heads were tested for; `AtlasRole.role` counts them. */
  roles: AtlasRoleKind[];
  /** By how much a role's score must exceed its baseline. */
  margin: number;
  /** The false discovery rate over all heads and roles. */
  level: number;
  /** A label for each bin of a head's offsets: "-64" to "64", "first", "rest". */
  offsets: string[];
  /** The kind of token first, then the columns that were given. */
  classes: AtlasClasses[];
  /** Edges that are at hand of a head at most. */
  strongest: number;
  sampled: number;
  /** The same before a page left some out. */
  strongest_in_all: number;
  sampled_in_all: number;
}

/** What an atlas is of. */
export interface AtlasDescription {
  model: string;
  /** How many were read. */
  texts: number;
  tokens: number;
  /** Texts that could not be read, being empty or too long. */
  left_out: number;
  notes: string[];
  stacks: AtlasStack[];
}

/** Numbers and roles of all heads of a stack: JSON of `AtlasTable`, deflated, in parts. */
export interface StatisticsRequest {
  stack: string;
  part?: number;
}

/** The mean weight by offset of each head of a layer. */
export interface OffsetsRequest {
  stack: string;
  layer: number;
}

/**
 * What a reply says of the mean weights of a layer's heads by offset of key from query.
 *
 * float32, (heads, bins); NaN where no pair has the offset.
 */
export interface OffsetsHeader {
  bins: number;
}

/** The mean weight that a head's queries of each class give to keys of each class. */
export interface ClassesRequest {
  stack: string;
  layer: number;
  head: number;
  system: string;
}

/**
 * What a reply says of a head's mean weights by class of query and class of key.
 *
 * float32, (classes, classes), each row of one class of query; NaN where no query has this class.
 */
export interface ClassesHeader {
  classes: number;
}

/** What is kept of the texts that edges are in: JSON of `AtlasTexts`, deflated, in parts. */
export interface TextsRequest {
  stack: string;
  part?: number;
}

/** Edges of all heads of a layer: JSON of `AtlasEdges`, deflated, in parts. */
export interface EdgesRequest {
  stack: string;
  layer: number;
  part?: number;
}

/** A part of the exported page of an atlas in some state. */
export interface AtlasPageRequest {
  part: number;
  state: object;
}

/** What is asked of a record. */
export interface RecordRequests {
  describe: DescribeRequest;
  block: BlockRequest;
  maps: MapsRequest;
  strongest: StrongestRequest;
  tile: TileRequest;
  scores: ScoresRequest;
  vectors: VectorsRequest;
  image: ImageRequest;
  intervene: InterveneRequest;
  changed: ChangedRequest;
  edge: EdgeRequest;
  page: PageRequest;
}

/** What is asked of a corpus. */
export interface CorpusRequests {
  describe: DescribeCorpusRequest;
  corpus: CorpusRequest;
  overview: OverviewRequest;
  projection: ProjectionRequest;
  cancel: CancelRequest;
  trust: TrustRequest;
  norms: NormsRequest;
  aggregate: AggregateRequest;
  lines: LinesRequest;
  page: CorpusPageRequest;
}

/** What is asked of an atlas. */
export interface AtlasRequests {
  describe: DescribeAtlasRequest;
  statistics: StatisticsRequest;
  offsets: OffsetsRequest;
  classes: ClassesRequest;
  texts: TextsRequest;
  edges: EdgesRequest;
  page: AtlasPageRequest;
}
