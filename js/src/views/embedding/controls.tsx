/** Controls of the embedding view: display, projection and search. */

import { EMBEDDING_VIEW_TRAITS } from "../../client/traits";
import { Controls } from "../../ui/controls/declared";
import { Chip, Choice } from "../../ui/controls/fields";
import { several } from "../../ui/text/captions";
import { SearchField } from "../../ui/text/token-search";
import { assign, follow } from "../../ui/view/state";
import { placingInWords } from "./captions";
import { COLORINGS } from "./colors";
import type { EmbeddingProps } from "./store";

export function EmbeddingControls({ context, store }: EmbeddingProps) {
  const { state } = context;
  const live = context.source.transport.live;
  const corpus = store.corpus.value;
  const enlarged = state.enlarged.value;
  if (!corpus || corpus.count === 0) return null;
  const columns = corpus.columns.map(({ name }) => name);
  // A column replaces a built-in colouring of the same name.
  const options = [
    ...COLORINGS.filter(([name]) => !columns.includes(name)),
    ...columns.map((name) => [name, name] as const),
  ];
  const controls = { traits: EMBEDDING_VIEW_TRAITS, state };
  return (
    <>
      <div class="av-row av-options">
        <Choice
          label="Colour"
          value={options.some(([name]) => name === state.color.value) ? state.color.value : "type"}
          options={options}
          onChange={(color) => assign(state, { color })}
        />
        <Controls {...controls} group="points" />
        <Search context={context} store={store} />
        <LassoChip context={context} />
      </div>
      {live && (
        <div class="av-row av-options">
          {enlarged && (
            <>
              <Controls {...controls} group="projection" />
              <Choice
                label="Dimensions"
                value={state.dimensions.value === 3 ? "3" : "2"}
                options={{ 2: "2D", 3: "3D" }}
                onChange={(value) => assign(state, { dimensions: value === "3" ? 3 : 2 })}
              />
            </>
          )}
          <details class="av-more">
            <summary>
              <span class="av-muted">Placing</span>{" "}
              {placingInWords(
                follow(state),
                enlarged ? (store.projection.value?.factor ?? null) : null,
              )}
            </summary>
            <div class="av-row av-options">
              <Controls {...controls} group="placing" />
            </div>
            <p class="av-muted">{PLACING_HELP}</p>
          </details>
        </div>
      )}
    </>
  );
}

const PLACING_HELP =
  "Scaling divides queries and multiplies keys by one number, so that both are about equally long. " +
  "Moving gives keys and queries the same centre, and the softmax cancels it. The lift adds a " +
  "dimension that makes all keys equally long: a query’s nearest keys are then exactly those with " +
  "the largest q·k, before the projection.";

/** Button that clears the lasso. */
function LassoChip({ context: { state } }: Pick<EmbeddingProps, "context">) {
  const selected = state.selected.value.length;
  if (selected === 0) return null;
  return (
    <Chip title="Clear the lasso (Esc on a plot)" onClick={() => assign(state, { selected: [] })}>
      {several(selected, "point")} in the lasso ×
    </Chip>
  );
}

/** Search field for tokens. */
function Search({ context: { state }, store }: EmbeddingProps) {
  const matches = store.matches.value;
  return (
    <SearchField
      title={'Part of a token, or a whole token in quotes: "it"'}
      value={state.search.value}
      onInput={(search) => assign(state, { search })}
      onClear={() => assign(state, { search: "" })}
    >
      <output class="av-number" aria-live="polite">
        {matches && (matches.count > 0 ? several(matches.count, "point") : "none")}
      </output>
    </SearchField>
  );
}

/** Progress of a projection. A button cancels or restarts the projection. */
export function Progress({ context, store }: EmbeddingProps) {
  const { live } = context.source.transport;
  if (!context.state.enlarged.value) return null;
  const plot = store.projection.value;
  const work = plot?.work ?? null;
  if (!work || work.state === "done") {
    // A page runs no projections, and its detail caption already describes the plot.
    if (!live || context.state.method.value === "pca") return null;
    // This line is as high as the progress bar, so that the plot does not jump when a projection
    // starts or ends.
    return <p class="av-work" />;
  }
  const running = work.state === "running";
  const length = work.num_total > 0 ? { max: work.num_total, value: work.done } : {};
  return (
    <div class={`av-work${work.state === "failed" ? " av-error" : ""}`} role="status">
      {running && <progress aria-label="Projection" {...length} />}
      <span>{work.words}</span>
      {live && (
        <Chip onClick={running ? store.cancel : store.restart}>
          {running ? "Cancel" : work.state === "cancelled" ? "Continue" : "Try again"}
        </Chip>
      )}
    </div>
  );
}
