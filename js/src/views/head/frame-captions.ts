/** What is written around the head view's picture. */

import { precision, quoted, stackName, tokensInWords } from "../../ui/captions";
import { predictingInWords } from "../../ui/generated-token/state";
import { absentInWords } from "../../ui/head-subset";
import { pairOf } from "../../ui/pairs";
import { zerosInWords } from "../../ui/sparsity";
import { coverage, type Said, sentence, summary } from "./captions";
import type { Caption } from "./figure";
import { FAINTEST } from "./lines";
import { drawnValue, type Focus, focusOf, type Picture } from "./picture";
import type { HeadState, Plan } from "./state";
import { strongestKeys } from "./strongest";

/** The stack, its tokens and the precision. */
export function subtitleOf(plan: Plan, error: number | null, state: HeadState): string {
  const numQueries = plan.queries.text.length;
  const numKeys = plan.keys.text.length;
  const tokens = tokensInWords(numQueries, numKeys, plan.stack.key_tokens === null);
  // What is divided by less than one is off by more than it was.
  const parted = state.leave_out.length > 0 || pairOf(plan, state.pair) !== "all";
  const divided = state.renormalize && parted && (error ?? 0) > 0;
  const exact =
    error === null
      ? []
      : [precision(error, plan.stack.carried) + (divided ? " before renormalising" : "")];
  return [stackName(plan.stack.name), tokens, ...exact].join(" · ");
}

function saidOf(plan: Plan, picture: Picture, focus: Focus, renormalize: boolean): Said {
  return {
    layer: plan.layer,
    lines: picture.lines,
    focus,
    queryTexts: plan.queries.text,
    keyTexts: plan.keys.text,
    predicting: (query) => predictingInWords(plan, query),
    value: (series, query, key) => drawnValue(picture, series, query, key),
    ...(plan.windowed && {
      strongest: (query) => strongestKeys(picture.strongest, query, renormalize),
    }),
    keyWindow: plan.keyWindow,
    queryWindow: plan.queryWindow,
    leftOut: picture.leftOut,
  };
}

/** What a picture shows, for who cannot see it. The pointer changes nothing about it. */
export function summaryOf(plan: Plan, picture: Picture, renormalize: boolean): string {
  const focus = focusOf({ ...picture, hovered: null });
  return `${stackName(plan.stack.name)}. ${summary(saidOf(plan, picture, focus, renormalize))}`;
}

/**
 * What is said about a picture.
 *
 * @param live whether the reader can press keys, which is not so in a figure.
 */
export function captionOf(plan: Plan, picture: Picture, state: HeadState, live: boolean): Caption {
  const { lines, scale, weights } = picture;
  const pinned: string[] = [];
  const pin = (
    index: number | null,
    texts: readonly string[],
    window: readonly [number, number],
    side: string,
  ): void => {
    if (index === null) return;
    const away = index < window[0] || index >= window[1];
    pinned.push(
      `${side} ${quoted(texts[index] ?? "")}${away ? ", outside the window" : picture.exact ? ", exact" : ""}`,
    );
  };
  pin(plan.token, plan.queries.text, plan.queryWindow, "query");
  pin(plan.key, plan.keys.text, plan.keyWindow, "key");
  const leaveOut = state.leave_out.map((each) =>
    each === "special"
      ? "special tokens"
      : each === "first"
        ? "first token"
        : quoted(plan.keys.text[each] ?? `#${each}`),
  );
  const absent = absentInWords(plan);
  return {
    title: "",
    subtitle: subtitleOf(plan, weights.error, state),
    sentence:
      `${sentence(saidOf(plan, picture, focusOf(picture), state.renormalize))} ${absent}`.trim(),
    coverage: coverage({
      shares: lines.shares,
      maxima: state.combine === "max" && plan.heads.length > 1,
      topK: state.top_k && Math.min(state.top_k, picture.strongest?.k ?? state.top_k),
      threshold: state.threshold,
      faintest: lines.faint >= 0.005 ? FAINTEST * weights.maximum : null,
      leaveOut,
      renormalize: state.renormalize,
      pair: pairOf(plan, state.pair),
      queries: plan.queries,
      emptyQueries: lines.emptyQueries,
      zeros: zerosInWords(plan),
      wholeRows: lines.wholeRows,
      spread: picture.spread,
      awaited: lines.awaited,
      pinned,
      live,
    }),
    scale: String(Number(scale.toPrecision(2))),
    scaleNote:
      scale === 1 ? "opacity = weight" : `opacity = weight ÷ ${Number(scale.toPrecision(2))}`,
  };
}
