/**
 * Panel "What if". The reader changes the attention of the model, and the panel shows the measured
 * answer before and after the changes, with a caveat. The measured answer is a number, such as the
 * logit of one token minus the logit of another.
 */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import type { OutcomeHeader } from "../../client/protocol";
import { bound, Chip, Choice } from "../controls/fields";
import { quoted } from "../text/captions";
import type { RecordContext } from "../view/define-view";
import type { Selection } from "../view/record";
import { assign, same } from "../view/state";
import {
  type Change,
  changedRunOf,
  changedRunState,
  isFunction,
  measuredOf,
  RUNS,
} from "./changed-run";
import { changeInWords, offeredAt, type Reach, whyUnchanged, withChange } from "./state";

export const CAVEAT =
  "This is one of several ways to remove it. The model never saw this state in training, and other " +
  "heads may compensate. An effect of zero proves nothing.";

const SUMMARY = "What if the attention were changed?";

interface PanelProps {
  context: RecordContext;
  selection: Selection;
}

/**
 * Render the panel. In a live view, it offers changes. In a page, it shows the results that the
 * page contains. Render nothing in a page without results, or in a live view that has no controls
 * or whose kernel has no model.
 */
export function WhatIf({ context }: { context: RecordContext }) {
  const selection = context.record.selection.value;
  if (!selection) return null;
  if (BUNDLE_FOR === "page" || !context.source.transport.live)
    return <Tried context={context} selection={selection} />;
  if (context.controls.value === "none" || !context.common.runs_model.value) return null;
  return <Live context={context} selection={selection} />;
}

/**
 * Render the buttons that choose which weights the picture shows: before or after the changes, or
 * the difference.
 */
function ShownRuns({ context, selection }: PanelProps) {
  const { source, record } = context;
  const state = changedRunState(record);
  const { problem, shown } = changedRunOf(context.record);
  const requested = state.run.value;
  const waits = source.transport.live && requested !== shown.value;
  const why = requested === "before" ? "" : whyUnchanged(state.changes.value, selection);
  return (
    <div class="av-row av-options">
      <fieldset class="av-row av-shown-run" aria-label="The picture shows">
        <span class="av-muted">The picture shows</span>
        {RUNS.map((run) => (
          <button
            key={run}
            type="button"
            class="av-step"
            aria-pressed={run === requested}
            onClick={() => assign(state, { run })}
          >
            {run}
          </button>
        ))}
      </fieldset>
      <span class="av-muted" role="status">
        {problem.value ?? (waits ? "Loading …" : why)}
      </span>
    </div>
  );
}

/**
 * Render the panel of a page: a button for each result that the page contains. The chosen result is
 * stored in the URL of the page.
 */
function Tried({ context, selection }: PanelProps) {
  const { record } = context;
  const state = changedRunState(record);
  const outcomes = state.outcomes.value;
  if (outcomes.length === 0) return null;
  const changes = state.changes.value;
  return (
    <details class="av-what-if" open>
      <summary>Answers of the model with changed attention</summary>
      <ul aria-label="Tried changes">
        {outcomes.map((item) => {
          const chosen = same(item.changes, changes);
          return (
            <li key={JSON.stringify(item.changes)}>
              <Chip
                aria-pressed={chosen}
                onClick={() => assign(state, { changes: chosen ? [] : item.changes })}
              >
                {item.described.join(" ")}
              </Chip>{" "}
              <span class={chosen ? "av-what-if-answer" : ""}>{item.sentence}</span>
            </li>
          );
        })}
      </ul>
      {changedRunOf(record).drawable.value && <ShownRuns context={context} selection={selection} />}
      <p class="av-muted">{CAVEAT}</p>
    </details>
  );
}

function Live({ context, selection }: PanelProps) {
  const state = changedRunState(context.record);
  const { latest, current, ranked, panelOpen, retry } = changedRunOf(context.record);
  const changes = state.changes.value;
  const open = panelOpen.value;
  // Open the panel when Python sets changes.
  useLayoutEffect(() => {
    if (changes.length > 0) panelOpen.value = true;
  }, [JSON.stringify(changes)]);
  useEffect(() => () => (panelOpen.value = false), []);

  const last = latest.value;
  const now = current.value;
  // Offer no changes if the kernel replied with an error although no changes are chosen.
  const problem = now?.problem ?? null;
  const answer = ranked.value?.content ?? now?.content;
  const offersChanges = last?.content !== null || problem === null || changes.length > 0;
  return (
    <details class="av-what-if" open={open}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a summary takes Enter and Space */}
      <summary
        onClick={(event) => {
          // Only `panelOpen` sets the attribute `open`. If the browser set it, too, a rendering
          // before the browser's event `toggle` would close the panel again.
          event.preventDefault();
          panelOpen.value = !panelOpen.peek();
        }}
      >
        {SUMMARY}
      </summary>
      {open && (
        // The buttons that add changes are above the sentence with the answer, so that they do not
        // move when the length of this sentence changes.
        <>
          {offersChanges && <Offers context={context} selection={selection} />}
          {last?.content && <MeasuredAnswer context={context} outcome={last.content} />}
          <p class="av-what-if-answer" role="status" aria-busy={now === null}>
            {now === null ? "The kernel runs the model …" : (answer?.sentence ?? now.problem)}
          </p>
          {answer && <Rank context={context} unranked={answer.unranked} />}
          {problem !== null && changes.length > 0 && (
            <button type="button" class="av-plain" onClick={retry}>
              Try again
            </button>
          )}
          {last?.content && changes.length > 0 && (
            <ShownRuns context={context} selection={selection} />
          )}
          {changes.length > 0 && <Chips context={context} selection={selection} />}
          {now?.content && changes.length > 0 && <p class="av-muted">{CAVEAT}</p>}
        </>
      )}
    </details>
  );
}

/**
 * Render the button that compares the effect with those of the same change of all heads, tokens or
 * layers (`unranked`). Render nothing if the rank is known, or if the changes have none.
 */
function Rank({ context, unranked }: { context: RecordContext; unranked: string }) {
  const { ranked, ranks, compare } = changedRunOf(context.record);
  if (unranked === "") return null;
  return (
    <p class="av-muted" role="status">
      {ranked.value?.problem ??
        (ranks.value ? (
          `Measuring the same change of all ${unranked} …`
        ) : (
          <>
            <Chip onClick={compare}>Compare with the same change of all {unranked}</Chip> to see
            whether this effect is large
          </>
        ))}
    </p>
  );
}

const DEFAULT_ANSWER = "most likely before minus most likely other after";

/**
 * Render the field that chooses the measured answer: the default of the kernel, or one of the most
 * likely tokens. If Python set another answer, the field also shows it.
 */
function MeasuredAnswer(props: { context: RecordContext; outcome: OutcomeHeader }) {
  const { context, outcome } = props;
  const state = changedRunState(context.record);
  const all = [...outcome.candidates_before, ...outcome.candidates_after];
  // If the model has no logits, the kernel returns no tokens from which to choose.
  if (all.length === 0) return null;
  const candidates = new Map(all.map(({ id, text }) => [id, text]));
  const answer = state.answer.value;
  const chosen = [...candidates].find(([id, text]) => answer === id || answer === text);
  const value = answer === null ? "" : chosen ? String(chosen[0]) : "own";
  const answerLabel = isFunction(answer)
    ? `value of ${answer.function}`
    : (measuredOf(answer) ?? [])
        .map((part) => (typeof part === "number" ? `token ${part}` : quoted(part)))
        .join(" minus ");
  return (
    <div class="av-row av-options av-measured">
      <Choice
        label="Measured answer"
        value={value}
        options={[
          ["", DEFAULT_ANSWER],
          ...[...candidates].map(([id, text]) => [String(id), quoted(text)] as const),
          ...(value === "own" ? [["own", answerLabel] as const] : []),
        ]}
        onChange={(choice) => {
          if (choice !== "own") assign(state, { answer: choice === "" ? null : Number(choice) });
        }}
      />
    </div>
  );
}

/** Render the chosen changes as buttons. Each button removes its change. */
function Chips({ context, selection }: PanelProps) {
  const state = changedRunState(context.record);
  const changes = state.changes.value;
  const remove = (button: Element, at: number): void => {
    const summary = button.closest(".av-what-if")?.querySelector("summary");
    assign(state, { changes: changes.filter((_, i) => i !== at) });
    // The button that has the focus is removed. Move the focus to the summary of the panel.
    requestAnimationFrame(() => summary?.focus());
  };
  return (
    <ul class="av-chips" aria-label="Changes">
      {changes.map((change, i) => {
        const words = changeInWords(change, selection);
        return (
          <li key={JSON.stringify(change)}>
            <Chip
              aria-label={`Remove: ${words}`}
              title="Remove this change"
              onClick={({ currentTarget }) => remove(currentTarget, i)}
            >
              {words} <span aria-hidden="true">×</span>
            </Chip>
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

/**
 * Render the buttons that add a change: cut the pinned edge, remove the output of the shown head,
 * or hide the pinned key.
 */
function Offers({ context, selection }: PanelProps) {
  const state = changedRunState(context.record);
  const reachChoice = useSignal<Reach>("head");
  const before = useSignal(true);
  const { edge, reaches, head, token } = offeredAt(selection);
  const reach = reaches.includes(reachChoice.value) ? reachChoice.value : (reaches[0] as Reach);
  const add = (change: Change): void =>
    assign(state, {
      changes: withChange(state.changes.peek(), change),
      run: state.run.peek() === "before" ? "after" : state.run.peek(),
    });
  const button = (label: string, change: Change) => (
    <Chip onClick={() => add(change)}>{label}</Chip>
  );
  return (
    <div class="av-row av-options">
      {edge && (
        <span class="av-row av-options">
          {button("What if this edge were cut?", edge(reach, before.value))}
          <Choice
            label="Cut"
            value={before.value ? "before" : "after"}
            options={{ before: "before the softmax", after: "after the softmax" }}
            onChange={(value) => (before.value = value === "before")}
          />
          <Choice
            label="Where"
            options={reaches.map((option) => [option, REACHES[option]] as const)}
            {...bound(reachChoice)}
            value={reach}
          />
        </span>
      )}
      {head && button(`Without head ${selection.layer}.${head.heads}`, head)}
      {token &&
        button(
          `Hide the token ${quoted(selection.keys.text[selection.key ?? 0] ?? "")} (${selection.key})`,
          token,
        )}
      {!edge && <span class="av-muted">Pin a query and a key to cut the edge between them.</span>}
    </div>
  );
}
