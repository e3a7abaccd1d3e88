/** Where a token of the answer came from: the keys that all heads together look at most. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { isAbort } from "../../client/kernel";
import type { SourceKey, SourcesHeader } from "../../client/protocol";
import { printable } from "../../draw/marks";
import { formatWeight } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { Place, RecordState } from "../view/record";
import { assign } from "../view/state";

/** What is known of one query's sources. */
interface Found {
  name: string;
  header: SourcesHeader | null;
  problem: string;
}

/** Opens when asked for, and then follows the answer; nothing is asked for while it is closed. */
export function Sources<S extends RecordState>(props: {
  context: ViewContext<S>;
  place: Place;
  /** The query that predicted the token. */
  query: number;
}) {
  const { context, place, query } = props;
  const open = useSignal(false);
  const found = useSignal<Found | null>(null);
  const stack = place.stack.name;
  const name = `${stack} ${query}`;
  useEffect(() => {
    if (!open.value) return;
    const ended = new AbortController();
    const request = { stack, query };
    const read = ({ header }: { header: unknown }): SourcesHeader => header as SourcesHeader;
    context.source
      .question("sources", request, read, () => 1000, ended.signal)
      .then(
        (header) => {
          if (!ended.signal.aborted) found.value = { name, header, problem: "" };
        },
        (reason) => {
          if (ended.signal.aborted || isAbort(reason)) return;
          const problem = reason instanceof Error ? reason.message : String(reason);
          found.value = { name, header: null, problem };
        },
      );
    return () => ended.abort();
  }, [open.value, name]);

  const now = found.value;
  // The last answer stays until the next has come.
  const header = now?.header?.query === query || now?.name !== name ? now?.header : null;
  return (
    <details
      class="av-sources"
      open={open.value}
      onToggle={(event) => {
        open.value = event.currentTarget.open;
      }}
    >
      <summary>Where it came from, over all heads</summary>
      {now?.problem && now.name === name ? (
        <div class="av-muted">{now.problem}</div>
      ) : header ? (
        <SourceList context={context} place={place} of={header} stale={now?.name !== name} />
      ) : (
        <div class="av-muted">…</div>
      )}
    </details>
  );
}

function SourceList<S extends RecordState>(props: {
  context: ViewContext<S>;
  place: Place;
  of: SourcesHeader;
  stale: boolean;
}) {
  const { place, of, stale } = props;
  const state = props.context.common;
  const texts = place.keys.text;
  const most = Math.max(...of.keys.map(({ mean, even }) => Math.max(mean, even)), 1e-9);
  const width = (share: number): string => `${(100 * share) / most}%`;
  const line = (each: SourceKey) => {
    const text = printable(texts[each.key] ?? "");
    return (
      <li key={each.key}>
        <button
          type="button"
          class="av-plain av-generated-token"
          title={`Choose the key ${text}, ${each.key}`}
          aria-pressed={state.key.value === each.key}
          onClick={() => assign(state, { key: state.key.peek() === each.key ? null : each.key })}
        >
          {text}
        </button>
        <span class="av-muted av-source-number">{each.key}</span>
        <span class="av-source-bar" aria-hidden="true">
          <i style={{ width: width(each.mean) }} />
          <b style={{ left: width(each.even) }} />
        </span>
        <span class="av-source-number" title={`Even attention: ${formatWeight(each.even)}`}>
          {formatWeight(each.mean)}
        </span>
        <button
          type="button"
          class="av-plain av-source-head"
          onClick={() => assign(state, { layer: each.layer, heads: [each.head] })}
        >
          most in layer {each.layer}, head {each.head}: {formatWeight(each.most)}
        </button>
      </li>
    );
  };
  return (
    <>
      <ol aria-label="Sources of the token" aria-busy={stale}>
        {of.keys.map(line)}
      </ol>
      <div class="av-muted">{wordsOf(of)}</div>
    </>
  );
}

/** What the numbers are, and what they do not say. */
export function wordsOf({ heads, layers, rest }: SourcesHeader): string {
  const count = (number: number, of: string): string => `${number} ${of}${number === 1 ? "" : "s"}`;
  const of = `${count(heads, "head")} of ${count(layers, "layer")}`;
  const others = rest >= 0.005 ? ` All other keys: ${formatWeight(rest)}.` : "";
  return (
    `Mean weight over ${of}, all counted alike; the mark is even attention.${others} ` +
    "Heads that disagree are hidden, and attention is not attribution: " +
    "what was looked at need not have made a difference."
  );
}
