/**
 * Types of the requests of views and of the headers of replies.
 *
 * `make protocol` writes this file from the classes in `attnviz/server/server.py`,
 * `attnviz/embedding/server/server.py` and `attnviz/atlas/server.py`. Change these classes instead
 * of this file.
 *
 * A record is the attention of one example. A stack is the attention of one kind, such as "self" or
 * "cross", in all layers of a record. A corpus has the records of many texts. A point is a query or
 * a key of one token of a corpus. An atlas has statistics of all heads over a corpus. An edge is a
 * query and a key with their weight. Signed numbers may be negative, for example differences of
 * weights. Embedded data are contained in an exported page.
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

/** Options of the plots of a layer's heads: placing and projection of the vectors. */
export interface PlotOptions {
  stack: string;
  layer: number;
  placing: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity: number;
  neighbors: number;
  seed: number;
}

/** Options of the plot of one head. */
export interface HeadPlot extends PlotOptions {
  head: number;
}

/** Tokens of all queries or of all keys, with one entry per point in each list. */
export interface PointTokens {
  /** Index of the text in the corpus. */
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
  /**
   * Value of each query (`queries`) and of each key (`keys`): a number, or the index of a category,
   * or null if unknown.
   */
  queries: (number | null)[];
  keys: (number | null)[];
}

/** Sentence about an inexactness of the plots of some layers. */
export interface CorpusCaveat {
  layers: number[];
  words: string;
  /**
   * "moving": the layer has a soft cap or a sink, so translating the keys changes its weights. The
   * view shows this caveat only if keys are translated. "bias": the layer adds a position bias to
   * its logits, which distances do not contain.
   */
  kind?: "moving" | "bias";
}

/** Tokens that are the patches of one image, row by row from the top left. */
export interface CorpusGrid {
  /** Index of the text that contains the image. */
  text: number;
  /** Whether the patches are tokens of the queries, of the keys, or of both. */
  side: "both" | "queries" | "keys";
  /** Index of the image among the images of the text. */
  image: number;
  /** Position of the first patch among the tokens of the text. */
  start: number;
  /** Numbers of rows and columns of patches. */
  rows: number;
  columns: number;
}

/** Description of the points of a stack. */
export interface CorpusPoints {
  num_queries: number;
  num_keys: number;
  /** Number of queries and keys of all texts that were read. */
  total_points: number;
  /** Number of texts from which the texts with points were chosen, including skipped texts. */
  total_texts: number;
  /** Whether all tokens are points in each text that has points. */
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
  /**
   * Number of occurrences of each vocabulary entry in all texts that were read. Queries are
   * counted, and keys, too, if they are other tokens.
   */
  frequency: number[];
  /**
   * Indices of the vocabulary entries that are punctuation (`punctuation`), and of those that are
   * special tokens (`special`).
   */
  punctuation: number[];
  special: number[];
  /** Tokens of the queries. */
  queries: PointTokens;
  /** null if keys have the same tokens as queries. */
  keys: PointTokens | null;
  columns: ColumnValues[];
  caveats: CorpusCaveat[];
  /** Number of images of all texts. */
  images: number;
  grids?: CorpusGrid[];
}

/** Attention sink of a head: its learned logit, and the weight that it takes from a row. */
export interface SinkOfRow {
  logit: number;
  weight: number;
}

/** Properties of the weights of one query on all keys, independent of the requested keys. */
export interface RowHeader {
  scale: number;
  softcap: number | null;
  has_bias: boolean;
  sink: SinkOfRow | null;
  /**
   * Log-sum-exp of the logits of all allowed keys and of the sink, or null if no key is allowed and
   * the head has no sink.
   */
  log_sum_exp: number | null;
  head: number;
  num_heads: number;
  /** Index of the key head that this head uses. Several heads can share a key head. */
  key_head: number;
  num_key_heads: number;
  /** Number of keys that the mask allows for this query. */
  num_allowed: number;
  /** Positions and weights of the strongest keys among all keys. */
  strongest: [number, number][];
  /**
   * Largest absolute error of a weight (`error`) and of a logit (`logit_error`). Both are 0 in live
   * views. In exported pages, they can be larger, because vectors can be rounded.
   */
  error: number;
  logit_error: number;
  /**
   * Number of queries per head for which the errors were measured. Omitted if they were measured
   * for all queries.
   */
  measured?: number;
}

/** Progress of a pending reply. */
export interface ReplyProgress {
  /** Name of the current task. */
  doing: string;
  /** Finished share of the current task, from 0 to 1. */
  progress: number;
  /** Estimated remaining time of the current task, or null if it cannot be estimated yet. */
  seconds_left: number | null;
}

/** Header with the progress of a computation, which continues if the request is sent again. */
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
export interface AtlasEdgeColumns {
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
  strongest: AtlasEdgeColumns;
  /**
   * Edges of a random sample. Each edge has a query drawn uniformly from the corpus, and a key
   * drawn with a probability proportional to its weight. A share of these edges estimates the same
   * share of the head's attention.
   */
  sampled: AtlasEdgeColumns;
}

/**
 * Request for one part of the exported page of the view.
 *
 * `part` is the index of the part, from 0. The page shows the view with the state `state`.
 */
export interface PageRequest {
  part: number;
  state: object;
}

/** Header of a reply that has one part of a long content. */
export interface PartHeader {
  /** Number of parts of the content. */
  parts: number;
}

/** Header of a reply with one part of an exported page in its buffer. */
export interface PageHeader extends PartHeader {
  /** File name of the page. */
  name: string;
}

/**
 * Request for the description of the record.
 *
 * The description of a short text is the header of the reply. The description of a long text is
 * compressed and divided into parts. The buffer of the reply then has the part with the index
 * `part`, from 0.
 */
export interface DescribeRequest {
  part?: number;
}

/** Height and width of an image in pixels. */
export interface ImageHeader {
  height: number;
  width: number;
}

/** Properties of one stack of attention layers, without its tokens. */
export interface StackNumbers {
  name: string;
  /** Numbers of the layers in the model. */
  layers: number[];
  /** Number of heads of each layer, in the order of `layers`. */
  heads_per_layer: number[];
  /** Whether the weights of each query sum to 1. */
  normalized: boolean;
  /** Whether numbers may be negative. Omitted if False. */
  signed?: boolean;
  /** Name of the quantity that the stack contains, such as "difference". Omitted for weights. */
  measure?: string;
  /**
   * Largest possible weight, which is 1 if `normalized`. Otherwise it is the largest weight or, for
   * many weights, an upper bound. If `signed`, it is an absolute value.
   */
  maximum: number;
  /** Whether the masks of all layers are known to forbid attention to later keys. */
  causal: boolean;
  /** Whether the stack has queries and keys, and not only weights. */
  vectors: boolean;
  /**
   * Names of the measures, such as "previous token" or "entropy", by which heads can be ordered.
   */
  patterns: string[];
  /**
   * Number of sampled queries from which the scores of heads are estimated, if computing the
   * weights of all queries would take too long. In this case, thumbnails of heads also show only
   * sampled queries. Omitted if all queries are used.
   */
  sampled?: number;
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
  /** Text of each token. */
  text: string[];
  /** Positions of the special tokens. */
  special: number[];
  /**
   * Text to which each token belongs: 0 for a single text or the first text of a pair, 1 for the
   * second text of a pair, null for a special token.
   */
  sequence: (number | null)[];
  /** Rows and columns of the patches of each image among the tokens. Omitted without images. */
  grids?: PatchGrid[];
  /**
   * Tokens that the model generated, or tokens of a target text that was given to the model, in
   * order. Omitted if there are none.
   */
  predictions?: Prediction[];
}

export type PageForm = "all" | "vectors" | "strongest";

/** Form of the weights that are embedded in an exported page, and their share of all weights. */
export interface EmbeddedShare {
  /**
   * "all": the page has every weight. "vectors": the page computes the weights from queries and
   * keys. "strongest": the page has only the largest weights of each query.
   */
  form: PageForm;
  /**
   * Sum of the embedded weights divided by the sum of all weights. For signed numbers, the sums are
   * of absolute values.
   */
  covered: number;
  /**
   * Upper bound of the absolute difference between a weight of the page and the weight of the
   * exported record.
   */
  error: number;
}

/** Properties and tokens of one stack of attention layers, such as "self" or "cross". */
export interface StackDescription extends StackNumbers {
  query_tokens: TokenList;
  /** Key tokens, or null if they are the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** Form and share of the weights in an exported page. Omitted in live views. */
  embedded?: EmbeddedShare;
}

/** Description of a record. */
export interface Description {
  model: string;
  /**
   * Model name without characters that file names cannot have. Omitted if the model has no name.
   */
  file?: string;
  /** Sentences about the record for readers of the view. */
  notes: string[];
  /** Sizes of the images in the model's input. Omitted without images. */
  images?: ImageHeader[];
  stacks: StackDescription[];
}

/** Request for the weights of some heads, rows (queries) and columns (keys) of a layer. */
export interface BlockRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  columns: Range;
}

export type Encoding = "uint8-sqrt" | "int8-sqrt" | "float32" | "float32-deflated";

/** Header of a reply with encoded weights in its buffer. */
export interface EncodedHeader {
  /** Number of heads, of rows (queries) and of columns (keys). The buffer is in row-major order. */
  shape: [number, number, number];
  /** Encoding of the buffer (see `Encoded`). */
  encoding: Encoding;
  /**
   * Upper bound of the weights, which the largest code represents. The bound is usually 1 for
   * normalized weights. For signed numbers, the smallest code represents `-maximum`.
   */
  maximum: number;
  /** Upper bound of the absolute error of a weight. */
  error: number;
}

/**
 * Request for maps of heads with at most `size` rows and columns of cells.
 *
 * Each cell of a map covers successive queries and keys and has their largest weight. For signed
 * numbers, it has the number with the largest absolute value, including its sign. For long texts,
 * only some queries are used (`MapsHeader.sampled`).
 */
export interface MapsRequest {
  stack: string;
  layer: number;
  size: number;
  /** Numbers of the heads. By default all heads. */
  heads?: number[];
  /** Half-open ranges of queries and of keys. By default all queries and all keys. */
  rows?: Range;
  columns?: Range;
}

/** Header of a reply with maps of heads in its buffer. */
export interface MapsHeader extends EncodedHeader {
  /** "max", because each cell of a map has the largest of its weights. */
  pooled: string;
  /**
   * Largest cell of each map: its index in the flattened map (row-major), and its exact value.
   * Signed numbers are compared by absolute value.
   */
  largest?: [number, number][];
  /**
   * Positions of the sampled queries, one for each row of a map. Omitted if all queries were used.
   */
  sampled?: number[];
}

export type Combine = "separate" | "mean" | "max";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

/**
 * Request for the keys with the largest weights of some queries.
 *
 * Signed numbers are compared by absolute value. Their weights are returned with their signs, but
 * the sums of weights are sums of absolute values.
 */
export interface StrongestRequest {
  stack: string;
  layer: number;
  heads: number[];
  /** Half-open range of queries. */
  rows: Range;
  /** Number of keys per query. */
  k: number;
  /**
   * "separate" returns the keys of each head. "mean" and "max" first combine the weights of all
   * heads to one matrix.
   */
  combine: Combine;
  /** Keys to leave out: "special" for special tokens, "first" for the first token, or positions. */
  leave_out: (string | number)[];
  /**
   * Keys to include if the input is a pair of texts a and b. "a-b" and "b-b" include only keys in
   * text b, "a-a" and "b-a" only keys in text a. "all" includes all keys.
   */
  pair: Pair;
}

/** Header of a reply with strongest keys in its buffer. */
export interface StrongestHeader {
  /** Number of matrices, of rows (queries), and of strongest keys per row. See `Strongest`. */
  shape: [number, number, number];
}

export type Pooled = "mean" | "max";

/**
 * Request for a tile of a head's matrix of weights, or of the mean of several heads.
 *
 * A tile has 256 by 256 cells (`attnviz.server.tiles.TILE`). At the zoom level l, a cell covers 2^l
 * by 2^l weights. Tile (row, column) begins at query `row * 256 * 2^l` and key `column * 256 *
 * 2^l`. The last tile of a row or column can be smaller. A cell shows the mean or maximum of its
 * weights. For signed numbers, positive and negative numbers are pooled separately, and a cell
 * shows the result with the larger absolute value.
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

/** Header of a reply with the cells of a tile in its buffer. */
export interface TileHeader extends EncodedHeader {
  /**
   * Sampling interval n, if one of n successive queries was used. Omitted if all queries were used.
   */
  sampling_interval?: number;
}

/**
 * Request for the score of each head of a stack for a measure, such as "previous token".
 *
 * `pattern` is the name of the measure. For long texts, scores are estimated from sampled queries.
 */
export interface ScoresRequest {
  stack: string;
  pattern: string;
}

/** Header of a reply with the score of each head for one measure. */
export interface ScoresHeader {
  /** Scores of the heads, as one list for each layer. null if a score is undefined. */
  scores: (number | null)[][];
}

/** Request for the vectors of a query and some keys of a head, with their logits and weights. */
export interface VectorsRequest {
  stack: string;
  layer: number;
  head: number;
  /** Position of the query. */
  token: number;
  /** Half-open range of keys. */
  keys: Range;
}

/**
 * Header of a reply with a query and the requested keys in its buffer.
 *
 * The buffer has the query vector (head_dim,), the key vectors (keys, head_dim), and then four
 * arrays (keys,): the bias, whether the mask allows the key (0 or 1), the logit (minus infinity if
 * not allowed) and the weight.
 */
export interface VectorsHeader extends RowHeader {
  /** Sum of the weights of the requested keys. */
  weight_in_range: number;
}

/** Request for an image of the record. An image that is too large for a reply is reduced. */
export interface ImageRequest {
  index: number;
}

/** Request to run the model with changes, and to measure their effect on the answer. */
export interface InterveneRequest {
  /**
   * JSON forms of the changes, which are made together (see
   * `attnviz.interventions.changes.change_to_json`). If empty, the model runs without changes.
   */
  changes: object[];
  /**
   * Answer to measure: one token for its logit, or two tokens for the difference of their logits.
   * An empty list means the default of `attnviz.intervene`. null means the `answer` of the view,
   * which can be a function.
   */
  measured?: (number | string)[];
}

/** One of the most probable tokens or classes of the output. */
export interface AnswerToken {
  text: string;
  id: number;
}

/**
 * Header of a reply with the effect of changes on the answer.
 *
 * The answer is the number that is measured, for example the logit of a token. The noise is the
 * change of the answer if the attention is recomputed without a change. Smaller effects are not
 * significant.
 */
export interface OutcomeHeader {
  /**
   * Sentence with the answer before and after the changes, and the noise. Without changes, it
   * describes the unchanged run.
   */
  sentence: string;
  /** Name of the answer. */
  measure: string;
  /** Most probable tokens or classes before and after the changes. */
  candidates_before: AnswerToken[];
  candidates_after: AnswerToken[];
}

/**
 * Request for a description of the stacks of the run with `changes`.
 *
 * `changes` has the same form as in `InterveneRequest`.
 */
export interface ChangedRequest {
  changes: object[];
}

/** Stack of a run with changed attention, and its difference from the unchanged run. */
export interface ChangedStack {
  /** Name of the same stack in the unchanged run. */
  stack: string;
  /** Stack of the changed run. */
  after: StackNumbers;
  /** Weights of the changed run minus weights of the unchanged run. */
  difference: StackNumbers;
  /** Predicted tokens of the changed run, as in `TokenList`. */
  predictions: Prediction[];
}

/** Header of a reply with the stacks of a run with changed attention. */
export interface ChangedHeader {
  stacks: ChangedStack[];
}

/**
 * Request for the contribution of a key to a query, and the effects of cutting this pair.
 *
 * A cut removes the attention of the query to the key.
 */
export interface EdgeRequest {
  stack: string;
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** Effect of a cut on the answer. A cut removes the attention of one query to one key. */
export interface Cut {
  /** Description of the cut, with the answer before and after. */
  description: string;
  /** Name of the answer that was measured, for example the logit of a token. */
  measure: string;
}

/**
 * Header of a reply about a query-key pair: its contribution, and the effects of its cuts.
 *
 * A cut removes the attention of the query to the key.
 */
export interface EdgeHeader {
  /** Whether the model has run ("ready") or not ("waits"). */
  model: "waits" | "ready";
  /**
   * Contribution of the key to the output of the query. It is the norm of weight times value vector
   * times output projection, divided by the sum of these norms over all keys. null if it is not
   * known.
   */
  share: number | null;
  /** Reason why `share` is null. "" if `share` is known, or if the model has not run. */
  share_problem: string;
  /** Effects of the cuts of this pair in earlier runs. */
  cuts: Cut[];
  /** Largest noise of these effects, as text. "" if the pair was not cut. */
  noise: string;
}

/** Request for the description of the corpus, without its tokens. */
export type DescribeCorpusRequest = Record<string, never>;

/**
 * Request for the description of the points of a stack.
 *
 * The reply is `CorpusPoints` as JSON, compressed with deflate, in parts.
 */
export interface PointsRequest {
  stack: string;
  part?: number;
}

/**
 * Request for small plots of all heads of some layers, by principal components.
 *
 * For each head, the reply has one byte per drawn point for x, from 0 to 255 over a square, and
 * then one byte per drawn point for y, which points up.
 */
export interface OverviewRequest {
  stack: string;
  layers: number[];
  placing: Placing;
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

/**
 * Request for the current plot of one head, as 16-bit codes.
 *
 * The reply has the high bytes of the codes of all points, axis by axis, and then the low bytes.
 */
export interface PlotRequest {
  stack: string;
  layer: number;
  placing: Placing;
  method: Method;
  dimensions: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  head: number;
  part?: number;
  /**
   * What to do before the reply: nothing, start t-SNE or UMAP again if it was cancelled or has
   * failed, or stop it if it is running.
   */
  action?: "show" | "restart" | "cancel";
}

export type State = "running" | "failed" | "cancelled" | "done";

export interface Work {
  state: State;
  done: number;
  num_total: number;
  words: string;
}

/** Header of a reply with a plot. */
export interface PlotHeader {
  dimensions: Dimensions;
  /** Number of points. */
  count: number;
  /**
   * Square or cube that contains the points: `low` is the corner with the smallest coordinates, and
   * `size` is the length of a side.
   */
  low: number[];
  size: number;
  /**
   * Share of the variance along each axis. null if the axes are not principal components, or if the
   * coordinates are NaN.
   */
  explained: number[] | null;
  /** Factor by which queries were divided and keys were multiplied. */
  factor: number;
  /** Reason why the plot shows nothing, in words, null if it shows something. */
  problem: string | null;
  /** Progress of t-SNE or UMAP, null for PCA. */
  work: Work | null;
}

/** Request for the trust figures of some heads of a layer. */
export interface TrustRequest {
  stack: string;
  layer: number;
  placing: Placing;
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
   * Correlation between the distance of a query and a key on the plot and their product `q . k`,
   * averaged over queries.
   */
  plot: number | null;
  /**
   * Share of a query's ten strongest keys that are among its ten nearest keys on the plot, averaged
   * over queries.
   */
  recall: number | null;
  /** Expected recall for random positions. */
  recall_baseline: number | null;
  /** Number of measured queries (`num_queries`), and of all queries (`num_total`). */
  num_queries: number;
  num_total: number;
}

/**
 * Trust figures of some heads, in the order of the request.
 *
 * An entry is null if the head has no plot by the requested method yet, or none that can be drawn.
 */
export interface TrustHeader {
  heads: (HeadTrustFigures | null)[];
}

/**
 * Request for the norms of the model's queries and keys of a head.
 *
 * The reply has 16-bit codes, little-endian, first of all queries and then of all keys.
 */
export interface NormsRequest {
  stack: string;
  layer: number;
  head: number;
  part?: number;
}

/**
 * Header of a reply with norms. Code 0 stands for `low`, the smallest, and `top` for `high`.
 *
 * Codes have one byte if `top` is 255, and two bytes if it is 65,535.
 */
export interface NormsHeader {
  low: number;
  high: number;
  top: number;
}

/**
 * Request for mean weights by query and key position, in at most `size` bins per axis.
 *
 * The reply is float32, one row per bin of query positions and one column per bin of key positions.
 * NaN if the mask allows no pair of the two bins.
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
  /**
   * Start position of each bin of queries (`query_edges`) and of keys (`key_edges`). The last entry
   * is the end of the last bin (exclusive).
   */
  query_edges: number[];
  key_edges: number[];
  /** Number of texts in the mean (`texts`), and of all texts with points (`of_texts`). */
  texts: number;
  of_texts: number;
  /**
   * Number of queries in the mean (`queries`), and of all queries in the texts of the mean
   * (`of_queries`). The first number is smaller if queries of long texts are sampled.
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
   * Number of the point at the other end of each line (`points`), and the weight of the line
   * (`weights`), in descending order of weights.
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

/** Request for the description of an atlas, an `AtlasDescription`. */
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

/**
 * Request for one part of the statistics and roles of a stack.
 *
 * All parts together are an `AtlasTable` as JSON, compressed with zlib.
 */
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

/**
 * Request for one part of the tokens near the edges of a stack.
 *
 * All parts together are an `AtlasTexts` as JSON, compressed with zlib.
 */
export interface TextsRequest {
  stack: string;
  part?: number;
}

/**
 * Request for one part of the edges of a layer.
 *
 * All parts together are an `AtlasEdges` as JSON, compressed with zlib.
 */
export interface EdgesRequest {
  stack: string;
  layer: number;
  part?: number;
}

/** Requests for a record. */
export interface RecordRequests {
  page: PageRequest;
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
}

/** Requests for a corpus. */
export interface CorpusRequests {
  page: PageRequest;
  describe: DescribeCorpusRequest;
  points: PointsRequest;
  overview: OverviewRequest;
  plot: PlotRequest;
  trust: TrustRequest;
  norms: NormsRequest;
  aggregate: AggregateRequest;
  lines: LinesRequest;
}

/** Requests for an atlas. */
export interface AtlasRequests {
  page: PageRequest;
  describe: DescribeAtlasRequest;
  statistics: StatisticsRequest;
  offsets: OffsetsRequest;
  classes: ClassesRequest;
  texts: TextsRequest;
  edges: EdgesRequest;
}
