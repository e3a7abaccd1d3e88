/** Controls of the embedding view: display, projection and search. */

import { useMemo } from "preact/hooks";
import type { ColorScale } from "../../ui/colors/color-scales";
import { Choice, Switch } from "../../ui/controls/fields";
import { counted, several } from "../../ui/text/captions";
import { SearchField } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, valuesOf } from "../../ui/view/state";
import { methodInWords, placingInWords, remarkInWords, workInWords } from "./captions";
import type { Corpus, Method, Projecting } from "./client/requests";
import { meanStoreOf } from "./mean/store";
import { COLORINGS, type EmbeddingState, projectingOf } from "./state";
import type { EmbeddingStore } from "./store";

interface ControlProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
}

/** Labels of the colourings whose names would be unclear as labels. */
const COLORING_NAMES: Record<string, string> = {
  type: "query or key",
  frequency: "token frequency",
  norm: "vector length",
};

/**
 * Return the name and label of every colouring. A column replaces a built-in colouring of the same
 * name.
 */
export function colorings(corpus: Pick<Corpus, "columns"> | null): [string, string][] {
  const own = (corpus?.columns ?? []).map(({ name }) => name);
  return [
    ...COLORINGS.filter((name) => !own.includes(name)).map((name): [string, string] => [
      name,
      COLORING_NAMES[name] ?? name,
    ]),
    ...own.map((name): [string, string] => [name, name]),
  ];
}

export function EmbeddingControls({ context, store }: ControlProps) {
  const { state } = context;
  const live = context.source.transport.live;
  const corpus = store.corpus.value;
  const enlarged = state.enlarged.value;
  const plotted = !enlarged || state.content.value === "plot";
  // The initial state of a page selects the plot that the page contains in addition to the
  // principal components. Without such a plot it selects the principal components.
  const embedded = useMemo(() => projectingOf(valuesOf(state)), []);
  const other = embedded.method !== "pca" || embedded.dimensions === 3;
  if (!corpus || corpus.count === 0) return null;
  return (
    <>
      <div class="av-row av-options">
        {enlarged && (
          <Choice
            label="Show"
            value={state.content.value}
            options={[
              ["plot", "points"],
              ["aggregate", "mean weight by position"],
            ]}
            onChange={(shown) => assign(state, { content: shown })}
          />
        )}
        {!plotted && <MeanScale context={context} store={store} />}
        {plotted && <Looks context={context} store={store} corpus={corpus} />}
      </div>
      {plotted && live && (
        <div class="av-row av-options">
          {enlarged && <ProjectingControls context={context} />}
          <Placing context={context} store={store} />
        </div>
      )}
      {plotted && !live && enlarged && other && (
        <div class="av-row av-options">
          <Embedded context={context} embedded={embedded} />
        </div>
      )}
    </>
  );
}

/** Choice of the colour scale of the mean weights. */
function MeanScale({ context, store }: ControlProps) {
  const { scale } = meanStoreOf(context, store);
  return (
    <Choice<ColorScale>
      label="Colour"
      value={scale.value}
      options={[
        ["linear", "linear"],
        ["log", "logarithmic"],
      ]}
      onChange={(value) => {
        scale.value = value;
      }}
    />
  );
}

/** Controls of colours, drawn points and search. */
function Looks({ context, store, corpus }: ControlProps & { corpus: Corpus }) {
  const { state } = context;
  const options = colorings(corpus);
  // An enlarged plot has its own button that clears the lasso.
  const selected = state.enlarged.value ? 0 : state.selected.value.length;
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
        value={state.points.value}
        options={[
          ["both", "queries and keys"],
          ["queries", "queries"],
          ["keys", "keys"],
        ]}
        onChange={(points) => assign(state, { points })}
      />
      <Search context={context} store={store} />
      {selected > 0 && (
        <button
          type="button"
          class="av-chip"
          title="Clear the lasso"
          onClick={() => assign(state, { selected: [] })}
        >
          {several(selected, "point")} in the lasso ×
        </button>
      )}
    </>
  );
}

/** Search field for tokens. */
function Search({ context, store }: ControlProps) {
  const { state } = context;
  const matches = store.matches.value;
  const searchText = state.search.value;
  const result = !matches
    ? ""
    : matches.count === 0
      ? "none"
      : `${several(matches.count, "point")} · ${counted(matches.occurrences)} in the texts`;
  const title = matches
    ? `${several(matches.tokens, "different token")}; ${several(matches.queries, "query", "queries")} and ${several(matches.count - matches.queries, "key")} among the points`
    : "";
  return (
    <SearchField
      class="av-find-points"
      title={'Part of a token, or a whole token in quotes: "it"'}
      value={searchText}
      onInput={(search) => assign(state, { search })}
      onKeyDown={(event) => {
        if (event.key === "Escape") assign(state, { search: "" });
      }}
    >
      <Switch
        label="match case"
        on={state.match_case.value}
        onChange={(match_case) => assign(state, { match_case })}
      />
      <output class="av-number" aria-live="polite" title={title}>
        {result}
      </output>
    </SearchField>
  );
}

function NumberField(props: {
  label: string;
  title: string;
  value: number;
  range: [number, number];
  onChange: (value: number) => void;
}) {
  const { label, title, value, range, onChange } = props;
  return (
    <label class="av-field" title={title}>
      <span>{label}</span>
      <input
        type="number"
        min={range[0]}
        max={range[1]}
        step={1}
        value={value}
        // A change event follows the Enter key or a lost focus. Input events would start a
        // projection after every typed digit.
        onChange={(event) => {
          const number = event.currentTarget.valueAsNumber;
          if (Number.isInteger(number) && number >= range[0] && number <= range[1])
            onChange(number);
          else event.currentTarget.value = String(value);
        }}
      />
    </label>
  );
}

const METHODS: [Method, string][] = [
  ["pca", "PCA"],
  ["tsne", "t-SNE"],
  ["umap", "UMAP"],
];

/**
 * Controls of the enlarged head's projection: method, dimensions, and the settings of the method.
 */
function ProjectingControls({ context }: { context: ViewContext<EmbeddingState> }) {
  const { state } = context;
  const method = state.method.value;
  return (
    <>
      <Choice
        label="Method"
        value={method}
        options={METHODS}
        onChange={(value) => assign(state, { method: value })}
      />
      <Choice
        label="Dimensions"
        value={String(state.dimensions.value) as "2" | "3"}
        options={[
          ["2", "2D"],
          ["3", "3D"],
        ]}
        onChange={(value) => assign(state, { dimensions: Number(value) as 2 | 3 })}
      />
      {method === "tsne" && (
        <NumberField
          label="Perplexity"
          title="Approximate number of neighbours that stay near each point"
          value={state.perplexity.value}
          range={[2, 1000]}
          onChange={(perplexity) => assign(state, { perplexity })}
        />
      )}
      {method === "umap" && (
        <NumberField
          label="Neighbours"
          title="Number of neighbours that stay near each point"
          value={state.neighbors.value}
          range={[2, 1000]}
          onChange={(neighbors) => assign(state, { neighbors })}
        />
      )}
      {method !== "pca" && (
        <NumberField
          label="Seed"
          title="The same seed gives the same plot. Another seed shows which parts of it are random"
          value={state.seed.value}
          range={[0, 2 ** 32 - 1]}
          onChange={(seed) => assign(state, { seed })}
        />
      )}
    </>
  );
}

/** Choice between principal components and the other projection that an exported page contains. */
function Embedded(props: { context: ViewContext<EmbeddingState>; embedded: Projecting }) {
  const { embedded } = props;
  const { state } = props.context;
  const now =
    state.method.value === embedded.method && state.dimensions.value === embedded.dimensions;
  return (
    <Choice
      label="Method"
      value={now ? "embedded" : "pca"}
      options={[
        ["pca", "PCA"],
        ["embedded", methodInWords({ ...embedded, lift: state.lift.value }, true)],
      ]}
      onChange={(value) =>
        assign(state, value === "embedded" ? embedded : { method: "pca", dimensions: 2 })
      }
    />
  );
}

/** Controls of the placing: scaling, moving and lift, each with an explanation. */
function Placing({ context, store }: ControlProps) {
  const { state } = context;
  const factor = state.enlarged.value ? (store.projection.value?.factor ?? null) : null;
  const placing = {
    scaling: state.scaling.value,
    translate: state.translate.value,
    lift: state.lift.value,
  };
  return (
    <details class="av-more">
      <summary>
        <span class="av-muted">Placing</span> {placingInWords(placing, factor)}
      </summary>
      <div class="av-more-list">
        <div>
          <Choice
            label="Scale"
            value={state.scaling.value}
            options={[
              ["norms", "by norms"],
              ["none", "as they are"],
            ]}
            onChange={(scaling) => assign(state, { scaling })}
          />
          <p class="av-muted">
            Queries are divided by a number and keys multiplied by it, which leaves every q·k as it
            is. By norms it makes both about equally long.
          </p>
        </div>
        <div>
          <Switch
            label="move keys onto the queries"
            on={state.translate.value}
            onChange={(translate) => assign(state, { translate })}
          />
          <p class="av-muted">
            Every key is moved by the same vector, so that keys and queries have the same centre.
            This adds the same number to all logits of a query, which the softmax cancels.
          </p>
        </div>
        <div>
          <Switch label="lift" on={state.lift.value} onChange={(lift) => assign(state, { lift })} />
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
export function Work({ context, store }: ControlProps) {
  const corpus = store.corpus.value;
  const progress = store.overviewProgress.value;
  const plotted = context.state.enlarged.value && context.state.content.value === "plot";
  const plot = plotted ? store.projection.value : null;
  const work = plot?.work ?? null;
  if (!corpus || corpus.count === 0) return null;
  if (!plotted && progress) {
    const [done, of] = progress;
    return (
      <div class="av-work" role="status">
        <progress aria-label="Plots" max={of} value={done} />
        <span>
          Plots of {counted(done)} of {several(of, "head")}
        </span>
      </div>
    );
  }
  const words = workInWords(work);
  // A page runs no projections, and its detail caption already describes the plot.
  if (words === "" && !context.source.transport.live) return null;
  if (plotted && context.state.method.value !== "pca" && words === "") {
    // This line is as high as the progress bar, so that the plot does not jump when a projection
    // starts or ends. The line describes the loaded plot, because the plot of the chosen method may
    // still be loading.
    const how = plot
      ? methodInWords({ ...plot.request, lift: plot.request.placing.lift }, true)
      : "";
    return <p class="av-work">{work ? `${how}.${remarkInWords(work)}` : ""}</p>;
  }
  if (!work || words === "") return null;
  const running = work.state === "running";
  return (
    <div class={`av-work${work.state === "failed" ? " av-error" : ""}`} role="status">
      {running && (
        <progress
          aria-label="Projection"
          {...(work.num_total > 0 ? { max: work.num_total, value: work.done } : {})}
        />
      )}
      <span>{words}</span>
      {context.source.transport.live && (
        <button type="button" class="av-chip" onClick={running ? store.cancel : store.restart}>
          {running ? "Cancel" : work.state === "cancelled" ? "Continue" : "Try again"}
        </button>
      )}
    </div>
  );
}
