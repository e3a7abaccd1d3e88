/** What the model would answer if its attention were another: changes, the answer, and caveats. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isAbort } from "../../client/kernel";
import type { OutcomeHeader, WantedChange } from "../../client/protocol";
import { quoted } from "../captions";
import { Choice } from "../controls/fields";
import type { ViewContext } from "../define-view";
import type { Place, RecordState } from "../record";
import { assign, type Signals, same } from "../state";
import { changeInWords, offeredAt, type Reach, type WhatIfState, withChange } from "./state";

export const CAVEAT =
  "One way of leaving it out. The model never saw this state in training; other heads may make up " +
  "for it: an effect of zero proves nothing.";

/** What a bundle is for (`ui/define-view.tsx`): a page has no kernel that could run a model. */
declare const BUNDLE_FOR: "widget" | "page" | undefined;

const SUMMARY = "What if the attention were changed?";

/** Live: what can be changed here. On a page: what was tried, if anything was. */
export function WhatIf<S extends RecordState & WhatIfState>(props: { context: ViewContext<S> }) {
  const { context } = props;
  const place = context.record.place.value;
  const form = context.controls.value;
  if (!place) return null;
  const state = context.state as unknown as Signals<WhatIfState>;
  const hidden = form === "minimal" || form === "none";
  return typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "page" ? (
    <Tried state={state} />
  ) : !context.source.carrier.live ? (
    <Tried state={state} />
  ) : hidden ? null : (
    <Live context={context} state={state} place={place} />
  );
}

/** The outcomes that a page carries. */
function Tried({ state }: { state: Signals<WhatIfState> }) {
  const outcomes = state.outcomes.value;
  if (outcomes.length === 0) return null;
  return (
    <details class="av-what-if" open>
      <summary>What the model answered where its attention was changed</summary>
      <ul aria-label="Changes that were tried">
        {outcomes.map((each) => (
          <li key={JSON.stringify(each.changes)}>
            <span class="av-muted">{each.described.join(" ")}</span> {each.sentence}
          </li>
        ))}
      </ul>
      <p class="av-muted">{CAVEAT}</p>
    </details>
  );
}

/** What is known of the changes that were asked for. */
interface Known {
  changes: WantedChange[];
  sentence: string | null;
  problem: string | null;
}

function Live<S extends RecordState>(props: {
  context: ViewContext<S>;
  state: Signals<WhatIfState>;
  place: Place;
}) {
  const { context, state, place } = props;
  const changes = state.changes.value;
  const opened = useSignal(false);
  const known = useSignal<Known | null>(null);
  const attempt = useSignal(0);
  const open = opened.value || changes.length > 0;
  useEffect(() => {
    if (!open) return;
    const ended = new AbortController();
    const say = (found: Partial<Known>): void => {
      if (!ended.signal.aborted) known.value = { changes, sentence: null, problem: null, ...found };
    };
    context.source
      .question(
        "intervene",
        { changes },
        ({ header }) => (header as OutcomeHeader).sentence,
        (sentence) => 2 * sentence.length,
        ended.signal,
      )
      .then(
        (sentence) => say({ sentence }),
        (reason) => {
          if (!isAbort(reason))
            say({ problem: reason instanceof Error ? reason.message : String(reason) });
        },
      );
    return () => ended.abort();
  }, [open, JSON.stringify(changes), attempt.value]);

  const now = known.value && same(known.value.changes, changes) ? known.value : null;
  // Without a model nothing can be tried: the words say what to do.
  const problem = now?.problem ?? null;
  const answers = known.value?.sentence !== null || problem === null || changes.length > 0;
  return (
    <details
      class="av-what-if"
      open={open}
      onToggle={(event) => {
        opened.value = event.currentTarget.open;
      }}
    >
      <summary>{SUMMARY}</summary>
      {open && (
        <>
          <p class="av-what-if-answer" role="status" aria-busy={now === null}>
            {now === null ? "The kernel runs the model …" : (now.sentence ?? now.problem)}
          </p>
          {problem !== null && changes.length > 0 && (
            <button type="button" class="av-plain" onClick={() => attempt.value++}>
              Try again
            </button>
          )}
          {changes.length > 0 && (
            <span class="av-muted">Changed, while the picture shows the unchanged run:</span>
          )}
          {changes.length > 0 && <Chips state={state} place={place} />}
          {answers && <Offers state={state} place={place} />}
          {now?.sentence && changes.length > 0 && <p class="av-muted">{CAVEAT}</p>}
        </>
      )}
    </details>
  );
}

/** The changes that are made together, each with a button that takes it back. */
function Chips({ state, place }: { state: Signals<WhatIfState>; place: Place }) {
  const list = useRef<HTMLUListElement>(null);
  const changes = state.changes.value;
  const remove = (at: number): void => {
    const box = list.current?.closest<HTMLElement>(".av-what-if");
    assign(state, { changes: changes.filter((_, i) => i !== at) });
    // The button is gone, and what has the focus must not be lost.
    requestAnimationFrame(() => box?.querySelector<HTMLElement>("summary")?.focus());
  };
  return (
    <ul class="av-what-if-chips" aria-label="Changes" ref={list}>
      {changes.map((each, i) => {
        const words = changeInWords(each, place);
        return (
          <li key={JSON.stringify(each)}>
            <button
              type="button"
              class="av-chip"
              aria-label={`Take back: ${words}`}
              title="Take this change back"
              onClick={() => remove(i)}
            >
              {words} <span aria-hidden="true">×</span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}

const REACHES: Record<Reach, string> = {
  head: "in this head",
  layer: "in this layer",
  all: "in all layers",
};

/** What can be changed at the pins and the chosen head. */
function Offers({ state, place }: { state: Signals<WhatIfState>; place: Place }) {
  const wanted = useSignal<Reach>("head");
  const before = useSignal(true);
  const { edge, reaches, head, token } = offeredAt(place);
  const reach = reaches.includes(wanted.value) ? wanted.value : (reaches[0] as Reach);
  const add = (change: WantedChange): void =>
    assign(state, { changes: withChange(state.changes.peek(), change) });
  const button = (label: string, change: WantedChange) => (
    <button type="button" class="av-chip" onClick={() => add(change)}>
      {label}
    </button>
  );
  return (
    <div class="av-row av-options">
      {edge && (
        <span class="av-row av-options">
          {button("What if this edge were cut?", edge(reach, before.value))}
          <Choice
            label="Cut"
            value={before.value ? "before" : "after"}
            options={[
              ["before", "before the softmax"],
              ["after", "after the softmax"],
            ]}
            onChange={(value) => {
              before.value = value === "before";
            }}
          />
          <Choice
            label="Where"
            value={reach}
            options={reaches.map((each) => [each, REACHES[each]] as const)}
            onChange={(value) => {
              wanted.value = value;
            }}
          />
        </span>
      )}
      {head && button(`Without head ${place.layer}.${head.head}`, head)}
      {token &&
        button(
          `Hide the token ${quoted(place.keys.text[token.key ?? 0] ?? "")} (${token.key})`,
          token,
        )}
      {!edge && <span class="av-muted">Pin a query and a key to cut the edge between them.</span>}
    </div>
  );
}
