/**
 * Controls of the atlas: colour of the heads, their order, and the search for edges. An edge is the
 * weight from one query to one key. Its offset is the position of the key minus the position of the
 * query.
 */

import type { Signal } from "@preact/signals";
import { useId } from "preact/hooks";
import { bound, Chip, Choice } from "../../ui/controls/fields";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import { headTitle, searchInWords, shortCount } from "./captions";
import type { AtlasState } from "./state";
import type { AtlasStore } from "./store";

export interface AtlasProps {
  context: ViewContext<AtlasState>;
  store: AtlasStore;
}

export function AtlasControls({ context, store }: AtlasProps) {
  const { state } = context;
  const stack = store.stack.value;
  if (!stack) return null;
  const colors = ["role", ...stack.statistics.map(({ name }) => name)];
  /** Render a select. Another stack may lack the statistic that was chosen. */
  const choice = (label: string, field: Signal<string>, names: readonly string[]) => (
    <Choice
      label={label}
      {...bound(field)}
      value={names.includes(field.value) ? field.value : (names[0] ?? "")}
      options={names.map((name) => [name, name])}
    />
  );
  return (
    <>
      <div class="av-row av-options">
        {choice("Colour", state.color, colors)}
        {choice("Heads by", state.order, ["number", ...colors])}
      </div>
      <EdgeSearch context={context} store={store} />
    </>
  );
}

const HOW =
  'Part of a token, a whole token in quotes ("it"), a position (#0), any token (*), or a class (kind:punctuation)';

/** Search fields for edges: one for the query, one for the key, and two for the offset. */
function EdgeSearch({ context, store }: AtlasProps) {
  const { state } = context;
  const list = useId();
  const classes = store.stack.value?.classes ?? [];
  const names = classes.flatMap(({ name, values }) => values.map((value) => `${name}:${value}`));
  return (
    <search class="av-row av-options av-atlas-search" aria-label="Edges between tokens">
      {(["query_search", "key_search"] as const).map((name) => (
        <label class="av-field" key={name}>
          <span>{name === "query_search" ? "Query" : "Key"}</span>
          <input
            type="search"
            list={list}
            placeholder="token or class"
            title={HOW}
            aria-invalid={store.search.terms.value[name].problem !== null}
            value={state[name].value}
            onInput={(event) => assign(state, { [name]: event.currentTarget.value })}
            onKeyDown={(event) => {
              if (event.key === "Escape") assign(state, { [name]: "" });
            }}
          />
        </label>
      ))}
      <datalist id={list}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <OffsetFields context={context} store={store} />
      {(state.query_search.value !== "" || state.key_search.value !== "") && (
        <Chip onClick={() => assign(state, { query_search: "", key_search: "" })}>
          Clear the search
        </Chip>
      )}
    </search>
  );
}

/** Maximum absolute value of an offset that the reader types. */
const MAX_OFFSET = 1_000_000;

/** Number fields for the range of offsets. The brush on the bar chart sets the same range. */
function OffsetFields({ context, store }: AtlasProps) {
  const { state } = context;
  const offsets = state.offsets.value;
  const causal = store.stack.value?.causal ?? false;
  const clear = (): void => assign(state, { offsets: null });
  const change = (end: 0 | 1, value: number): void => {
    const offset = Math.max(-MAX_OFFSET, Math.min(MAX_OFFSET, Math.round(value)));
    const other = offsets?.[1 - end] ?? offset;
    if (Number.isNaN(value)) clear();
    else assign(state, { offsets: [Math.min(offset, other), Math.max(offset, other)] });
  };
  return (
    <fieldset
      class="av-field av-atlas-offsets"
      aria-label="Offset"
      title="Offset of the key from the query: −1 is the token before"
    >
      <span>Offset</span>
      {([0, 1] as const).map((end) => (
        <input
          key={end}
          type="number"
          step={1}
          {...(causal && { max: 0 })}
          aria-label={end === 0 ? "Offset from" : "Offset to"}
          placeholder={end === 0 ? "from" : "to"}
          value={offsets?.[end] ?? ""}
          onChange={(event) => change(end, event.currentTarget.valueAsNumber)}
        />
      ))}
      {offsets && <Chip onClick={clear}>All offsets</Chip>}
    </fieldset>
  );
}

/** Progress of the search and then its result, or the error of a search text. */
export function SearchWork({ store }: AtlasProps) {
  const [problem, result] = [store.search.problem.value, store.search.result.value];
  if (problem !== null) {
    return (
      <p class="av-work av-error" role="status">
        {problem}
      </p>
    );
  }
  if (!result) return null;
  return (
    <div class="av-work" role="status">
      {result.done < result.layers && (
        <progress aria-label="Search" max={result.layers} value={result.done} />
      )}
      <span>{searchInWords(result)}</span>
    </div>
  );
}

/** Maximum number of heads that `MatchedHeads` lists. */
const MAX_LISTED = 12;

/** List of the heads whose sampled edges match the search, the largest share first. */
export function MatchedHeads({ store }: AtlasProps) {
  const heads = store.search.result.value?.matching ?? [];
  const stack = store.stack.value;
  if (!stack || heads.length === 0) return null;
  const more = heads.length - MAX_LISTED;
  return (
    <section class="av-atlas-found" aria-label="Heads with matching edges">
      <p class="av-muted">Matching sampled edges, with the interval of their share:</p>
      <ol class="av-vertical">
        {heads.slice(0, MAX_LISTED).map((head) => (
          <li key={`${head.layer} ${head.head}`}>
            <Chip onClick={() => store.choose(head)}>
              {headTitle(head, stack)} <span class="av-muted">{shortCount(head.count)}</span>
            </Chip>
          </li>
        ))}
      </ol>
      {more > 0 && <p class="av-muted">and {more} more, coloured in the grid</p>}
    </section>
  );
}
