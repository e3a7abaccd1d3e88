/**
 * List of the chosen head's edges. An edge is the weight from one query to one key of a text. It is
 * shown with the tokens around it.
 */

import { useEffect, useState } from "preact/hooks";
import type { AtlasStack } from "../../client/protocol";
import { Chip } from "../../ui/controls/fields";
import { formatSmall, several } from "../../ui/text/captions";
import { assign } from "../../ui/view/state";
import { listedInWords, listInWords, offsetInWords } from "./captions";
import type { Edge, Texts } from "./client/atlas";
import type { AtlasProps } from "./controls";
import { namesOf, storedTokens } from "./stored-tokens";
import { Running, TextPane } from "./text";

/** Number of edges that are listed before the reader asks for all. */
const MAX_LISTED = 10;
/** Number of tokens shown on each side of an edge's query or key. */
const AROUND = 5;

export function EdgeList({ context, store }: AtlasProps) {
  const { state } = context;
  const [most, setMost] = useState(MAX_LISTED);
  const [edges, texts] = [store.edges.value, store.texts.value];
  const chosen = store.chosen.value;
  const list = state.edges.value;
  useEffect(() => setMost(MAX_LISTED), [chosen?.title, list]);
  if (!edges || !texts || !chosen) return null;
  const { stack, head, title } = chosen;
  const listed = store.search.listed.value;
  const open = [state.text.value, ...(state.edge.value ?? [])].join();
  const shown = listed.slice(0, most).map((i) => {
    const edge = edges[list].edge(i);
    return { i, edge, isOpen: [edge.text, edge.query, edge.key].join() === open };
  });
  const numAll = edges[list].of(head.head).length;
  const pane = <TextPane key={state.text.value} context={context} store={store} />;
  return (
    <section class="av-atlas-edges" aria-label={`Edges of ${title}`}>
      <div class="av-row av-options">
        <h3 class="av-part">Edges</h3>
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
          numAll,
          list,
          state.offsets.value,
          store.search.isActive.value,
        )}
      </p>
      {!shown.some(({ isOpen }) => isOpen) && pane}
      <ol>
        {shown.map(({ i, edge, isOpen }) => (
          <li key={i}>
            <button
              type="button"
              aria-expanded={isOpen}
              title={isOpen ? "Close the text" : `Open text ${edge.text}`}
              onClick={() => {
                const { text, query, key } = edge;
                if (isOpen) store.closeText();
                else assign(state, { text, edge: [query, key] });
              }}
            >
              <EdgeContent texts={texts} stack={stack} edge={edge} />
            </button>
            {isOpen && pane}
          </li>
        ))}
      </ol>
      {listed.length > most && (
        <Chip onClick={() => setMost(listed.length)}>
          {several(listed.length - most, "more edge")}
        </Chip>
      )}
    </section>
  );
}

/** The tokens around an edge, its weight and its offset. */
function EdgeContent({ texts, stack, edge }: { texts: Texts; stack: AtlasStack; edge: Edge }) {
  const offset = offsetInWords(edge.key - edge.query);
  const weight = formatSmall(edge.weight);
  return (
    <>
      <span class="av-unseen">
        {namesOf(texts, edge).join(" attends to ")}, offset {offset}, weight {weight}, text{" "}
        {edge.text}:{" "}
      </span>
      <span class="av-atlas-window">
        {storedTokens(texts, stack, edge, AROUND).map(({ side, tokens }) => (
          <span key={side}>
            {side === "key" && <span class="av-muted"> → </span>}
            <Running tokens={tokens} />
          </span>
        ))}
      </span>
      <span class="av-vertical av-atlas-numbers">
        <b>{weight}</b>
        <span class="av-muted">
          {offset} · text {edge.text}
        </span>
      </span>
    </>
  );
}
