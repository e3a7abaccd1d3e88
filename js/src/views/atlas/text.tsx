/** Pane of the selected text. The atlas stores only the tokens near stored edges. */

import { rgbOf } from "../../ui/colors/palette";
import { formatSmall, headName, quoted, several } from "../../ui/text/captions";
import { shadeOf } from "../../ui/text/running-text";
import { assign } from "../../ui/view/state";
import type { Edges } from "./client/atlas";
import type { AtlasProps } from "./controls";
import { storedTokens } from "./stored-tokens";

/**
 * Return the edges of `head` in a text, from all `lists`. The key "5 3" of the map stands for the
 * edge from query position 5 to key position 3. An edge in several lists appears once.
 */
export function edgesIn(
  lists: readonly Edges[],
  head: number,
  text: number,
): Map<string, { query: number; key: number; weight: number }> {
  const edges = new Map<string, { query: number; key: number; weight: number }>();
  for (const list of lists) {
    const [first, stop] = list.of(head);
    for (let i = first; i < stop; i++) {
      if (list.text[i] !== text) continue;
      const { query, key, weight } = list.edge(i);
      edges.set(`${query} ${key}`, { query, key, weight });
    }
  }
  return edges;
}

export function TextPane({ context, store }: AtlasProps) {
  const { state } = context;
  const [text, texts, head] = [state.text.value, store.texts.value, store.head.value];
  if (text === null || !texts || !head) return null;
  const anyKept = [texts.queries, texts.keys].some((side) => {
    const [first, stop] = side.of(text);
    return first < stop;
  });
  const edges = store.edges.value;
  const [query, key] = state.edge.value ?? [-1, -1];
  const kinds = store.stack.value?.classes[0]?.values ?? [];
  const textEdges = edges
    ? [...edgesIn([edges.strongest, edges.sampled], head.head, text).values()]
    : [];
  const ofQuery = new Map(
    textEdges.filter((edge) => edge.query === query).map((edge) => [edge.key, edge.weight]),
  );
  const end = Math.max(0, ...ofQuery.values());
  const color = rgbOf(context.palette.value.positive).join(" ");
  const same = texts.keys === texts.queries;
  const sides = same ? (["both"] as const) : (["query", "key"] as const);
  const others = textEdges
    .filter((edge) => edge.query !== query || edge.key !== key)
    .sort((a, b) => b.weight - a.weight);
  const name = (of: "queries" | "keys", position: number): string =>
    quoted(texts.nameOf(texts[of], texts[of].at(text, position)));
  return (
    <section class="av-atlas-text" aria-label={`Text ${text}`}>
      <header class="av-row">
        <h4 class="av-pane-title">
          Text {text}, {headName(head)}
        </h4>
        <button
          type="button"
          class="av-plain"
          aria-label="Close the text"
          title="Close the text"
          onClick={() => assign(state, { text: null, edge: null })}
        >
          ×
        </button>
      </header>
      <p class="av-muted">
        {anyKept
          ? "Only the tokens around stored edges. The rest of the text and its other weights are not stored."
          : "No edges and no tokens of this text are stored."}
      </p>
      {sides.map((side) => {
        const of = side === "key" ? texts.keys : texts.queries;
        return (
          <p class="av-atlas-kept" key={side}>
            {!same && <span class="av-muted">{side === "query" ? "Queries: " : "Keys: "}</span>}
            {storedTokens(texts, of, text, kinds, () => true).map((token) => {
              const weight = side === "query" ? 0 : (ofQuery.get(token.position) ?? 0);
              const isQuery = side !== "key" && token.position === query;
              const isKey = side !== "query" && token.position === key;
              const shade = shadeOf(weight, end);
              const title = `${token.name}, ${token.position}${weight > 0 ? `, ${formatSmall(weight)}` : ""}`;
              const kind = isQuery ? (isKey ? "both" : "query") : isKey ? "key" : null;
              return (
                <span key={token.position}>
                  {token.gap && " "}
                  {token.missing > 0 && (
                    <span
                      class="av-muted"
                      title={several(
                        token.missing,
                        "token that is not stored",
                        "tokens that are not stored",
                      )}
                    >
                      {"… "}
                    </span>
                  )}
                  {kind ? (
                    <mark class={`av-atlas-${kind}`} title={title}>
                      {token.text}
                    </mark>
                  ) : (
                    <span
                      title={title}
                      class={token.special ? "av-muted" : undefined}
                      style={shade > 0 ? `background:rgb(${color} / ${shade.toFixed(3)})` : ""}
                    >
                      {token.text}
                    </span>
                  )}
                </span>
              );
            })}
          </p>
        );
      })}
      {others.length > 0 && <p class="av-muted">Other stored edges of this head in this text:</p>}
      {others.length > 0 && (
        <ul class="av-atlas-others">
          {others.slice(0, MAX_OTHERS).map((edge) => (
            <li key={`${edge.query} ${edge.key}`}>
              <button
                type="button"
                class="av-chip"
                onClick={() => assign(state, { edge: [edge.query, edge.key] })}
              >
                {name("queries", edge.query)} → {name("keys", edge.key)}{" "}
                <b>{formatSmall(edge.weight)}</b>
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** Maximum number of edges that are listed in addition to the selected edge. */
const MAX_OTHERS = 12;
