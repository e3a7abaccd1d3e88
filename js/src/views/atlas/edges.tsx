/**
 * List of the chosen head's edges. An edge is the weight from one query to one key of a text. It is
 * shown with the tokens around it.
 */

import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chip } from "../../ui/controls/fields";
import { formatSmall, several } from "../../ui/text/captions";
import { assign } from "../../ui/view/state";
import { listInWords, offsetInWords } from "./captions";
import type { Edge, Texts } from "./client/atlas";
import type { AtlasProps } from "./controls";
import { namesOf, type StoredToken, storedTokens } from "./stored-tokens";

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
  const { head, title } = chosen;
  const indices = edges[list].of(head.head);
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
      <ol>
        {indices.slice(0, most).map((i) => (
          <EdgeContent key={i} texts={texts} edge={edges[list].edge(i)} />
        ))}
      </ol>
      {indices.length > most && (
        <Chip onClick={() => setMost(indices.length)}>
          {several(indices.length - most, "more edge")}
        </Chip>
      )}
    </section>
  );
}

/** The tokens around an edge, its weight and its offset. */
function EdgeContent({ texts, edge }: { texts: Texts; edge: Edge }) {
  const offset = offsetInWords(edge.key - edge.query);
  const weight = formatSmall(edge.weight);
  return (
    <li>
      <span class="av-unseen">
        {namesOf(texts, edge).join(" attends to ")}, offset {offset}, weight {weight}, text{" "}
        {edge.text}:{" "}
      </span>
      <span class="av-atlas-window">
        {storedTokens(texts, edge, AROUND).map(({ side, tokens }) => (
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
    </li>
  );
}

/** Tokens as continuous text. An ellipsis stands for tokens between them that are not shown. */
function Running({ tokens }: { tokens: readonly StoredToken[] }) {
  return (
    <>
      {tokens.map(({ position, text, gap, missing, end }, i) => (
        <Fragment key={position}>
          {gap && " "}
          {missing > 0 && i > 0 && <span class="av-muted">{"… "}</span>}
          {end ? <mark class={`av-atlas-${end}`}>{text}</mark> : text}
        </Fragment>
      ))}
    </>
  );
}
