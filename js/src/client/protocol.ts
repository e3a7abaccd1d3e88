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

/** Options of the plots of a layer's heads: placement (`way`), and method of the projection. */
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

/** Options of the plot of one head. */
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

/** Tokens of all queries or of all keys, with one entry per point in each list. */
export interface PointTokens {
  /** Index of the text. */
  text: number[];
  /** Position in the text. */
  position: number[];
  /** Index of the token in the vocabulary. */
  token: number[];
}

/** Values of one property of tokens (a column that the user passed), for the colours of points. */
export interface ColumnValues {
  name: string;
  /** Names of the categories, null if the values are numbers. */
  categories: string[] | null;
  /** Value of each point, null if unknown: a number, or the index of a category. */
  queries: (number | null)[];
  keys: (number | null)[];
}

/** Sentence about an inexactness of the plots of some layers. */
export interface CorpusCaveat {
  layers: number[];
  words: string;
  /**
   * "moving" is about the translation of keys. The view shows this caveat only if keys are
   * translated.
   */
  kind?: "moving" | "bias";
}

/** Tokens that are the patches of one image, row by row from the top left. */
export interface CorpusGrid {
  text: number;
  side: "both" | "queries" | "keys";
  /** Index of the image among the images of the text. */
  image: number;
  /** Position of the first patch among the tokens of the text. */
  start: number;
  rows: number;
  columns: number;
}

/** Description of the points of a stack. */
export interface CorpusPoints {
  num_queries: number;
  num_keys: number;
  /** Number of queries and keys of all texts that were read. */
  total_points: number;
  /** Number of texts from which the texts of the corpus were chosen. */
  total_texts: number;
  /** Whether all tokens of each text with points are points. */
  whole: boolean;
  /** Number of texts that could not be read because they are empty or too long. */
  num_skipped?: number;
  /** Whether some texts or tokens have no points because the limit of points was reached. */
  stopped?: boolean;
  seed: number;
  /** Title of each text. */
  names: string[];
  /** Number of query tokens of each text, 0 if the text has no points. */
  text_tokens: number[];
  vocabulary: string[];
  /** Number of occurrences of each vocabulary entry in all texts that were read. */
  frequency: number[];
  /** Indices of the vocabulary entries that are punctuation, or special tokens. */
  punctuation: number[];
  special: number[];
  /** Tokens of the queries. */
  queries: PointTokens;
  /** null if keys have the same tokens as queries. */
  keys: PointTokens | null;
  columns: ColumnValues[];
  caveats: CorpusCaveat[];
  /** Number of images whose patches are tokens. */
  images: number;
  grids?: CorpusGrid[];
}

/** Logit of an attention sink, and its weight in a row. */
export interface SinkOfRow {
  logit: number;
  weight: number;
}

/** Properties of a complete row, independent of the requested keys. */
export interface RowHeader {
  scale: number;
  softcap: number | null;
  has_bias: boolean;
  sink: SinkOfRow | null;
  /** Log-sum-exp of all logits and the sink, or null if no key is allowed. */
  log_sum_exp: number | null;
  head: number;
  num_heads: number;
  /** Key head that this head uses. */
  key_head: number;
  num_key_heads: number;
  /** Number of keys in the complete row that the mask allows. */
  num_allowed: number;
  /** Strongest keys of the complete row, with their weights. */
  strongest: [number, number][];
  /** Largest absolute error of a weight and of a logit. */
  error: number;
  logit_error: number;
  /** Number of queries per head on which the errors were measured. Omitted if on all queries. */
  measured?: number;
}

/** Progress of a pending reply. */
export interface ReplyProgress {
  /** Name of the current task. */
  doing: string;
  /** Finished share of the task, 0 to 1. */
  progress: number;
  /** Estimated remaining time of the task, or null without an estimate. */
  seconds_left: number | null;
}

/** Header of a reply that is not finished. Sending the same request again continues it. */
export interface PendingHeader {
  pending: ReplyProgress;
}

/** Role of a head, with the result of its test. */
export interface AtlasRole {
  /** Index into `AtlasStack.roles`. */
  role: number;
  /** Mean of the head's score over texts, and its standard error. */
  score: number;
  standard_error: number;
  /** Mean of the baseline over texts, and mean of the score minus the baseline. */
  baseline: number;
  difference: number;
  /** Bounds of the confidence interval of `difference`, with confidence 1 - `AtlasStack.level`. */
  low: number;
  high: number;
  /** P value of the difference, corrected for the number of heads and roles. */
  p: number;
  /** Number of texts in which the score is defined. */
  texts: number;
}

/** Statistics and roles of all heads of a stack, as nested lists. */
export interface AtlasTable {
  /**
   * `means[statistic][layer][head]` is the mean over texts, or null if it is undefined.
   * `standard_errors` has the standard errors of these means in the same order.
   */
  means: (number | null)[][][];
  standard_errors: (number | null)[][][];
  /** Means of the baselines in the same order. A statistic without a baseline has an empty list. */
  baselines: (number | null)[][][];
  /** Number of texts in each mean, in the same order. */
  texts: number[][][];
  /**
   * `roles[layer][head]` has the roles of a head, the strongest first. It is an empty list for a
   * head without a role.
   */
  roles: AtlasRole[][][];
}

/**
 * Tokens near edges, either for queries or for keys.
 *
 * Each attribute has one list per text, in the order of `AtlasTexts.numbers`.
 */
export interface AtlasTokens {
  /** Positions of the tokens in the text, ascending. */
  positions: number[][];
  /** Texts of the tokens, as indices into `AtlasTexts.vocabulary`. */
  tokens: number[][];
  /** `classes[system][text]` has the class of each token, or -1 for a token without a class. */
  classes: number[][][];
}

/** Tokens near the queries and near the keys of all edges of a stack. */
export interface AtlasTexts {
  /** Numbers of the texts in the corpus, ascending. */
  numbers: number[];
  /** Texts of all tokens, each only once. */
  vocabulary: string[];
  /** Tokens of the query texts. */
  queries: AtlasTokens;
  /** Tokens of the key texts. null if queries and keys are the same tokens. */
  keys: AtlasTokens | null;
}

/** Edges of all heads of a layer. Entry i of each list belongs to edge i. */
export interface EdgeColumns {
  /** Numbers of the heads, ascending. */
  head: number[];
  /** Attention weights. */
  weight: number[];
  /** Numbers of the texts in the corpus. */
  text: number[];
  /** Positions of query and key in the text. */
  query: number[];
  key: number[];
}

/** Edges of all heads of a layer. */
export interface AtlasEdges {
  /** Edges with the largest weights in the corpus. Within a head, the weights descend. */
  strongest: EdgeColumns;
  /**
   * Edges of a random sample. Each edge has a query drawn uniformly from the corpus, and a key
   * drawn with a probability proportional to its weight. A share of these edges estimates the same
   * share of the head's attention.
   */
  sampled: EdgeColumns;
}

/**
 * Description of the record.
 *
 * The header of the reply contains it. The description of a long text is deflated instead, and each
 * request returns one part of it.
 */
export interface DescribeRequest {
  part?: number;
}

/** Size of the image in a reply's buffer, which has three bytes per pixel. */
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

/** Displayed tokens of the queries or keys of a stack. */
export interface TokenList {
  text: string[];
  /** Indices of special tokens. */
  special: number[];
  /** 0 for the first sequence of a pair, 1 for the second, null for special tokens. */
  sequence: (number | null)[];
  /** Patch grids, in token order. Omitted if there are none. */
  grids?: PatchGrid[];
  /** Tokens that the model generated, in order. Omitted if there are none. */
  predictions?: Prediction[];
}

export type PageForm = "all" | "vectors" | "strongest";

/** Form in which an exported page embeds weights, and the share that it embeds. */
export interface EmbeddedShare {
  /**
   * Every weight, or the queries and keys from which weights are computed, or the strongest keys.
   */
  form: PageForm;
  /** Embedded share of the sum of all weights, or of all absolute values if numbers are signed. */
  covered: number;
  /** Largest measured absolute error of a weight. */
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
  /** null if the keys are the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** Share of the weights that an exported page embeds. Omitted in live views. */
  embedded?: EmbeddedShare;
}

/** Description of a record. */
export interface Description {
  model: string;
  /** Model name in a form fit for file names. Omitted if the model has no name. */
  file?: string;
  notes: string[];
  /** Sizes of the images in the model's input. Omitted if there are none. */
  images?: ImageHeader[];
  stacks: StackDescription[];
}

/** Header of a reply that is sent in parts. */
export interface PartHeader {
  /** Number of parts. */
  parts: number;
}

/** Weights of the given heads, rows and columns of a layer. */
export interface BlockRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  columns: Range;
}

export type Encoding = "uint8-sqrt" | "int8-sqrt" | "float32" | "float32-deflated";

/** Description of the numbers in a reply's buffer. */
export interface PieceHeader {
  /** Numbers of heads, rows (queries) and columns (keys), in row-major order. */
  shape: [number, number, number];
  encoding: Encoding;
  /**
   * Value of the largest code: 1 for normalized weights. For signed numbers, the smallest code has
   * the value `-maximum`.
   */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
}

/**
 * Max-pooled maps of heads, with at most `size` rows and columns.
 *
 * Signed numbers are pooled by absolute value and keep their sign.
 */
export interface MapsRequest {
  stack: string;
  layer: number;
  size: number;
  /** Default: all heads, all queries and all keys. */
  heads?: number[];
  rows?: Range;
  columns?: Range;
}

/** Description of the maps in a reply's buffer. */
export interface MapsHeader {
  shape: [number, number, number];
  encoding: Encoding;
  maximum: number;
  error: number;
  pooled: string;
  /**
   * Flat index (row-major) and exact value of the largest cell of each map. Signed numbers are
   * compared by absolute value.
   */
  largest?: [number, number][];
  /** Sampled queries, one per row of the map. Omitted if all queries were used. */
  sampled?: number[];
}

export type Combine = "separate" | "mean" | "max";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

/**
 * Strongest keys of the given queries among all keys of the text.
 *
 * Signed numbers are compared by absolute value and keep their sign. Sums add absolute values.
 */
export interface StrongestRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  /** Number of keys per query. */
  k: number;
  /** Whether each head has a matrix, or one matrix combines all heads. */
  combine: Combine;
  /** Keys to leave out: "special", "first", or their position. */
  leave_out: (string | number)[];
  /** Texts of a pair, such as "a-b": only keys in the second one are included. */
  pair: Pair;
}

/** Description of the strongest keys in a reply's buffer. */
export interface StrongestHeader {
  /** Number of matrices, of rows, and of keys per row. */
  shape: [number, number, number];
}

export type Pooled = "mean" | "max";

/**
 * Square of `TILE` by `TILE` cells of a head's matrix, or of the mean of several heads.
 *
 * At level l, a cell covers 2^l by 2^l weights, and tile (row, column) begins at query `row * TILE
 * * 2^l` and key `column * TILE * 2^l`. Tiles at the edges are smaller. Positive and negative
 * numbers are pooled separately, and a cell shows the larger of the two results.
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

/** Description of the cells of a tile. */
export interface TileHeader {
  shape: [number, number, number];
  encoding: Encoding;
  maximum: number;
  error: number;
  /** Number of queries of which one was sampled. Omitted if all queries were used. */
  sampling_interval?: number;
}

/**
 * Score of every head of a stack for a pattern.
 *
 * Scores of long texts are estimated from sampled queries.
 */
export interface ScoresRequest {
  stack: string;
  pattern: string;
}

/** Scores of the heads for a pattern. */
export interface ScoresHeader {
  /** Score of every head of a stack, by layer. null if a score is undefined. */
  scores: (number | null)[][];
}

/** One row of a head: its query, the given keys, and the logits and weights between them. */
export interface VectorsRequest {
  stack: string;
  layer: number;
  head: number;
  /** Position of the query. */
  token: number;
  keys: Range;
}

/** Name and shape of the next array in the buffer. */
export interface VectorsPart {
  name: string;
  shape: number[];
}

/** Description of a reply's buffer. */
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
   * Arrays of the buffer: `query` (head_dim), `keys` (keys, head_dim), and with one entry per key
   * `bias`, `allowed` (0 or 1), `logits` (minus infinity if not allowed) and `weights`.
   */
  parts: VectorsPart[];
  /** Sum of the weights of the requested keys. */
  weight_in_range: number;
}

/** Image of the record, averaged down to the size of a reply if it is larger. */
export interface ImageRequest {
  index: number;
}

/** Change of the attention: cut a pair of query and key, ablate a head, or hide a token. */
export interface RequestedChange {
  kind: "knockout" | "ablate" | "hide";
  stack: string;
  /** null means all. */
  layer: number | null;
  head: number | null;
  /** "knockout" needs both, "hide" needs the key, "ablate" needs neither. */
  query: number | null;
  key: number | null;
  /** Whether a pair is cut before the softmax, so that the other keys get its weight. */
  renormalize: boolean;
}

/** Run of the view's model with changed attention, or unchanged if `changes` is empty. */
export interface InterveneRequest {
  changes: RequestedChange[];
  /**
   * Answer to measure: a token or two tokens, or empty for the default. By default the view's
   * `answer`, which may be a function.
   */
  measured?: (number | string)[];
}

/** Token among the most probable answers, with its id and probability. */
export interface AnswerToken {
  text: string;
  id: number;
  probability: number;
}

/** Effect of changes on the model's answer. */
export interface OutcomeHeader {
  /** Answer before and after the changes, with the noise, in words. */
  sentence: string;
  /** Description of each change. */
  described: string[];
  /** Effect in numbers. */
  effect: string;
  measure: string;
  before: number;
  after: number;
  noise: number;
  divergence: number | null;
  candidates_before: AnswerToken[];
  candidates_after: AnswerToken[];
}

/** Stacks of the run with the given changes. */
export interface ChangedRequest {
  changes: RequestedChange[];
}

/** One stack of attention layers, without its tokens. */
export interface StackNumbers {
  name: string;
  /** The model's own layer numbers. */
  layers: number[];
  /** Number of heads of each layer, in the order of `layers`. */
  heads_per_layer: number[];
  /** Whether rows sum to one. */
  normalized: boolean;
  /** Whether numbers may be negative. Omitted if they cannot. */
  signed?: boolean;
  /** Name of the quantity. Omitted for weights. */
  measure?: string;
  /**
   * Largest weight that can occur, which is 1 if `normalized`. Largest absolute value if `signed`.
   */
  maximum: number;
  causal: boolean;
  /** Whether queries and keys are available, not only weights. */
  vectors: boolean;
  /** Names of the patterns by which the heads can be scored. */
  patterns: string[];
  /**
   * Number of queries from which head scores are estimated. Present only if complete maps of all
   * heads take too long. Maps then show a sample of the queries as well.
   */
  sampled?: number;
}

/** Stack of a changed run, and its difference from the unchanged run. */
export interface ChangedStack {
  /** Name of the stack of the unchanged run. */
  stack: string;
  /** Stack of the changed run, and that stack less the unchanged one. */
  after: StackNumbers;
  difference: StackNumbers;
  /** Tokens that the model generated in the changed run. */
  predictions: Prediction[];
}

/** Stacks of a changed run. */
export interface ChangedHeader {
  stacks: ChangedStack[];
}

/** Value norm and effects of a pair of query and key in one head. */
export interface EdgeRequest {
  stack: string;
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** Effect on the answer of cutting a pair of query and key. */
export interface Cut {
  /** Description of the cut, and the answer before and after. */
  description: string;
  /** Answer that was measured, in words. */
  measure: string;
}

/** Value norm of a pair of query and key, and the effects of cutting it. */
export interface EdgeHeader {
  /** "waits" if the model has not run yet, "ready" if it has. */
  model: "waits" | "ready";
  /** Norm of what the pair adds to the output, as a share of the norms of the row. */
  share: number | null;
  /** Reason why `share` is null. "" if it is not null, or if the model has not run. */
  share_problem: string;
  /** Cuts of this pair that were run. */
  cuts: Cut[];
  /** Largest noise of the cuts. "" if there are none. */
  noise: string;
}

/** Part of the exported page of a view with the given state. */
export interface PageRequest {
  part: number;
  state: object;
}

/** Header of a part of a page. */
export interface PageHeader {
  parts: number;
  /** File name. */
  name: string;
}

/** Request for the description of the corpus, without its tokens. */
export type DescribeCorpusRequest = Record<string, never>;

/**
 * Request for the description of the points of a stack.
 *
 * The reply is `CorpusPoints` as JSON, compressed with deflate, in parts.
 */
export interface CorpusRequest {
  stack: string;
  part?: number;
}

/**
 * Request for small plots of all heads of some layers, by principal components.
 *
 * The reply has two bytes per point: x and y, from 0 to 255 over a square. y points up.
 */
export interface OverviewRequest {
  stack: string;
  layers: number[];
  way: Placing;
  part?: number;
}

/** Attention head with a small plot. `problem` is the reason why the plot shows nothing. */
export interface OverviewHead {
  layer: number;
  head: number;
  problem: string | null;
}

/** Header of a reply with small plots. */
export interface OverviewHeader {
  /** Every `stride`-th point is drawn: the points 0, `stride`, 2 `stride`, ... */
  stride: number;
  /** Number of points that are drawn. */
  points: number;
  heads: OverviewHead[];
}

/** Request for the current plot of one head, as 16-bit codes. */
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
  /** Whether to start a cancelled or failed projection again. */
  restart?: boolean;
}

export type State = "running" | "failed" | "cancelled" | "done";

/** State and progress of a projection. */
export interface Work {
  state: State;
  /** Number of completed steps, and number of all steps. 0 if unknown. */
  done: number;
  num_total: number;
  /** Description of the state in words, for the caption of the plot. */
  words: string;
}

/** Header of a reply with a plot. */
export interface ProjectionHeader {
  dimensions: Dimensions;
  count: number;
  /**
   * Square or cube that contains the points: `low` is the corner with the smallest coordinates, and
   * `size` is the length of a side.
   */
  low: number[];
  size: number;
  /** Share of the variance along each axis, null if the method is not PCA. */
  explained: number[] | null;
  /** Factor by which queries were divided and keys were multiplied. */
  factor: number;
  /** Reason why the plot shows nothing, in words, null if it shows something. */
  problem: string | null;
  /** Progress of t-SNE or UMAP, null for PCA. */
  work: Work | null;
}

/** Request to stop the projection of a head. */
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

/** Request for the trust figures of some heads of a layer. */
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

/**
 * Trust figures of a head: how well distances on its plot predict attention.
 *
 * `attnviz.embedding.trust.HeadTrust` defines the figures.
 */
export interface HeadTrustFigures {
  head: number;
  /**
   * Correlation between the distance of a query and a key and their product `q . k`, averaged over
   * queries. `before` uses the vectors of the model, `placed` the placed vectors, and `plot` the
   * plot.
   */
  before: number | null;
  placed: number | null;
  plot: number | null;
  /** Share of a query's ten strongest keys that are among its ten nearest keys on the plot. */
  recall: number | null;
  /** Expected recall for random positions. */
  recall_baseline: number | null;
  /** Number of measured queries, and number of all queries. */
  num_queries: number;
  num_total: number;
}

/** Trust figures of some heads, in the order of the request. null for heads without a plot. */
export interface TrustHeader {
  heads: (HeadTrustFigures | null)[];
}

/**
 * Request for the norms of the model's queries and keys of a head.
 *
 * The reply has 16-bit codes: 0 is the smallest norm, `low`, and 65,535 the largest, `high`.
 */
export interface NormsRequest {
  stack: string;
  layer: number;
  head: number;
  part?: number;
}

/** Header of a reply with norms: the smallest norm (code 0) and the largest (code 65,535). */
export interface NormsHeader {
  low: number;
  high: number;
}

/**
 * Request for mean weights by query and key position, in at most `size` bins per axis.
 *
 * The reply is float32, one row per bin of query positions. -1 if the mask allows no pair.
 */
export interface AggregateRequest {
  stack: string;
  layer: number;
  head: number;
  size: number;
}

/** Header of a reply with mean weights by position. */
export interface AggregateHeader {
  rows: number;
  columns: number;
  /** Start position of each bin, then the end of the last bin (exclusive). */
  query_edges: number[];
  key_edges: number[];
  /** Number of texts in the mean, and number of all texts with points. */
  texts: number;
  of_texts: number;
  /**
   * Number of queries in the mean, and number of all queries in the texts of the mean. The first is
   * smaller if queries of long texts are sampled.
   */
  queries: number;
  of_queries: number;
}

/**
 * Request for the attention lines of a point.
 *
 * They end at the strongest keys of a query, or at the queries with the largest weight on a key.
 */
export interface LinesRequest {
  stack: string;
  layer: number;
  head: number;
  point: number;
}

/** Attention lines from a query to its strongest keys, or from a key to its strongest queries. */
export interface LinesHeader {
  /**
   * Number of the point at the other end of each line, and the weight, in descending order of
   * weights.
   */
  points: number[];
  weights: number[];
  /**
   * Share of the total weight that the lines show. For a query, the total is the weight on all keys
   * of its text. For a key, it is the weight from the sampled queries of its text.
   */
  covered: number;
  /** Number of points in the same text that the mask allows as the other end of a line. */
  num_total: number;
}

/** Request for one part of the exported page of an embedding view in a given state. */
export interface CorpusPageRequest {
  part: number;
  state: object;
}

/** Request for the description of the atlas: `AtlasDescription`. */
export type DescribeAtlasRequest = Record<string, never>;

/** Description of a statistic. */
export interface AtlasStatistic {
  name: string;
  /** Unit: "share" (from 0 to 1) or "nats". */
  unit: string;
  /** Definition in one sentence. */
  definition: string;
  /**
   * Whether the statistic has a baseline, such as its value for uniform attention
   * (`docs/heads.md`).
   */
  baseline: boolean;
}

/** Name of a role for which all heads are tested, and its definition in one sentence. */
export interface AtlasRoleKind {
  name: string;
  definition: string;
}

/**
 * System of classes of tokens, such as "kind" or a column with the part of speech.
 *
 * `values` has the names of the classes. A class is identified by its index in this list.
 */
export interface AtlasClasses {
  name: string;
  values: string[];
}

/** Description of the statistics of one stack. */
export interface AtlasStack {
  name: string;
  layers: number[];
  /** Number of heads of each layer. */
  heads_per_layer: number[];
  /** Whether the attention is causal: queries do not attend to later keys. */
  causal: boolean;
  /** Whether queries and keys are the same tokens. */
  same_tokens: boolean;
  /** Statistics of the heads, in the order of `AtlasTable.means`. */
  statistics: AtlasStatistic[];
  /** Roles for which the heads are tested. `AtlasRole.role` is an index into this list. */
  roles: AtlasRoleKind[];
  /** A head has a role only if its score exceeds the baseline by more than this number. */
  margin: number;
  /** False discovery rate of the tests over all heads and roles. */
  level: number;
  /**
   * Labels of the bins of the mean weights by offset. An offset is the position of the key minus
   * the position of the query. The labels are "-64" to "64", "first" (the first key of the text)
   * and "rest" (all other keys).
   */
  offsets: string[];
  /** Systems of classes of tokens: first the kind of token, then the columns of the corpus. */
  classes: AtlasClasses[];
  /**
   * Maximum number of strongest edges and of sampled edges that a head has. On a page, only the
   * edges on the page count.
   */
  strongest: number;
  sampled: number;
  /** Maximum number of edges of a head in the complete statistics. A page may have fewer edges. */
  strongest_in_all: number;
  sampled_in_all: number;
}

/** Description of the statistics of an atlas. */
export interface AtlasDescription {
  model: string;
  /** Number of texts that the model has read, and number of their tokens. */
  texts: number;
  tokens: number;
  /** Number of texts that were left out because they are empty or too long for the model. */
  num_skipped: number;
  notes: string[];
  stacks: AtlasStack[];
}

/** Request for one part of the statistics and roles of a stack: `AtlasTable` as zlib JSON. */
export interface StatisticsRequest {
  stack: string;
  part?: number;
}

/** Request for the mean weights by offset of all heads of a layer. */
export interface OffsetsRequest {
  stack: string;
  layer: number;
}

/**
 * Header of a reply with mean weights by offset, for all heads of a layer.
 *
 * The data of the reply is float32, (heads, bins). The bins have the labels `AtlasStack.offsets`.
 * An entry is NaN if no query-key pair of the corpus has the offset.
 */
export interface OffsetsHeader {
  bins: number;
}

/**
 * Request for the mean weights of a head by class of query and class of key.
 *
 * `system` is the name of the system of token classes.
 */
export interface ClassesRequest {
  stack: string;
  layer: number;
  head: number;
  system: string;
}

/**
 * Header of a reply with the mean weights of a head by class of query and class of key.
 *
 * The data of the reply is float32, (classes, classes). Rows are classes of queries, and columns
 * are classes of keys. A row is NaN if no query of the corpus has its class.
 */
export interface ClassesHeader {
  classes: number;
}

/** Request for one part of the tokens near edges of a stack: `AtlasTexts` as zlib JSON. */
export interface TextsRequest {
  stack: string;
  part?: number;
}

/** Request for one part of the edges of a layer: `AtlasEdges` as zlib JSON. */
export interface EdgesRequest {
  stack: string;
  layer: number;
  part?: number;
}

/** Request for one part of the exported page, with `state` as the traits of the view. */
export interface AtlasPageRequest {
  part: number;
  state: object;
}

/** Requests for a record. */
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

/** Requests for a corpus. */
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

/** Requests for an atlas. */
export interface AtlasRequests {
  describe: DescribeAtlasRequest;
  statistics: StatisticsRequest;
  offsets: OffsetsRequest;
  classes: ClassesRequest;
  texts: TextsRequest;
  edges: EdgesRequest;
  page: AtlasPageRequest;
}
