/** Controls of the embedding view: display, projection and search. */

import { useMemo } from "preact/hooks";
import { bound, Chip, Choice, NumberField, Switch } from "../../ui/controls/fields";
import { counted, several } from "../../ui/text/captions";
import { SearchField } from "../../ui/text/token-search";
import { assign, follow, valuesOf } from "../../ui/view/state";
import { methodInWords, placingInWords, remarkInWords } from "./captions";
import type { Corpus, Projecting } from "./client/requests";
import { COLORINGS, pictureOf, projectingOf } from "./state";
import type { EmbeddingProps } from "./store";

export function EmbeddingControls({ context, store }: EmbeddingProps) {
  const { state } = context;
  const live = context.source.transport.live;
  const corpus = store.corpus.value;
  const picture = pictureOf(state);
  // The initial state of a page selects the plot that the page contains in addition to the
  // principal components. Without such a plot it selects the principal components.
  const embedded = useMemo(() => projectingOf(valuesOf(state)), []);
  const other = embedded.method !== "pca" || embedded.dimensions === 3;
  if (!corpus || corpus.count === 0) return null;
  return (
    <>
      <div class="av-row av-options">
        {picture !== "overview" && (
          <Choice
            label="Show"
            options={{ plot: "points", aggregate: "mean weight by position" }}
            {...bound(state.content)}
          />
        )}
        {picture !== "mean" && <Looks context={context} store={store} corpus={corpus} />}
      </div>
      {picture !== "mean" && live && (
        <div class="av-row av-options">
          {picture === "plot" && <ProjectingControls context={context} />}
          <Placing context={context} store={store} />
        </div>
      )}
      {picture === "plot" && !live && other && (
        <div class="av-row av-options">
          <Embedded context={context} embedded={embedded} />
        </div>
      )}
    </>
  );
}

/** Controls of colours, drawn points and search. */
function Looks({ context, store, corpus }: EmbeddingProps & { corpus: Corpus }) {
  const { state } = context;
  const columns = corpus.columns.map(({ name }) => name);
  // A column replaces a built-in colouring of the same name.
  const options = [
    ...COLORINGS.filter(([name]) => !columns.includes(name)),
    ...columns.map((name) => [name, name] as const),
  ];
  return (
    <>
      <Choice
        label="Colour"
        value={options.some(([name]) => name === state.color.value) ? state.color.value : "type"}
        options={options}
        onChange={(color) => assign(state, { color })}
      />
      <Choice
        label="Points"
        options={{ both: "queries and keys", queries: "queries", keys: "keys" }}
        {...bound(state.points)}
      />
      <Search context={context} store={store} />
      {/* An enlarged plot has this button itself. */}
      {!state.enlarged.value && <LassoChip context={context} />}
    </>
  );
}

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
      <Switch label="match case" {...bound(state.match_case)} />
      <output class="av-number" aria-live="polite">
        {matches && result}
      </output>
    </SearchField>
  );
}

/**
 * Controls of the enlarged head's projection: method, dimensions, and the settings of the method.
 */
function ProjectingControls({ context: { state } }: Pick<EmbeddingProps, "context">) {
  const method = state.method.value;
  return (
    <>
      <Choice
        label="Method"
        options={{ pca: "PCA", tsne: "t-SNE", umap: "UMAP" }}
        {...bound(state.method)}
      />
      <Choice
        label="Dimensions"
        value={state.dimensions.value === 3 ? "3" : "2"}
        options={{ 2: "2D", 3: "3D" }}
        onChange={(value) => assign(state, { dimensions: value === "3" ? 3 : 2 })}
      />
      {method === "tsne" && (
        <NumberField
          label="Perplexity"
          title="Approximate number of neighbours that stay near each point"
          min={2}
          max={1000}
          {...bound(state.perplexity)}
        />
      )}
      {method === "umap" && (
        <NumberField
          label="Neighbours"
          title="Number of neighbours that stay near each point"
          min={2}
          max={1000}
          {...bound(state.neighbors)}
        />
      )}
      {method !== "pca" && (
        <NumberField
          label="Seed"
          title="The same seed gives the same plot. Another seed shows which parts of it are random"
          min={0}
          max={2 ** 32 - 1}
          {...bound(state.seed)}
        />
      )}
    </>
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

/** Controls of the placing: scaling, moving and lift, each with an explanation. */
function Placing({ context: { state }, store }: EmbeddingProps) {
  const factor = state.enlarged.value ? (store.projection.value?.factor ?? null) : null;
  return (
    <details class="av-more">
      <summary>
        <span class="av-muted">Placing</span> {placingInWords(follow(state), factor)}
      </summary>
      <div class="av-more-list">
        <div>
          <Choice
            label="Scale"
            options={{ norms: "by norms", none: "as they are" }}
            {...bound(state.scaling)}
          />
          <p class="av-muted">
            Queries are divided by a number and keys multiplied by it, which leaves every q·k as it
            is. By norms it makes both about equally long.
          </p>
        </div>
        <div>
          <Switch label="move keys onto the queries" {...bound(state.translate)} />
          <p class="av-muted">
            Every key is moved by the same vector, so that keys and queries have the same centre.
            This adds the same number to all logits of a query, which the softmax cancels.
          </p>
        </div>
        <div>
          <Switch label="lift" {...bound(state.lift)} />
          <p class="av-muted">
            One more dimension makes all keys equally long: a query’s nearest keys are then exactly
            those with the largest q·k, before the projection to the plot.
          </p>
        </div>
      </div>
    </details>
  );
}

/** Progress of the overview or of a projection. A button cancels or restarts the projection. */
export function Progress({ context, store }: EmbeddingProps) {
  const { live } = context.source.transport;
  const picture = pictureOf(context.state);
  if (picture === "overview" && store.overviewProgress.value) {
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
  if (picture !== "plot") return null;
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
