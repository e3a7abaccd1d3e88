/** What the embedding view says in words: of its live state, and below, of given facts. */

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
  Projecting,
  ProjectionWork,
  Way,
} from "./client/requests";
import { type MeanCaptionInput, meanStoreOf } from "./mean/store";
import { type EmbeddingState, type PointsShown, projectingOf, wayOf } from "./state";
import type { EmbeddingStore } from "./store";
import { stepsInWords, trustInWords } from "./trust";

type Context = ViewContext<EmbeddingState>;

/** Whether tokens are of images alone, or of texts, which may hold images. */
export function unitOf(corpus: Corpus): Unit {
  if (corpus.images === 0) return "text";
  const words = corpus.vocabulary.some(
    (entry, at) => corpus.special[at] !== 1 && !entry.startsWith("patch "),
  );
  return words ? "text" : "image";
}

/** A point in the words' own terms. */
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

/** The chosen point's lines, once they are there. */
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
    numTotal: lines.numTotal,
    ...(lines.error && { error: lines.error }),
  };
}

/** Why the enlarged head has no plot; null where it has one, or it is not known yet. */
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

/** Whether the plot is the principal components' until another method has its first frame. */
export function waitsForFrame(store: EmbeddingStore): boolean {
  return standsForAnother(store) && store.projection.value?.work?.state === "running";
}

/** Whether the plot is the principal components' where another method's was asked for. */
function standsForAnother(store: EmbeddingStore): boolean {
  const now = store.projection.value;
  if (now === null || now.request.method === "pca") return false;
  // A method that starts from them may take a while to its first step.
  const { work } = now;
  return now.explained !== null || (work?.done === 0 && work.state !== "done");
}

/** How the plot that is there was projected: not as was asked for where that cannot be had. */
function projectedAs(state: EmbeddingState, store: EmbeddingStore): Projecting {
  const asked = projectingOf(state);
  const dimensions = store.projection.value?.dimensions ?? asked.dimensions;
  const instead = standsForAnother(store) && !waitsForFrame(store);
  return instead ? { ...asked, method: "pca", dimensions } : asked;
}

/** Why the enlarged head has no mean weights; null where it has some, or they are not there yet. */
function noMean(context: Context, store: EmbeddingStore): string | null {
  const { aggregate, current } = meanStoreOf(context, store);
  // A page contains none of a head whose weights are not numbers; any other has a pair that is allowed.
  const none = current.value && aggregate.value?.weights.every((weight) => weight < 0);
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
  const found = store.found.value;
  const search = state.search.value;
  const aggregated = state.enlarged.value && state.shown.value === "aggregate";
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
    found: found && { search, count: found.count, points: corpus.count },
    selected: state.selected.value.length,
    aggregate: aggregated ? meanStoreOf(context, store).captionInput.value : null,
    live,
  };
}

/** The stack, the texts and their points. */
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

/** The one sentence: where we are, and what stands out. */
export function sentenceOf(context: Context, store: EmbeddingStore, live = true): string {
  const input = sentenceInputOf(context, store, live);
  return input ? sentence(input) : "";
}

/**
 * What was drawn of what there is, and what is not exact about it.
 *
 * @param live whether the text pane is there, which says by itself what lines cover.
 */
export function coverageOf(context: Context, store: EmbeddingStore, live = true): string {
  const { state, record } = context;
  const [corpus, selection] = [store.corpus.value, record.selection.value];
  if (!corpus || !selection) return "";
  const parts: string[] = [];
  const chosen = store.chosen.value;
  const enlarged = state.enlarged.value;
  if (enlarged && state.shown.value === "aggregate") {
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

/** "2nd", "3rd", "4th". */
function ordinal(count: number): string {
  const tens = count % 100;
  const ending = tens >= 11 && tens <= 13 ? "th" : (["th", "st", "nd", "rd"][count % 10] ?? "th");
  return `${count}${ending}`;
}

/** What of finished work is not as it was asked for, as " A perplexity of 50 needs …"; "" for nothing. */
export function remarkInWords(work: ProjectionWork | null): string {
  const [, ...remarks] = work?.state === "done" ? work.words.split(". ") : [];
  return remarks.map((remark) => ` ${remark}.`).join("");
}

/** How points were placed, and of one head also how they were projected. */
export function methodOf(context: Context, store: EmbeddingStore): string {
  const state = follow(context.state);
  const [now, at, way] = [store.projection.value, store.head.value, wayOf(state)];
  // Each head has its own.
  if (!state.enlarged) return `Vectors ${placingInWords(way, null)}.`;
  const here = now && now.request.layer === at?.layer && now.request.head === at.head;
  const placing = placingInWords(way, here && same(now.request.way, way) ? now.factor : null);
  const projecting = { ...projectedAs(state, store), lift: way.lift };
  const how = methodInWords(projecting, true, waitsForFrame(store));
  return `By ${how}; ${placing}.${remarkInWords(store.projection.value?.work ?? null)}`;
}

/** How trust went, step by step; "" where it is not measured. */
export function trustStepsOf(store: EmbeddingStore): string {
  const trust = store.headTrust.value;
  return trust ? stepsInWords(trust) : "";
}

/** What a screen reader reads out. */
export function summaryOf(context: Context, store: EmbeddingStore): string {
  const input = sentenceInputOf(context, store, false);
  return input ? summary(input, store.headTrust.value ?? undefined) : "";
}

const METHODS: Record<Method, string> = {
  pca: "principal components",
  tsne: "t-SNE",
  umap: "UMAP",
};

/** What t-SNE and UMAP measure nearness by: a direction alone does not have what the lift adds. */
export function metricInWords({ lift }: Pick<Way, "lift">): string {
  return lift ? "Euclidean distance" : "cosine distance";
}

/**
 * "principal components", "t-SNE of cosine distance, perplexity 50, seed 0",
 * "3D UMAP of cosine distance, 15 neighbours, seed 0".
 *
 * @param waiting whether its first frame is still to come.
 */
export function methodInWords(
  { method, dimensions, perplexity, neighbors, seed, lift }: Projecting & Pick<Way, "lift">,
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

/** How queries and keys were placed: "scaled by their norms (c = 1.3), keys moved onto the queries". */
export function placingInWords({ scaling, translate, lift }: Way, factor: number | null): string {
  const by = factor === null || scaling === "none" ? "" : ` (c = ${formatNumber(factor)})`;
  const parts = [
    scaling === "norms" ? `scaled by their norms${by}` : "not scaled",
    translate ? "keys moved onto the queries" : "keys where they are",
    ...(lift ? ["lifted, so that nearness is exactly q·k before the projection"] : []),
  ];
  return parts.join(", ");
}

/** Which points are drawn: "1,200 queries and 1,200 keys". */
export function pointsInWords(points: PointsShown, numQueries: number, numKeys: number): string {
  const queries = several(numQueries, "query", "queries");
  const keys = several(numKeys, "key");
  if (points === "queries") return queries;
  return points === "keys" ? keys : `${queries} and ${keys}`;
}

/** What tokens are of. */
export type Unit = "text" | "image";

/** A point that is chosen or pointed at, and what its lines say. */
export interface PointFacts {
  kind: "query" | "key";
  token: string;
  /** The text's name and number, whether it is an image, and the token's place in it. */
  name: string;
  text: number;
  unit: Unit;
  position: number;
}

/** Lines of a point: its strongest keys, or the queries that attend to it most. */
export interface LinesFacts {
  /** The token at the other end of the strongest line, with its place; null where there is none. */
  strongest: { token: string; position: number; weight: number } | null;
  count: number;
  /** Share of the query's weight that they show. */
  covered: number;
  /** How many there are in all. */
  numTotal: number;
  /** How far any weight, and the share, may be off; left out where they are exact. */
  error?: { weight: number; covered: number };
}

/** "text 3, “The cat sat”", or "text 3" of one that has no name of its own. */
export function textInWords(name: string, text: number, unit: Unit = "text"): string {
  const number = `${unit} ${text}`;
  return name === number || name === "" ? number : `${number}, ${quoted(name)}`;
}

/** "query “it”, position 10 of text 3". */
export function pointInWords({ kind, token, text, unit, position }: PointFacts): string {
  return `${kind} ${quoted(token)}, position ${position} of ${unit} ${text}`;
}

/** What a chosen point attends to, or is attended by. */
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
    : `${what}, gets most from ${other}: ${weight}.`;
}

/** A share of the weight from which on nothing that can be seen is left. */
const ALL_OF_IT = 0.9995;

/** How many lines there are, and how much of a query's weight they contain; "" for none. */
export function linesCoverageInWords(
  point: Pick<PointFacts, "kind">,
  lines: LinesFacts | null,
): string {
  if (!lines || lines.count === 0) return "";
  // Keys that a mask keeps out have no line to leave out.
  const some = lines.count < lines.numTotal && lines.covered < ALL_OF_IT;
  const count = some
    ? `${counted(lines.count)} of ${several(lines.numTotal, "line")}`
    : several(lines.count, "line");
  const what =
    point.kind === "key"
      ? `the queries that give it ${some ? "most" : "any"} weight`
      : `${shareWithin(lines.covered, lines.error?.covered ?? 0)} of the query’s weight`;
  const most = lines.strongest ? formatSmall(lines.strongest.weight) : "";
  const full = most === "" ? "" : ` Opacity = weight${most === "1.00" ? "" : ` ÷ ${most}`}.`;
  const exact = lines.error
    ? ` Weights are exact to ${plainNumber(roundedUp(lines.error.weight))}.`
    : "";
  return `${count}: ${what}.${full}${exact}`;
}

/** What the sentence is made of. */
export interface SentenceInput {
  stack: string;
  /** The enlarged head; null where all are shown. */
  at: HeadIndex | null;
  layers: number;
  heads: number;
  numQueries: number;
  numKeys: number;
  state: Projecting & Way & { shown: "plot" | "aggregate"; points: PointsShown };
  /** Why the enlarged head has no plot; null where it has one. */
  problem: string | null;
  point: PointFacts | null;
  lines: LinesFacts | null;
  /** Whether the plot is still that of the principal components, whatever the method. */
  waiting: boolean;
  /** Points that a search found, of how many; null without one. */
  found: { search: string; count: number; points: number } | null;
  /** Points in the lasso. */
  selected: number;
  /** The mean weight's largest bin; null where there is none, or no aggregate is shown. */
  aggregate: MeanCaptionInput | null;
  /** Whether a reader can act on it: not so in a figure. */
  live: boolean;
}

/** What a mean by position is the mean of. */
export function aggregateInWords(input: Omit<MeanCaptionInput, "weight" | "at">): string {
  const { texts, ofTexts, queries, ofQueries, bin } = input;
  const of =
    texts < ofTexts ? `${counted(texts)} of ${several(ofTexts, "text")}` : several(texts, "text");
  const some =
    queries < ofQueries
      ? `, ${counted(queries)} of their ${several(ofQueries, "query", "queries")}`
      : "";
  const bins =
    Math.max(...bin) > 1 ? ` A cell is the mean over ${bin[0]} × ${bin[1]} positions at most.` : "";
  const long =
    texts < 2 || input.far === texts
      ? ""
      : input.far === null
        ? "; far positions exist in few of them"
        : `; ${counted(input.far)} of them ${input.far === 1 ? "reaches" : "reach"} the last row`;
  const exact =
    input.error > 0 ? ` Means are exact to ${plainNumber(roundedUp(input.error))}.` : "";
  return `Mean over ${of}${some}${long}.${bins}${exact}`;
}

/** What is found, in one sentence; "" where nothing is sought. */
export function foundInWords(found: SentenceInput["found"]): string {
  if (!found) return "";
  const { search, count, points } = found;
  // In quotes the whole token was meant.
  const whole = /^"(.+)"$/.exec(search)?.[1];
  const what = quoted(whole ?? search);
  if (count === 0) return `No point ${whole === undefined ? "holds" : "is"} ${what}.`;
  const one = count === 1;
  const verb = whole !== undefined ? (one ? "is" : "are") : one ? "holds" : "hold";
  return `${counted(count)} of ${several(points, "point")} ${verb} ${what}.`;
}

/** The one sentence: where we are, and what stands out. */
export function sentence(input: SentenceInput): string {
  const { at, state } = input;
  const extra = [
    foundInWords(input.found),
    ...(input.selected > 0 ? [`${several(input.selected, "point")} in the lasso.`] : []),
  ];
  const join = (first: string): string => [first, ...extra].filter(Boolean).join(" ");
  if (!at) {
    const heads = `all ${several(input.heads, "head")} of ${several(input.layers, "layer")}`;
    const what = `${capital(stackName(input.stack))}, ${heads}: queries and keys by principal components.`;
    const near = " Near means attending where r is close to −1.";
    const hint = input.live ? " Click a head, or press Enter on it, to enlarge it." : "";
    const chosen = input.point ? ` ${capital(pointInWords(input.point))}.` : "";
    return join(`${what}${near}${chosen}${input.point ? "" : hint}`);
  }
  const where = capital(headName(at));
  if (state.shown === "aggregate") {
    const mean = input.aggregate;
    if (!mean)
      return input.problem
        ? `${where}: ${input.problem}, so there is no mean weight.`
        : `${where}: mean weight by query position and key position.`;
    return `${where}: mean weight by position. Largest, ${mean.at}: ${formatSmall(mean.weight)}.`;
  }
  if (input.problem) return join(`${where}: ${input.problem}, so there is nothing to place.`);
  if (input.point) return join(`${where}. ${linesInWords(input.point, input.lines)}`);
  const points = pointsInWords(state.points, input.numQueries, input.numKeys);
  return join(`${where}: ${points} by ${methodInWords(state, false, input.waiting)}.`);
}

/** What a plot was drawn from. */
export interface CorpusFacts {
  numQueries: number;
  numKeys: number;
  /** Points that all texts have. */
  inAll: number;
  /** Texts that have points, and that there were. */
  texts: number;
  totalTexts: number;
  /** Whether each of these texts has all of its tokens. */
  whole: boolean;
  seed: number;
  unit: Unit;
  /** Texts that could not be read. */
  leftOut: number;
  /** Whether some are missing because there were points enough; null where not known. */
  stopped: boolean | null;
}

/** How many points of how many, of which texts, drawn by which seed. */
export function corpusInWords(input: CorpusFacts): string {
  const count = input.numQueries + input.numKeys;
  const { texts, totalTexts, unit, leftOut } = input;
  const others =
    leftOut === 0
      ? ""
      : ` ${several(leftOut, unit)} ${leftOut === 1 ? "is" : "are"} left out: empty or too long.`;
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

/** The share of the variance that the axes show; "" where no axis is a component. */
export function explainedInWords(explained: readonly number[] | null): string {
  if (!explained || explained.some((share) => !Number.isFinite(share))) return "";
  const share = explained.reduce((sum, each) => sum + each, 0);
  const axes = explained.length === 3 ? "three" : "two";
  return `The ${axes} axes show ${formatShare(share)} of the variance.`;
}

/**
 * Caveats of one layer, or of all with their layers.
 *
 * @param moved whether keys are moved; what only moving them makes inexact is else left out.
 */
export function caveatsInWords(
  caveats: readonly Caveat[],
  layer: number | null,
  layers: number,
  moved: boolean,
): string {
  return caveats
    .filter((each) => layer === null || each.layers.includes(layer))
    .filter((each) => moved || each.kind !== "moving")
    .map((each) => {
      const words = /[.!?]$/.test(each.words) ? each.words : `${each.words}.`;
      const some = layer === null && each.layers.length < layers;
      return some ? `${layersInWords(each.layers)}: ${words}` : words;
    })
    .join(" ");
}

/** "Layer 3", "Layers 0 to 5", "Layers 0, 2, 4". */
export function layersInWords(layers: readonly number[]): string {
  const [first, last] = [layers[0], layers.at(-1)];
  if (first === undefined) return "No layer";
  if (layers.length === 1) return `Layer ${first}`;
  const run = layers.length > 2 && layers.every((layer, i) => layer === first + i);
  return run ? `Layers ${first} to ${last}` : `Layers ${layers.join(", ")}`;
}

/** The state of a projection job; "" where it is done. */
export function workInWords(work: ProjectionWork | null): string {
  if (!work || work.state === "done") return "";
  if (work.words !== "") return work.words;
  if (work.state === "running")
    return work.num_total > 0
      ? `Step ${counted(work.done)} of ${counted(work.num_total)}.`
      : "At work …";
  return work.state === "cancelled" ? "Cancelled." : "This did not work.";
}

/** The same of given facts. */
export function summary(input: SentenceInput, trust: HeadTrust | null | undefined): string {
  const stack = capital(stackName(input.stack));
  const where = input.at ? `${stack}. ` : "";
  const measured =
    input.at && input.state.shown === "plot" && !input.problem ? trustInWords(trust) : "";
  return `${where}${sentence({ ...input, live: false })} ${measured}`.trim();
}
