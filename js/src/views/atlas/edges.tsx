/** List of the chosen head's edges. Each edge is shown with the tokens around it. */

import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { formatSmall, quoted, several } from "../../ui/text/captions";
import { assign } from "../../ui/view/state";
import { headTitle, listedInWords, listInWords, offsetsInWords } from "./captions";
import type { Edge, Texts, Tokens } from "./client/atlas";
import type { AtlasProps } from "./controls";
import { type WindowToken, windowTokens } from "./stored-tokens";
import { TextPane } from "./text";

/** Number of edges that are listed before the reader asks for all. */
const MAX_LISTED = 10;

/** Tokens as running text. An ellipsis replaces tokens that are not stored. */
export function Running({ tokens }: { tokens: readonly WindowToken[] }) {
  return (
    <>
      {tokens.map((token, i) => (
        <Fragment key={token.position}>
          {token.gap && " "}
          {token.missing > 0 && i > 0 && <span class="av-muted">… </span>}
          {token.end === null ? (
            <span class={token.special ? "av-muted" : undefined}>{token.text}</span>
          ) : (
            <mark class={`av-atlas-${token.end}`}>{token.text}</mark>
          )}
        </Fragment>
      ))}
    </>
  );
}

/** Return "“ran” attends to “dog”, offset −1, weight 0.62, text 3", for screen readers. */
export function edgeInWords(texts: Texts, edge: Edge): string {
  const { weight, text, query, key } = edge;
  const token = (side: Tokens, position: number): string =>
    quoted(texts.nameOf(side, side.at(text, position)));
  return (
    `${token(texts.queries, query)} attends to ${token(texts.keys, key)}, ` +
    `offset ${offsetsInWords([key - query, key - query])}, weight ${formatSmall(weight)}, text ${text}`
  );
}

export function EdgeList({ context, store }: AtlasProps) {
  const { state } = context;
  const [most, setMost] = useState(MAX_LISTED);
  const [edges, texts, head] = [store.edges.value, store.texts.value, store.head.value];
  const list = state.edges.value;
  const which = `${head?.layer} ${head?.head} ${list}`;
  useEffect(() => setMost(MAX_LISTED), [which]);
  if (!edges || !texts || !head) return null;
  const all = edges[list].of(head.head);
  const listed = store.listed.value;
  const shown = listed.slice(0, most);
  const open = [state.text.value, ...(state.edge.value ?? [])].join();
  const isOpen = (i: number): boolean => {
    const { text, query, key } = edges[list].edge(i);
    return [text, query, key].join() === open;
  };
  const pane = <TextPane key={state.text.value} context={context} store={store} />;
  return (
    <section class="av-atlas-edges" aria-label={`Edges of ${headTitle(head)}`}>
      <div class="av-row av-options">
        <h3 class="av-atlas-part">Edges</h3>
        <fieldset class="av-segments av-atlas-lists" aria-label="Which edges">
          {(["sampled", "strongest"] as const).map((option) => (
            <button
              type="button"
              key={option}
              aria-pressed={list === option}
              onClick={() => assign(state, { edges: option })}
            >
              {option}
            </button>
          ))}
        </fieldset>
      </div>
      <p class="av-muted av-atlas-words">{listInWords(list)}</p>
      <p class="av-atlas-listed" aria-live="polite">
        {listedInWords(
          listed.length,
          all[1] - all[0],
          list,
          state.offsets.value,
          store.searching.value,
        )}
      </p>
      {!shown.some(isOpen) && pane}
      <ol>
        {shown.map((i) => (
          <li key={i}>
            <EdgeButton
              context={context}
              store={store}
              edge={edges[list].edge(i)}
              open={isOpen(i)}
            />
            {isOpen(i) && pane}
          </li>
        ))}
      </ol>
      {listed.length > most && (
        <button type="button" class="av-chip" onClick={() => setMost(listed.length)}>
          {several(listed.length - most, "more edge")}
        </button>
      )}
    </section>
  );
}

/**
 * Button that shows an edge and the tokens around it. A click opens or closes the text of the edge.
 */
function EdgeButton({ context, store, edge, open }: AtlasProps & { edge: Edge; open: boolean }) {
  const texts = store.texts.value as Texts;
  const kinds = store.stack.value?.classes[0]?.values ?? [];
  const { weight, text, query, key } = edge;
  return (
    <button
      type="button"
      aria-expanded={open}
      title={open ? "Close the text" : `Open text ${text}`}
      onClick={() =>
        assign(
          context.state,
          open ? { text: null, edge: null } : { text, edge: [query, key] as [number, number] },
        )
      }
    >
      <span class="av-unseen">{edgeInWords(texts, edge)}: </span>
      <span class="av-atlas-window">
        {windowTokens(texts, edge, kinds).map((tokens, side) => (
          <span key={side === 0 ? "query" : "key"}>
            {side > 0 && <span class="av-muted"> → </span>}
            <Running tokens={tokens} />
          </span>
        ))}
      </span>
      <span class="av-atlas-numbers">
        <b>{formatSmall(weight)}</b>
        <span class="av-muted">
          {offsetsInWords([key - query, key - query])} · text {text}
        </span>
      </span>
    </button>
  );
}
