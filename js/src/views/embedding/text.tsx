/** The pane with the text of the chosen point, as running text that is shaded by weights. */

import { effect, useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { patchIn } from "../../draw/patches";
import { rgbOf } from "../../ui/colors/palette";
import { Switch } from "../../ui/controls/fields";
import { capital, counted, formatSmall, quoted, several } from "../../ui/text/captions";
import {
  acrossLines,
  isDotted,
  type RunningToken,
  runningText,
  shadeOf,
  windowOf,
} from "../../ui/text/running-text";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import { linesCoverageInWords, linesOfChosen, textInWords, unitOf } from "./captions";
import type { Corpus, Kind } from "./client/requests";
import type { EmbeddingState } from "./state";
import type { EmbeddingStore } from "./store";

interface TextProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
}

/** Maximum number of entries in the list of the strongest keys or queries. */
const MAX_NAMED = 5;

/**
 * Return the queries or keys of a text that are points, with the spaces and line breaks of running
 * text. A row of image patches is a line.
 */
export function runningTokens(corpus: Corpus, kind: Kind, text: number): RunningToken[] {
  const [first, stop] = corpus.pointsOf(kind, text);
  const grids = (corpus.facts.grids ?? []).filter((grid) => grid.text === text);
  const tokens = Array.from({ length: stop - first }, (_, i) => {
    const point = first + i;
    const position = corpus.positionOf(point);
    const endsRow = grids.some(
      (grid) => position === grid.start - 1 || patchIn(grid, position)?.column === grid.columns - 1,
    );
    return {
      name: corpus.tokenOf(point),
      position,
      special: corpus.special[corpus.tokens[point] ?? -1] === 1,
      patch: grids.some((grid) => patchIn(grid, position) !== null),
      ends: endsRow,
    };
  });
  return runningText(tokens, isDotted(corpus.facts.vocabulary));
}

/**
 * Return the index of the chosen text. Without a chosen text, return the text of the chosen point,
 * or 0 if the corpus has only one text. Otherwise return null.
 */
export function chosenText(
  { state }: Pick<ViewContext<EmbeddingState>, "state">,
  store: Pick<EmbeddingStore, "chosen">,
  corpus: Corpus,
): number | null {
  const chosen = store.chosen.value;
  // Another view that is linked to this one may set a token but no text. The token then belongs to
  // the first text.
  const only = corpus.facts.names.length === 1 ? 0 : null;
  const text = state.text.value ?? (chosen === null ? only : corpus.textOf(chosen));
  return text !== null && text < corpus.facts.names.length ? text : null;
}

export function TextPane({ context, store }: TextProps) {
  const byKey = useSignal(false);
  const corpus = store.corpus.value;
  if (!corpus || corpus.count === 0) return null;
  const text = chosenText(context, store, corpus);
  const unit = unitOf(corpus);
  if (text === null)
    return <p class="av-text-pane av-muted av-text-none">Click a point to see its {unit} here.</p>;
  const same = (context.record.selection.value?.stack.key_tokens ?? null) === null;
  const props = { context, store, corpus, text };
  return (
    <section class="av-text-pane" aria-label="Text of the chosen point">
      <header class="av-text-header">
        <h2 class="av-pane-title">{capital(textInWords(corpus, text))}</h2>
        {same && (corpus.facts.text_tokens[text] ?? 0) > 0 && (
          <Switch
            label="choose keys"
            on={byKey.value}
            onChange={(on) => {
              byKey.value = on;
            }}
          />
        )}
        <button
          type="button"
          class="av-plain"
          aria-label="Close the text"
          title="Close the text"
          onClick={() => store.choose(null)}
        >
          ×
        </button>
      </header>
      <ChosenWords context={context} store={store} corpus={corpus} />
      {same ? (
        <Running key={text} {...props} kind="both" byKey={byKey.value} />
      ) : (
        <>
          <h3 class="av-text-side">Queries</h3>
          <Running key={`queries ${text}`} {...props} kind="query" byKey={false} />
          <h3 class="av-text-side">Keys</h3>
          <Running key={`keys ${text}`} {...props} kind="key" byKey={true} />
        </>
      )}
      <Strongest store={store} corpus={corpus} />
    </section>
  );
}

interface PartProps extends TextProps {
  corpus: Corpus;
}

/** Description of the chosen point and its lines, or a hint without a chosen point. */
function ChosenWords({ context, store, corpus }: PartProps) {
  const chosen = store.chosen.value;
  if (chosen === null) {
    const { token, key } = context.state;
    const none = token.value === null && key.value === null;
    const words = none
      ? "Click a token to choose it. Alt-click chooses it as a key."
      : "This token is not among the points, so it is not on the plot.";
    return <p class="av-muted av-text-words">{words}</p>;
  }
  const coverage =
    store.linesProblem.value ?? linesCoverageInWords(corpus.isKey(chosen), linesOfChosen(store));
  const token = quoted(corpus.tokenOf(chosen));
  return (
    <p class="av-text-words">
      {`${capital(corpus.kindOf(chosen))} ${token}, position ${corpus.positionOf(chosen)}. `}
      <span class="av-muted">{coverage}</span>
    </p>
  );
}

/** Buttons that choose the strongest keys of a query, or the strongest queries of a key. */
function Strongest({ store, corpus }: Omit<PartProps, "context">) {
  const lines = linesOfChosen(store);
  if (!lines || lines.points.length === 0) return null;
  return (
    <ul
      class="av-text-strongest"
      aria-label={corpus.isKey(lines.point) ? "Strongest queries" : "Strongest keys"}
    >
      {lines.points.slice(0, MAX_NAMED).map((point, i) => (
        <li key={point}>
          <button type="button" class="av-chip" onClick={() => store.choose(point)}>
            {quoted(corpus.tokenOf(point))} ({corpus.positionOf(point)}){" "}
            <b>{formatSmall(lines.weights[i] as number)}</b>
          </button>
        </li>
      ))}
    </ul>
  );
}

interface RunningProps extends PartProps {
  text: number;
  /** Kind of the points that the tokens stand for, or "both" if all tokens are queries and keys. */
  kind: Kind | "both";
  /** Whether a click on a token chooses its key. Otherwise it chooses its query. */
  byKey: boolean;
}

/**
 * The tokens of a text as wrapped text. The chosen token is outlined. The tokens at the other ends
 * of its lines are shaded by their weight.
 */
function Running(props: RunningProps) {
  const { context, store, corpus, text, kind, byKey } = props;
  const { state, palette } = context;
  const box = useRef<HTMLFieldSetElement>(null);
  const cursor = useSignal<number | null>(null);
  const away = useSignal<number | null>(null);
  const side: Kind = kind === "key" ? "key" : "query";
  const all = runningTokens(corpus, side, text);

  const chosen = store.chosen.value;
  const chosenHere = chosen !== null && corpus.textOf(chosen) === text ? chosen : null;
  const chosenKind = chosenHere === null ? null : corpus.kindOf(chosenHere);
  const outlined =
    chosenHere !== null && (kind === "both" || chosenKind === kind)
      ? corpus.positionOf(chosenHere)
      : null;
  const shades = shadesOf(store, corpus, text, kind);
  const end = Math.max(0, ...shades.values());

  const at = (position: number | null): number =>
    position === null ? -1 : all.findIndex((token) => token.position === position);
  const middle = Math.max(0, away.value ?? at(outlined));
  const [start, stop] = windowOf(all.length, middle);
  const shown = all.slice(start, stop);
  const focusable = Math.max(start, Math.min(stop - 1, Math.max(0, at(cursor.value ?? outlined))));

  const choose = (position: number, alternate: boolean): void => {
    const clickedKind: Kind = kind === "both" ? (byKey !== alternate ? "key" : "query") : kind;
    const point = corpus.pointOf(clickedKind, text, position);
    cursor.value = position;
    // A second click on the chosen token clears the choice. The text stays.
    if (point === store.chosen.peek()) assign(state, { text, token: null, key: null });
    else store.choose(point);
  };
  const focus = (index: number): void => {
    const token = all[Math.max(0, Math.min(all.length - 1, index))];
    if (!token) return;
    cursor.value = token.position;
    if (index < start || index >= stop) away.value = index;
    // The token may be outside of the visible window, which has just moved. Wait until it is
    // rendered.
    requestAnimationFrame(() =>
      box.current?.querySelector<HTMLElement>(`[data-at="${token.position}"]`)?.focus(),
    );
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey) return;
    const focused = focusable;
    const buttons = Array.from(box.current?.querySelectorAll<HTMLElement>("[data-at]") ?? []);
    const line = (down: boolean): number => {
      const boxes = buttons.map((button) => button.getBoundingClientRect());
      return start + acrossLines(boxes, focused - start, down);
    };
    const steps: Record<string, () => void> = {
      ArrowLeft: () => focus(focused - 1),
      ArrowRight: () => focus(focused + 1),
      ArrowUp: () => focus(line(false)),
      ArrowDown: () => focus(line(true)),
      Home: () => focus(0),
      End: () => focus(all.length - 1),
      Enter: () => choose((all[focused] as { position: number }).position, event.altKey),
      " ": () => choose((all[focused] as { position: number }).position, event.altKey),
    };
    const step = steps[event.key];
    if (!step) return;
    step();
    event.preventDefault();
    event.stopPropagation();
  };
  const pointAt = (target: EventTarget | null): number | null => {
    const position = (target as HTMLElement | null)?.closest?.<HTMLElement>("[data-at]")?.dataset
      .at;
    if (position === undefined) return null;
    const point = corpus.pointOf(byKey ? "key" : side, text, Number(position));
    return point < 0 ? null : point;
  };

  // The pointer on the plot passes over many points. Changing a class is faster than rendering.
  useEffect(
    () =>
      effect(() => {
        const over = store.hovered.value;
        for (const element of box.current?.querySelectorAll(".av-token-over") ?? [])
          element.classList.remove("av-token-over");
        if (over === null || corpus.textOf(over) !== text) return;
        if (kind !== "both" && corpus.kindOf(over) !== kind) return;
        box.current
          ?.querySelector(`[data-at="${corpus.positionOf(over)}"]`)
          ?.classList.add("av-token-over");
      }),
    [text, corpus],
  );

  if (all.length === 0) return <p class="av-muted">None of its tokens are among the points.</p>;
  const color = rgbOf(palette.value.positive).join(" ");
  return (
    <fieldset
      class="av-running"
      ref={box}
      aria-label={kind === "key" ? "Keys" : kind === "query" ? "Queries" : "Tokens"}
      onKeyDown={onKeyDown}
      onPointerOver={(event) => {
        store.hovered.value = pointAt(event.target);
      }}
      onPointerLeave={() => {
        store.hovered.value = null;
      }}
    >
      {start > 0 && (
        <button type="button" class="av-chip" onClick={() => focus(start - 1)}>
          {several(start, "token")} before
        </button>
      )}
      {shown.map((token, i) => {
        const weight = shades.get(token.position) ?? 0;
        const shade = shadeOf(weight, end);
        const classes = [
          "av-token",
          token.special ? "av-token-special" : "",
          token.position === outlined ? "av-token-chosen" : "",
        ];
        const number = weight > 0 ? `, ${formatSmall(weight)}` : "";
        return (
          <Fragment key={token.position}>
            {token.gap && " "}
            {token.missing > 0 && (
              <span class="av-muted" title={`${several(token.missing, "token")} are not points`}>
                {" … "}
              </span>
            )}
            <button
              type="button"
              class={classes.filter(Boolean).join(" ")}
              data-at={token.position}
              tabIndex={start + i === focusable ? 0 : -1}
              aria-pressed={token.position === outlined}
              aria-label={`${token.name} ${counted(token.position)}${number}`}
              title={`${token.name === token.text ? "" : `${token.name}, `}${token.position}${number}`}
              style={shade > 0 ? { background: `rgb(${color} / ${shade.toFixed(3)})` } : {}}
              onClick={(event) => choose(token.position, event.altKey)}
            >
              {token.text}
            </button>
            {token.ends && <br />}
          </Fragment>
        );
      })}
      {stop < all.length && (
        <button type="button" class="av-chip" onClick={() => focus(stop)}>
          {several(all.length - stop, "token")} after
        </button>
      )}
    </fieldset>
  );
}

/**
 * Return the weights of the chosen point's lines, by the position of the token at their other end.
 */
function shadesOf(
  store: EmbeddingStore,
  corpus: Corpus,
  text: number,
  kind: Kind | "both",
): Map<number, number> {
  const lines = linesOfChosen(store);
  const shades = new Map<number, number>();
  if (!lines) return shades;
  const other: Kind = corpus.isKey(lines.point) ? "query" : "key";
  if (kind !== "both" && kind !== other) return shades;
  lines.points.forEach((point, i) => {
    if (corpus.textOf(point) === text)
      shades.set(corpus.positionOf(point), lines.weights[i] as number);
  });
  return shades;
}
