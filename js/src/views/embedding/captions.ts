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
import {
  type Aggregate,
  type Caveat,
  type Corpus,
  type Lines,
  type Method,
  meanError,
  type Placing,
  type Projecting,
  type ProjectionWork,
} from "./client/requests";
import { binCaption, largestOf } from "./mean/marks";
import { meanStoreOf } from "./mean/store";
import { type EmbeddingState, placingOf, projectingOf } from "./state";
import type { EmbeddingStore } from "./store";
import { trustInWords } from "./trust";

type Context = ViewContext<EmbeddingState>;

/** Return "image" if every token of the corpus is a patch or a special token, else "text". */
export function unitOf(corpus: Corpus): "text" | "image" {
  const { images, vocabulary } = corpus.facts;
  if (images === 0) return "text";
  const words = vocabulary.some(
    (entry, at) => corpus.special[at] !== 1 && !entry.startsWith("patch "),
  );
  return words ? "text" : "image";
}

/** Return "text 3, “The cat sat”", or "text 3" if the text has no name. */
export function textInWords(corpus: Corpus, text: number): string {
  const number = `${unitOf(corpus)} ${text}`;
  const name = corpus.facts.names[text] ?? "";
  return name === number || name === "" ? number : `${number}, ${quoted(name)}`;
}

/** Return "query “it”, position 10 of text 3". */
export function pointInWords(corpus: Corpus, point: number): string {
  const [text, position] = [corpus.textOf(point), corpus.positionOf(point)];
  const token = quoted(corpus.tokenOf(point));
  return `${corpus.kindOf(point)} ${token}, position ${position} of ${unitOf(corpus)} ${text}`;
}

/**
 * Return a sentence about a point: the key that a query attends to most, or the query that attends
 * most to a key. Without loaded lines the sentence only names the point.
 */
export function linesInWords(corpus: Corpus, point: number, lines: Lines | null): string {
  const what = capital(pointInWords(corpus, point));
  if (!lines) return `${what}.`;
  const [strongest, weight] = [lines.points[0], lines.weights[0]];
  const isKey = corpus.isKey(point);
  if (strongest === undefined)
    return isKey
      ? `${what}: no query attends to it.`
      : `${what}: attends to no key that is a point.`;
  const other = `${quoted(corpus.tokenOf(strongest))} (${corpus.positionOf(strongest)})`;
  const verb = isKey ? "gets most weight from" : "attends most to";
  return `${what}, ${verb} ${other}: ${formatSmall(weight ?? 0)}.`;
}

/** Lines that show at least this share of the query's weight count as complete. */
const ALL_OF_IT = 0.9995;

/**
 * Return the number of lines and the share of the query's weight that they show. Return "" if the
 * point has no lines or they are not loaded.
 */
export function linesCoverageInWords(isKey: boolean, lines: Lines | null): string {
  if (!lines || lines.points.length === 0) return "";
  const { points, weights, covered, num_total: numTotal, error } = lines;
  // In a page, `numTotal` can also count masked keys, which have no weight. Lines are therefore
  // partial only if they also lack a part of the weight.
  const isPartial = points.length < numTotal && covered < ALL_OF_IT;
  const count = isPartial
    ? `${counted(points.length)} of ${several(numTotal, "line")}`
    : several(points.length, "line");
  const what = isKey
    ? `the queries that give it ${isPartial ? "most" : "any"} weight`
    : `${shareWithin(covered, error?.covered ?? 0)} of the query’s weight`;
  const most = formatSmall(weights[0] ?? 0);
  const exact = error ? ` Weights are exact to ${plainNumber(roundedUp(error.weight))}.` : "";
  return `${count}: ${what}. Opacity = weight${most === "1.00" ? "" : ` ÷ ${most}`}.${exact}`;
}

/** Return the lines of the chosen point, or null until they are loaded. */
export function linesOfChosen(store: EmbeddingStore): Lines | null {
  const lines = store.lines.value;
  return lines?.point === store.chosen.value ? lines : null;
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
  // In a page, every mean weight is NaN if a query or key of the head is not finite. If all are
  // finite, at least one mean is a number, because the mask allows at least one pair.
  const none = current.value && aggregate.value?.weights.every(Number.isNaN);
  return none ? "queries or keys are not finite numbers" : null;
}

/** Return the subtitle: the stack, the number of texts and the number of points. */
export function subtitleOf(context: Context, store: EmbeddingStore): string {
  const corpus = store.corpus.value;
  const selection = context.record.selection.value;
  if (!corpus || !selection) return "";
  const parts = [
    stackName(selection.stack.name),
    several(corpus.numTexts, unitOf(corpus)),
    several(corpus.count, "point"),
  ];
  return parts.join(" · ");
}

/** Return the result of the search in one sentence, or "" without a search. */
function matchesInWords(context: Context, store: EmbeddingStore): string {
  const [matches, corpus] = [store.matches.value, store.corpus.value];
  if (!matches || !corpus) return "";
  const search = context.state.search.value;
  // A search in quotes matches whole tokens.
  const whole = /^"(.+)"$/.exec(search)?.[1];
  const what = quoted(whole ?? search);
  if (matches.count === 0) return `No point ${whole === undefined ? "contains" : "is"} ${what}.`;
  const one = matches.count === 1;
  const verb = whole !== undefined ? (one ? "is" : "are") : one ? "contains" : "contain";
  return `${counted(matches.count)} of ${several(corpus.count, "point")} ${verb} ${what}.`;
}

/**
 * Return the main caption: the enlarged head or all heads, followed by the chosen point, the search
 * result and the lasso.
 *
 * @param live whether the caption may mention mouse clicks and keyboard keys.
 */
export function sentenceOf(context: Context, store: EmbeddingStore, live = true): string {
  const { record } = context;
  const state = follow(context.state);
  const [corpus, selection] = [store.corpus.value, record.selection.value];
  if (!corpus || !selection) return "";
  const selected = state.selected.length;
  const extra = [
    matchesInWords(context, store),
    selected > 0 ? `${several(selected, "point")} in the lasso.` : "",
  ];
  const join = (first: string): string => [first, ...extra].filter(Boolean).join(" ");
  const [at, chosen] = [state.enlarged ? store.head.value : null, store.chosen.value];
  if (!at) {
    const { stack } = selection;
    const heads = `all ${several(countHeads(stack), "head")} of ${several(stack.layers.length, "layer")}`;
    const what = `${capital(stackName(stack.name))}, ${heads}: queries and keys by principal components.`;
    const near = " Near points attend to each other if r is close to −1.";
    const hint = live ? " Click a head, or press Enter on it, to enlarge it." : "";
    const point = chosen === null ? hint : ` ${capital(pointInWords(corpus, chosen))}.`;
    return join(`${what}${near}${point}`);
  }
  const where = capital(headName(at));
  if (state.content === "aggregate") {
    const { aggregate, current } = meanStoreOf(context, store);
    const mean = current.value ? aggregate.value : null;
    const largest = mean && largestOf(mean);
    if (largest) {
      const [positions] = binCaption(mean, largest);
      return `${where}: mean weight by position. Largest, ${positions}: ${formatSmall(largest.weight)}.`;
    }
    const none = problemOf(context, store) ?? noMean(context, store);
    return none
      ? `${where}: ${none}, so there is no mean weight.`
      : `${where}: mean weight by query position and key position.`;
  }
  const problem = problemOf(context, store);
  if (problem) return join(`${where}: ${problem}, so there is no plot.`);
  if (chosen !== null)
    return join(`${where}. ${linesInWords(corpus, chosen, linesOfChosen(store))}`);
  const points = [
    ...(state.points === "keys" ? [] : [several(corpus.numQueries, "query", "queries")]),
    ...(state.points === "queries" ? [] : [several(corpus.count - corpus.numQueries, "key")]),
  ].join(" and ");
  const how = { ...projectedAs(state, store), lift: state.lift };
  return join(`${where}: ${points} by ${methodInWords(how, false, waitsForFrame(store))}.`);
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
  const [chosen, enlarged] = [store.chosen.value, state.enlarged.value];
  if (enlarged && state.content.value === "aggregate") {
    const { aggregate, current, textsAt } = meanStoreOf(context, store);
    const mean = current.value ? aggregate.value : null;
    return mean && largestOf(mean)
      ? aggregateInWords(mean, textsAt({ row: mean.rows - 1, column: 0 }))
      : "";
  }
  const plotted = problemOf(context, store) === null;
  const [trust, now] = enlarged ? [store.headTrust.value, store.projection.value] : [null, null];
  const stride = enlarged ? 1 : (store.overview.value?.stride ?? 1);
  const layers = selection.stack.layers.length;
  const layer = enlarged ? selection.layer : null;
  const parts = [
    enlarged ? "" : rolesInWords(record.roles.value, selection.stack),
    trust && plotted ? trustInWords(trust) : "",
    enlarged && chosen !== null && !live
      ? linesCoverageInWords(corpus.isKey(chosen), linesOfChosen(store))
      : "",
    plotted ? methodOf(context, store) : "",
    corpusInWords(corpus),
    plotted ? explainedInWords(now?.explained ?? null) : "",
    stride > 1 ? `Small plots show every ${ordinal(stride)} point.` : "",
    caveatsInWords(corpus.facts.caveats, layer, layers, state.translate.value),
    store.colors.value?.note ?? "",
  ];
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

/** Return the summary for screen readers. */
export function summaryOf(context: Context, store: EmbeddingStore): string {
  const selection = context.record.selection.value;
  if (!selection || !store.corpus.value) return "";
  const { enlarged, content: shown } = context.state;
  const where = enlarged.value ? `${capital(stackName(selection.stack.name))}. ` : "";
  const plotted = enlarged.value && shown.value === "plot" && !problemOf(context, store);
  const measured = plotted ? trustInWords(store.headTrust.value ?? undefined) : "";
  return `${where}${sentenceOf(context, store, false)} ${measured}`.trim();
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

/** Return the number of positions in the widest bin. */
function widest(edges: readonly number[]): number {
  return Math.max(1, ...edges.slice(1).map((edge, i) => edge - (edges[i] as number)));
}

/**
 * Return the number of texts and queries in a mean, the size of its bins, and its precision.
 *
 * @param numInLastRow number of texts that are long enough to reach the last row, or null if
 *   unknown.
 */
export function aggregateInWords(mean: Aggregate, numInLastRow: number | null): string {
  const { texts, of_texts: ofTexts, queries, of_queries: ofQueries } = mean;
  const of =
    texts < ofTexts ? `${counted(texts)} of ${several(ofTexts, "text")}` : several(texts, "text");
  const sample =
    queries < ofQueries
      ? `, ${counted(queries)} of their ${several(ofQueries, "query", "queries")}`
      : "";
  const [down, across] = [widest(mean.query_edges), widest(mean.key_edges)];
  const bins =
    Math.max(down, across) > 1
      ? ` A cell is the mean over at most ${down} × ${across} positions.`
      : "";
  const long =
    texts < 2 || numInLastRow === texts
      ? ""
      : numInLastRow === null
        ? "; few texts reach the last positions"
        : `; ${counted(numInLastRow)} of them ${numInLastRow === 1 ? "reaches" : "reach"} the last row`;
  const error = meanError(mean, largestOf(mean)?.weight ?? 0);
  const exact = error > 0 ? ` Means are exact to ${plainNumber(roundedUp(error))}.` : "";
  return `Mean over ${of}${sample}${long}.${bins}${exact}`;
}

/**
 * Return the numbers of points and of texts, the totals they are drawn from, and the seed of the
 * sample.
 */
export function corpusInWords(corpus: Corpus): string {
  const { total_points: inAll, total_texts: totalTexts, seed, whole } = corpus.facts;
  const { num_skipped: leftOut = 0, stopped = true } = corpus.facts;
  const [count, texts, unit] = [corpus.count, corpus.numTexts, unitOf(corpus)];
  const others =
    leftOut === 0
      ? ""
      : ` ${several(leftOut, unit)} ${leftOut === 1 ? "is" : "are"} skipped: empty or too long.`;
  const all = count >= inAll && texts + leftOut >= totalTexts;
  if (all) return `All ${several(count, "point")} of ${several(texts, unit)}.${others}`;
  const points =
    count < inAll ? `${counted(count)} of ${several(inAll, "point")}` : several(count, "point");
  const from =
    texts < totalTexts ? `${counted(texts)} of ${several(totalTexts, unit)}` : several(texts, unit);
  const their = texts === 1 ? "its" : "their";
  const part = `, ${whole ? `all of ${their}` : `some of ${their}`} tokens`;
  const drawn = stopped ? `, drawn at random with seed ${seed}` : "";
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
