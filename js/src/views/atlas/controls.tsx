/** Controls of the atlas: colour of the heads, their order, and the search for edges. */

import { useId } from "preact/hooks";
import { Choice } from "../../ui/controls/fields";
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
  const names = stack.statistics.map(({ name }) => name);
  const options = names.map((name): [string, string] => [name, name]);
  const validName = (value: string, or: string): string =>
    value === "role" || names.includes(value) ? value : or;
  return (
    <>
      <div class="av-row av-options">
        <Choice
          label="Colour"
          value={validName(state.color.value, "role")}
          options={[["role", "role"], ...options]}
          onChange={(color) => assign(state, { color })}
        />
        <Choice
          label="Heads by"
          value={validName(state.order.value, "number")}
          options={[["number", "number"], ["role", "role"], ...options]}
          onChange={(order) => assign(state, { order })}
        />
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
  const { query, key } = store.problem.value;
  const classes = store.stack.value?.classes ?? [];
  const ends = [
    ["query_search", "Query", query],
    ["key_search", "Key", key],
  ] as const;
  const any = state.query_search.value !== "" || state.key_search.value !== "";
  return (
    <search class="av-row av-options av-atlas-search" aria-label="Edges between tokens">
      {ends.map(([name, label, problem]) => (
        <label class="av-field" key={name}>
          <span>{label}</span>
          <input
            type="search"
            list={list}
            placeholder="token or class"
            title={HOW}
            aria-invalid={problem !== null}
            value={state[name].value}
            onInput={(event) => assign(state, { [name]: event.currentTarget.value })}
            onKeyDown={(event) => {
              if (event.key === "Escape") assign(state, { [name]: "" });
            }}
          />
        </label>
      ))}
      <datalist id={list}>
        {classes.flatMap((system) =>
          system.values.map((value) => (
            <option key={`${system.name}:${value}`} value={`${system.name}:${value}`} />
          )),
        )}
      </datalist>
      <OffsetFields context={context} store={store} />
      {any && (
        <button
          type="button"
          class="av-chip"
          onClick={() => assign(state, { query_search: "", key_search: "" })}
        >
          Clear the search
        </button>
      )}
    </search>
  );
}

/** Number fields for the range of offsets. The brush on the bar chart sets the same range. */
function OffsetFields({ context, store }: AtlasProps) {
  const { state } = context;
  const offsets = state.offsets.value;
  const causal = store.stack.value?.causal ?? false;
  const most = 1_000_000;
  const change = (end: 0 | 1, value: number): void => {
    if (Number.isNaN(value)) {
      assign(state, { offsets: null });
      return;
    }
    const offset = Math.max(-most, Math.min(most, Math.round(value)));
    const [from, to] = offsets ?? [offset, offset];
    const pair: [number, number] = end === 0 ? [offset, to] : [from, offset];
    assign(state, { offsets: [Math.min(...pair), Math.max(...pair)] });
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
      {offsets && (
        <button type="button" class="av-chip" onClick={() => assign(state, { offsets: null })}>
          All offsets
        </button>
      )}
    </fieldset>
  );
}

/** Progress of the search, or the error of its search text. */
export function SearchWork({ store }: AtlasProps) {
  const { query, key } = store.problem.value;
  const result = store.result.value;
  const problem = query ?? key;
  if (problem !== null) {
    return (
      <p class="av-work av-error" role="status">
        {problem}
      </p>
    );
  }
  if (!result) return null;
  const heads = result.ranked.filter(({ count }) => count.numFound > 0).length;
  return (
    <div class="av-work" role="status">
      {result.done < result.layers && (
        <progress aria-label="Search" max={result.layers} value={result.done} />
      )}
      <span>
        {searchInWords(result.done, result.layers, result.ranked[0]?.count ?? null, heads)}
      </span>
    </div>
  );
}

/** Maximum number of heads that `MatchedHeads` lists. */
const MAX_LISTED = 12;

/** List of the heads whose sampled edges match the search, the largest share first. */
export function MatchedHeads({ store }: AtlasProps) {
  const result = store.result.value;
  const heads = result?.ranked.filter(({ count }) => count.numFound > 0) ?? [];
  if (!result || heads.length === 0) return null;
  const more = heads.length - MAX_LISTED;
  return (
    <section class="av-atlas-found" aria-label="Heads with matching edges">
      <p class="av-muted">Matching sampled edges, with the interval of their share:</p>
      <ol>
        {heads.slice(0, MAX_LISTED).map(({ layer, head, count }) => (
          <li key={`${layer} ${head}`}>
            <button type="button" class="av-chip" onClick={() => store.choose({ layer, head })}>
              {headTitle({ layer, head })} <span class="av-muted">{shortCount(count)}</span>
            </button>
          </li>
        ))}
      </ol>
      {more > 0 && <p class="av-muted">and {more} more, coloured in the grid</p>}
    </section>
  );
}
