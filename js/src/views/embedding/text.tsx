/** The pane with the text of the chosen point, as running text that is shaded by weights. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { Fragment } from "preact";
import { useRef } from "preact/hooks";
import { windowAround } from "../../ui/axis";
import { rgbOf } from "../../ui/colors/palette";
import { Chip, CloseButton } from "../../ui/controls/fields";
import { runKey } from "../../ui/controls/keys";
import { capital, counted, formatSmall, quoted, several } from "../../ui/text/captions";
import {
  isDotted,
  MAX_TOKENS,
  type RunningToken,
  runningText,
  shadeOf,
} from "../../ui/text/running-text";
import { assign } from "../../ui/view/state";
import { linesCoverageInWords, textInWords, unitOf } from "./captions";
import type { Corpus, Kind } from "./client/requests";
import type { EmbeddingProps, EmbeddingStore } from "./store";

/** Maximum number of entries in the list of the strongest keys or queries. */
const MAX_NAMED = 5;

/**
 * Return the queries or keys of a text that are points, with the spaces and line breaks of running
 * text. A row of image patches is a line.
 */
export function runningTokens(corpus: Corpus, kind: Kind, text: number): RunningToken[] {
  const [first, stop] = corpus.pointsOf(kind, text);
  const nameAt = (point: number): string => (point < stop ? corpus.tokenOf(point) : "");
  const isPatch = (name: string): boolean => corpus.facts.images > 0 && name.startsWith("patch ");
  const tokens = Array.from({ length: stop - first }, (_, i) => ({
    name: nameAt(first + i),
    position: corpus.positionOf(first + i),
    special: corpus.special[corpus.tokens[first + i] ?? -1] === 1,
    patch: isPatch(nameAt(first + i)),
    // A row of patches begins with column 0.
    ends: isPatch(nameAt(first + i + 1)) && /^patch \d+,0( |$)/.test(nameAt(first + i + 1)),
  }));
  return runningText(tokens, isDotted(corpus.facts.vocabulary));
}

export function TextPane({ context, store }: EmbeddingProps) {
  const corpus = store.corpus.value;
  if (!corpus || corpus.count === 0) return null;
  const { names } = corpus.facts;
  const chosen = store.chosen.value;
  // Another view that is linked to this one may set a token but no text. The token then belongs to
  // the first text.
  const only = names.length === 1 ? 0 : names.length;
  const text = context.state.text.value ?? (chosen === null ? only : corpus.textOf(chosen));
  if (text >= names.length)
    return <p class="av-muted">Click a point to see its {unitOf(corpus)} here.</p>;
  const isOneText = (context.record.selection.value?.stack.key_tokens ?? null) === null;
  const sides = isOneText ? (["both"] as const) : (["query", "key"] as const);
  return (
    <section class="av-text-pane" aria-label="Text of the chosen point">
      <header class="av-wrapping av-text-header">
        <h2 class="av-pane-title">{capital(textInWords(corpus, text))}</h2>
        <CloseButton label="Close the text" onClick={() => store.choose(null)} />
      </header>
      <ChosenWords context={context} store={store} corpus={corpus} />
      {sides.map((kind) => (
        <Fragment key={`${kind} ${text}`}>
          {kind !== "both" && <p class="av-muted">{SIDES[kind]}</p>}
          <Running {...{ context, store, corpus, text, kind }} />
        </Fragment>
      ))}
      <Strongest store={store} corpus={corpus} />
    </section>
  );
}

const SIDES = { key: "Keys", query: "Queries", both: "Tokens" } as const;

/** Description of the chosen point and its lines, or a hint without a chosen point. */
function ChosenWords({ context, store, corpus }: EmbeddingProps & { corpus: Corpus }) {
  const chosen = store.chosen.value;
  if (chosen === null) {
    const { token, key } = context.state;
    const none = token.value === null && key.value === null;
    const words = none
      ? "Click a token to choose it. Alt-click chooses it as a key."
      : "This token is not among the points, so it is not on the plot.";
    return <p class="av-muted">{words}</p>;
  }
  const coverage =
    store.linesProblem.value ?? linesCoverageInWords(corpus.isKey(chosen), store.lines.value);
  const token = quoted(corpus.tokenOf(chosen));
  return (
    <p>
      {`${capital(corpus.kindOf(chosen))} ${token}, position ${corpus.positionOf(chosen)}. `}
      <span class="av-muted">{coverage}</span>
    </p>
  );
}

/** Buttons that choose the strongest keys of a query, or the strongest queries of a key. */
function Strongest({ store, corpus }: { store: EmbeddingStore; corpus: Corpus }) {
  const lines = store.lines.value;
  if (!lines || lines.points.length === 0) return null;
  return (
    <ul
      class="av-chips"
      aria-label={corpus.isKey(lines.point) ? "Strongest queries" : "Strongest keys"}
    >
      {lines.points.slice(0, MAX_NAMED).map((point, i) => (
        <li key={point}>
          <Chip onClick={() => store.choose(point)}>
            {quoted(corpus.tokenOf(point))} ({corpus.positionOf(point)}){" "}
            <b>{formatSmall(lines.weights[i] as number)}</b>
          </Chip>
        </li>
      ))}
    </ul>
  );
}

interface RunningProps extends EmbeddingProps {
  corpus: Corpus;
  text: number;
  /** Kind of the points that the tokens stand for, or "both" if all tokens are queries and keys. */
  kind: Kind | "both";
}

/**
 * The tokens of a text as wrapped text. The chosen token is outlined. The tokens at the other ends
 * of its lines are shaded by their weight.
 */
function Running(props: RunningProps) {
  const { context, store, corpus, text, kind } = props;
  const box = useRef<HTMLFieldSetElement>(null);
  /** Index of the token that the keyboard has reached. */
  const cursor = useSignal<number | null>(null);
  /** Index of the token around which a part of a long text is shown. */
  const around = useSignal<number | null>(null);
  const all = runningTokens(corpus, kind === "key" ? "key" : "query", text);
  const isShown = (point: number): boolean =>
    corpus.textOf(point) === text && (kind === "both" || corpus.kindOf(point) === kind);

  const chosen = store.chosen.value;
  const outlined =
    chosen !== null && isShown(chosen)
      ? all.findIndex(({ position }) => position === corpus.positionOf(chosen))
      : -1;
  const lines = store.lines.value;
  /** Weights of the lines by the positions of the shown points at their other ends. */
  const weights = new Map<number, number>();
  lines?.points.forEach((point, i) => {
    if (isShown(point)) weights.set(corpus.positionOf(point), lines.weights[i] as number);
  });
  const end = Math.max(0, ...weights.values());
  const color = rgbOf(context.palette.value.positive).join(" ");

  const [start, stop] = windowAround(Math.max(0, around.value ?? outlined), MAX_TOKENS, [
    0,
    all.length,
  ]);
  const focusable = Math.max(start, Math.min(stop - 1, cursor.value ?? outlined));
  const pointAt = (position: number, isKey = kind === "key"): number =>
    corpus.pointOf(isKey ? "key" : "query", text, position);
  const choose = (index: number, position: number, alternate: boolean): void => {
    const point = pointAt(position, kind === "both" ? alternate : kind === "key");
    cursor.value = index;
    // A second click on the chosen token clears the choice. The text stays.
    if (point === store.chosen.peek()) assign(context.state, { text, token: null, key: null });
    else store.choose(point);
  };
  const focus = (to: number): void => {
    const index = Math.max(start, Math.min(stop - 1, to));
    cursor.value = index;
    box.current?.querySelector<HTMLElement>(`[data-at="${all[index]?.position}"]`)?.focus();
  };
  const showAround = (index: number) => () => {
    around.value = cursor.value = index;
  };
  const keys = {
    ArrowLeft: () => focus(focusable - 1),
    ArrowRight: () => focus(focusable + 1),
  };

  // The pointer on the plot passes over many points. Changing a class is faster than rendering.
  useSignalEffect(() => {
    const over = store.hovered.value;
    const at = over !== null && isShown(over) ? String(corpus.positionOf(over)) : null;
    for (const token of box.current?.querySelectorAll<HTMLElement>("[data-at]") ?? [])
      token.classList.toggle("av-token-over", token.dataset.at === at);
  });

  if (all.length === 0) return <p class="av-muted">None of its tokens are among the points.</p>;
  return (
    <fieldset
      class="av-running"
      ref={box}
      aria-label={SIDES[kind]}
      onKeyDown={(event) => runKey(event, keys)}
      onPointerOver={({ target }) => {
        const token = (target as HTMLElement).closest<HTMLElement>("[data-at]");
        const point = token ? pointAt(Number(token.dataset.at)) : -1;
        store.hovered.value = point < 0 ? null : point;
      }}
      onPointerLeave={() => {
        store.hovered.value = null;
      }}
    >
      {start > 0 && <Chip onClick={showAround(start - 1)}>{several(start, "token")} before</Chip>}
      {all.slice(start, stop).map((token, i) => {
        const { position, name, missing } = token;
        const index = start + i;
        const weight = weights.get(position) ?? 0;
        const shade = shadeOf(weight, end);
        const number = weight > 0 ? `, ${formatSmall(weight)}` : "";
        const isChosen = index === outlined;
        return (
          <Fragment key={position}>
            {token.gap && " "}
            {missing > 0 && (
              <span class="av-muted" title={`${several(missing, "token")} are not points`}>
                {" … "}
              </span>
            )}
            <button
              type="button"
              class={`av-token${token.special ? " av-muted" : ""}`}
              data-at={position}
              tabIndex={index === focusable ? 0 : -1}
              aria-pressed={isChosen}
              aria-label={`${name} ${counted(position)}${number}`}
              title={`${name === token.text ? "" : `${name}, `}${position}${number}`}
              style={shade > 0 ? { background: `rgb(${color} / ${shade.toFixed(3)})` } : {}}
              onClick={(event) => choose(index, position, event.altKey)}
            >
              {token.text}
            </button>
            {token.ends && <br />}
          </Fragment>
        );
      })}
      {stop < all.length && (
        <Chip onClick={showAround(stop)}>{several(all.length - stop, "token")} after</Chip>
      )}
    </fieldset>
  );
}
