/**
 * Types of the requests of views and of the headers of replies.
 *
 * `make protocol` writes this file from the classes in `attnviz/server/server.py`,
 * `attnviz/embedding/server/server.py` and `attnviz/atlas/server.py`. Change these classes instead
 * of this file.
 *
 * A live view sends requests to the kernel. An exported page is an HTML file that answers requests
 * from its data. A reply has a header, which is a JSON object, and optionally a buffer, which is an
 * array of bytes. Numbers in a buffer are little-endian, and an array of a shape such as (heads,
 * keys) is in row-major order.
 *
 * A record is the attention of a model on one example. A stack is the attention of one kind, such
 * as "self" or "cross", in all layers. A layer is identified by its number in the model, a head by
 * its index in the layer, and a query or key by its position among the queries or keys. All of them
 * are counted from 0. The attention of a head is a matrix of weights: a row is a query and a column
 * is a key. Instead of weights, a stack can have signed numbers, which may be negative, such as
 * differences of weights. A measure gives a score to each head. For example, the measure "previous
 * token" is the mean weight on the previous token.
 *
 * The matrices of a long text are too large to be sent. A read returns a part of a matrix, called
 * a block, or reduces it: to cells, each of which covers several queries and keys, or to the
 * strongest keys of each query.
 *
 * A corpus has the records of several texts. A point is a query or a key of one token of a corpus.
 * An atlas has statistics of all heads over a corpus. An edge is a query and a key with their
 * weight.
 */

/** A half-open range [start, stop). */
export type Range = [number, number];

export type Scaling = "norms" | "none";

/** Options for the placement of queries and keys in one space. */
export interface Placing {
  /**
   * Factor c that divides the queries and multiplies the keys: `sqrt(median|q| / median|k|)`, or 1.
   */
  scaling: Scaling;
  /** Whether keys are moved after scaling, so that their mean is the mean of the queries. */
  translate: boolean;
  /**
   * Whether keys get an additional coordinate `sqrt(M^2 - |k|^2)`, where M is the largest length of
   * a key, and queries get a 0. All keys then have the same distance from the origin. Therefore the
   * nearest key of a query is the key with the largest product `q . k`, the second nearest key has
   * the second largest product, and so on, for any c.
   */
  lift: boolean;
}

export type Method = "pca" | "tsne" | "umap";

export type Dimensions = 2 | 3;

/**
 * Options of the plot of one head, or of all heads of a layer if `head` is null.
 *
 * The query and key vectors of the head are placed in one space (`placing`), and then projected to
 * two or three dimensions (`method`).
 */
export interface PlotOptions {
  stack: string;
  layer: number;
  /**
   * Placement of the vectors. If `scaling` is "norms", queries are divided and keys are multiplied
   * by one factor, so that both have the same median length. If `translate`, keys are then moved so
   * that their mean is the mean of the queries. If `lift`, keys get one more coordinate, so that
   * the keys nearest to a query are those with the largest products with the query.
   */
  placing: Placing;
  /** Projection: principal components ("pca"), t-SNE or UMAP. */
  method: Method;
  dimensions: Dimensions;
  /** Perplexity of t-SNE. Other methods ignore it. */
  perplexity: number;
  /** Number of neighbours of a point for UMAP. Other methods ignore it. */
  neighbors: number;
  /** Seed of t-SNE and UMAP. */
  seed: number;
  /** Number of the head. null means all heads of the layer. */
  head: number | null;
}

/** Tokens of all query points, or of all key points. Each list has one entry per point. */
export interface PointTokens {
  /** Index of the text in `CorpusPoints.names`. */
  text: number[];
  /** Position of the token in its text, from 0. */
  position: number[];
  /** Index of the token in `CorpusPoints.vocabulary`. */
  token: number[];
}

/**
 * Values of a column, by which points can be coloured.
 *
 * A column is a property of texts or tokens that the user passed, such as the part of speech.
 */
export interface ColumnValues {
  name: string;
  /** Names of the categories, or null if the values of the column are numbers. */
  categories: string[] | null;
  /**
   * Value of each query point (`queries`) and of each key point (`keys`): a number, or an index
   * into `categories`. null if the value is unknown.
   */
  queries: (number | null)[];
  keys: (number | null)[];
}

/** Reason why the plots of some layers do not determine their attention weights exactly. */
export interface CorpusCaveat {
  /** Numbers of the layers in the model. */
  layers: number[];
  /** Sentence that explains the reason to the reader. */
  words: string;
  /**
   * Kind of reason. "moving": the layer has a soft cap or a sink, so moving the keys near the
   * queries (`translate` of `PlotOptions.placing`) changes the weights. The view shows this caveat
   * only for plots with moved keys. "bias": the layer adds a position bias to its logits, and the
   * distances between points do not contain this bias.
   */
  kind?: "moving" | "bias";
}

/**
 * Description of the points of a stack, and of the texts and tokens that they belong to.
 *
 * Points are numbered from 0: first all queries, then all keys.
 */
export interface CorpusPoints {
  /** Number of points that are queries (`num_queries`), and that are keys (`num_keys`). */
  num_queries: number;
  num_keys: number;
  /** Number of queries and keys of all texts in `names`, including those that are not points. */
  total_points: number;
  /** Number of texts from which the texts in `names` were chosen, including skipped texts. */
  total_texts: number;
  /**
   * Whether all tokens are points in each text that has points. False if a single text exceeds the
   * limit of points, so that only a random sample of its tokens are points.
   */
  whole: boolean;
  /** Number of texts that could not be read, because they are empty or too long for the model. */
  num_skipped?: number;
  /** Whether some texts or tokens have no points because the limit of points was reached. */
  stopped?: boolean;
  /** Seed of the random choice of points. */
  seed: number;
  /**
   * Small plots have every `stride`-th point: the points with the numbers 0, `stride`, 2 `stride`,
   * ...
   */
  stride: number;
  /** Title of each text that was read. */
  names: string[];
  /** Distinct tokens, as the view displays them. */
  vocabulary: string[];
  /**
   * Number of tokens that are equal to each entry of `vocabulary`, in all texts in `names`. Query
   * tokens are counted, and also key tokens unless they are the same tokens.
   */
  frequency: number[];
  /**
   * Indices into `vocabulary` of the tokens that are punctuation (`punctuation`), and of the
   * special tokens (`special`).
   */
  punctuation: number[];
  special: number[];
  /** Tokens of the query points. */
  queries: PointTokens;
  /** Tokens of the key points. null if queries and keys are the same tokens. */
  keys: PointTokens | null;
  columns: ColumnValues[];
  caveats: CorpusCaveat[];
  /** Total number of images in the texts in `names`. */
  images: number;
}

/**
 * Attention sink of a head: a learned logit that takes a share of the weight of each query.
 *
 * `weight` is this share for one query.
 */
export interface SinkOfRow {
  logit: number;
  weight: number;
}

/**
 * Properties of one row: the weights of a query on all keys, not only on requested keys.
 *
 * A logit is `scale * q . k`, bounded by the soft cap, plus the bias.
 */
export interface RowHeader {
  scale: number;
  /**
   * Soft cap c, which replaces a scaled product x by `c tanh(x / c)`. null if the layer has no soft
   * cap.
   */
  softcap: number | null;
  has_bias: boolean;
  /** Sink of the head, or null if it has no sink. */
  sink: SinkOfRow | null;
  /**
   * Logarithm of the sum of exp(logit) over all allowed keys and the sink. null if no key is
   * allowed and the head has no sink.
   */
  log_sum_exp: number | null;
  /** Index of the head in the layer (`head`), and number of heads of the layer (`num_heads`). */
  head: number;
  num_heads: number;
  /**
   * Index of the key head whose keys this head uses (`key_head`), and number of key heads of the
   * layer (`num_key_heads`). With grouped-query attention, several heads share a key head.
   */
  key_head: number;
  num_key_heads: number;
  /** Number of keys that the mask allows for this query. */
  num_allowed: number;
  /**
   * Number of keys to which the query could attend, but which the model did not choose. Omitted if
   * it is 0.
   */
  num_left_out?: number;
  /** Total weight that these keys would have if all keys were chosen. Omitted without such keys. */
  lost?: number;
  /**
   * Position and weight of up to five keys with the largest weights, the largest first. Keys with
   * weight 0 are left out.
   */
  strongest: [number, number][];
  /**
   * Largest absolute error of a weight (`error`) and of a logit (`logit_error`) in the layer. In a
   * live view, both are 0. In an exported page, they can be larger, because queries and keys can be
   * rounded.
   */
  error: number;
  logit_error: number;
  /**
   * Number of queries per head for which the errors were measured. Omitted if all queries were
   * used, or if nothing was rounded.
   */
  measured?: number;
  /**
   * Mean gate of the head at this query: the factor that multiplies its output, averaged over
   * dimensions. Omitted if the head has no gate, or if it is not known.
   */
  gate?: number;
}

/**
 * Progress of a computation whose reply is not finished.
 *
 * A computation can consist of several tasks.
 */
export interface ReplyProgress {
  /** Name of the current task, such as "maps". */
  doing: string;
  /** Completed share of the current task, from 0 to 1. */
  progress: number;
  /**
   * Estimated remaining time of the current task in seconds. null if it cannot be estimated yet.
   */
  seconds_left: number | null;
}

/**
 * Header of a reply that has only the progress of a computation, which takes long.
 *
 * The kernel pauses the computation. It continues when the same request is sent again.
 */
export interface PendingHeader {
  pending: ReplyProgress;
}

/**
 * Role of a head, with the result of its statistical test.
 *
 * A head has a role if its score exceeds the baseline of the role significantly. If the role has
 * several baselines, all numbers refer to the one whose test has the larger p value.
 */
export interface AtlasRole {
  /** Index of the role in `AtlasStack.roles`. */
  role: number;
  /**
   * Mean over texts of the score (`score`), and its standard error. The score of a text is the
   * share of the head's attention on the keys of the role, averaged over the queries that have such
   * a key.
   */
  score: number;
  standard_error: number;
  /**
   * Mean over texts of the baseline (`baseline`), and of the score minus the baseline
   * (`difference`). The baseline is the expected score by chance.
   */
  baseline: number;
  difference: number;
  /** Bounds of the confidence interval of `difference`, with confidence 1 - `AtlasStack.level`. */
  low: number;
  high: number;
  /**
   * P value of the test whether `difference` exceeds `AtlasStack.margin`, corrected for the number
   * of heads and roles.
   */
  p: number;
  /** Number of texts in which the score is defined. */
  texts: number;
}

/**
 * Statistics and roles of all heads of a stack.
 *
 * The statistics are in the order of `AtlasStack.statistics`, and the layers in the order of
 * `AtlasStack.layers`.
 */
export interface AtlasTable {
  /**
   * `means[statistic][layer][head]` is the mean of a statistic over texts, or null if it is defined
   * in no text. `standard_errors` has the standard errors of these means in the same form, or null
   * if the statistic is defined in fewer than two texts.
   */
  means: (number | null)[][][];
  standard_errors: (number | null)[][][];
  /**
   * `baselines[statistic][layer][head]` is the mean over texts of the baseline, or null if it is
   * defined in no text. For a statistic without a baseline, `baselines[statistic]` is an empty
   * list.
   */
  baselines: (number | null)[][][];
  /** `texts[statistic][layer][head]` is the number of texts in which the statistic is defined. */
  texts: number[][][];
  /**
   * `roles[layer][head]` has the roles of a head, the main role first. Empty for a head without a
   * role.
   */
  roles: AtlasRole[][][];
}

/**
 * Tokens near the queries, or near the keys, of the edges of a stack.
 *
 * Each list has one entry per text, in the order of `AtlasTexts.numbers`.
 */
export interface AtlasTokens {
  /** `positions[text]` has the positions of the tokens in the text, ascending. */
  positions: number[][];
  /** `tokens[text]` has the same tokens as indices into `AtlasTexts.vocabulary`. */
  tokens: number[][];
}

/** Tokens near the edges of a stack: each query and key, and up to 6 tokens before and after it. */
export interface AtlasTexts {
  /** Index in the corpus of each text that has an edge, ascending. */
  numbers: number[];
  /** Distinct tokens, as the view displays them. */
  vocabulary: string[];
  /** Tokens near the queries of edges. If `keys` is null, also the tokens near their keys. */
  queries: AtlasTokens;
  /** Tokens near the keys of edges. null if queries and keys are the same tokens. */
  keys: AtlasTokens | null;
}

/**
 * Edges of all heads of a layer. Entry i of each list belongs to edge i.
 *
 * The edges are sorted by head.
 */
export interface AtlasEdgeColumns {
  /** Index of the head in the layer. */
  head: number[];
  /** Attention weight, rounded to four significant digits. */
  weight: number[];
  /** Index of the text in the corpus. */
  text: number[];
  /** Position of the query (`query`) and of the key (`key`) in the text. */
  query: number[];
  key: number[];
}

/** Edges of all heads of a layer: the strongest edges, and a random sample. */
export interface AtlasEdges {
  /**
   * Edges of each head with the largest weights in the corpus, in descending order of weight within
   * a head.
   */
  strongest: AtlasEdgeColumns;
  /**
   * Random sample of the edges of each head. Each query is drawn uniformly from the corpus, and its
   * key with a probability proportional to the weight. Therefore the share of a head's sampled
   * edges that have a property, such as a key that is the first token, estimates the share of the
   * head's attention on such pairs.
   */
  sampled: AtlasEdgeColumns;
}

/**
 * Request for one part of the exported page of a view, which is an HTML file.
 *
 * `part` is the index of the part, from 0. `state` has the current settings of the view, with which
 * the page opens.
 */
export interface PageRequest {
  part: number;
  state: object;
}

/**
 * Header of a reply with one part of some data in its buffer.
 *
 * Data that are too large for one reply are divided into parts, which are requested separately.
 */
export interface PartHeader {
  /** Number of parts of the data. */
  parts: number;
}

/** Header of a reply with one part of an exported page in its buffer. */
export interface PageHeader extends PartHeader {
  /** File name of the page. */
  name: string;
}

export type Combine = "separate" | "mean" | "max";

export type Pooled = "mean" | "max";

/**
 * Reduction of each matrix to cells, which have the mean or the maximum of their weights.
 *
 * For signed numbers, positive and negative numbers are pooled separately, and a cell has the
 * result with the larger absolute value. Pass either `length` or `max_cells`.
 */
export interface Cells {
  kind: "cells";
  /** Whether a cell has the mean or the maximum of its weights. */
  pooled: Pooled;
  /**
   * Number of queries and of keys of a cell. Only the last cells can be shorter. The cells of a
   * long text are estimated from a sample of its queries (`CellsHeader.sampling_interval`).
   */
  length?: number;
  /**
   * Maximum number of rows, and of columns, of cells, which have nearly equal lengths. Each cell is
   * encoded as one byte. For a long text, each row of cells shows only one of its queries
   * (`CellsHeader.sampled`).
   */
  max_cells?: number;
}

/**
 * Reduction of each row to its strongest keys: the keys with the largest weights.
 *
 * Signed numbers are compared by absolute value.
 *
 * A row of the reply has 2k + 2 numbers. The first k are the positions of the strongest keys, the
 * strongest first, or -1 if fewer than k keys have weight. The next k are the weights of these
 * keys. The last two are sums of absolute weights: over the included and over the excluded keys.
 */
export interface Strongest {
  kind: "strongest";
  /** Maximum number of keys per query. */
  k: number;
  /** Ranges of keys that are not among the strongest keys. */
  exclude?: Range[];
}

/**
 * Reduction of each row to its lost weight, for a layer whose model chooses keys.
 *
 * The lost weight is the weight, from 0 to 1, that the left-out keys would have if all keys were
 * chosen. For combined heads, it is the mean of their lost weights. The reply has one column, or
 * none if the layer does not store queries and keys.
 */
export interface Lost {
  kind: "lost";
}

export type Reduction = Cells | Strongest | Lost;

/**
 * Request for weights of some heads of a layer, for a range of queries and of keys.
 *
 * Without a reduction, the reply has the weights. If the stack chooses keys
 * (`StackNumbers.chooses_keys`), the weight of a masked key is -0, that of a key that was not
 * chosen is +0, and all other weights are above 0.
 */
export interface ReadRequest {
  stack: string;
  layer: number;
  /** Indices of the heads in the layer. */
  heads: number[];
  /** Range of queries (`rows`) and of keys (`columns`). */
  rows: Range;
  columns: Range;
  /**
   * Use of several heads. "separate": a matrix for each head. "mean" and "max": one matrix with the
   * mean or the maximum of the weights of all heads. The maximum of signed numbers is the number
   * with the largest absolute value.
   */
  combine?: Combine;
  /** Reduction of each matrix. */
  reduce?: Reduction;
}

export type Encoding = "uint8-sqrt" | "int8-sqrt" | "float32" | "float32-deflated";

/** Header of a reply with encoded weights in its buffer. */
export interface EncodedHeader {
  /**
   * Number of matrices, of their rows and of their columns. A matrix belongs to one head, or to the
   * mean of several heads. The buffer is in row-major order.
   */
  shape: [number, number, number];
  /**
   * Bytes of a weight w, with m for `maximum`. "uint8-sqrt": one byte, `round(255 sqrt(w / m))`.
   * "int8-sqrt": one signed byte, `sign(w) round(127 sqrt(abs(w) / m))`. "float32": four bytes.
   * "float32-deflated": the same four bytes in another order, compressed with zlib. The first bytes
   * of all weights are followed by the second bytes of all weights, and so on.
   */
  encoding: Encoding;
  /**
   * Upper bound of the weights, or of their absolute values if they are signed. It is usually 1 for
   * normalized weights. For numbers other than weights, such as the strongest keys, it is the upper
   * bound of the weights from which they are computed.
   */
  maximum: number;
  /**
   * Largest absolute error of a decoded weight, or an upper bound of it. For other numbers, it is
   * that of the weights from which they are computed.
   */
  error: number;
}

/** Header of a reply with cells in its buffer. The cells of each matrix are one matrix. */
export interface CellsHeader extends EncodedHeader {
  /**
   * Largest cell of each matrix without forced queries (see `AttentionStack.forced_queries`): its
   * index in row-major order, and its exact weight, without the error of the encoding. Signed
   * numbers are compared by absolute value. Only for `Cells.max_cells`, and omitted in an exported
   * page.
   */
  largest?: [number, number][];
  /**
   * Position of the query that each row of cells shows, if only some queries are used for
   * `Cells.max_cells`.
   */
  sampled?: number[];
  /** Sampling interval n, if only one of every n successive queries is used for `Cells.length`. */
  sampling_interval?: number;
}

/**
 * Request for the description of the record.
 *
 * For a short text, the header of the reply is the `Description`. For a long text, the description
 * is JSON, compressed with zlib and divided into parts. The header is then a `PartHeader`, and the
 * buffer has the part with the index `part`, from 0.
 */
export interface DescribeRequest {
  part?: number;
}

export interface Candidate {
  text: string;
  id: number;
  probability: number;
}

/**
 * Height and width of an image in pixels.
 *
 * In a reply, the buffer has the red, green and blue byte of each pixel, row by row from the top
 * left.
 */
export interface ImageHeader {
  height: number;
  width: number;
}

/** Properties of a stack, without its tokens. */
export interface StackNumbers {
  name: string;
  /** Numbers of the layers that the stack contains. */
  layers: number[];
  /** Number of heads of each layer, in the order of `layers`. */
  heads_per_layer: number[];
  /**
   * Whether the weights of each query sum to 1 (together with the weight of the sink, if the head
   * has one).
   */
  normalized: boolean;
  /**
   * Whether the numbers of the stack may be negative, as for differences of weights. Omitted if
   * they may not.
   */
  signed?: boolean;
  /**
   * Name of the numbers that the stack contains, such as "difference". Omitted if they are
   * attention weights.
   */
  measure?: string;
  /** Words for what was changed in the run of the model. Omitted if nothing was changed. */
  changed?: string;
  /**
   * Largest possible weight: 1 if `normalized`. Otherwise it is the largest weight of the stack, or
   * an upper bound of it if the stack has many weights. If `signed`, it refers to absolute values.
   */
  maximum: number;
  /** Whether it is known that no query attends to a later key in any layer. */
  causal: boolean;
  /** Whether the queries and keys of the stack are known, and not only its weights. */
  vectors: boolean;
  /**
   * Queries that may attend to one key only, such as the first of a causal text. Omitted if there
   * are none.
   */
  forced_queries?: number[];
  /**
   * Whether the model chooses keys before the softmax in some layers. The zeros in replies then say
   * which keys are masked and which were not chosen. Omitted if it does not.
   */
  chooses_keys?: boolean;
  /** Default number of strongest keys per query that a view draws. Omitted if it draws all keys. */
  top_k?: number;
  /**
   * Names of the measures, such as "previous token" or "entropy", for which the heads have scores.
   */
  patterns: string[];
  /**
   * Number of sampled queries from which the scores of heads are estimated, if computing the
   * weights of all queries would take too long. Maps of all queries then also use only some of
   * them. Omitted if all queries are used.
   */
  sampled?: number;
  /**
   * Mean gate of each head of each layer, in the order of `layers`. A gate is a factor that
   * multiplies the output of a head, and the mean is that over dimensions and queries. null for a
   * layer without gates, or for a head whose gate is not known. Omitted if no layer has gates.
   */
  gates?: ((number | null)[] | null)[];
}

/** Tokens that are the patches of one image, row by row from the top left. */
export interface PatchGrid {
  /** Index of the image among the images of the record, from 0. */
  image: number;
  /** Position of the first patch among the tokens. */
  start: number;
  /** Number of rows (`rows`) and of columns (`columns`) of patches. */
  rows: number;
  columns: number;
  /** Number of tokens between two rows that are not patches. Omitted if 0. */
  gap?: number;
  /** Name of the image, such as that of a camera. Omitted if empty. */
  name?: string;
}

/**
 * Consecutive tokens with places on a line: seconds, steps of a channel, or a named group.
 *
 * Token `start + i` covers the places from `origin + i * step` to this plus `width`, in units.
 */
export interface TokenSpan {
  /** Position of the first token. */
  start: number;
  /** Number of tokens. */
  columns: number;
  /** Name of the sound, channel or group. It may be empty. */
  name: string;
  /**
   * `"s"` for seconds, `"step"` for steps of a time series. If it is empty, the tokens are only a
   * group.
   */
  unit: string;
  /** Place at which the first token starts, in units. */
  origin: number;
  /** Distance from the start of a token to that of the next one, in units. */
  step: number;
  /** Length of a token in units. */
  width: number;
}

export interface Prediction {
  query: number;
  token: Candidate;
  candidates: Candidate[];
  row: number | null;
}

/** Tokens of the queries, or of the keys, of a stack, as views display them. */
export interface TokenList {
  /** Text of each token. Visible characters stand for white space. */
  text: string[];
  /** Positions of the special tokens. */
  special: number[];
  /**
   * Text to which each token belongs. 0 is a single text or the first text of a pair, and 1 is the
   * second text of a pair. null for a token of neither text, such as a special token.
   */
  sequence: (number | null)[];
  /** Places of the tokens that are patches of images in the record. Omitted without images. */
  grids?: PatchGrid[];
  /**
   * Places of other tokens: seconds of a sound, steps of a channel, named groups. Omitted without
   * such tokens.
   */
  spans?: TokenSpan[];
  /**
   * Tokens that the model generated, or tokens of a target text that the user passed, in order.
   * Each has the position of the query that predicted it. Omitted without predictions.
   */
  predictions?: Prediction[];
}

export type PageForm = "all" | "vectors" | "strongest";

/** Form in which an exported page stores the weights of a stack, with their share and error. */
export interface EmbeddedShare {
  /**
   * Form in which the page stores weights. "all": every weight. "vectors": queries and keys, from
   * which the page computes every weight. "strongest": only the largest weights of each query.
   */
  form: PageForm;
  /**
   * Sum of the stored weights divided by the sum of all weights. It is less than 1 only if `form`
   * is "strongest". For signed numbers, both are sums of absolute values.
   */
  covered: number;
  /**
   * Largest absolute difference between a weight of the page and the weight of the exported record.
   * If `form` is "vectors", it is measured, for large records only on a sample of the queries.
   * Otherwise it is an upper bound.
   */
  error: number;
}

/** Properties and tokens of a stack. */
export interface StackDescription extends StackNumbers {
  query_tokens: TokenList;
  /** Tokens of the keys. null if they are the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** Form in which an exported page stores the weights. Omitted in live views. */
  embedded?: EmbeddedShare;
}

/** Stack in a group of siblings, which are different kinds of layers of one model. */
export interface SiblingStack {
  name: string;
  /** Whether the layers are linear, without a softmax. */
  linear: boolean;
}

/** Description of a record: its model, stacks and tokens, but not its weights. */
export interface Description {
  model: string;
  /**
   * Model name without characters that file names cannot have. Omitted if the model has no name.
   */
  file?: string;
  /** Sentences about the record that the view shows. */
  notes: string[];
  /** Most probable classes of a classifier. Omitted for other models. */
  classes?: Candidate[];
  /** Height and width of each image in the model's input. Omitted without images. */
  images?: ImageHeader[];
  stacks: StackDescription[];
  /**
   * Groups of stacks that are different kinds of layers of the model (see
   * `attnviz.record.stack.sibling_stacks`). Omitted without groups.
   */
  siblings?: SiblingStack[][];
}

/**
 * Request for the score of each head of a stack for a measure, such as "previous token".
 *
 * `pattern` is the name of the measure, from `StackNumbers.patterns`. For long texts, scores are
 * estimated from sampled queries (`StackNumbers.sampled`).
 */
export interface ScoresRequest {
  stack: string;
  pattern: string;
}

/** Header of a reply with the score of each head for one measure. */
export interface ScoresHeader {
  /**
   * `scores[i][head]` is the score of a head in the layer `StackNumbers.layers[i]`. null if the
   * score is undefined or infinite.
   */
  scores: (number | null)[][];
}

/** Request for a query vector and some key vectors of a head, with their logits and weights. */
export interface VectorsRequest {
  stack: string;
  layer: number;
  head: number;
  /** Position of the query. */
  token: number;
  /** Range of keys. */
  keys: Range;
}

/**
 * Header of a reply with a query vector and the requested key vectors in its buffer.
 *
 * The buffer has float32 arrays, one after the other: the query vector, (head_dim,), the key
 * vectors, (keys, head_dim), and four arrays with one number per key: the bias, 1 if the mask
 * allows the key, 0 if the key is masked or -1 if the model did not choose it, the logit (minus
 * infinity if the key is not allowed), and the weight.
 */
export interface VectorsHeader extends RowHeader {
  /** Sum of the weights of the query on the requested keys. */
  weight_in_range: number;
}

/**
 * Request for an image in the model's input, by its index in `Description.images`.
 *
 * An image that is too large for one reply is scaled down.
 */
export interface ImageRequest {
  index: number;
}

/** Request to run the model with changed attention, and to measure the effect on the answer. */
export interface InterveneRequest {
  /**
   * Changes of the attention, all made in the same run. Each is an object whose `kind` is the name
   * of a Python class, such as "Ablate", and whose other fields are the arguments of this class. If
   * the list is empty, the reply describes the unchanged run.
   */
  changes: object[];
  /**
   * Answer to measure. Two tokens (or classes), by text or id: the logit of the first minus the
   * logit of the second. One token: its logit minus that of the most likely other token. An empty
   * list: the default answer of `attnviz.intervene` in Python. If omitted, the answer that the user
   * chose in Python, which can be a function.
   */
  measured?: (number | string)[];
  /**
   * Whether to measure the effects of the same change of all heads, tokens or layers, so that the
   * rank of the effect is known.
   */
  ranks?: boolean;
}

/**
 * Token or class that the model predicts. `text` is the displayed text.
 *
 * `id` is the id of the token in the vocabulary, or the index of the class.
 */
export interface AnswerToken {
  text: string;
  id: number;
}

/**
 * Header of a reply with the effect of changes on the answer.
 *
 * The answer is the number that is measured, for example the logit of one token minus the logit of
 * another. The noise bounds the rounding error of the effect. It is estimated from runs of the
 * unchanged model in which the output of each module is rounded differently. An effect that is not
 * larger than the noise shows nothing.
 */
export interface OutcomeHeader {
  /**
   * Sentence for the reader with the answer before and after the changes, and the noise. If the
   * request has no changes, the sentence describes the unchanged run. It also has the rank of the
   * effect among those of the same change of all heads, tokens or layers, if it is known.
   */
  sentence: string;
  /** Description of the answer, such as the two tokens whose logits are compared. */
  measure: string;
  /**
   * The heads, tokens or layers whose effects must be measured to find the rank, such as "16
   * heads". Empty if the rank is known, or if the changes have none.
   */
  unranked: string;
  /** Whether these effects can be measured in about a second. */
  is_cheap: boolean;
  /**
   * Most probable tokens or classes, in descending order, of the unchanged run
   * (`candidates_before`) and of the changed run (`candidates_after`).
   */
  candidates_before: AnswerToken[];
  candidates_after: AnswerToken[];
}

/**
 * Request for the stacks of the run with `changes`, and their differences.
 *
 * `changes` has the same form as in `InterveneRequest`, but must not be empty. The reply has no
 * weights. They are requested separately, by the names of the stacks.
 */
export interface ChangedRequest {
  changes: object[];
}

/**
 * Stack of a run with changed attention, and its difference from the unchanged run.
 *
 * The names of `after` and `difference` can be used in other requests, for example for weights.
 */
export interface ChangedStack {
  /** Name of this stack in the record, which has the attention of the unchanged run. */
  stack: string;
  /** Properties of the stack in the changed run. */
  after: StackNumbers;
  /**
   * Properties of the stack of differences: weights of the changed run minus weights of the
   * unchanged run.
   */
  difference: StackNumbers;
  /**
   * Predictions of the changed run for the tokens in `TokenList.predictions`. Empty if there are
   * none.
   */
  predictions: Prediction[];
}

/** Header of a reply with the stacks of a run with changed attention. */
export interface ChangedHeader {
  stacks: ChangedStack[];
}

/**
 * Request for the contribution of a key to a query, and for the effects of cutting this edge.
 *
 * The model does not run. The reply has only effects of earlier runs. `query` and `key` are
 * positions.
 */
export interface EdgeRequest {
  stack: string;
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** Effect of one run in which a query-key pair was cut, that is, its attention was removed. */
export interface Cut {
  /**
   * Words that say where the pair was cut (in one head, or in several heads or layers), with the
   * answer before and after, and whether the effect is larger than the noise.
   */
  description: string;
  /** Description of the measured answer, as in `OutcomeHeader`. */
  measure: string;
}

/**
 * Header of a reply about an edge: the contribution of its key, and the effects of cutting it.
 *
 * Cutting an edge removes the attention of the query to the key.
 */
export interface EdgeHeader {
  /**
   * Whether the model has run for this view ("ready"), or has not run yet ("waits"). While it is
   * "waits", the other values are not known.
   */
  model: "waits" | "ready";
  /**
   * Contribution of the key to the output of the head for this query: the norm of weight times
   * value vector times output projection, divided by the sum of these norms over all keys. null if
   * it is not known.
   */
  share: number | null;
  /** Reason, in words, why `share` is null. "" if `share` is known, or if `model` is "waits". */
  share_problem: string;
  /** Effects of earlier runs that cut only this edge, possibly in several heads or layers. */
  cuts: Cut[];
}

/** Request for the description of the corpus: a `Description` whose stacks have no tokens. */
export type DescribeCorpusRequest = Record<string, never>;

/**
 * Request for one part of the description of the points of a stack.
 *
 * All parts together are `CorpusPoints` as JSON, compressed with zlib. `part` is the index of the
 * part, from 0.
 */
export interface PointsRequest {
  stack: string;
  part?: number;
}

/**
 * Request for one part of the current plot of one head, or of the small plots of all heads.
 *
 * A coordinate is a 16-bit code. The codes 0 and 65,535 are opposite sides of the square or cube in
 * `PlotHeader`, and the y axis points up. The buffer has the high bytes of the codes, first of the
 * x coordinates of all points, then of the y coordinates, and so on. The low bytes follow in the
 * same order.
 *
 * Until t-SNE or UMAP has a first result, the plot shows the principal components. `part` is the
 * index of the part, from 0.
 */
export interface PlotRequest {
  stack: string;
  layer: number;
  placing: Placing;
  method?: Method;
  dimensions?: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  /**
   * Number of the head. null requests small plots of all heads of the layer, which have principal
   * components only. They have some of the points (see `CorpusPoints.stride`) and no low bytes: the
   * buffer has the x coordinates of all heads, head by head, then the y coordinates.
   */
  head?: number;
  part?: number;
  /**
   * What to do with t-SNE or UMAP before the reply. "show": start it unless it was started before.
   * "restart": also start it again if it was cancelled or has failed. "cancel": stop it if it is
   * running.
   */
  action?: "show" | "restart" | "cancel";
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

/** Header of a reply with the plot of one head. */
export interface PlotHeader {
  dimensions: Dimensions;
  /** Number of points. */
  count: number;
  /**
   * Square or cube that contains all points: `low` has the smallest coordinate of the square or
   * cube along each axis, and `size` is the length of its sides.
   */
  low: number[];
  size: number;
  /**
   * Share of the variance of the points along each axis. null if the axes are not principal
   * components, or if coordinates are NaN.
   */
  explained: number[] | null;
  /** Factor that divided the queries and multiplied the keys (see `PlotOptions.placing`). */
  factor: number;
  /** Reason, in words, why the plot cannot be drawn. null if it can be drawn. */
  problem: string | null;
  /** State of the computation of t-SNE or UMAP. null for principal components. */
  work: Work | null;
}

/** Small plot of a head. `problem` is the reason why it cannot be drawn, or null. */
export interface SmallPlot {
  problem: string | null;
}

/** Header of a reply with small plots, in the order of the heads of the layer. */
export interface SmallPlotsHeader {
  heads: SmallPlot[];
}

/**
 * Request for the trust figures of one head or all heads of a layer.
 *
 * Trust figures state how well distances on a plot predict attention.
 */
export interface TrustRequest {
  stack: string;
  layer: number;
  placing: Placing;
  method?: Method;
  dimensions?: Dimensions;
  perplexity?: number;
  neighbors?: number;
  seed?: number;
  head?: number;
}

/**
 * Trust figures of a head's plot.
 *
 * The keys of a query are the keys of the same text that are points and that the mask allows.
 */
export interface HeadTrust {
  head: number;
  /**
   * Correlation between distance on the plot and product `q . k` (Pearson), averaged over queries,
   * from -1 (the best) to 1. Queries are excluded if their keys all have the same distance, or have
   * fewer than three different products. null if no query remains.
   */
  plot: number | null;
  /**
   * Share of a query's ten keys with the largest `q . k` that are among its ten nearest keys on the
   * plot, averaged over queries. Only queries with more than ten keys count. null if no query has
   * more. Ties of products and of positions are broken at random, and the result is divided by its
   * maximum, so that the best possible plot gets 1.
   */
  recall: number | null;
  /**
   * Expected recall if the points had random positions: ten divided by the number of keys, averaged
   * over the same queries. It is larger if products are tied. null if `recall` is null.
   */
  recall_baseline: number | null;
  /** Number of measured queries, and number of all queries. */
  num_queries: number;
  num_total: number;
}

/**
 * Header of a reply with the trust figures of the requested head, or of all heads of the layer.
 *
 * A page has all heads of the layer also if one is requested. An entry is null if the head has no
 * plot by the requested method yet, or if its plot cannot be drawn.
 */
export interface TrustHeader {
  heads: (HeadTrust | null)[];
}

/**
 * Request for one part of the lengths (Euclidean norms) of the query and key vectors of a head.
 *
 * The buffer has one code per point (see `NormsHeader`), first for all queries and then for all
 * keys. The vectors are those of the model, before their placement on a plot. `part` is the index
 * of the part, from 0.
 */
export interface NormsRequest {
  stack: string;
  layer: number;
  head: number;
  part?: number;
}

/**
 * Header of a reply with the lengths of vectors (Euclidean norms), as integer codes.
 *
 * Code 0 stands for the smallest norm, `low`, and code 65,535 for the largest norm, `high`.
 */
export interface NormsHeader {
  low: number;
  high: number;
}

/**
 * Request for the attention lines of a point, of which there are at most 64.
 *
 * `point` is the number of the point. The lines of a query end at its strongest keys. The lines of
 * a key end at the queries with the largest weights on it. Both ends of a line are points of the
 * same text.
 */
export interface LinesRequest {
  stack: string;
  layer: number;
  head: number;
  point: number;
}

/** Header of a reply with the attention lines of a point. */
export interface LinesHeader {
  /**
   * Number of the point at the other end of each line (`points`), and weight of the line
   * (`weights`), in descending order of weights.
   */
  points: number[];
  weights: number[];
  /**
   * Sum of `weights` as a share of a total weight. For a query, the total is its weight on all keys
   * of its text. For a key, the total is the weight on it from those queries of its text that were
   * searched: all, or for a long text a sample. 0 if the total is 0.
   */
  covered: number;
}

/** Request for the description of an atlas. The header of the reply is an `AtlasDescription`. */
export type DescribeAtlasRequest = Record<string, never>;

/** Statistic that is computed for each head, such as the score of "induction" or the entropy. */
export interface AtlasStatistic {
  name: string;
  /** Unit, such as "share" (a number from 0 to 1) or "nats". */
  unit: string;
  /** Definition in one sentence. */
  definition: string;
  /**
   * Whether the statistic has a baseline: its expected value by chance, for example if the weights
   * of each query were shuffled among its keys (`docs/heads.md`).
   */
  baseline: boolean;
}

/** Role, such as "induction", for which all heads are tested. `definition` is a sentence. */
export interface AtlasRoleKind {
  name: string;
  definition: string;
}

/** Description of a stack of an atlas: its heads, and the statistics of these heads. */
export interface AtlasStack {
  name: string;
  /** Numbers of the layers in the model. */
  layers: number[];
  /** Number of heads of each layer, in the order of `layers`. */
  heads_per_layer: number[];
  /** Whether the attention is causal: no query attends to later keys. */
  causal: boolean;
  /** Whether queries and keys are the same tokens. */
  same_tokens: boolean;
  /** Whether the layers are linear. Then weights are shares of the absolute weights of a query. */
  linear: boolean;
  /** Statistics that are computed for each head. */
  statistics: AtlasStatistic[];
  /** Roles for which the heads are tested. `AtlasRole.role` is an index into this list. */
  roles: AtlasRoleKind[];
  /**
   * A head has a role only if its score exceeds the baseline significantly by more than this
   * number.
   */
  margin: number;
  /** Maximum expected share of false roles among the roles of all heads (false discovery rate). */
  level: number;
  /**
   * Labels of the offsets for which the mean weights of each head are known. An offset is the
   * position of the key minus the position of the query. The labels are "-64" to "64", "first" (the
   * first key of the text) and "rest" (all other keys). In cross-attention, only "first" and "rest"
   * have mean weights.
   */
  offsets: string[];
  /**
   * Maximum number of strongest edges (`strongest`) and of sampled edges (`sampled`) that a head of
   * this stack has. In an exported page, only edges that are on the page are counted.
   */
  strongest: number;
  sampled: number;
  /**
   * `strongest` and `sampled` of the complete statistics, which can have more edges than an
   * exported page.
   */
  strongest_in_all: number;
  sampled_in_all: number;
}

/** Description of an atlas: its corpus and its stacks. */
export interface AtlasDescription {
  model: string;
  /** Number of texts that the model has read (`texts`), and of their tokens (`tokens`). */
  texts: number;
  tokens: number;
  /** Number of texts that were not read, because they are empty or too long for the model. */
  num_skipped: number;
  /** Sentences about the statistics that the view shows. */
  notes: string[];
  stacks: AtlasStack[];
  /** Groups of stacks that are different kinds of layers of one model. */
  siblings: SiblingStack[][];
}

/**
 * Request for one part of the statistics and roles of all heads of a stack.
 *
 * All parts together are an `AtlasTable` as JSON, compressed with zlib. `part` is the index of the
 * part, from 0.
 */
export interface StatisticsRequest {
  stack: string;
  part?: number;
}

/** Request for the mean weights of all heads of a layer by offset (see `AtlasStack.offsets`). */
export interface OffsetsRequest {
  stack: string;
  layer: number;
}

/**
 * Header of a reply with the mean weights by offset of all heads of a layer.
 *
 * The buffer is float32, (heads, bins). `bins` is the number of labels in `AtlasStack.offsets`. For
 * an offset, an entry is the mean weight of all query-key pairs with this offset, except pairs with
 * the first key. For "first" and "rest", an entry is the total weight on these keys, averaged over
 * queries. An entry is NaN if the corpus has no such pair.
 */
export interface OffsetsHeader {
  bins: number;
}

/**
 * Request for one part of the tokens near the strongest and sampled edges of a stack.
 *
 * These are the queries and keys of the edges, and up to 6 tokens before and after each of them
 * (`attnviz.corpus.edges.WINDOW`). All parts together are an `AtlasTexts` as JSON, compressed with
 * zlib. `part` is the index of the part, from 0.
 */
export interface TextsRequest {
  stack: string;
  part?: number;
}

/**
 * Request for one part of the strongest and sampled edges of all heads of a layer.
 *
 * All parts together are an `AtlasEdges` as JSON, compressed with zlib. `part` is the index of the
 * part, from 0.
 */
export interface EdgesRequest {
  stack: string;
  layer: number;
  part?: number;
}

/** Arguments of the requests about a record, by the name of the request. */
export interface RecordRequests {
  page: PageRequest;
  read: ReadRequest;
  describe: DescribeRequest;
  scores: ScoresRequest;
  vectors: VectorsRequest;
  image: ImageRequest;
  intervene: InterveneRequest;
  changed: ChangedRequest;
  edge: EdgeRequest;
}

/** Headers of the replies to the requests about a record. */
export interface RecordReplies {
  page: PageHeader;
  read: EncodedHeader | CellsHeader;
  describe: Description | PartHeader;
  scores: ScoresHeader;
  vectors: VectorsHeader;
  image: ImageHeader;
  intervene: OutcomeHeader;
  changed: ChangedHeader;
  edge: EdgeHeader;
}

/** Arguments of the requests about a corpus, by the name of the request. */
export interface CorpusRequests {
  page: PageRequest;
  describe: DescribeCorpusRequest;
  points: PointsRequest;
  plot: PlotRequest;
  trust: TrustRequest;
  norms: NormsRequest;
  lines: LinesRequest;
}

/** Headers of the replies to the requests about a corpus. */
export interface CorpusReplies {
  page: PageHeader;
  describe: Description;
  points: PartHeader;
  plot: PlotHeader | SmallPlotsHeader | PartHeader;
  trust: TrustHeader;
  norms: NormsHeader | PartHeader;
  lines: LinesHeader;
}

/** Arguments of the requests about an atlas, by the name of the request. */
export interface AtlasRequests {
  page: PageRequest;
  describe: DescribeAtlasRequest;
  statistics: StatisticsRequest;
  offsets: OffsetsRequest;
  texts: TextsRequest;
  edges: EdgesRequest;
}

/** Headers of the replies to the requests about an atlas. */
export interface AtlasReplies {
  page: PageHeader;
  describe: AtlasDescription;
  statistics: PartHeader;
  offsets: OffsetsHeader;
  texts: PartHeader;
  edges: PartHeader;
}

/** Requests that only a kernel answers. An exported page answers all others. */
export type LiveRequest = "page" | "intervene" | "changed" | "edge";
