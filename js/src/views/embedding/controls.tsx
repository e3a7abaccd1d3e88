/** Controls of the embedding view: display, projection and search. */

import { useMemo } from "preact/hooks";
import { EMBEDDING_VIEW_TRAITS } from "../../client/traits";
import { Controls } from "../../ui/controls/declared";
import { Chip, Choice } from "../../ui/controls/fields";
import { counted, several } from "../../ui/text/captions";
import { SearchField } from "../../ui/text/token-search";
import { assign, follow, valuesOf } from "../../ui/view/state";
import { methodInWords, placingInWords, remarkInWords } from "./captions";
import type { Projecting } from "./client/requests";
import { COLORINGS } from "./colors";
import { projectingOf } from "./state";
import type { EmbeddingProps } from "./store";

export function EmbeddingControls({ context, store }: EmbeddingProps) {
  const { state } = context;
  const live = context.source.transport.live;
  const corpus = store.corpus.value;
  const enlarged = state.enlarged.value;
  // The initial state of a page selects the plot that the page contains in addition to the
  // principal components. Without such a plot it selects the principal components.
  const embedded = useMemo(() => projectingOf(valuesOf(state)), []);
  const other = embedded.method !== "pca" || embedded.dimensions === 3;
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
        {/* An enlarged plot has this button itself. */}
        {!enlarged && <LassoChip context={context} />}
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
      {enlarged && !live && other && (
        <div class="av-row av-options">
          <Embedded context={context} embedded={embedded} />
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
export function LassoChip({ context: { state } }: Pick<EmbeddingProps, "context">) {
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
  const result = matches?.count
    ? `${several(matches.count, "point")} · ${counted(matches.occurrences)} in the texts`
    : "none";
  return (
    <SearchField
      class="av-find-points"
      title={'Part of a token, or a whole token in quotes: "it"'}
      value={state.search.value}
      onInput={(search) => assign(state, { search })}
      onClear={() => assign(state, { search: "" })}
    >
      <output class="av-number" aria-live="polite">
        {matches && result}
      </output>
    </SearchField>
  );
}

/** Choice between principal components and the other projection that an exported page contains. */
function Embedded(props: Pick<EmbeddingProps, "context"> & { embedded: Projecting }) {
  const { embedded } = props;
  const { state } = props.context;
  const { method, dimensions } = follow(state);
  const isOther = method === embedded.method && dimensions === embedded.dimensions;
  return (
    <Choice
      label="Method"
      value={isOther ? "embedded" : "pca"}
      options={{
        pca: "PCA",
        embedded: methodInWords({ ...embedded, lift: state.lift.value }, true),
      }}
      onChange={(value) =>
        assign(state, value === "embedded" ? embedded : { method: "pca", dimensions: 2 })
      }
    />
  );
}

/** Progress of the overview or of a projection. A button cancels or restarts the projection. */
export function Progress({ context, store }: EmbeddingProps) {
  const { live } = context.source.transport;
  if (store.overviewProgress.value) {
    const [done, all] = store.overviewProgress.value;
    return (
      <div class="av-work" role="status">
        <progress aria-label="Plots" max={all} value={done} />
        <span>
          Plots of {counted(done)} of {several(all, "head")}
        </span>
      </div>
    );
  }
  if (!context.state.enlarged.value) return null;
  const plot = store.projection.value;
  const work = plot?.work ?? null;
  if (!work || work.state === "done") {
    // A page runs no projections, and its detail caption already describes the plot.
    if (!live || context.state.method.value === "pca") return null;
    // This line is as high as the progress bar, so that the plot does not jump when a projection
    // starts or ends. It describes the loaded plot, because the plot of the chosen method may still
    // be loading.
    const loaded = plot && work && { ...plot.request, lift: plot.request.placing.lift };
    const words = loaded ? `${methodInWords(loaded, true)}.${remarkInWords(work)}` : "";
    return <p class="av-work">{words}</p>;
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
