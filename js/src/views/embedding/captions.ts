/**
 * Captions of the embedding view.
 *
 * Functions that take the context or the store read signals of the view. All other functions are
 * pure. Placing means the steps before the projection: queries and keys are scaled, keys are moved
 * onto the queries, and both may be lifted, which adds a coordinate. A frame is an intermediate
 * plot of a running projection.
 */

import type { CorpusCaveat, Method, Placing, Work } from "../../client/protocol";
import { countHeads } from "../../client/source";
import { isSameHead } from "../../ui/head-grid/grid";
import {
  capital,
  counted,
  formatNumber,
  formatShare,
  formatSmall,
  headName,
  numbersInWords,
  quoted,
  several,
  stackName,
} from "../../ui/text/captions";
import { follow, same } from "../../ui/view/state";
import type { Corpus, Lines, Projecting } from "./client/requests";
import { type Context, type EmbeddingState, placingOf, projectingOf } from "./state";
import type { EmbeddingStore } from "./store";
import { trustInWords } from "./trust";

function joined(...sentences: string[]): string {
  return sentences.filter(Boolean).join(" ");
}

/** Return "image" if every token of the corpus is a patch or a special token, else "text". */
export function unitOf(corpus: Corpus): "text" | "image" {
  const { images, vocabulary } = corpus.facts;
  const onlyPatches = vocabulary.every(
    (entry, at) => corpus.special[at] === 1 || entry.startsWith("patch "),
  );
  return images > 0 && onlyPatches ? "image" : "text";
}

/** Return "text 3, “The cat sat”", or "text 3" if the text has no name. */
export function textInWords(corpus: Corpus, text: number): string {
  const number = `${unitOf(corpus)} ${text}`;
  const name = corpus.facts.names[text] ?? "";
  return name === number || name === "" ? number : `${number}, ${quoted(name)}`;
}

/** Return "Query “it”, position 10 of text 3". */
function pointInWords(corpus: Corpus, point: number): string {
  const [kind, token] = [capital(corpus.kindOf(point)), quoted(corpus.tokenOf(point))];
  const where = `position ${corpus.positionOf(point)} of ${unitOf(corpus)} ${corpus.textOf(point)}`;
  return `${kind} ${token}, ${where}`;
}

/**
 * Return a sentence about a point: the key that a query attends to most, or the query that attends
 * most to a key. Without loaded lines the sentence only names the point.
 *
 * @param causal whether the first query of each text may attend to one key only.
 */
export function linesInWords(
  corpus: Corpus,
  point: number,
  lines: Lines | null,
  causal: boolean,
): string {
  const what = pointInWords(corpus, point);
  if (!lines) return `${what}.`;
  const isKey = corpus.isKey(point);
  if (lines.points.length === 0)
    return `${what}: ${isKey ? "no query attends to it" : "attends to no key that is a point"}.`;
  const isForced = (query: number): boolean => causal && corpus.positionOf(query) === 0;
  const named = (other: number): string =>
    `${quoted(corpus.tokenOf(other))} (${corpus.positionOf(other)})`;
  const first = lines.points[0] as number;
  if (!isKey && isForced(point)) return `${what}, may attend only to ${named(first)}.`;
  const strongest = isKey ? lines.points.findIndex((query) => !isForced(query)) : 0;
  if (strongest < 0) return `${what}: only ${named(first)} attends to it, and to no other key.`;
  const apart = strongest > 0 ? " apart from the first query" : "";
  const verb = isKey ? `gets most weight${apart} from` : "attends most to";
  const weight = formatSmall(lines.weights[strongest] ?? 0);
  return `${what}, ${verb} ${named(lines.points[strongest] as number)}: ${weight}.`;
}

/**
 * Return the number of lines and the share of the query's weight that they show. Return "" if the
 * point has no lines or they are not loaded.
 */
export function linesCoverageInWords(isKey: boolean, lines: Lines | null): string {
  if (!lines || lines.points.length === 0) return "";
  const what = isKey ? "of the weight on this key" : "of the query’s weight";
  const most = formatSmall(lines.weights[0] ?? 0);
  const scale = most === "1.00" ? "" : ` ÷ ${most}`;
  return `${several(lines.points.length, "line")}: ${formatShare(lines.covered)} ${what}. Opacity = weight${scale}.`;
}

/**
 * Return the reason why the enlarged head has no plot. Return null if its plot is loaded or still
 * loading, or if no head is enlarged.
 */
export function problemOf(context: Context, store: EmbeddingStore): string | null {
  const plot = store.projection.value;
  const { enlarged } = context.state;
  return enlarged.value && plot && isSameHead(plot.request, store.head.value) ? plot.problem : null;
}

/** Return the subtitle: the stack, the number of texts and the number of points. */
export function subtitleOf(context: Context, store: EmbeddingStore): string {
  const corpus = store.corpus.value;
  const selection = context.record.selection.value;
  if (!corpus || !selection) return "";
  const texts = several(corpus.numTexts, unitOf(corpus));
  return `${stackName(selection.stack.name)} · ${texts} · ${several(corpus.count, "point")}`;
}

/** Return the result of the search in one sentence, or "" without a search. */
function matchesInWords(context: Context, store: EmbeddingStore): string {
  const [matches, corpus] = [store.matches.value, store.corpus.value];
  if (!matches || !corpus) return "";
  const what = quoted(context.state.search.value);
  if (matches.count === 0) return `No point matches ${what}.`;
  const verb = matches.count === 1 ? "matches" : "match";
  return `${counted(matches.count)} of ${several(corpus.count, "point")} ${verb} ${what}.`;
}

/**
 * Return the main caption: the enlarged head or all heads, followed by the chosen point, the search
 * result and the lasso.
 *
 * @param live whether the caption may mention mouse clicks and keyboard keys.
 */
export function sentenceOf(context: Context, store: EmbeddingStore, live = true): string {
  const state = follow(context.state);
  const [corpus, selection] = [store.corpus.value, context.record.selection.value];
  if (!corpus || !selection) return "";
  const [at, chosen] = [state.enlarged ? store.head.value : null, store.chosen.value];
  const where = at && capital(headName(at));
  const extra = joined(
    matchesInWords(context, store),
    state.selected.length > 0 ? `${several(state.selected.length, "point")} in the lasso.` : "",
  );
  if (!where) {
    const { layers, name } = selection.stack;
    const heads = `all ${several(countHeads(selection.stack), "head")} of ${several(layers.length, "layer")}`;
    const hint = live ? "Click a head, or press Enter on it, to enlarge it." : "";
    return joined(
      `${capital(stackName(name))}, ${heads}: queries and keys by principal components.`,
      "Near points attend to each other if r is close to −1.",
      chosen === null ? hint : `${pointInWords(corpus, chosen)}.`,
      extra,
    );
  }
  const problem = problemOf(context, store);
  if (problem) return joined(`${where}: ${problem}, so there is no plot.`, extra);
  if (chosen !== null)
    return joined(
      `${where}. ${linesInWords(corpus, chosen, store.lines.value, selection.stack.causal)}`,
      extra,
    );
  const points = [
    ...(state.points === "keys" ? [] : [several(corpus.numQueries, "query", "queries")]),
    ...(state.points === "queries" ? [] : [several(corpus.count - corpus.numQueries, "key")]),
  ].join(" and ");
  return joined(`${where}: ${points} by ${shownMethod(state, store, false)}.`, extra);
}

/**
 * Return the detail caption: how much of the data is drawn, and what is approximate.
 *
 * @param live whether the text pane is visible. The pane describes the lines of the chosen point.
 *   The caption describes them only if the pane is not visible.
 */
export function coverageOf(context: Context, store: EmbeddingStore, live = true): string {
  const { state, record } = context;
  const [corpus, selection] = [store.corpus.value, record.selection.value];
  if (!corpus || !selection) return "";
  const chosen = store.chosen.value;
  const { stack, layer } = selection;
  const { caveats } = corpus.facts;
  const ofColors = store.colors.value?.note ?? "";
  if (!state.enlarged.value) {
    const { stride } = corpus.facts;
    return joined(
      // Every head has its own scaling factor, so a caption of all heads states no factor.
      `Vectors ${placingInWords(placingOf(follow(state)), null)}.`,
      corpusInWords(corpus),
      stride > 1 ? `Small plots show one of ${stride} points.` : "",
      caveatsInWords(caveats, null, stack.layers.length, state.translate.value),
      ofColors,
    );
  }
  const plotted = problemOf(context, store) === null;
  const trust = store.headTrust.value;
  return joined(
    trust && plotted ? trustInWords(trust) : "",
    chosen !== null && !live ? linesCoverageInWords(corpus.isKey(chosen), store.lines.value) : "",
    plotted ? methodOf(context, store) : "",
    corpusInWords(corpus),
    plotted ? explainedInWords(store.projection.value?.explained ?? null) : "",
    caveatsInWords(caveats, layer, stack.layers.length, state.translate.value),
    ofColors,
  );
}

/**
 * Return the kernel's remarks about a finished projection, such as " A perplexity of 50 needs …".
 * These are all sentences of its text after the first. Return "" without remarks.
 */
export function remarkInWords(work: Work | null): string {
  const [, ...remarks] = work?.state === "done" ? work.words.split(". ") : [];
  return remarks.map((remark) => ` ${remark}.`).join("");
}

/** Return how the vectors of the enlarged head were projected and placed. */
function methodOf(context: Context, store: EmbeddingStore): string {
  const state = follow(context.state);
  const [plot, placing] = [store.projection.value, placingOf(state)];
  const isCurrent =
    plot && isSameHead(plot.request, store.head.value) && same(plot.request.placing, placing);
  const words = placingInWords(placing, isCurrent ? plot.factor : null);
  return `By ${shownMethod(state, store, true)}; ${words}.${remarkInWords(plot?.work ?? null)}`;
}

/** Return the summary for screen readers. */
export function summaryOf(context: Context, store: EmbeddingStore): string {
  const selection = context.record.selection.value;
  if (!selection || !store.corpus.value) return "";
  const plotted = context.state.enlarged.value && !problemOf(context, store);
  const trust = store.headTrust.value;
  return joined(
    context.state.enlarged.value ? `${capital(stackName(selection.stack.name))}.` : "",
    sentenceOf(context, store, false),
    plotted && trust ? trustInWords(trust) : "",
  );
}

const METHODS: Record<Method, string> = {
  pca: "principal components",
  tsne: "t-SNE",
  umap: "UMAP",
};

/**
 * Return the name of a method, such as "principal components", "t-SNE of cosine distance,
 * perplexity 50, seed 0", or "3D UMAP of cosine distance, 15 neighbours, seed 0".
 *
 * @param detailed whether to include the settings.
 */
export function methodInWords(
  { method, dimensions, perplexity, neighbors, seed, lift }: Projecting & Pick<Placing, "lift">,
  detailed = false,
): string {
  const name = `${dimensions === 3 ? "3D " : ""}${METHODS[method]}`;
  if (method === "pca") return name;
  // The lift adds a coordinate that makes Euclidean distances follow q·k.
  const by = `${name} of ${lift ? "Euclidean" : "cosine"} distance`;
  const size = method === "tsne" ? `perplexity ${perplexity}` : several(neighbors, "neighbour");
  return detailed ? `${by}, ${size}, seed ${seed}` : by;
}

/**
 * Return the name of the method of the plot on the screen. Until t-SNE and UMAP have a frame, and if
 * they have no result, the plot shows principal components.
 */
function shownMethod(state: EmbeddingState, store: EmbeddingStore, detailed: boolean): string {
  const asked = { ...projectingOf(state), lift: state.lift };
  const plot = store.projection.value;
  const isInstead = plot?.request.method === asked.method && plot.explained !== null;
  if (asked.method === "pca" || !isInstead) return methodInWords(asked, detailed);
  const shown = methodInWords({ ...asked, method: "pca", dimensions: plot.dimensions });
  return plot.work?.state === "running"
    ? `${shown}, until ${METHODS[asked.method]} has its first frame`
    : shown;
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
  const by = factor === null ? "" : ` (c = ${formatNumber(factor)})`;
  const scaled = scaling === "norms" ? `scaled by their norms${by}` : "not scaled";
  const moved = translate ? "keys moved onto the queries" : "keys not moved";
  const lifted = ", lifted, so that distances follow q·k exactly before the projection";
  return `${scaled}, ${moved}${lift ? lifted : ""}`;
}

/** Return "12 of 800 texts", or "12 texts" if these are all. */
function partOf(count: number, total: number, one: string, many = `${one}s`): string {
  const of = count < total ? `${counted(count)} of ` : "";
  return `${of}${several(Math.max(count, total), one, many)}`;
}

/**
 * Return the numbers of points and of texts, the totals they are drawn from, and the seed of the
 * sample.
 */
export function corpusInWords(corpus: Corpus): string {
  const { total_points: totalPoints, total_texts: totalTexts, seed, whole } = corpus.facts;
  const { num_skipped: numSkipped = 0, stopped = true } = corpus.facts;
  const [count, texts, unit] = [corpus.count, corpus.numTexts, unitOf(corpus)];
  const skipped =
    numSkipped > 0
      ? `${several(numSkipped, unit)} ${numSkipped === 1 ? "is" : "are"} skipped: empty or too long.`
      : "";
  if (count >= totalPoints && texts + numSkipped >= totalTexts)
    return joined(`All ${several(count, "point")} of ${several(texts, unit)}.`, skipped);
  const from = `${partOf(count, totalPoints, "point")}: ${partOf(texts, totalTexts, unit)}`;
  const tokens = `${whole ? "all" : "some"} of ${texts === 1 ? "its" : "their"} tokens`;
  const drawn = stopped ? `, drawn at random with seed ${seed}` : "";
  const hasOthers = !stopped && numSkipped === 0 && texts < totalTexts;
  return joined(`${from}, ${tokens}${drawn}.`, hasOthers ? "The others are left out." : skipped);
}

/** Return the share of the variance on the axes, or "" if the axes are not principal components. */
export function explainedInWords(explained: readonly number[] | null): string {
  if (!explained) return "";
  const share = explained.reduce((sum, axisShare) => sum + axisShare, 0);
  const axes = explained.length === 3 ? "three" : "two";
  return `The ${axes} axes show ${formatShare(share)} of the variance.`;
}

/**
 * Return the caveats of one layer, or of all layers if `layer` is null. With all layers, each
 * caveat names its layers unless it applies to all of them.
 *
 * @param numLayers number of layers of the stack.
 * @param moved whether keys are moved. If not, caveats about moving are omitted.
 */
function caveatsInWords(
  caveats: readonly CorpusCaveat[],
  layer: number | null,
  numLayers: number,
  moved: boolean,
): string {
  return caveats
    .filter(({ layers }) => layer === null || layers.includes(layer))
    .filter(({ kind }) => moved || kind !== "moving")
    .map(({ layers, words }) => {
      const sentence = /[.!?]$/.test(words) ? words : `${words}.`;
      const needsLayers = layer === null && layers.length < numLayers;
      return needsLayers ? `${capital(numbersInWords("layer", layers))}: ${sentence}` : sentence;
    })
    .join(" ");
}
