/** Stored tokens of a text, shown as continuous text, and the pane of the selected text. */

import { Fragment } from "preact";
import { rgbOf } from "../../ui/colors/palette";
import { Chip, CloseButton } from "../../ui/controls/fields";
import { formatSmall, headName, several } from "../../ui/text/captions";
import { shadeOf } from "../../ui/text/running-text";
import { assign } from "../../ui/view/state";
import type { AtlasProps } from "./controls";
import { edgesIn, namesOf, type StoredToken, storedTokens } from "./stored-tokens";

/**
 * Tokens as continuous text. An ellipsis stands for tokens that are not stored.
 *
 * @param describe returns the tooltip and the style of a token. Without it, the tokens are an
 *   extract, which has no ellipsis before its first token.
 */
export function Running({
  tokens,
  describe,
}: {
  tokens: readonly StoredToken[];
  describe?: (token: StoredToken) => { title: string; style: string };
}) {
  const stored = (count: number): string =>
    several(count, "token that is not stored", "tokens that are not stored");
  return (
    <>
      {tokens.map((token, i) => {
        const { text, gap, missing, special, end } = token;
        const { title, style } = describe?.(token) ?? {};
        return (
          <Fragment key={token.position}>
            {gap && " "}
            {missing > 0 && (i > 0 || describe) && (
              <span class="av-muted" title={describe && stored(missing)}>
                {"… "}
              </span>
            )}
            {end ? (
              <mark class={`av-atlas-${end}`} title={title}>
                {text}
              </mark>
            ) : (
              <span class={special ? "av-muted" : undefined} title={title} style={style}>
                {text}
              </span>
            )}
          </Fragment>
        );
      })}
    </>
  );
}

/** Maximum number of edges that are listed in addition to the selected edge. */
const MAX_OTHERS = 12;

/**
 * Pane of the selected text: its stored tokens, and the stored edges of the chosen head in this
 * text other than the selected edge.
 */
export function TextPane({ context, store }: AtlasProps) {
  const { state } = context;
  const [text, texts, edges] = [state.text.value, store.texts.value, store.edges.value];
  const chosen = store.chosen.value;
  if (text === null || !texts || !chosen) return null;
  const { stack, head } = chosen;
  const [query, key] = state.edge.value ?? [-1, -1];
  const sides = storedTokens(texts, stack, { text, query, key });
  const textEdges = edges ? edgesIn([edges.strongest, edges.sampled], head.head, text) : [];
  const ofQuery = new Map(
    textEdges.filter((edge) => edge.query === query).map((edge) => [edge.key, edge.weight]),
  );
  const end = Math.max(0, ...ofQuery.values());
  const color = rgbOf(context.palette.value.positive).join(" ");
  const others = textEdges
    .filter((edge) => edge.query !== query || edge.key !== key)
    .sort((a, b) => b.weight - a.weight);
  return (
    <section class="av-atlas-text" aria-label={`Text ${text}`}>
      <header class="av-row">
        <h4 class="av-pane-title">
          Text {text}, {headName(head)}
        </h4>
        <CloseButton label="Close the text" onClick={store.closeText} />
      </header>
      <p class="av-muted">
        {sides.some(({ tokens }) => tokens.length > 0)
          ? "Only the tokens around stored edges. The rest of the text and its other weights are not stored."
          : "No edges and no tokens of this text are stored."}
      </p>
      {sides.map(({ side, tokens }) => (
        <p class="av-atlas-kept" key={side}>
          {side !== "both" && (
            <span class="av-muted">{side === "query" ? "Queries: " : "Keys: "}</span>
          )}
          <Running
            tokens={tokens}
            describe={({ name, position }) => {
              const weight = side === "query" ? 0 : (ofQuery.get(position) ?? 0);
              const shade = shadeOf(weight, end);
              return {
                title: `${name}, ${position}${weight > 0 ? `, ${formatSmall(weight)}` : ""}`,
                style: shade > 0 ? `background:rgb(${color} / ${shade.toFixed(3)})` : "",
              };
            }}
          />
        </p>
      ))}
      {others.length > 0 && (
        <>
          <p class="av-muted">Other stored edges of this head in this text:</p>
          <ul class="av-chips">
            {others.slice(0, MAX_OTHERS).map((edge) => (
              <li key={`${edge.query} ${edge.key}`}>
                <Chip onClick={() => assign(state, { edge: [edge.query, edge.key] })}>
                  {namesOf(texts, edge).join(" → ")} <b>{formatSmall(edge.weight)}</b>
                </Chip>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
