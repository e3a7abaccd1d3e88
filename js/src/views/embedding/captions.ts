/** What is said of the embedding view as it stands. All read signals. */

import { keptHeads } from "../../client/source";
import { stackName } from "../../ui/captions";
import type { ViewContext } from "../../ui/define-view";
import { follow, same } from "../../ui/state";
import type { Corpus, Projecting, ProjectionWork } from "./client/requests";
import { aggregateModelOf } from "./mean/store";
import {
  aggregateInWords,
  corpusInWords,
  explainedInWords,
  type LinesSaid,
  linesCoverageInWords,
  methodInWords,
  type PointSaid,
  placingInWords,
  reservationsInWords,
  type SentenceSaid,
  sentence,
  several,
  stepsInWords,
  summary,
  trustInWords,
  type Unit,
} from "./phrases";
import { type EmbeddingState, projectingOf, wayOf } from "./state";
import type { EmbeddingModel } from "./store";

export { trustInWords } from "./phrases";

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
export function pointSaid(corpus: Corpus, point: number): PointSaid {
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
export function linesSaid(model: EmbeddingModel): LinesSaid | null {
  const [corpus, lines, chosen] = [model.corpus.value, model.lines.value, model.chosen.value];
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
    of: lines.of,
  };
}

/** Why the enlarged head has no plot; null where it has one, or it is not known yet. */
export function problemOf(context: Context, model: EmbeddingModel): string | null {
  const at = model.head.value;
  if (!at || !context.state.enlarged.value) return null;
  const now = model.projection.value;
  if (now && now.request.layer === at.layer && now.request.head === at.head) return now.problem;
  return (
    model.overview.value?.heads.find(({ layer, head }) => layer === at.layer && head === at.head)
      ?.problem ?? null
  );
}

/** Whether the plot is the principal components' until another method has its first frame. */
export function waitsForFrame(model: EmbeddingModel): boolean {
  return standsForAnother(model) && model.projection.value?.work?.state === "running";
}

/** Whether the plot is the principal components' where another method's was asked for. */
function standsForAnother(model: EmbeddingModel): boolean {
  const now = model.projection.value;
  if (now === null || now.request.method === "pca") return false;
  // A method that starts from them may take a while to its first step.
  const { work } = now;
  return now.explained !== null || (work?.done === 0 && work.state !== "done");
}

/** How the plot that is there was projected: not as was asked for where that cannot be had. */
function projectedAs(state: EmbeddingState, model: EmbeddingModel): Projecting {
  const asked = projectingOf(state);
  const dimensions = model.projection.value?.dimensions ?? asked.dimensions;
  const instead = standsForAnother(model) && !waitsForFrame(model);
  return instead ? { ...asked, method: "pca", dimensions } : asked;
}

/** Why the enlarged head has no mean weights; null where it has some, or they are not there yet. */
function noMean(context: Context, model: EmbeddingModel): string | null {
  const { aggregate, current } = aggregateModelOf(context, model);
  // A page carries none of a head whose weights are no numbers; any other has a pair that is allowed.
  const none = current.value && aggregate.value?.weights.every((weight) => weight < 0);
  return none ? "queries or keys are not finite numbers" : null;
}

function textsWithPoints(corpus: Corpus): number {
  return corpus.textTokens.filter((count) => count > 0).length;
}

function saidOf(context: Context, model: EmbeddingModel, live: boolean): SentenceSaid | null {
  const { state, record } = context;
  const [corpus, place] = [model.corpus.value, record.place.value];
  if (!corpus || !place) return null;
  const { stack } = place;
  const chosen = model.chosen.value;
  const found = model.found.value;
  const search = state.search.value;
  const aggregated = state.enlarged.value && state.shown.value === "aggregate";
  return {
    stack: stack.name,
    at: state.enlarged.value ? model.head.value : null,
    layers: stack.layers.length,
    heads: stack.layers.reduce((sum, layer) => sum + keptHeads(stack, layer).length, 0),
    numQueries: corpus.numQueries,
    numKeys: corpus.numKeys,
    state: { ...follow(state), ...projectedAs(follow(state), model) },
    problem: problemOf(context, model) ?? (aggregated ? noMean(context, model) : null),
    waiting: waitsForFrame(model),
    point: chosen === null ? null : pointSaid(corpus, chosen),
    lines: state.enlarged.value ? linesSaid(model) : null,
    found: found && { search, count: found.count, points: corpus.count },
    selected: state.selected.value.length,
    aggregate: aggregated ? aggregateModelOf(context, model).said.value : null,
    live,
  };
}

/** The stack, the texts and their points. */
export function subtitleOf(context: Context, model: EmbeddingModel): string {
  const corpus = model.corpus.value;
  const place = context.record.place.value;
  if (!corpus || !place) return "";
  const parts = [
    stackName(place.stack.name),
    several(textsWithPoints(corpus), unitOf(corpus)),
    several(corpus.count, "point"),
  ];
  return parts.join(" · ");
}

/** The one sentence: where we are, and what stands out. */
export function sentenceOf(context: Context, model: EmbeddingModel, live = true): string {
  const said = saidOf(context, model, live);
  return said ? sentence(said) : "";
}

/**
 * What was drawn of what there is, and what is not exact about it.
 *
 * @param live whether the text pane is there, which says by itself what lines cover.
 */
export function coverageOf(context: Context, model: EmbeddingModel, live = true): string {
  const { state, record } = context;
  const [corpus, place] = [model.corpus.value, record.place.value];
  if (!corpus || !place) return "";
  const parts: string[] = [];
  const chosen = model.chosen.value;
  const enlarged = state.enlarged.value;
  if (enlarged && state.shown.value === "aggregate") {
    const mean = aggregateModelOf(context, model).said.value;
    return mean ? aggregateInWords(mean) : "";
  }
  const problem = problemOf(context, model);
  const trust = enlarged ? model.headTrust.value : null;
  if (trust && !problem) parts.push(trustInWords(trust));
  if (enlarged && chosen !== null && !live)
    parts.push(linesCoverageInWords(pointSaid(corpus, chosen), linesSaid(model)));
  if (!problem) parts.push(methodOf(context, model));
  parts.push(
    corpusInWords({
      numQueries: corpus.numQueries,
      numKeys: corpus.numKeys,
      inAll: corpus.inAll,
      texts: textsWithPoints(corpus),
      textsInAll: corpus.textsInAll,
      whole: corpus.whole,
      seed: corpus.seed,
      leftOut: corpus.leftOut,
      stopped: corpus.stopped,
      unit: unitOf(corpus),
    }),
  );
  if (enlarged) {
    const now = model.projection.value;
    if (!problem) parts.push(explainedInWords(now?.explained ?? null));
  }
  const overview = model.overview.value;
  if (!enlarged && overview && overview.stride > 1)
    parts.push(`Small plots show every ${ordinal(overview.stride)} point.`);
  const layers = place.stack.layers.length;
  const layer = enlarged ? place.layer : null;
  parts.push(reservationsInWords(corpus.reservations, layer, layers, state.translate.value));
  parts.push(model.colors.value?.note ?? "");
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
export function methodOf(context: Context, model: EmbeddingModel): string {
  const state = follow(context.state);
  const [now, at, way] = [model.projection.value, model.head.value, wayOf(state)];
  // Each head has its own.
  if (!state.enlarged) return `Vectors ${placingInWords(way, null)}.`;
  const here = now && now.request.layer === at?.layer && now.request.head === at.head;
  const placing = placingInWords(way, here && same(now.request.way, way) ? now.factor : null);
  const projecting = { ...projectedAs(state, model), lift: way.lift };
  const how = methodInWords(projecting, true, waitsForFrame(model));
  return `By ${how}; ${placing}.${remarkInWords(model.projection.value?.work ?? null)}`;
}

/** How trust went, step by step; "" where it is not measured. */
export function trustStepsOf(model: EmbeddingModel): string {
  const trust = model.headTrust.value;
  return trust ? stepsInWords(trust) : "";
}

/** All of it for who cannot see it. */
export function summaryOf(context: Context, model: EmbeddingModel): string {
  const said = saidOf(context, model, false);
  return said ? summary(said, model.headTrust.value ?? undefined) : "";
}
