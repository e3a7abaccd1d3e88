/**
 * Text for numbers, tokens and stacks. All views use these functions. A stack is a group of
 * attention layers, such as the self-attention of the decoder. A quantity is what the numbers of a
 * stack are, for example weights or differences.
 */

import type {
  EmbeddedShare,
  Range,
  ReplyProgress,
  StackDescription,
  TokenList,
} from "../../client/protocol";
import { withoutNumber } from "../../client/record-number";
import { type Unscored, zeroInWords } from "../../client/zeros";
import { isolated, tokenText } from "../../draw/marks";
import { roundedUp } from "./csv";
import { spanOf } from "./places";

/**
 * Describe the task on which the kernel is working for a reply, with its progress and the remaining
 * time: "strongest keys, 34%, about 40 s left".
 */
export function laterInWords({
  doing,
  progress,
  seconds_left: secondsLeft,
}: ReplyProgress): string {
  const parts = [doing, `${Math.floor(100 * progress)}%`];
  if (secondsLeft !== null) {
    // Round estimates above 20 seconds up to a multiple of 10, because they are not more precise.
    const seconds = secondsLeft > 20 ? 10 * Math.ceil(secondsLeft / 10) : Math.ceil(secondsLeft);
    parts.push(
      seconds < 120 ? `about ${seconds} s left` : `about ${Math.ceil(secondsLeft / 60)} min left`,
    );
  }
  return parts.join(", ");
}

/**
 * Return a text with at most `most` characters. If characters are omitted, "…" replaces them at the
 * end.
 */
export function shortened(text: string, most: number): string {
  const characters = Array.from(tokenText(text));
  return characters.length > most
    ? `${characters.slice(0, most - 1).join("")}…`
    : characters.join("");
}

const MAX_QUOTED = 24;

/**
 * Return the text of a token, with at most 24 characters, for a sentence. Each end of a
 * range, such as two dates, has this length.
 */
function inSentence(text: string): string {
  const ends = text.split(" – ").map((end) => shortened(end, MAX_QUOTED));
  return isolated(ends.join(" – "));
}

/** Return the text of a token in quotation marks, shortened by `inSentence`. */
export function quoted(text: string): string {
  return `“${inSentence(text)}”`;
}

/** Return the indices of a range of tokens in parentheses: " (3)", " (3–8)". */
export function indicesOf([start, stop]: Range): string {
  return ` (${stop - start > 1 ? `${start}–${stop - 1}` : start})`;
}

const repeatedTexts = new WeakMap<readonly string[], ReadonlySet<string>>();

/** Return the texts that occur more than once. The result is cached. */
export function repeatedIn(texts: readonly string[]): ReadonlySet<string> {
  let repeated = repeatedTexts.get(texts);
  if (!repeated) {
    const seen = new Set<string>();
    repeated = new Set(texts.filter((text) => seen.size === seen.add(text).size));
    repeatedTexts.set(texts, repeated);
  }
  return repeated;
}

/**
 * Return the indices of a range (see `indicesOf`) if its first or its last text occurs elsewhere.
 * Return "" if they are unique, as the names of frames, patches and dates are.
 */
export function neededIndices(texts: readonly string[], range: Range): string {
  const repeated = repeatedIn(texts);
  const ends = [range[0], Math.max(range[0], range[1] - 1)];
  return ends.some((token) => repeated.has(texts[token] ?? "")) ? indicesOf(range) : "";
}

/**
 * Return the name of a range of tokens in quotation marks: “cat”, “0.04–0.10 s”. If other tokens
 * have the same texts, the indices follow: “the” (3).
 */
export function quotedSpan(
  tokens: Pick<TokenList, "text" | "spans">,
  range: Range,
  indices = neededIndices(tokens.text, range),
): string {
  return `“${spanOf(tokens, range, inSentence)}”${indices}`;
}

/** Return the name of one token, as `quotedSpan` does. */
export function quotedAt(text: string[], index: number): string {
  return quotedSpan({ text }, [index, index + 1]);
}

/**
 * Tokens of a stack. If `stack.key_tokens` is null, queries and keys are tokens of the same text.
 */
interface StackTokens {
  stack: Pick<StackDescription, "key_tokens">;
  queries: TokenList;
  keys: TokenList;
}

/**
 * Return functions that say whether a query or a key is a resting token, and words for the resting
 * keys.
 *
 * Resting tokens are those to which many heads attend when no other key fits: special tokens and,
 * if queries and keys are tokens of the same text, the first token.
 */
export function restingTokens({ stack, queries, keys }: StackTokens) {
  const oneText = stack.key_tokens === null;
  const [from, to] = [new Set(queries.special), new Set(keys.special)];
  const named = to.size > 0 ? "the first token and special tokens" : "the first token";
  return {
    isQuery: (query: number): boolean => from.has(query) || (oneText && query === 0),
    isKey: (key: number): boolean => to.has(key) || (oneText && key === 0),
    /** "special tokens", "the first token", or "the first token and special tokens". */
    words: !oneText || to.has(0) ? "special tokens" : named,
  };
}

/** Return whether a range of queries contains a forced one, which may attend to one key only. */
export function hasForced(
  { forced_queries: forced = [] }: Pick<StackDescription, "forced_queries">,
  [start, stop]: Range,
): boolean {
  return forced.some((query) => query >= start && query < stop);
}

/** Say that the strongest weight is not that of a forced query: " apart from the first query". */
export function apartFromForced({
  forced_queries: forced = [],
}: Pick<StackDescription, "forced_queries">): string {
  if (forced.length === 0) return "";
  if (forced.length === 1 && forced[0] === 0) return " apart from the first query";
  return ` apart from ${several(forced.length, "query", PLURALS.query)} with a single key`;
}

/**
 * Format a weight with `decimals` decimals. A positive weight that would be rounded to 0 is written
 * as an upper bound, for example "<0.01". NaN is written as "…".
 */
export function formatWeight(weight: number, decimals = 2): string {
  if (Number.isNaN(weight)) return "…";
  const smallest = 10 ** -decimals;
  if (weight > 0 && weight < smallest / 2) return `<${smallest}`;
  return withMinus(weight.toFixed(decimals));
}

/** Replace the hyphen of a number by a minus sign. */
export function withMinus(number: string): string {
  return number.replace("-", "−");
}

/**
 * Format a weight with two decimals or, if it is less than 0.01, with two significant digits:
 * "0.13", "0.0042", "1.3e−6".
 */
export function formatSmall(weight: number): string {
  const short = Number(weight.toPrecision(2));
  if (short >= 0.01) return formatWeight(weight);
  return short < 1e-4 ? formatNumber(short) : plainNumber(short);
}

/**
 * Return the quantity of a stack: how its numbers are called, whether they are signed, and how
 * large they can be.
 */
export function quantityOf(stack: Pick<StackDescription, "measure" | "signed" | "maximum">) {
  return {
    /** Name in the singular, for example "weight" or "difference". */
    name: stack.measure ?? "weight",
    /** Whether the numbers may be negative. Plots of such numbers centre on 0. */
    signed: stack.signed ?? false,
    /** Largest absolute value that a number of the stack can have. */
    maximum: stack.maximum,
  };
}

/**
 * Return whether a large number means that the query attends to the key. False for signed numbers
 * and for ranks.
 */
export function isAttention({ name, signed }: Pick<Quantity, "name" | "signed">): boolean {
  return !signed && name !== "rank";
}

export type Quantity = ReturnType<typeof quantityOf>;

/** Return the name of a quantity in the plural: "weights", "differences", "entropies". */
export function pluralOf({ name }: Pick<Quantity, "name">): string {
  if (/[^aeiou]y$/i.test(name)) return `${name.slice(0, -1)}ies`;
  return name.endsWith("s") ? name : `${name}s`;
}

/** Return the sign of a number: "+" or "−", or "" for 0. */
function signOf(value: number): string {
  return value < 0 ? "−" : value > 0 ? "+" : "";
}

/**
 * Return the number of decimals for the numbers of a signed quantity: `decimals` if its maximum is
 * at least 0.1 and less than 10, one less for each further power of ten (10, 100, …), and one more
 * for each lower one (0.01, 0.001, …). It is at least 0 and at most 12.
 */
function decimalsFor({ maximum }: Quantity, decimals: number): number {
  const power = maximum > 0 ? Math.floor(Math.log10(maximum)) : 0;
  return Math.max(0, Math.min(12, decimals - (power < 0 ? power + 1 : power)));
}

/**
 * Format a number of a quantity. Without signs, it has `decimals` decimals: "0.30". A signed number
 * has a sign and as many decimals as the maximum of the quantity requires (see `decimalsFor`):
 * "−0.30". Numbers that would be rounded to 0 become "<0.01" or "−<0.01".
 */
export function written(quantity: Quantity, value: number, decimals = 2): string {
  if (!quantity.signed) return formatWeight(value, decimals);
  return signOf(value) + formatWeight(Math.abs(value), decimalsFor(quantity, decimals));
}

/**
 * Return whether a number is signed and its text contains "<", as in "−<0.01". Plots omit such
 * texts, because they are long and say little.
 */
export function isTiny(quantity: Quantity, value: number): boolean {
  return quantity.signed && written(quantity, value).includes("<");
}

/**
 * Format a number of a quantity like `written`, but with two significant digits if it is smaller
 * than one unit of the last decimal there: "0.0042" in place of "<0.01".
 */
export function writtenSmall(quantity: Quantity, value: number): string {
  if (!quantity.signed) return formatSmall(value);
  const size = Math.abs(value);
  const isSmall = size > 0 && size < 10 ** -decimalsFor(quantity, 2);
  if (!isSmall) return written(quantity, value);
  return signOf(value) + plainNumber(Number(size.toPrecision(2)));
}

/**
 * Format the number of a quantity for one of `numKeys` keys. With 1000 keys or more, nearly all
 * weights are less than 0.01, so `writtenSmall` is used instead of `written`.
 */
export function writtenAmong(numKeys: number, quantity: Quantity, value: number): string {
  return (numKeys < 1000 ? written : writtenSmall)(quantity, value);
}

/**
 * Append the direction of a difference to its text, as a word: "−0.30 (less)". Return `number`
 * unchanged if the difference is 0, or if the quantity is not a signed difference.
 */
export function withWay({ name, signed }: Quantity, value: number, number: string): string {
  if (!signed || name !== "difference" || !value) return number;
  return `${number} (${value < 0 ? "less" : "more"})`;
}

/** Stack whose queries may be forced to attend to one key only, and whose keys may be chosen. */
type WeightedStack = Pick<
  StackDescription,
  "measure" | "signed" | "maximum" | "forced_queries" | "chooses_keys"
>;

/**
 * Return a sentence about the strongest weight of a query or key, such as: “it” attends most to
 * “animal”: 0.68.
 *
 * @param side whether the token is a query or a key.
 * @param index index of the token.
 * @param token text of the query or key, in quotation marks.
 * @param strongest for a query, its key with the largest weight, and for a key, its query: the text
 *   of this token and the text of the weight. null if all visible weights are 0.
 */
export function strongestInWords(
  stack: WeightedStack,
  side: "query" | "key",
  index: number,
  token: string,
  strongest: { token: string; weight: string } | null,
): string {
  const isQuery = side === "query";
  const [from, to] = isQuery ? ["from", "to"] : ["to", "from"];
  const quantity = quantityOf(stack);
  const { name } = quantity;
  const attends = isAttention(quantity);
  if (!strongest && !attends) return `No ${name} ${from} ${token} in sight.`;
  if (!strongest && isQuery) return `${token} attends to no key in sight.`;
  if (!strongest) return `No query in sight attends to ${token}.`;
  const { token: other, weight } = strongest;
  if (isQuery && hasForced(stack, [index, index + 1])) return forcedInWords(token, other);
  if (!attends) return `Largest ${name} ${from} ${token}: ${to} ${other}, ${weight}.`;
  return `${token} ${isQuery ? "attends most to" : "gets most from"} ${other}: ${weight}.`;
}

/**
 * Return a sentence about the weights of a query on a key, in one or several heads, such as: “it”
 * attends to “animal”: 0.68.
 *
 * @param query index of the query.
 * @param pair texts of the query and of the key, in quotation marks.
 * @param weights weight in each head.
 * @param text text of the weights.
 */
export function pairInSentence(
  stack: WeightedStack,
  query: number,
  [from, to]: readonly [string, string],
  weights: readonly number[],
  text: string,
): string {
  if (hasForced(stack, [query, query + 1]) && weights.some((weight) => weight > 0))
    return forcedInWords(from, to);
  const [reason, ...others] = new Set(weights.map((weight) => zeroInWords(stack, weight)));
  if (reason && others.length === 0) return unscoredPairInWords(from, to, reason);
  const quantity = quantityOf(stack);
  return isAttention(quantity)
    ? `${from} attends to ${to}: ${text}.`
    : `${from} to ${to}: ${quantity.name} ${text}.`;
}

/** Return a sentence about a forced query and its only key. */
function forcedInWords(query: string, key: string): string {
  return `${query} may attend only to ${key}.`;
}

/**
 * Return the words for negative and for positive numbers: "less" and "more" for differences,
 * "negative" and "positive" for other quantities.
 */
export function waysOf({ name }: Pick<Quantity, "name">): readonly [string, string] {
  return name === "difference" ? ["less", "more"] : ["negative", "positive"];
}

/**
 * Return the title of a colour scale for signed numbers: "less ← difference → more".
 *
 * @param shown middle part of the title. Default: the name of the quantity.
 */
export function signsInWords({ name }: Pick<Quantity, "name">, shown = name): string {
  const [less, more] = waysOf({ name });
  return `${less} ← ${shown} → ${more}`;
}

/**
 * Return the three labels of a colour scale for signed numbers: at its lower end, at its middle and
 * at its upper end.
 */
export function aroundZero(end: string): [string, string, string] {
  return [`−${end}`, "0", `+${end}`];
}

/**
 * Format a number with up to three significant digits and without an exponent or commas: "0.0001"
 * and not "1e-4".
 */
export function plainNumber(value: number): string {
  const short = Number(value.toPrecision(3));
  const text = String(short);
  // Avoid `toLocaleString` if possible. Its first call takes as long as drawing a picture.
  if (/^-?[\d.]+$/.test(text)) return text;
  return short.toLocaleString("en-US", {
    maximumFractionDigits: 12,
    useGrouping: false,
  });
}

/**
 * Format a probability with two decimals. Probabilities that would be rounded to 0 or 1 are written
 * as "<0.01" or ">0.99".
 */
export function formatProbability(probability: number): string {
  return probability < 1 && probability >= 0.995 ? ">0.99" : formatWeight(probability);
}

/**
 * Format a share as a whole percentage. Only 0 is written as "0%", and only shares of at least
 * 0.9999 as "100%". Other shares that would be rounded to these are written as "<1%" and ">99%".
 */
export function formatShare(share: number): string {
  if (share > 0 && share < 0.005) return "<1%";
  if (share < 1 && share > 0.9949 && share < 0.9999) return ">99%";
  return `${Math.round(share * 100)}%`;
}

/**
 * Describe the share of the weights that an exported page contains: "98.1% of the weight". For
 * signed numbers, it is the share of the sum of absolute values: "98.1% of all differences by
 * size". The share is rounded down, so that the page contains at least this share.
 */
function coverageInWords(
  { covered }: EmbeddedShare,
  stack?: Pick<StackDescription, "signed" | "measure">,
): string {
  const name = stack?.measure ?? "weight";
  const whole = stack?.signed ? `all ${pluralOf({ name })} by size` : `the ${name}`;
  return `${(Math.floor(covered * 1000) / 10).toFixed(1)}% of ${whole}`;
}

/**
 * Describe the precision of weights whose largest error is `error`: "exact to 0.004", or "exact" if
 * it is 0.
 *
 * If an exported page contains only the strongest keys of each query, begin with the share of the
 * weights that these keys have: "98.1% of the weight, exact to 0.004".
 *
 * Weights of a changed run are not called exact, because they are not those of the model: "rounded
 * to 0.004", or "" if they are not rounded.
 */
export function precision(
  error: number,
  stack?: Pick<StackDescription, "embedded" | "signed" | "measure" | "changed">,
): string {
  const word = stack?.changed ? "rounded" : "exact";
  const whole = stack?.changed ? "" : "exact";
  const exact = error > 0 ? `${word} to ${plainNumber(roundedUp(error))}` : whole;
  const embedded = stack?.embedded;
  return embedded?.form === "strongest" ? `${coverageInWords(embedded, stack)}, ${exact}` : exact;
}

/**
 * Return sentences about the weights that an exported page contains and their largest error, or
 * null if it contains all weights. If the page has several stacks, the sentences name the stack.
 */
export function embeddedInWords(
  embedded: EmbeddedShare,
  stack?: Pick<StackDescription, "signed" | "measure" | "name">,
  isOneOfSeveral = false,
): string | null {
  const { form, error } = embedded;
  if (form === "all") return null;
  const largest = error > 0 ? `largest error ${plainNumber(roundedUp(error))}` : "exact";
  if (form === "vectors")
    return `This page contains queries and keys, and computes the weights from them: ${largest}.`;
  const others = stack?.signed
    ? "Other keys are shown as 0."
    : "The remaining weight of a query is spread evenly over its other keys.";
  const coverage = coverageInWords(embedded, stack);
  const of = stack && isOneOfSeveral ? ` of the ${stackName(stack.name)}` : "";
  return `This page contains each query’s strongest keys${of}: ${coverage}, ${largest}. ${others}`;
}

/**
 * Return the name of a head: "layer 5, head 8". Labels in small plots have the short form "5.8".
 */
export function headName({ layer, head }: { layer: number; head: number }): string {
  return `layer ${layer}, head ${head}`;
}

/**
 * Name several heads by their numbers: "head 3", "heads 1, 7, 9", "heads 0, 1, …, 11 and 13 more".
 */
export function headsInWords(heads: readonly number[], noun = "head"): string {
  if (heads.length === 1) return `${noun} ${heads[0]}`;
  const more = heads.length > 12 ? ` and ${heads.length - 12} more` : "";
  return `${noun}s ${heads.slice(0, 12).join(", ")}${more}`;
}

/** Name heads or layers, with "layers 0 to 5" for at least three consecutive numbers. */
export function numbersInWords(noun: "head" | "layer", numbers: readonly number[]): string {
  const first = numbers[0] ?? 0;
  const isRun = numbers.length > 2 && numbers.every((number, i) => number === first + i);
  return isRun ? `${noun}s ${first} to ${numbers.at(-1)}` : headsInWords(numbers, noun);
}

const STACK_NAMES: Record<string, string> = {
  self: "self-attention",
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
  cross: "cross-attention",
  vision: "vision self-attention",
};

/**
 * Return the name of a stack for readers, such as "self-attention" for "self". A text after " · "
 * is kept. The number of the record, as in "self@1", is dropped (see `record-number.ts`).
 */
export function stackName(name: string): string {
  const [of = "", ...more] = withoutNumber(name).split(" · ");
  return [STACK_NAMES[of] ?? of, ...more].join(" · ");
}

/**
 * Return the words that mark a picture of a changed run, such as "after: “it” (7) hidden". Return ""
 * for the unchanged run.
 */
export function changedMark(stack: Pick<StackDescription, "changed" | "measure">): string {
  if (!stack.changed) return "";
  return `${stack.measure === "difference" ? "difference " : ""}after: ${stack.changed}`;
}

export const PLURALS = { query: "queries", key: "keys" };

/**
 * Describe positions, which have no names because they are those of many texts: "query 3", or
 * "queries 8 to 15" for the range [8, 16).
 */
export function positionsInWords([start, stop]: Range, side: "query" | "key"): string {
  return stop - start <= 1 ? `${side} ${start}` : `${PLURALS[side]} ${start} to ${stop - 1}`;
}

/**
 * Format a count with commas: "131,072". Do not use this for indices of tokens, which have no
 * commas.
 */
export function counted(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** State the number of tokens of a stack: "16 tokens", or "12 queries, 20 keys". */
export function tokensInWords({ stack, queries, keys }: StackTokens): string {
  if (stack.key_tokens === null) return several(queries.text.length, "token");
  const count = several(queries.text.length, "query", PLURALS.query);
  return `${count}, ${several(keys.text.length, "key")}`;
}

/** Format a count, followed by its noun: "1 text", "1,200 texts". */
export function several(count: number, one: string, many = `${one}s`): string {
  return `${counted(count)} ${count === 1 ? one : many}`;
}

/**
 * Format any number with up to three significant digits: "−1.25", "3.1e−4", "12,300". NaN and
 * infinite numbers are "unknown".
 */
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

/** Return the text with its first letter in upper case. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * Say why the softmax did not score a key, or several keys.
 *
 * @param several whether the text is about several queries or keys.
 */
export function unscoredInWords(reason: Unscored, several = false): string {
  if (reason === "masked")
    return several ? "masked" : "masked: this query may not attend to this key";
  return `not chosen: the softmax did not score ${several ? "these keys" : "this key"}`;
}

/** Return a sentence that says why a query has no weight on a key that the softmax did not score. */
export function unscoredPairInWords(query: string, key: string, reason: Unscored): string {
  return reason === "masked"
    ? `${query} may not attend to ${key}: the key is masked.`
    : `${query} does not attend to ${key}: the key was not chosen, so the softmax did not score it.`;
}

/**
 * Return a sentence about the lost weight of a query in one or several heads: the weight that the
 * keys that were not chosen would have. Return "" if it is 0 in each head.
 */
export function lostInWords(lost: readonly number[]): string {
  const mean = lost.reduce((sum, share) => sum + share, 0) / lost.length;
  if (!(mean > 0)) return "";
  const share = mean < 5e-4 ? "<0.1%" : `${(100 * mean).toFixed(1)}%`;
  const heads = lost.length > 1 ? ` (mean of ${lost.length} heads)` : "";
  return `Keys that were not chosen would have ${share} of the weight${heads}.`;
}

/** Name of the order of heads by their weight at the pinned tokens. */
export const BY_PIN = "pinned";

/** Return the name that captions use for an order of heads. */
export function orderLabel(order: string): string {
  return order === BY_PIN ? "weight of the pinned tokens" : order;
}
