/** Numbers, tokens and stacks in words, the same in every view. */

import type {
  EmbeddedShare,
  Range,
  ReplyProgress,
  StackDescription,
  TokenList,
} from "../../client/protocol";
import { withoutNumber } from "../../client/record-number";
import { printable } from "../../draw/marks";
import { roundedUp } from "../exports/csv";

/** How far an answer is: "strongest keys, 34%, about 40 s left". */
export function laterInWords({ doing, progress, seconds_left: left }: ReplyProgress): string {
  const parts = [doing, `${Math.floor(100 * progress)}%`];
  if (left !== null) {
    // No more exact than it is.
    const seconds = left > 20 ? 10 * Math.ceil(left / 10) : Math.ceil(left);
    parts.push(
      seconds < 120 ? `about ${seconds} s left` : `about ${Math.ceil(left / 60)} min left`,
    );
  }
  return parts.join(", ");
}

/** A token between quotation marks, short enough for a sentence. */
export function quoted(text: string): string {
  const characters = Array.from(printable(text));
  return `“${characters.length > 24 ? `${characters.slice(0, 23).join("")}…` : characters.join("")}”`;
}

// Counted once: sentences follow the pointer, over texts of any length.
const repeated = new WeakMap<readonly string[], Set<string>>();

/** Texts that several tokens have. */
function repeatedIn(texts: readonly string[]): Set<string> {
  let known = repeated.get(texts);
  if (!known) {
    const seen = new Set<string>();
    known = new Set<string>();
    for (const text of texts) {
      if (seen.has(text)) known.add(text);
      seen.add(text);
    }
    repeated.set(texts, known);
  }
  return known;
}

/** A token between quotation marks, with its place where others read the same. */
export function quotedAt(texts: readonly string[], index: number): string {
  const text = texts[index] ?? "";
  return repeatedIn(texts).has(text) ? `${quoted(text)} (${index})` : quoted(text);
}

/** Tokens that heads rest on where nothing fits: special ones, and the first of a text. */
export interface RestingTokens {
  isQuery: (query: number) => boolean;
  isKey: (key: number) => boolean;
  /** "special tokens" */
  words: string;
}

/** Those of a stack's tokens, of which queries and keys may be two texts. */
export function restingTokens(
  queries: TokenList,
  keys: TokenList,
  oneText: boolean,
): RestingTokens {
  const [from, to] = [queries, keys].map(({ special }) => new Set(special)) as [
    Set<number>,
    Set<number>,
  ];
  const named = to.size > 0 ? "the first token and special tokens" : "the first token";
  return {
    isQuery: (query) => from.has(query) || (oneText && query === 0),
    isKey: (key) => to.has(key) || (oneText && key === 0),
    words: !oneText || to.has(0) ? "special tokens" : named,
  };
}

/** Where in a record a view is, for a medium without controls: stack, layer, heads and pins. */
export function selectionInWords(selection: {
  stack: { name: string };
  layer: number;
  chosen: readonly number[];
  queries: { text: readonly string[] };
  keys: { text: readonly string[] };
  token: number | null;
  key: number | null;
}): string {
  const { stack, layer, chosen, queries, keys, token, key } = selection;
  const heads =
    chosen.length === 0
      ? "no head chosen"
      : `head${chosen.length > 1 ? "s" : ""} ${chosen.join(", ")}`;
  const pin = (side: string, texts: readonly string[], index: number | null): string[] =>
    index === null ? [] : [`${side} ${quoted(texts[index] ?? "")} (${index})`];
  return [
    stackName(stack.name),
    `layer ${layer}`,
    heads,
    ...pin("query", queries.text, token),
    ...pin("key", keys.text, key),
  ].join(" · ");
}

/** A weight with two decimals, or one that says that it is smaller; a sign where it is not known. */
export function formatWeight(weight: number, decimals = 2): string {
  if (Number.isNaN(weight)) return "…";
  const least = 10 ** -decimals;
  if (weight > 0 && weight < least / 2) return `<${least}`;
  return withMinus(weight.toFixed(decimals));
}

/** A number as JavaScript writes it, with the sign that print has for minus. */
export function withMinus(number: string): string {
  return number.replace("-", "−");
}

/** A weight with two digits, however small: "0.13", "0.0004", "1.3e−6". */
export function formatSmall(weight: number): string {
  const short = Number(weight.toPrecision(2));
  if (short >= 0.01) return formatWeight(weight);
  return short < 1e-4 ? formatNumber(short) : plainNumber(short);
}

/** What the numbers of a stack are called, and how they are written. */
export interface Quantity {
  /** "weight", "difference", ... */
  name: string;
  /** Whether they have signs: those are not shares of one, and are drawn around zero. */
  signed: boolean;
  /** The largest size. */
  maximum: number;
}

export function quantityOf({
  measure = "weight",
  signed = false,
  maximum,
}: Pick<StackDescription, "measure" | "signed" | "maximum">): Quantity {
  return { name: measure, signed, maximum };
}

/** "weights", "differences", "entropies". */
export function pluralOf({ name }: Pick<Quantity, "name">): string {
  if (/[^aeiou]y$/i.test(name)) return `${name.slice(0, -1)}ies`;
  return name.endsWith("s") ? name : `${name}s`;
}

/** "+" or "−", nothing before 0. */
function signOf(value: number): string {
  return value < 0 ? "−" : value > 0 ? "+" : "";
}

/** Decimals, of which larger numbers have fewer, and smaller ones more. */
function decimalsFor({ maximum }: Quantity, decimals: number): number {
  const power = maximum > 0 ? Math.floor(Math.log10(maximum)) : 0;
  return Math.max(0, Math.min(12, decimals - (power < 0 ? power + 1 : power)));
}

/** A number of a quantity: a weight as `formatWeight` writes it, another with its sign. */
export function written(quantity: Quantity, value: number, decimals = 2): string {
  if (!quantity.signed) return formatWeight(value, decimals);
  const size = formatWeight(Math.abs(value), decimalsFor(quantity, decimals));
  return Number.isNaN(value) ? size : `${signOf(value)}${size}`;
}

/**
 * Whether a signed number is too small to be written beside a bar or into a cell: "−<0.01" is long,
 * and says no more than that there is little.
 */
export function isTiny(quantity: Quantity, value: number): boolean {
  return quantity.signed && written(quantity, value).includes("<");
}

/** The same with two digits, however small. */
export function writtenSmall(quantity: Quantity, value: number): string {
  if (!quantity.signed) return formatSmall(value);
  const size = Math.abs(value);
  const tiny = size > 0 && size < 10 ** -decimalsFor(quantity, 2);
  return tiny
    ? `${signOf(value)}${plainNumber(Number(size.toPrecision(2)))}`
    : written(quantity, value);
}

/** A number that was written, with its sign in words: "−0.30 (less)". */
export function withWay({ name, signed }: Quantity, value: number, number: string): string {
  if (!signed || name !== "difference" || !value) return number;
  return `${number} (${value < 0 ? "less" : "more"})`;
}

/** What the two colours of signed numbers mean: "less" and "more", or their signs. */
export function waysOf({ name }: Pick<Quantity, "name">): readonly [string, string] {
  return name === "difference" ? ["less", "more"] : ["negative", "positive"];
}

/** What a scale around zero shows: "less ← difference → more". */
export function signsInWords({ name }: Pick<Quantity, "name">, shown = name): string {
  const [less, more] = waysOf({ name });
  return `${less} ← ${shown} → ${more}`;
}

/** The ends and the middle of a scale around zero. */
export function aroundZero(end: string): [string, string, string] {
  return [`−${end}`, "0", `+${end}`];
}

/** "0.0001", never "1e-4". */
export function plainNumber(value: number): string {
  const short = Number(value.toPrecision(3));
  const text = String(short);
  // The first number that Intl writes takes as long as a picture.
  if (/^-?[\d.]+$/.test(text)) return text;
  return short.toLocaleString("en-US", {
    maximumFractionDigits: 12,
    useGrouping: false,
  });
}

/** A probability with two decimals; never 1 nor 0 where it is not quite so. */
export function formatProbability(probability: number): string {
  return probability < 1 && probability >= 0.995 ? ">0.99" : formatWeight(probability);
}

/** A share that may be off by so much at most: "41.7% ± 0.5%", or "42%" where it is as good as exact. */
export function shareWithin(share: number, error: number): string {
  if (error < 0.0005) return formatShare(share);
  // With what rounding to a digit adds.
  const off = Math.min(1, error + 0.0005);
  return `${(100 * share).toFixed(1)}% ± ${(Math.ceil(1000 * off - 1e-9) / 10).toFixed(1)}%`;
}

/** A share in per cent; never 100% nor 0% where that is not quite so. */
export function formatShare(share: number): string {
  if (share > 0 && share < 0.005) return "<1%";
  if (share < 1 && share > 0.9949 && share < 0.9999) return ">99%";
  return `${Math.round(share * 100)}%`;
}

/** What a share of an exported page is of. */
function wholeOf(stack?: Pick<StackDescription, "signed" | "measure">): string {
  const name = stack?.measure ?? "weight";
  return stack?.signed ? `all ${pluralOf({ name })} by size` : `the ${name}`;
}

/** "exact to 0.004", or "exact" for weights as they are; of a page also how much it contains. */
export function precision(
  error: number,
  stack?: Pick<StackDescription, "embedded" | "signed" | "measure">,
): string {
  const exact = error > 0 ? `exact to ${plainNumber(roundedUp(error))}` : "exact";
  const embedded = stack?.embedded;
  return embedded?.form === "strongest"
    ? `${shareOf(embedded)} of ${wholeOf(stack)}, ${exact}`
    : exact;
}

/** Rounded down, so that no more is promised than there is. */
function shareOf({ covered }: EmbeddedShare): string {
  return `${(Math.floor(covered * 1000) / 10).toFixed(1)}%`;
}

/** What an exported page says where it does not contain every weight; null where it does. */
export function embeddedInWords(
  embedded: EmbeddedShare,
  stack?: Pick<StackDescription, "signed" | "measure">,
): string | null {
  const { form, error } = embedded;
  if (form === "all") return null;
  const largest = error > 0 ? `largest error ${plainNumber(roundedUp(error))}` : "exact";
  if (form === "vectors") {
    return `This page contains queries and keys, and computes the weights from them: ${largest}.`;
  }
  return (
    `This page contains each query’s strongest keys: ${shareOf(embedded)} of ${wholeOf(stack)}, ${largest}. ` +
    (stack?.signed
      ? "Its other keys are shown as 0."
      : "What is left of a query is spread evenly over its other keys.")
  );
}

/** "layer 5, head 8"; where there is little room a head is "5.8". */
export function headName({ layer, head }: { layer: number; head: number }): string {
  return `layer ${layer}, head ${head}`;
}

/** "head 3", "heads 1, 7, 9" or "heads 0, 1, 2 and 13 more". */
export function headsInWords(heads: readonly number[], most = 12): string {
  if (heads.length === 1) return `head ${heads[0]}`;
  const more = heads.length - most;
  return `heads ${heads.slice(0, most).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

const STACK_NAMES: Record<string, string> = {
  self: "self-attention",
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
  cross: "cross-attention",
  vision: "vision self-attention",
};

/** The name of a stack in words. */
export function stackName(name: string): string {
  const [of = "", ...more] = withoutNumber(name).split(" · ");
  return [STACK_NAMES[of] ?? of, ...more].join(" · ");
}

/** "query 3", or "queries 8 to 15" for the range from 8 to before 16. */
export function rangeInWords([start, stop]: Range, one: string, many: string): string {
  return stop - start <= 1 ? `${one} ${start}` : `${many} ${start} to ${stop - 1}`;
}

/** "Query 3, “it”." in a summary; `predicting` ends with a comma. */
export function pinInWords(
  side: "Query" | "Key",
  texts: readonly string[],
  index: number,
  predicting = "",
): string {
  return `${side} ${index}, ${quoted(texts[index] ?? "")}${predicting.slice(0, -1)}.`;
}

/** How many there are of something: "131,072". Places in a text are written without the commas. */
export function counted(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** The tokens of a stack in words: "16 tokens", or "12 queries, 20 keys". */
export function tokensInWords(numQueries: number, numKeys: number, same: boolean): string {
  const count = (number: number, one: string, many: string): string =>
    `${counted(number)} ${number === 1 ? one : many}`;
  return same
    ? count(numQueries, "token", "tokens")
    : `${count(numQueries, "query", "queries")}, ${count(numKeys, "key", "keys")}`;
}

/** How many there are of something, in its number: "1 text", "1,200 texts". */
export function several(count: number, one: string, many = `${one}s`): string {
  return `${counted(count)} ${count === 1 ? one : many}`;
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
        ? withMinus(short.toExponential())
        : String(short);
  return `${value < 0 && short !== 0 ? "−" : ""}${text}`;
}

/** With a large first letter. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
