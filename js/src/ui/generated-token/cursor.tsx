/**
 * Control for the answer, which is the text that a model produced. It has a slider that chooses a
 * token of the answer, and a list of candidates: the tokens that were most likely at this position.
 */

import { useEffect } from "preact/hooks";
import type { Candidate, Prediction } from "../../client/protocol";
import { withoutNumber } from "../../client/record-number";
import { isolated, tokenText } from "../../draw/marks";
import { bound, StepSlider, Switch } from "../controls/fields";
import { formatProbability, quotedAt } from "../text/captions";
import type { RecordContext, ViewContext } from "../view/define-view";
import { baseName } from "../view/model-layers";
import { isGenerating, type RecordState, type RecordStore } from "../view/record";
import { assign } from "../view/state";

/**
 * Move the window of visible tokens so that it contains the pinned query, after each change of the
 * pinned query or of the chosen token of the answer. Do nothing while no token of the answer is
 * chosen.
 *
 * @param reveal returns the traits of a window that contains `query`. Undefined if the view has no
 *   such window.
 */
export function useRevealed<S extends RecordState>(
  context: ViewContext<S>,
  reveal: ((query: number) => Partial<S>) | undefined,
): void {
  const prediction = context.common.prediction.value;
  const token = context.record.selection.value?.token ?? null;
  useEffect(() => {
    if (prediction !== null && token !== null && reveal) assign(context.state, reveal(token));
  }, [prediction, token]);
}

export function GeneratedTokenCursor({ context }: { context: RecordContext }) {
  const state = context.common;
  const selection = context.record.selection.value;
  const predictions = selection?.queries.predictions ?? [];
  const at = state.prediction.value;
  const asQuery = state.as_query.value;
  const prediction = at === null ? undefined : predictions[at];
  const count = predictions.length;
  if (!selection || count === 0) return null;

  // At step 0 of the slider, no token of the answer is chosen.
  const step = at === null ? 0 : at + 1;
  const texts = selection.queries.text;
  const probability = prediction ? formatProbability(prediction.token.probability) : "";
  return (
    <fieldset class="av-vertical av-generated" aria-label="Answer">
      <div class="av-row">
        <span class="av-label">Answer</span>
        <div class="av-slide">
          <StepSlider
            label="Token of the answer"
            valueText={prediction ? `${prediction.token.text}, ${step} of ${count}` : "none"}
            back="Previous token of the answer"
            on="Next token of the answer"
            max={count}
            value={step}
            onChange={(to) => assign(state, { prediction: to === 0 ? null : to - 1 })}
          />
          <output class="av-number">
            {prediction ? `${step} of ${count}` : `${count} tokens`}
          </output>
        </div>
        <Switch label="as query" disabled={prediction?.row === null} {...bound(state.as_query)} />
      </div>
      {prediction ? (
        <>
          <p>
            {asQuery ? "" : `${quotedAt(texts, prediction.query)} predicting `}
            <b class="av-generated-token">{isolated(tokenText(prediction.token.text))}</b>
            {asQuery ? ` as query, predicted with ${probability}` : ` (${probability})`}
            {prediction.row === null && (
              <span class="av-muted">
                {isGenerating(context.common)
                  ? " · the model reads it next"
                  : " · the model never read it, so it is not a query"}
              </span>
            )}
          </p>
          <Candidates of={withProduced(prediction)} chosen={prediction.token} />
        </>
      ) : (
        <p class="av-muted">Each token is shown with the row of the query that predicted it.</p>
      )}
    </fieldset>
  );
}

/** Return the candidates, and also the produced token if it is not among them. */
function withProduced({ candidates, token }: Prediction): readonly Candidate[] {
  return candidates.some(({ id }) => id === token.id) ? candidates : [...candidates, token];
}

/** Render candidates with their probabilities, and mark the chosen one. */
function Candidates(props: { of: readonly Candidate[]; chosen?: Candidate | undefined }) {
  const chosen = props.chosen?.id;
  return (
    <ol class="av-candidates" aria-label="Candidates">
      {props.of.map(({ id, text, probability }) => (
        <li key={id} aria-current={id === chosen ? "true" : undefined}>
          <span class="av-generated-token" title={text}>
            {id === chosen ? "✓ " : ""}
            {isolated(tokenText(text))}
          </span>{" "}
          <span class="av-number">{formatProbability(probability)}</span>
          <i style={{ width: `${100 * probability}%` }} />
        </li>
      ))}
    </ol>
  );
}

/** Render the classes that a classifier predicted. In a changed run, they are those before it. */
export function PredictedClasses({ record }: { record: RecordStore }) {
  const classes = record.description.value?.classes ?? [];
  const stack = record.selection.value?.stack;
  if (classes.length === 0 || !stack) return null;
  const isBefore = baseName(stack) !== withoutNumber(stack.name);
  return (
    <div class="av-row av-classes">
      <span class="av-label">{isBefore ? "Predicted before the change" : "Predicted"}</span>
      <Candidates of={classes} chosen={classes[0]} />
    </div>
  );
}
