/**
 * Captions of the embedding view.
 *
 * Functions that take the context or the store read signals of the view. All other functions are
 * pure. Placing means the steps before the projection: queries and keys are scaled, keys are moved
 * onto the queries, and both may be lifted, which adds a coordinate. A frame is an intermediate
 * plot of a running projection.
 */

import { countHeads } from "../../client/source";
import { roundedUp } from "../../ui/exports/csv";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { rolesInWords } from "../../ui/head-grid/head-roles";
import {
  capital,
  counted,
  formatNumber,
  formatShare,
  formatSmall,
  headName,
  plainNumber,
  quoted,
  several,
  shareWithin,
  stackName,
} from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { follow, same } from "../../ui/view/state";
import type {
  Caveat,
  Corpus,
  HeadTrust,
  Method,
  Placing,
  Projecting,
  ProjectionWork,
} from "./client/requests";
import { type MeanCaptionInput, meanStoreOf } from "./mean/store";
import { type EmbeddingState, type PointsShown, placingOf, projectingOf } from "./state";
import type { EmbeddingStore } from "./store";
import { stepsInWords, trustInWords } from "./trust";

type Context = ViewContext<EmbeddingState>;

/** Return "image" if every token of the corpus is a patch or a special token, else "text". */
export function unitOf(corpus: Corpus): Unit {
  if (corpus.images === 0) return "text";
  const words = corpus.vocabulary.some(
    (entry, at) => corpus.special[at] !== 1 && !entry.startsWith("patch "),
  );
  return words ? "text" : "image";
}

/** Collect the facts about a point that captions state. */
export function pointFacts(corpus: Corpus, point: number): PointFacts {
  const text = corpus.textOf(point);
  return {
    kind: corpus.kindOf(point),
    token: corpus.tokenOf(point),
    name: corpus.names[text] ?? `text ${text}`,
    text,
    unit: unitOf(corpus),
    position: corpus.positionOf(point),
  };
}

/**
 * Return the facts that captions state about the attention lines of the chosen point. Return null
 * if no point is chosen, or until its lines are loaded.
 */
export function linesFacts(store: EmbeddingStore): LinesFacts | null {
  const [corpus, lines, chosen] = [store.corpus.value, store.lines.value, store.chosen.value];
  if (!corpus || !lines || chosen === null || lines.point !== chosen) return null;
  let best = -1;
  lines.weights.forEach((weight, i) => {
    if (weight > (lines.weights[best] ?? 0)) best = i;
  });
  const point = lines.points[best];
  return {
    strongest:
      point === undefined
        ? null
        : {
            token: corpus.tokenOf(point),
            position: corpus.positionOf(point),
            weight: lines.weights[best] as number,
          },
    count: lines.points.length,
    covered: lines.covered,
    numTotal: lines.num_total,
    ...(lines.error && { error: lines.error }),
  };
}

/**
 * Return the reason why the enlarged head has no plot. Return null if its plot is loaded or still
 * loading, or if no head is enlarged.
 */
export function problemOf(context: Context, store: EmbeddingStore): string | null {
  const at = store.head.value;
  if (!at || !context.state.enlarged.value) return null;
  const now = store.projection.value;
  if (now && now.request.layer === at.layer && now.request.head === at.head) return now.problem;
  return (
    store.overview.value?.heads.find(({ layer, head }) => layer === at.layer && head === at.head)
      ?.problem ?? null
  );
}

/**
 * Whether the plot shows principal components because the requested method is running and has no
 * frame yet.
 */
export function waitsForFrame(store: EmbeddingStore): boolean {
  return standsForAnother(store) && store.projection.value?.work?.state === "running";
}

/** Whether the plot shows principal components although another method was requested. */
function standsForAnother(store: EmbeddingStore): boolean {
  const now = store.projection.value;
  if (now === null || now.request.method === "pca") return false;
  // t-SNE and UMAP start from the principal components. Until their first step is done, the plot
  // shows these.
  const { work } = now;
  return now.explained !== null || (work?.done === 0 && work.state !== "done");
}

/**
 * Return the settings by which captions describe the plot. The method is the requested one, or PCA
 * if the requested method has no result and is not running.
 */
function projectedAs(state: EmbeddingState, store: EmbeddingStore): Projecting {
  const asked = projectingOf(state);
  const dimensions = store.projection.value?.dimensions ?? asked.dimensions;
  const instead = standsForAnother(store) && !waitsForFrame(store);
  return instead ? { ...asked, method: "pca", dimensions } : asked;
}

/**
 * Return the reason why the enlarged head has no mean weights. Return null if its mean weights are
 * loaded or still loading.
 */
function noMean(context: Context, store: EmbeddingStore): string | null {
  const { aggregate, current } = meanStoreOf(context, store);
  // In a page, every mean weight is NaN if a query or key of the head is not finite. The mask of
  // every other head allows a pair, and so at least one mean is a number.
  const none = current.value && aggregate.value?.weights.every(Number.isNaN);
  return none ? "queries or keys are not finite numbers" : null;
}

function textsWithPoints(corpus: Corpus): number {
  return corpus.textTokens.filter((count) => count > 0).length;
}

function sentenceInputOf(
  context: Context,
  store: EmbeddingStore,
  live: boolean,
): SentenceInput | null {
  const { state, record } = context;
  const [corpus, selection] = [store.corpus.value, record.selection.value];
  if (!corpus || !selection) return null;
  const { stack } = selection;
  const chosen = store.chosen.value;
  const matches = store.matches.value;
  const search = state.search.value;
  const aggregated = state.enlarged.value && state.content.value === "aggregate";
  return {
    stack: stack.name,
    at: state.enlarged.value ? store.head.value : null,
    layers: stack.layers.length,
    heads: countHeads(stack),
    numQueries: corpus.numQueries,
    numKeys: corpus.numKeys,
    state: { ...follow(state), ...projectedAs(follow(state), store) },
    problem: problemOf(context, store) ?? (aggregated ? noMean(context, store) : null),
    waiting: waitsForFrame(store),
    point: chosen === null ? null : pointFacts(corpus, chosen),
    lines: state.enlarged.value ? linesFacts(store) : null,
    matches: matches && { search, count: matches.count, points: corpus.count },
    selected: state.selected.value.length,
    aggregate: aggregated ? meanStoreOf(context, store).captionInput.value : null,
    live,
  };
}

/** Return the subtitle: the stack, the number of texts and the number of points. */
export function subtitleOf(context: Context, store: EmbeddingStore): string {
  const corpus = store.corpus.value;
  const selection = context.record.selection.value;
  if (!corpus || !selection) return "";
  const parts = [
    stackName(selection.stack.name),
    several(textsWithPoints(corpus), unitOf(corpus)),
    several(corpus.count, "point"),
  ];
  return parts.join(" · ");
}

/**
 * Return the main caption: the enlarged head or all heads, followed by the chosen point, the search
 * result and the lasso.
 *
 * @param live whether the caption may mention mouse clicks and keyboard keys.
 */
export function sentenceOf(context: Context, store: EmbeddingStore, live = true): string {
  const input = sentenceInputOf(context, store, live);
  return input ? sentence(input) : "";
}

/**
 * Return the detail caption: how much of the data is drawn, and what is approximate.
 *
 * @param live whether the text pane is visible. The pane describes the lines of the chosen point,
 *   so the caption does so only if the pane is not visible.
 */
export function coverageOf(context: Context, store: EmbeddingStore, live = true): string {
  const { state, record } = context;
  const [corpus, selection] = [store.corpus.value, record.selection.value];
  if (!corpus || !selection) return "";
  const parts: string[] = [];
  const chosen = store.chosen.value;
  const enlarged = state.enlarged.value;
  if (enlarged && state.content.value === "aggregate") {
    const mean = meanStoreOf(context, store).captionInput.value;
    return mean ? aggregateInWords(mean) : "";
  }
  const problem = problemOf(context, store);
  const trust = enlarged ? store.headTrust.value : null;
  if (!enlarged) parts.push(rolesInWords(record.roles.value, selection.stack));
  if (trust && !problem) parts.push(trustInWords(trust));
  if (enlarged && chosen !== null && !live)
    parts.push(linesCoverageInWords(pointFacts(corpus, chosen), linesFacts(store)));
  if (!problem) parts.push(methodOf(context, store));
  parts.push(
    corpusInWords({
      numQueries: corpus.numQueries,
      numKeys: corpus.numKeys,
      inAll: corpus.inAll,
      texts: textsWithPoints(corpus),
      totalTexts: corpus.totalTexts,
      whole: corpus.whole,
      seed: corpus.seed,
      leftOut: corpus.numSkipped,
      stopped: corpus.stopped,
      unit: unitOf(corpus),
    }),
  );
  if (enlarged) {
    const now = store.projection.value;
    if (!problem) parts.push(explainedInWords(now?.explained ?? null));
  }
  const overview = store.overview.value;
  if (!enlarged && overview && overview.stride > 1)
    parts.push(`Small plots show every ${ordinal(overview.stride)} point.`);
  const layers = selection.stack.layers.length;
  const layer = enlarged ? selection.layer : null;
  parts.push(caveatsInWords(corpus.caveats, layer, layers, state.translate.value));
  parts.push(store.colors.value?.note ?? "");
  return parts.filter(Boolean).join(" ");
}

/** Return "2nd", "3rd", "4th", ... */
function ordinal(count: number): string {
  const tens = count % 100;
  const ending = tens >= 11 && tens <= 13 ? "th" : (["th", "st", "nd", "rd"][count % 10] ?? "th");
  return `${count}${ending}`;
}

/**
 * Return all sentences except the first of the kernel's text about a finished projection, such as "
 * A perplexity of 50 needs …". Return "" if the text has one sentence.
 */
export function remarkInWords(work: ProjectionWork | null): string {
  const [, ...remarks] = work?.state === "done" ? work.words.split(". ") : [];
  return remarks.map((remark) => ` ${remark}.`).join("");
}

/** Return how vectors were placed. For an enlarged head, also return how they were projected. */
export function methodOf(context: Context, store: EmbeddingStore): string {
  const state = follow(context.state);
  const [now, at, placing] = [store.projection.value, store.head.value, placingOf(state)];
  // Every head has its own scaling factor, so a caption of all heads states no factor.
  if (!state.enlarged) return `Vectors ${placingInWords(placing, null)}.`;
  const isCurrent = now && now.request.layer === at?.layer && now.request.head === at.head;
  const words = placingInWords(
    placing,
    isCurrent && same(now.request.placing, placing) ? now.factor : null,
  );
  const projecting = { ...projectedAs(state, store), lift: placing.lift };
  const how = methodInWords(projecting, true, waitsForFrame(store));
  return `By ${how}; ${words}.${remarkInWords(store.projection.value?.work ?? null)}`;
}

/**
 * Return the correlation of distance with q·k for the original vectors, for the placed vectors and
 * on the plot. Return "" if it is not measured.
 */
export function trustStepsOf(store: EmbeddingStore): string {
  const trust = store.headTrust.value;
  return trust ? stepsInWords(trust) : "";
}

/** Return the summary for screen readers. */
export function summaryOf(context: Context, store: EmbeddingStore): string {
  const input = sentenceInputOf(context, store, false);
  return input ? summary(input, store.headTrust.value ?? undefined) : "";
}

const METHODS: Record<Method, string> = {
  pca: "principal components",
  tsne: "t-SNE",
  umap: "UMAP",
};

/**
 * Return the distance that t-SNE and UMAP use. For lifted vectors it is Euclidean, because the lift
 * adds a coordinate that makes Euclidean distances follow q·k.
 */
export function metricInWords({ lift }: Pick<Placing, "lift">): string {
  return lift ? "Euclidean distance" : "cosine distance";
}

/**
 * Return the name of a method, such as "principal components", "t-SNE of cosine distance,
 * perplexity 50, seed 0", or "3D UMAP of cosine distance, 15 neighbours, seed 0".
 *
 * @param detailed whether to include the settings.
 * @param waiting whether the plot shows principal components until the method has a frame.
 */
export function methodInWords(
  { method, dimensions, perplexity, neighbors, seed, lift }: Projecting & Pick<Placing, "lift">,
  detailed = false,
  waiting = false,
): string {
  const space = dimensions === 3 ? "3D " : "";
  if (waiting) return `${space}${METHODS.pca}, until ${METHODS[method]} has its first frame`;
  const by = method === "pca" ? "" : ` of ${metricInWords({ lift })}`;
  const name = `${space}${METHODS[method]}${by}`;
  if (!detailed || method === "pca") return name;
  const size = method === "tsne" ? `perplexity ${perplexity}` : several(neighbors, "neighbour");
  return `${name}, ${size}, seed ${seed}`;
}

/**
 * Return the placing in words, such as "scaled by their norms (c = 1.3), keys moved onto the
 * queries".
 *
 * @param factor scaling factor c, or null to omit it.
 */
export function placingInWords(
  { scaling, translate, lift }: Placing,
  factor: number | null,
): string {
  const by = factor === null || scaling === "none" ? "" : ` (c = ${formatNumber(factor)})`;
  const parts = [
    scaling === "norms" ? `scaled by their norms${by}` : "not scaled",
    translate ? "keys moved onto the queries" : "keys not moved",
    ...(lift ? ["lifted, so that distances follow q·k exactly before the projection"] : []),
  ];
  return parts.join(", ");
}

/** Return the numbers of drawn queries and keys, such as "1,200 queries and 1,200 keys". */
export function pointsInWords(points: PointsShown, numQueries: number, numKeys: number): string {
  const queries = several(numQueries, "query", "queries");
  const keys = several(numKeys, "key");
  if (points === "queries") return queries;
  return points === "keys" ? keys : `${queries} and ${keys}`;
}

/** Kind of input that the tokens come from. */
export type Unit = "text" | "image";

/** A point and its text, for captions. */
export interface PointFacts {
  kind: "query" | "key";
  token: string;
  /** Name of the text, index of the text, kind of input, and position of the token in the text. */
  name: string;
  text: number;
  unit: Unit;
  position: number;
}

/** Lines of a point: the strongest keys of a query, or the strongest queries of a key. */
export interface LinesFacts {
  /**
   * Token at the other end of the strongest line, with its position in the text. Null without
   * lines.
   */
  strongest: { token: string; position: number; weight: number } | null;
  count: number;
  /**
   * Share of the weight that the lines show: for a query its weight on all keys, for a key its
   * weight from the sampled queries.
   */
  covered: number;
  /**
   * Number of keys or queries that the mask allows. The lines are limited to the strongest of
   * these.
   */
  numTotal: number;
  /** Largest error of a line's weight, and error of `covered`. Absent if both are exact. */
  error?: { weight: number; covered: number };
}

/** Return "text 3, “The cat sat”", or "text 3" if the text has no name. */
export function textInWords(name: string, text: number, unit: Unit = "text"): string {
  const number = `${unit} ${text}`;
  return name === number || name === "" ? number : `${number}, ${quoted(name)}`;
}

/** Return "query “it”, position 10 of text 3". */
export function pointInWords({ kind, token, text, unit, position }: PointFacts): string {
  return `${kind} ${quoted(token)}, position ${position} of ${unit} ${text}`;
}

/**
 * Return a sentence about a point: the key that a query attends to most, or the query that attends
 * most to a key. Without loaded lines the sentence only names the point.
 */
export function linesInWords(point: PointFacts, lines: LinesFacts | null): string {
  const what = capital(pointInWords(point));
  if (!lines) return `${what}.`;
  const { strongest } = lines;
  if (!strongest)
    return point.kind === "query"
      ? `${what}: attends to no key that is a point.`
      : `${what}: no query attends to it.`;
  const other = `${quoted(strongest.token)} (${strongest.position})`;
  const weight = formatSmall(strongest.weight);
  return point.kind === "query"
    ? `${what}, attends most to ${other}: ${weight}.`
    : `${what}, gets most weight from ${other}: ${weight}.`;
}

/** Lines that show at least this share of the query's weight count as complete. */
const ALL_OF_IT = 0.9995;

/**
 * Return the number of lines and the share of the query's weight that they show. Return "" if the
 * point has no lines or they are not loaded.
 */
export function linesCoverageInWords(
  point: Pick<PointFacts, "kind">,
  lines: LinesFacts | null,
): string {
  if (!lines || lines.count === 0) return "";
  // In a page, `numTotal` can also count masked keys, which have no weight. Lines are therefore
  // partial only if they also lack a part of the weight.
  const isPartial = lines.count < lines.numTotal && lines.covered < ALL_OF_IT;
  const count = isPartial
    ? `${counted(lines.count)} of ${several(lines.numTotal, "line")}`
    : several(lines.count, "line");
  const what =
    point.kind === "key"
      ? `the queries that give it ${isPartial ? "most" : "any"} weight`
      : `${shareWithin(lines.covered, lines.error?.covered ?? 0)} of the query’s weight`;
  const most = lines.strongest ? formatSmall(lines.strongest.weight) : "";
  const full = most === "" ? "" : ` Opacity = weight${most === "1.00" ? "" : ` ÷ ${most}`}.`;
  const exact = lines.error
    ? ` Weights are exact to ${plainNumber(roundedUp(lines.error.weight))}.`
    : "";
  return `${count}: ${what}.${full}${exact}`;
}

/** Inputs of the main caption. */
export interface SentenceInput {
  stack: string;
  /** The enlarged head, or null if all heads are shown. */
  at: HeadIndex | null;
  layers: number;
  heads: number;
  numQueries: number;
  numKeys: number;
  state: Projecting & Placing & { content: "plot" | "aggregate"; points: PointsShown };
  /** Reason why the enlarged head has no plot or no mean weights, or null. */
  problem: string | null;
  point: PointFacts | null;
  lines: LinesFacts | null;
  /** Whether the plot shows principal components because the requested method has no frame yet. */
  waiting: boolean;
  /** Search text, number of matching points and number of all points, or null without a search. */
  matches: { search: string; count: number; points: number } | null;
  /** Number of points in the lasso. */
  selected: number;
  /**
   * Largest mean weight and the data in the mean. Null if points are shown, until the mean is
   * loaded, and if no pair is allowed.
   */
  aggregate: MeanCaptionInput | null;
  /**
   * Whether the caption may mention mouse clicks and keyboard keys. False for figures and
   * summaries.
   */
  live: boolean;
}

/** Return the number of texts and queries in a mean, the size of its bins, and its precision. */
export function aggregateInWords(input: Omit<MeanCaptionInput, "weight" | "at">): string {
  const { texts, ofTexts, queries, ofQueries, bin } = input;
  const of =
    texts < ofTexts ? `${counted(texts)} of ${several(ofTexts, "text")}` : several(texts, "text");
  const sample =
    queries < ofQueries
      ? `, ${counted(queries)} of their ${several(ofQueries, "query", "queries")}`
      : "";
  const bins =
    Math.max(...bin) > 1 ? ` A cell is the mean over at most ${bin[0]} × ${bin[1]} positions.` : "";
  const long =
    texts < 2 || input.numInLastRow === texts
      ? ""
      : input.numInLastRow === null
        ? "; few texts reach the last positions"
        : `; ${counted(input.numInLastRow)} of them ${input.numInLastRow === 1 ? "reaches" : "reach"} the last row`;
  const exact =
    input.error > 0 ? ` Means are exact to ${plainNumber(roundedUp(input.error))}.` : "";
  return `Mean over ${of}${sample}${long}.${bins}${exact}`;
}

/** Return the result of the search in one sentence, or "" without a search. */
export function matchesInWords(result: SentenceInput["matches"]): string {
  if (!result) return "";
  const { search, count, points } = result;
  // A search in quotes matches whole tokens.
  const whole = /^"(.+)"$/.exec(search)?.[1];
  const what = quoted(whole ?? search);
  if (count === 0) return `No point ${whole === undefined ? "contains" : "is"} ${what}.`;
  const one = count === 1;
  const verb = whole !== undefined ? (one ? "is" : "are") : one ? "contains" : "contain";
  return `${counted(count)} of ${several(points, "point")} ${verb} ${what}.`;
}

/**
 * Return the main caption: the enlarged head or all heads, followed by the chosen point, the search
 * result and the lasso.
 */
export function sentence(input: SentenceInput): string {
  const { at, state } = input;
  const extra = [
    matchesInWords(input.matches),
    ...(input.selected > 0 ? [`${several(input.selected, "point")} in the lasso.`] : []),
  ];
  const join = (first: string): string => [first, ...extra].filter(Boolean).join(" ");
  if (!at) {
    const heads = `all ${several(input.heads, "head")} of ${several(input.layers, "layer")}`;
    const what = `${capital(stackName(input.stack))}, ${heads}: queries and keys by principal components.`;
    const near = " Near points attend to each other if r is close to −1.";
    const hint = input.live ? " Click a head, or press Enter on it, to enlarge it." : "";
    const chosen = input.point ? ` ${capital(pointInWords(input.point))}.` : "";
    return join(`${what}${near}${chosen}${input.point ? "" : hint}`);
  }
  const where = capital(headName(at));
  if (state.content === "aggregate") {
    const mean = input.aggregate;
    if (!mean)
      return input.problem
        ? `${where}: ${input.problem}, so there is no mean weight.`
        : `${where}: mean weight by query position and key position.`;
    return `${where}: mean weight by position. Largest, ${mean.at}: ${formatSmall(mean.weight)}.`;
  }
  if (input.problem) return join(`${where}: ${input.problem}, so there is no plot.`);
  if (input.point) return join(`${where}. ${linesInWords(input.point, input.lines)}`);
  const points = pointsInWords(state.points, input.numQueries, input.numKeys);
  return join(`${where}: ${points} by ${methodInWords(state, false, input.waiting)}.`);
}

/** Sample of the corpus that a plot shows. */
export interface CorpusFacts {
  numQueries: number;
  numKeys: number;
  /**
   * Total number of queries and keys in all texts that were read. It exceeds the number of points
   * if the points are a sample.
   */
  inAll: number;
  /** Number of texts with points, and number of all texts. */
  texts: number;
  totalTexts: number;
  /** Whether all tokens of each text with points are points. */
  whole: boolean;
  seed: number;
  unit: Unit;
  /** Number of texts that were skipped because they are empty or too long. */
  leftOut: number;
  /**
   * Whether texts or tokens are missing because the maximum number of points was reached. Null if
   * unknown.
   */
  stopped: boolean | null;
}

/**
 * Return the numbers of points and of texts, the totals they are drawn from, and the seed of the
 * sample.
 */
export function corpusInWords(input: CorpusFacts): string {
  const count = input.numQueries + input.numKeys;
  const { texts, totalTexts, unit, leftOut } = input;
  const others =
    leftOut === 0
      ? ""
      : ` ${several(leftOut, unit)} ${leftOut === 1 ? "is" : "are"} skipped: empty or too long.`;
  const all = count >= input.inAll && texts + leftOut >= totalTexts;
  if (all) return `All ${several(count, "point")} of ${several(texts, unit)}.${others}`;
  const points =
    count < input.inAll
      ? `${counted(count)} of ${several(input.inAll, "point")}`
      : several(count, "point");
  const from =
    texts < totalTexts ? `${counted(texts)} of ${several(totalTexts, unit)}` : several(texts, unit);
  const part = input.whole
    ? texts === 1
      ? ", all of its tokens"
      : ", all of their tokens"
    : `, some of ${texts === 1 ? "its" : "their"} tokens`;
  const drawn = (input.stopped ?? true) ? `, drawn at random with seed ${input.seed}` : "";
  const rest =
    drawn === "" && others === "" && texts < totalTexts ? " The others are left out." : others;
  return `${points}: ${from}${part}${drawn}.${rest}`;
}

/** Return the share of the variance on the axes, or "" if the axes are not principal components. */
export function explainedInWords(explained: readonly number[] | null): string {
  if (!explained || explained.some((share) => !Number.isFinite(share))) return "";
  const share = explained.reduce((sum, axisShare) => sum + axisShare, 0);
  const axes = explained.length === 3 ? "three" : "two";
  return `The ${axes} axes show ${formatShare(share)} of the variance.`;
}

/**
 * Return the caveats of one layer, or of all layers if `layer` is null. With all layers, each
 * caveat names its layers unless it applies to all of them.
 *
 * @param layers number of layers of the stack.
 * @param moved whether keys are moved. If not, caveats about moving are omitted.
 */
export function caveatsInWords(
  caveats: readonly Caveat[],
  layer: number | null,
  layers: number,
  moved: boolean,
): string {
  return caveats
    .filter((caveat) => layer === null || caveat.layers.includes(layer))
    .filter((caveat) => moved || caveat.kind !== "moving")
    .map((caveat) => {
      const words = /[.!?]$/.test(caveat.words) ? caveat.words : `${caveat.words}.`;
      const needsLayers = layer === null && caveat.layers.length < layers;
      return needsLayers ? `${layersInWords(caveat.layers)}: ${words}` : words;
    })
    .join(" ");
}

/** Return "Layer 3", "Layers 0 to 5" or "Layers 0, 2, 4". */
export function layersInWords(layers: readonly number[]): string {
  const [first, last] = [layers[0], layers.at(-1)];
  if (first === undefined) return "No layer";
  if (layers.length === 1) return `Layer ${first}`;
  const run = layers.length > 2 && layers.every((layer, i) => layer === first + i);
  return run ? `Layers ${first} to ${last}` : `Layers ${layers.join(", ")}`;
}

/** Return the state of a projection in words. Return "" if it is done or none was started. */
export function workInWords(work: ProjectionWork | null): string {
  if (!work || work.state === "done") return "";
  if (work.words !== "") return work.words;
  if (work.state === "running")
    return work.num_total > 0
      ? `Step ${counted(work.done)} of ${counted(work.num_total)}.`
      : "Projecting …";
  return work.state === "cancelled" ? "Cancelled." : "The projection failed.";
}

/** Return the summary for screen readers. */
export function summary(input: SentenceInput, trust: HeadTrust | null | undefined): string {
  const stack = capital(stackName(input.stack));
  const where = input.at ? `${stack}. ` : "";
  const measured =
    input.at && input.state.content === "plot" && !input.problem ? trustInWords(trust) : "";
  return `${where}${sentence({ ...input, live: false })} ${measured}`.trim();
}
