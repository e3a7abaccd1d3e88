/**
 * Traits of the views: their defaults, their controls, and their form in the address of a page.
 *
 * `make protocol` writes this file from the traits of the classes in `attnviz/views`,
 * `attnviz/embedding/view.py` and `attnviz/atlas/view.py`. Change these classes instead of this
 * file.
 */

import type { Range } from "./protocol";

/**
 * Values that a trait can have: one of several strings, a number, a text, a list, or a value of one
 * of several kinds. "index" is an integer of at least 0.
 */
export type Kind =
  | readonly string[]
  | "boolean"
  | "index"
  | "integer"
  | "number"
  | "text"
  | { readonly list: Kind; readonly size?: number }
  | { readonly either: readonly Kind[] };

/** Declaration of a trait. */
export interface Trait<T> {
  /** Default value. */
  readonly value: T;
  /** Kind of the values. Undefined if the value has a structure that only a kernel can check. */
  readonly kind?: Kind;
  /** Smallest number. */
  readonly min?: number;
  /** Whether null is a value. */
  readonly nullable?: true;
  /**
   * Whether the address of a page has the value: always, or never. By default, it has the value if
   * the reader has changed it.
   */
  readonly address?: "always" | "never";
  /** Label of the control. Undefined if the trait has no simple control. */
  readonly label?: string;
  /** Labels of the strings of a menu. A string without a label is shown itself. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Group of controls in which the view shows the control. */
  readonly group?: string;
  /** Traits of which at least one must differ from its default, or the control is not shown. */
  readonly when?: readonly string[];
}

/** Values of the traits of a view, by name. */
export type StateOf<T> = { -readonly [K in keyof T]: T[K] extends Trait<infer V> ? V : never };

/** Length of the longest text that a view with windows shows as a whole by default. */
export const MAX_WHOLE_TEXT = 100;

/** Maximum number of heads of a layer for which all heads are chosen by default. */
export const MAX_DEFAULT_HEADS = 4;

/** Number of tokens of a default window. */
export const DEFAULT_WINDOW = 64;

/** Mean weight over queries above which a patch is an attention sink. */
export const SINK_WEIGHT = 0.3;

/**
 * Main roles of the heads of a stack.
 *
 * Each attribute is a list with one inner list per layer. Each inner list has one entry per head,
 * which is null for a head without a role.
 */
export interface NamedHeads {
  /** Name of the main role of each head. */
  names: (string | null)[][];
  /**
   * Text that the view writes beside the head: the main role with its score, such as `induction
   * 0.98 ± 0.01`, or only its name if it has no score.
   */
  labels: (string | null)[][];
  /**
   * Number by which heads are sorted in descending order. The heads with the rarest role come
   * first. Among heads with the same role, the head with the largest score comes first.
   */
  ranks: (number | null)[][];
}

/** Name of the stack that is shown, such as `"self"` or `"cross"`. */
const stack: Trait<string> = { value: "", kind: "text", address: "always" };

/** Number of the layer that is shown. Negative numbers count from the end: -1 is the last layer. */
const layer: Trait<number> = { value: 0, kind: "index", address: "always" };

/**
 * Chosen heads of the layer, in the order in which they were chosen. An empty list means all heads
 * together. You can also set one number, or `"all"` to choose every head separately.
 */
const heads: Trait<number[]> = { value: [], kind: { list: "index" }, address: "always" };

/**
 * Row in which a generated token is shown. If False, this is the row of the query that predicted
 * the token. If True, it is the row in which the token itself is the query.
 */
const as_query: Trait<boolean> = { value: false, kind: "boolean" };

/**
 * Number of the generated token that is shown, from 0. Negative numbers count from the end, so -1
 * is the last generated token. Setting `prediction` also sets `token` to the query in whose row the
 * generated token is shown (see `as_query`). Setting `token` to such a query also sets
 * `prediction`. Setting `token` to another query sets `prediction` to null.
 */
const prediction: Trait<number | null> = { value: null, kind: "index", nullable: true };

/**
 * Position of the pinned query, or null if no query is pinned. You can also set the text of the
 * token, such as `"it"`, if it occurs only once (see `attnviz.Tokens.positions`). Negative numbers
 * count from the end.
 */
const token: Trait<number | null> = { value: null, kind: "index", nullable: true };

/**
 * Position of the pinned key, or null if no key is pinned. You can also set a text or a negative
 * number, as for `token`.
 */
const key: Trait<number | null> = { value: null, kind: "index", nullable: true };

/** Theme of the view. `"auto"` uses the theme of the notebook or page. */
const theme: Trait<"auto" | "light" | "dark"> = { value: "auto", kind: ["auto", "light", "dark"] };

/**
 * Controls that the view shows. `"full"` shows all controls in rows. `"compact"` shows the controls
 * of the layer and of the heads in one row, and a button that opens all others. `"none"` (or False)
 * shows only title, picture, legend and captions. `"auto"` (or True) is `"compact"` on a page whose
 * window or frame is lower than 600 pixels or narrower than 480 pixels, and `"full"` otherwise.
 * Keyboard shortcuts always work.
 */
const controls: Trait<"auto" | "full" | "compact" | "none"> = {
  value: "auto",
  kind: ["auto", "full", "compact", "none"],
};

const _generating: Trait<unknown> = { value: null };

/**
 * Entries `stack`, `layer`, `head`, `pattern`, `score`, `baseline` and `num_queries`, if the view
 * opened at the head with the most distinct pattern (`attnviz.analysis.distinct_head`). Most views
 * open there if no layer, heads, token, key or order of heads was passed, and if this head can be
 * found quickly. In all other cases, and after `record` is set, the trait is null. Read only.
 */
const opening: Trait<unknown> = { value: null };

/**
 * Part of the weights that is shown if the input is a pair of texts, a and b. `"a-b"` shows queries
 * of the first text and keys of the second text. `"all"` shows all queries and keys.
 */
const pair: Trait<"all" | "a-a" | "a-b" | "b-a" | "b-b"> = {
  value: "all",
  kind: ["all", "a-a", "a-b", "b-a", "b-b"],
};

/**
 * Roles of heads over a corpus. Pass `HeadStatistics` of the same model. Alternatively, pass the
 * roles of the current stack: the result of `statistics.stack(name).roles()`, or a dict of names by
 * layer and head, such as `{(1, 0): "induction"}`. For several stacks, pass a dict of such roles by
 * stack name. The view writes the role beside each head. `order="role"` groups heads with the same
 * role.
 */
const roles: Trait<Record<string, NamedHeads>> = { value: {} };

/**
 * Order of the heads. `"number"` orders by layer and head number. `"pinned"` orders by the weight
 * from the pinned query to the pinned key or, if no key is pinned, by the largest weight of the
 * pinned query. The name of an entry of `scores`, or of a pattern of `attnviz.analysis.head_scores`
 * such as `"previous token"`, orders by these scores. `"role"` orders by `roles`. The head with the
 * largest score comes first. If scores are both positive and negative, or are a result of
 * `attnviz.head_effects`, the head with the largest absolute value comes first.
 */
const order: Trait<string> = { value: "number", kind: "text" };

/**
 * Your own scores of heads, by name. A value is an array with the shape (layers, heads), or a list
 * with one sequence per layer, for the current stack. A value can also be a dict of such arrays by
 * stack name, or a result of `attnviz.head_effects`. A single array without a name is named
 * `"score"`. If `scores` are passed without `order`, heads are ordered by the first scores. Results
 * of `head_effects`, and scores that are both positive and negative, are drawn as bars around a
 * zero line below each head.
 */
const scores: Trait<Record<string, Record<string, (number | null)[][]>>> = { value: {} };

/**
 * Sentences that describe what the scores measure, by name of the scores. The results of
 * `attnviz.head_effects` have a description by default.
 */
const score_notes: Trait<Record<string, string>> = { value: {} };

/**
 * Standard errors of the scores, in the same form as `scores`. They are drawn as thin lines over
 * the bars. Results of `attnviz.head_effects` over several texts contain standard errors.
 */
const score_errors: Trait<Record<string, Record<string, (number | null)[][]>>> = { value: {} };

/**
 * Scores of the keys, by name. A value is an array with one number per key of the current stack, a
 * dict of such arrays by stack name, or a result of `attnviz.token_effects`. A value without a name
 * is named `"score"`, or `"effect"` if it is a result of `token_effects`. The scores named
 * `token_score` are drawn as bars around a zero line beside the keys. NaN draws no bar.
 */
const token_scores: Trait<Record<string, Record<string, (number | null)[]>>> = { value: {} };

/**
 * Sentences that describe what the scores measure, by name of the scores. The results of
 * `attnviz.token_effects` have a description by default.
 */
const token_score_notes: Trait<Record<string, string>> = { value: {} };

/** Name of the scores that are drawn. null draws the first scores. */
const token_score: Trait<string | null> = { value: null, kind: "text", nullable: true };

/** Whether the model can run again. If False, the reader cannot change the attention. Read only. */
const runs_model: Trait<boolean> = { value: false };

/**
 * Number that is measured to find the effect of the changes, as for `attnviz.intervene`. For two
 * tokens, the answer is the logit of the first token minus the logit of the second token. For one
 * token, it is the logit of this token minus the logit of the most likely other token. For a
 * function, it is the result of the function. null is the default answer of `intervene`, for most
 * models the logit of token A minus the logit of token B. Token A is the most likely token before
 * the changes, and token B is the most likely other token after the changes. An answer other than
 * null is checked when it is set. The check runs the model if the model has not run before.
 */
const answer: Trait<unknown> = { value: null };

/**
 * Changes of the attention, which are made together when the model runs again: `Ablate` (with
 * factor 0), `Knockout` and `HideTokens`, as for `attnviz.intervene`. Each argument of a change
 * selects one layer, head or token, or all with null. Texts of tokens and negative numbers are
 * replaced by numbers. The default of `stack` is the stack that is shown. The list also changes
 * when the reader adds or removes changes.
 */
const changes: Trait<unknown> = { value: [] };

/**
 * Run whose weights are drawn. `"before"` is the unchanged run, `"after"` the run with `changes`,
 * and `"difference"` the weights after minus the weights before. If `changes` is empty, the
 * unchanged run is drawn. Adding a change switches `"before"` to `"after"`.
 */
const run: Trait<"before" | "after" | "difference"> = {
  value: "before",
  kind: ["before", "after", "difference"],
};

/**
 * Maps over the image. `"chosen"` draws the chosen heads. `"layers"` draws them in each layer, and
 * `"heads"` each head of the layer, as small maps in rows. `"words"` draws a map of each token of
 * the answer. Without an answer, it draws one of each word that reads patches or, in diffusion
 * models, that patches read. A click on a small map chooses its layer, head or word.
 */
const maps: Trait<"chosen" | "layers" | "heads" | "words"> = {
  value: "chosen",
  kind: ["chosen", "layers", "heads", "words"],
  label: "Maps",
  labels: { chosen: "chosen heads", heads: "all heads" },
};

/**
 * Range of queries (`query_window`) or keys (`key_window`) that are shown: [start, stop], with stop
 * excluded, at most 2,000 tokens. null shows all tokens of a text with up to 100 tokens, and the
 * first 64 tokens of a longer text. A view of a longer text opens with the pinned token and its
 * strongest key in sight. If no token is pinned, it opens at the generated answer, or at the end of
 * the prompt of a causal model. The caption states how much of the weight is on keys outside the
 * range. The strongest keys of a pinned query are listed even if they are outside. A click on such
 * a key moves the range to it.
 */
const query_window: Trait<Range | null> = {
  value: null,
  kind: { list: "integer", size: 2 },
  nullable: true,
};

/**
 * Range of queries (`query_window`) or keys (`key_window`) that are shown: [start, stop], with stop
 * excluded, at most 2,000 tokens. null shows all tokens of a text with up to 100 tokens, and the
 * first 64 tokens of a longer text. A view of a longer text opens with the pinned token and its
 * strongest key in sight. If no token is pinned, it opens at the generated answer, or at the end of
 * the prompt of a causal model. The caption states how much of the weight is on keys outside the
 * range. The strongest keys of a pinned query are listed even if they are outside. A click on such
 * a key moves the range to it.
 */
const key_window: Trait<Range | null> = {
  value: null,
  kind: { list: "integer", size: 2 },
  nullable: true,
};

/**
 * How several heads are drawn. `"separate"` draws each chosen head in its own colour. `"mean"` and
 * `"max"` draw the mean or the maximum of their weights. If no head is chosen, all heads of the
 * layer are combined: `"max"` draws the maximum of their weights, and `"separate"` and `"mean"`
 * draw the mean.
 */
const combine: Trait<"separate" | "mean" | "max"> = {
  value: "separate",
  kind: ["separate", "mean", "max"],
  label: "Combine",
  labels: { max: "maximum" },
};

/**
 * Number of strongest keys to draw per query, among the keys that are shown. null draws all keys.
 * The default is null for texts of up to 32 tokens, 3 for longer texts, and 1 for ranks of an
 * indexer.
 */
const top_k: Trait<number | null> = { value: null, kind: "index", min: 1, nullable: true };

/** Smallest weight to draw, from 0 to the largest possible weight, which is usually 1. */
const threshold: Trait<number> = { value: 0, kind: "number", min: 0 };

/**
 * Keys whose weights are not drawn: `"special"` for all special tokens, `"first"` for the first
 * token, or positions of keys. Strings such as `["[CLS]", "."]` are replaced by the positions of
 * all keys with these texts. The other weights are unchanged, and the view states the share of the
 * weight that is left out.
 */
const leave_out: Trait<("special" | "first" | number)[]> = {
  value: [],
  kind: { list: { either: [["special", "first"], "index"] } },
};

/**
 * Whether to divide the weights that are not left out by their sum. On a page this enlarges
 * rounding errors, and the view states this.
 */
const renormalize: Trait<boolean> = {
  value: false,
  kind: "boolean",
  label: "renormalise",
  group: "left out",
  when: ["leave_out", "pair"],
};

/** Scale of the colours of the heat map. */
const color_scale: Trait<"linear" | "log"> = {
  value: "linear",
  kind: ["linear", "log"],
  label: "Colour",
  labels: { log: "logarithm" },
};

/**
 * Value of a cell that covers several weights: their mean, or the largest. Cells cover several
 * weights if a text is too long to show each weight.
 */
const pooled: Trait<"mean" | "max"> = {
  value: "mean",
  kind: ["mean", "max"],
  label: "Cells show",
  labels: { max: "maximum" },
};

/**
 * Form of the thumbnails: small heat maps, with queries as rows and keys as columns, or small lines
 * from queries on the left to keys on the right.
 */
const thumbnails: Trait<"heat-map" | "lines"> = {
  value: "heat-map",
  kind: ["heat-map", "lines"],
  label: "Thumbnails",
  labels: { "heat-map": "heat maps" },
  group: "grid",
};

/**
 * Heads that the grid offers. A list contains the heads to offer in each layer. A dict contains the
 * heads to offer by layer, and layers that are not in the dict are not offered. null offers all
 * heads. The trait can also be set to one number, to `"all"`, to a dict with integers as layers,
 * and to negative numbers, which count from the end.
 */
const include_heads: Trait<number[] | Record<string, number[]> | null> = { value: null };

/**
 * Whether dimensions are sorted by their share in the row of the highlighted key, with the largest
 * share first. The share of a dimension is the absolute value of its cell, divided by the sum of
 * the absolute values of all cells in the row.
 */
const sort_dimensions: Trait<boolean> = {
  value: true,
  kind: "boolean",
  label: "Sort dimensions by share",
  group: "dimensions",
};

/**
 * Names, distances and stacks for the browser. Read only. `compared` is the `Comparison`, with its
 * numbers.
 */
const comparison: Trait<unknown> = { value: {} };

/** Number of the member that is compared with the first member (member 0), from 1. */
const member: Trait<number> = { value: 1, kind: "integer" };

/**
 * Order of the heads in the grid: by layer and head number, or by distance, with the largest
 * distance first.
 */
const order_of_compare_view: Trait<"number" | "distance"> = {
  value: "number",
  kind: ["number", "distance"],
  label: "Heads by",
  group: "heads",
};

/** Form of the detail: lines as in the head view, or a heat map as in the matrix view. */
const form: Trait<"head" | "matrix"> = {
  value: "head",
  kind: ["head", "matrix"],
  label: "Head as",
  labels: { head: "lines" },
  group: "heads",
};

/**
 * Index of the corpus's record that contains `token` and `key`. null is the first record. The
 * property `record` returns this record.
 */
const text: Trait<number | null> = { value: null, kind: "integer", min: 0, nullable: true };

/** Whether one head is enlarged. If False, all heads are shown as small plots. */
const enlarged: Trait<boolean> = { value: false, kind: "boolean" };

/**
 * Projection of the enlarged head. Small plots always show principal components. t-SNE and UMAP
 * need `attnviz[embedding]`. They keep points with a similar direction close to each other (cosine
 * distance) or, if `lift` is True, points at a small Euclidean distance. The method `trust` always
 * uses Euclidean distances.
 */
const method: Trait<"pca" | "tsne" | "umap"> = {
  value: "pca",
  kind: ["pca", "tsne", "umap"],
  address: "never",
  label: "Method",
  labels: { pca: "PCA", tsne: "t-SNE", umap: "UMAP" },
  group: "projection",
};

/** Number of dimensions of the enlarged plot. */
const dimensions: Trait<number> = { value: 2, kind: "index", min: 2, address: "never" };

/**
 * Factor by which queries are divided and keys are multiplied. `"norms"` makes the median norms of
 * queries and keys equal: it is `sqrt(median|q| / median|k|)`. `"none"` is 1.
 */
const scaling: Trait<"norms" | "none"> = {
  value: "norms",
  kind: ["norms", "none"],
  address: "never",
  label: "Scale",
  labels: { norms: "by norms", none: "no" },
  group: "placing",
};

/** Whether keys are moved so that their mean is the mean of the queries. */
const translate: Trait<boolean> = {
  value: true,
  kind: "boolean",
  address: "never",
  label: "move keys onto the queries",
  group: "placing",
};

/**
 * Whether keys get an additional coordinate. With this coordinate, the order of the keys by their
 * distance from a query is exactly the order by their products with the query.
 */
const lift: Trait<boolean> = {
  value: false,
  kind: "boolean",
  address: "never",
  label: "lift",
  group: "placing",
};

/** Perplexity of t-SNE, at least 2. */
const perplexity: Trait<number> = { value: 50, kind: "index", min: 2, address: "never" };

/** Number of neighbours of a point in UMAP, including the point itself, at least 2. */
const neighbors: Trait<number> = { value: 15, kind: "index", min: 2, address: "never" };

/** Seed of t-SNE and UMAP. */
const seed: Trait<number> = {
  value: 0,
  kind: "index",
  address: "never",
  label: "Seed",
  group: "projection",
  when: ["method"],
};

/**
 * Property that determines the colours of points: `"type"`, `"position"`, `"position mod 5"`,
 * `"norm"`, `"frequency"`, `"punctuation"`, `"text"`, or the name of one of the corpus's columns.
 */
const color: Trait<string> = { value: "type", kind: "text" };

/** Points that are drawn. */
const points: Trait<"both" | "queries" | "keys"> = {
  value: "both",
  kind: ["both", "queries", "keys"],
  label: "Points",
  labels: { both: "queries and keys" },
  group: "points",
};

/** Text to find in tokens. */
const search: Trait<string> = { value: "", kind: "text" };

/**
 * Numbers of the points that are selected with the lasso, ascending. All queries are numbered
 * before the keys. The method `selection` describes these points.
 */
const selected: Trait<number[]> = { value: [], kind: { list: "integer" }, address: "never" };

/** Colouring of the grid: `"role"` or the name of a statistic. */
const color_of_atlas_view: Trait<string> = { value: "role", kind: "text" };

/**
 * Kind of edges in the list. `"sampled"` is a random sample that represents all attention of the
 * head. `"strongest"` are the edges with the largest weights, which are not representative.
 */
const edges: Trait<"sampled" | "strongest"> = { value: "sampled", kind: ["sampled", "strongest"] };

/** Traits that all views have. */
export const RECORD_TRAITS = {
  stack,
  layer,
  heads,
  as_query,
  prediction,
  token,
  key,
  theme,
  controls,
  _generating,
  opening,
  pair,
  roles,
  order,
  scores,
  score_notes,
  score_errors,
  token_scores,
  token_score_notes,
  token_score,
  runs_model,
  answer,
  changes,
  run,
  maps,
};

export const HEAD_VIEW_TRAITS = {
  query_window,
  key_window,
  combine,
  top_k,
  threshold,
  leave_out,
  renormalize,
};

export const MODEL_VIEW_TRAITS = {
  query_window,
  key_window,
  color_scale,
  pooled,
  thumbnails,
  include_heads,
};

export const NEURON_VIEW_TRAITS = {
  sort_dimensions,
};

export const MATRIX_VIEW_TRAITS = {
  query_window,
  key_window,
  color_scale,
  pooled,
};

export const COMPARE_VIEW_TRAITS = {
  query_window,
  key_window,
  color_scale,
  pooled,
  comparison,
  member,
  order: order_of_compare_view,
  form,
  top_k,
  threshold,
};

export const DASHBOARD_TRAITS = {
  query_window,
  key_window,
  color_scale,
  pooled,
  thumbnails,
  include_heads,
  combine,
  top_k,
  threshold,
  leave_out,
  renormalize,
};

export const EMBEDDING_VIEW_TRAITS = {
  text,
  enlarged,
  method,
  dimensions,
  scaling,
  translate,
  lift,
  perplexity,
  neighbors,
  seed,
  color,
  points,
  search,
  selected,
};

export const ATLAS_VIEW_TRAITS = {
  color: color_of_atlas_view,
  order,
  edges,
};
