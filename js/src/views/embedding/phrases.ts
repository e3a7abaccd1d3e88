/** What the embedding view says in words. Pure functions. */

import { counted, formatShare, formatSmall, quoted, stackName } from "../../ui/captions";
import type {
  HeadTrust,
  Method,
  Projecting,
  ProjectionWork,
  Reservation,
  Way,
} from "./client/requests";

/** A layer and a head, by the model's numbers. */
export interface HeadAt {
  layer: number;
  head: number;
}

/** How many there are of something, in its number: "1 text", "1,200 texts". */
export function several(count: number, one: string, many = `${one}s`): string {
  return `${counted(count)} ${count === 1 ? one : many}`;
}

/** A correlation with two decimals and a true minus: "−0.61". */
export function formatCorrelation(value: number): string {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** A coordinate or any other number of a plot with three digits: "−1.25", "0.00314", "12,300". */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "unknown";
  const size = Math.abs(value);
  const short = Number(size.toPrecision(3));
  const text =
    short >= 1000
      ? counted(Math.round(short))
      : short !== 0 && short < 1e-3
        ? short.toExponential().replace("-", "−")
        : String(short);
  return `${value < 0 && short !== 0 ? "−" : ""}${text}`;
}

/** "layer 2, head 1". */
export function headInWords({ layer, head }: HeadAt): string {
  return `layer ${layer}, head ${head}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
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
export function placingInWords(
  { scaling: asked, translate, lift }: Way,
  factor: number | null,
): string {
  // Lifted there is nothing to search: the order of distance is that of q·k at every factor.
  const scaling = asked === "search" && lift ? "norms" : asked;
  const by = factor === null || scaling === "none" ? "" : ` (c = ${formatNumber(factor)})`;
  const parts = [
    scaling === "norms"
      ? `scaled by their norms${by}`
      : scaling === "search"
        ? `scaled by a search${by}`
        : "not scaled",
    translate ? "keys moved onto the queries" : "keys where they are",
    ...(lift ? ["lifted, so that nearness is exactly q·k before the projection"] : []),
  ];
  return parts.join(", ");
}

/** Which points are drawn. */
export type PointsShown = "both" | "queries" | "keys";

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
export interface PointSaid {
  kind: "query" | "key";
  token: string;
  /** The text's name and number, whether it is an image, and the token's place in it. */
  name: string;
  text: number;
  unit: Unit;
  position: number;
}

/** Lines of a point: its strongest keys, or the queries that attend to it most. */
export interface LinesSaid {
  /** The token at the other end of the strongest line, with its place; null where there is none. */
  strongest: { token: string; position: number; weight: number } | null;
  count: number;
  /** Share of the query's weight that they carry. */
  covered: number;
  /** How many there are in all. */
  of: number;
}

/** "text 3, “The cat sat”", or "text 3" of one that has no name of its own. */
export function textInWords(name: string, text: number, unit: Unit = "text"): string {
  const number = `${unit} ${text}`;
  return name === number || name === "" ? number : `${number}, ${quoted(name)}`;
}

/** "query “it”, position 10 of text 3". */
export function pointInWords({ kind, token, text, unit, position }: PointSaid): string {
  return `${kind} ${quoted(token)}, position ${position} of ${unit} ${text}`;
}

/** What a chosen point attends to, or is attended by. */
export function linesInWords(point: PointSaid, lines: LinesSaid | null): string {
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

/** How many lines there are, and how much of a query's weight they carry; "" for none. */
export function linesCoverageInWords(
  point: Pick<PointSaid, "kind">,
  lines: LinesSaid | null,
): string {
  if (!lines || lines.count === 0) return "";
  // Keys that a mask keeps out have no line to leave out.
  const some = lines.count < lines.of && lines.covered < ALL_OF_IT;
  const count = some
    ? `${counted(lines.count)} of ${several(lines.of, "line")}`
    : several(lines.count, "line");
  const what =
    point.kind === "key"
      ? `the queries that give it ${some ? "most" : "any"} weight`
      : `${formatShare(lines.covered)} of the query’s weight`;
  const most = lines.strongest ? formatSmall(lines.strongest.weight) : "";
  const full = most === "" ? "" : ` Opacity = weight${most === "1.00" ? "" : ` ÷ ${most}`}.`;
  return `${count}: ${what}.${full}`;
}

/** What the sentence is made of. */
export interface SentenceSaid {
  stack: string;
  /** The enlarged head; null where all are shown. */
  at: HeadAt | null;
  layers: number;
  heads: number;
  numQueries: number;
  numKeys: number;
  state: Projecting & Way & { shown: "plot" | "aggregate"; points: PointsShown };
  /** Why the enlarged head has no plot; null where it has one. */
  problem: string | null;
  point: PointSaid | null;
  lines: LinesSaid | null;
  /** Whether the plot is still that of the principal components, whatever the method. */
  waiting: boolean;
  /** Points that a search found, of how many; null without one. */
  found: { search: string; count: number; points: number } | null;
  /** Points in the lasso. */
  selected: number;
  /** The mean weight's largest bin; null where there is none, or no aggregate is shown. */
  aggregate: AggregateSaid | null;
  /** Whether a reader can act on it: not so in a figure. */
  live: boolean;
}

/** Where a mean weight is largest, "query 3 → key 0", and what it is the mean of. */
export interface AggregateSaid {
  weight: number;
  at: string;
  texts: number;
  ofTexts: number;
  queries: number;
  ofQueries: number;
  /** Positions of query and key that a bin is wide at most. */
  bin: [number, number];
  /** Texts that are as long as the last row; null where that is not known. */
  far: number | null;
}

/** What a mean by position is the mean of. */
export function aggregateInWords(said: Omit<AggregateSaid, "weight" | "at">): string {
  const { texts, ofTexts, queries, ofQueries, bin } = said;
  const of =
    texts < ofTexts ? `${counted(texts)} of ${several(ofTexts, "text")}` : several(texts, "text");
  const some =
    queries < ofQueries
      ? `, ${counted(queries)} of their ${several(ofQueries, "query", "queries")}`
      : "";
  const bins =
    Math.max(...bin) > 1 ? ` A cell is the mean over ${bin[0]} × ${bin[1]} positions at most.` : "";
  const long =
    texts < 2 || said.far === texts
      ? ""
      : said.far === null
        ? "; far positions exist in few of them"
        : `; ${counted(said.far)} of them ${said.far === 1 ? "reaches" : "reach"} the last row`;
  return `Mean over ${of}${some}${long}.${bins}`;
}

/** What is found, in one sentence; "" where nothing is sought. */
export function foundInWords(found: SentenceSaid["found"]): string {
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
export function sentence(said: SentenceSaid): string {
  const { at, state } = said;
  const extra = [
    foundInWords(said.found),
    ...(said.selected > 0 ? [`${several(said.selected, "point")} in the lasso.`] : []),
  ];
  const told = (first: string): string => [first, ...extra].filter(Boolean).join(" ");
  if (!at) {
    const heads = `all ${several(said.heads, "head")} of ${several(said.layers, "layer")}`;
    const what = `${capital(stackName(said.stack))}, ${heads}: queries and keys by principal components.`;
    const near = " Near means attending where r is close to −1.";
    const hint = said.live ? " Click a head, or press Enter on it, to enlarge it." : "";
    const chosen = said.point ? ` ${capital(pointInWords(said.point))}.` : "";
    return told(`${what}${near}${chosen}${said.point ? "" : hint}`);
  }
  const where = capital(headInWords(at));
  if (state.shown === "aggregate") {
    const mean = said.aggregate;
    if (!mean)
      return said.problem
        ? `${where}: ${said.problem}, so there is no mean weight.`
        : `${where}: mean weight by query position and key position.`;
    return `${where}: mean weight by position. Largest, ${mean.at}: ${formatSmall(mean.weight)}.`;
  }
  if (said.problem) return told(`${where}: ${said.problem}, so there is nothing to place.`);
  if (said.point) return told(`${where}. ${linesInWords(said.point, said.lines)}`);
  const points = pointsInWords(state.points, said.numQueries, said.numKeys);
  return told(`${where}: ${points} by ${methodInWords(state, false, said.waiting)}.`);
}

/** What a plot was drawn from. */
export interface CoverageSaid {
  numQueries: number;
  numKeys: number;
  /** Points that all texts have. */
  inAll: number;
  /** Texts that have points, and that there were. */
  texts: number;
  textsInAll: number;
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
export function corpusInWords(said: CoverageSaid): string {
  const count = said.numQueries + said.numKeys;
  const { texts, textsInAll, unit, leftOut } = said;
  const others =
    leftOut === 0
      ? ""
      : ` ${several(leftOut, unit)} ${leftOut === 1 ? "is" : "are"} left out: empty or too long.`;
  const all = count >= said.inAll && texts + leftOut >= textsInAll;
  if (all) return `All ${several(count, "point")} of ${several(texts, unit)}.${others}`;
  const points =
    count < said.inAll
      ? `${counted(count)} of ${several(said.inAll, "point")}`
      : several(count, "point");
  const from =
    texts < textsInAll ? `${counted(texts)} of ${several(textsInAll, unit)}` : several(texts, unit);
  const part = said.whole
    ? texts === 1
      ? ", all of its tokens"
      : ", all of their tokens"
    : `, some of ${texts === 1 ? "its" : "their"} tokens`;
  const drawn = (said.stopped ?? true) ? `, drawn at random with seed ${said.seed}` : "";
  const rest =
    drawn === "" && others === "" && texts < textsInAll ? " The others are left out." : others;
  return `${points}: ${from}${part}${drawn}.${rest}`;
}

/** The share of the variance that the axes show; "" where no axis is a component. */
export function explainedInWords(explained: readonly number[] | null): string {
  if (!explained || explained.some((share) => !Number.isFinite(share))) return "";
  const share = explained.reduce((sum, each) => sum + each, 0);
  const axes = explained.length === 3 ? "three" : "two";
  return `The ${axes} axes show ${formatShare(share)} of the variance.`;
}

/** From this correlation on distances say little of q·k, and do not "follow" it. */
export const LITTLE = -0.1;

/** What of a plot can be believed: how distance follows q·k, and how many near keys are strong ones. */
export function trustInWords(trust: HeadTrust | null | undefined): string {
  if (trust === undefined) return "";
  if (trust === null) return "How far this plot can be trusted cannot be measured here.";
  const { allowed, all_pairs } = trust.plot;
  const parts: string[] = [];
  const correlation = allowed ?? all_pairs;
  if (correlation !== null) {
    const number = formatCorrelation(correlation);
    const over =
      allowed === null
        ? "over all pairs"
        : `over keys that a query may attend to${all_pairs === null ? "" : ` (${formatCorrelation(all_pairs)} over all pairs)`}`;
    parts.push(
      correlation > LITTLE
        ? `Correlation of distance with q·k on this plot: ${number} ${over}`
        : `On this plot distance follows q·k with r = ${number} ${over}`,
    );
  }
  const mine = trust.recall_allowed !== null;
  const recall = trust.recall_allowed ?? trust.recall_all;
  const chance = mine ? trust.chance_allowed : trust.chance_all;
  if (recall !== null) {
    const by = chance === null ? "" : ` (chance ${formatShare(chance)})`;
    const which = mine ? "" : " of all texts";
    const share = `${formatShare(recall)} of a query’s ten strongest keys${which} are among its ten nearest${by}`;
    parts.push(parts.length > 0 ? share : capital(share));
  }
  if (parts.length === 0)
    return "No query has keys enough to say how far this plot can be trusted.";
  return `${parts.join("; ")}.`;
}

/** What the figures mean, for who has not met them. */
export const TRUST_HELP =
  "r is the mean over queries of the correlation between distance and q·k: −1 where nearer always " +
  "means a larger q·k, 0 where the plot says nothing of it.";

/** How trust went from the vectors as they are to the plot: "r over allowed keys: −0.31 → −0.55 → −0.48". */
export function stepsInWords(trust: HeadTrust): string {
  const side = trust.plot.allowed !== null ? "allowed" : "all_pairs";
  const steps = [trust.before[side], trust.placed[side], trust.plot[side]];
  if (steps.some((value) => value === null)) return "";
  const [before, placed, plot] = steps.map((value) => formatCorrelation(value as number));
  const measured =
    trust.queries < trust.of
      ? ` Measured on ${counted(trust.queries)} of ${several(trust.of, "query", "queries")}.`
      : "";
  return `r of the vectors as they are ${before}, as placed ${placed}, on the plot ${plot}.${measured}`;
}

/**
 * Reservations of one layer, or of all with their layers.
 *
 * @param moved whether keys are moved; what only moving them makes inexact is else left out.
 */
export function reservationsInWords(
  reservations: readonly Reservation[],
  layer: number | null,
  layers: number,
  moved: boolean,
): string {
  return reservations
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

/** What is said of work; "" where it is done. */
export function workInWords(work: ProjectionWork | null): string {
  if (!work || work.state === "done") return "";
  if (work.words !== "") return work.words;
  if (work.state === "running")
    return work.of > 0 ? `Step ${counted(work.done)} of ${counted(work.of)}.` : "At work …";
  return work.state === "cancelled" ? "Cancelled." : "This did not work.";
}

/** All of it for who cannot see it, in one breath. */
export function summary(said: SentenceSaid, trust: HeadTrust | null | undefined): string {
  const stack = capital(stackName(said.stack));
  const where = said.at ? `${stack}. ` : "";
  const measured =
    said.at && said.state.shown === "plot" && !said.problem ? trustInWords(trust) : "";
  return `${where}${sentence({ ...said, live: false })} ${measured}`.trim();
}
