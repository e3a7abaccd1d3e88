/**
 * Control for the tokens that a model produced: a slider that chooses a token, and the candidates,
 * which are the most likely tokens at this position.
 */

import { useEffect } from "preact/hooks";
import type { Candidate, Prediction } from "../../client/protocol";
import { printable } from "../../draw/marks";
import { StepSlider, Switch } from "../controls/fields";
import { formatProbability, quotedAt } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import { isGenerating, type RecordState } from "../view/record";
import { assign } from "../view/state";

/** Move the window of the view to the query whose row shows the chosen token. */
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

export function GeneratedTokenCursor<S extends RecordState>({
  context,
}: {
  context: ViewContext<S>;
}) {
  const state = context.common;
  const selection = context.record.selection.value;
  const predictions = selection?.queries.predictions ?? [];
  const at = state.prediction.value;
  const asQuery = state.as_query.value;
  const prediction = at === null ? undefined : predictions[at];
  const count = predictions.length;
  if (!selection || count === 0) return null;

  // At step 0 of the slider, no token is chosen and the view shows the whole picture.
  const step = at === null ? 0 : at + 1;
  const texts = selection.queries.text;
  return (
    <fieldset class="av-generated" aria-label="Answer">
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
        <Switch
          label="as query"
          value={asQuery}
          disabled={prediction?.row === null}
          onChange={(on) => assign(state, { as_query: on })}
        />
      </div>
      {prediction ? (
        <>
          <p>
            {asQuery ? (
              <>
                <Token text={prediction.token.text} /> as query, predicted with{" "}
                {formatProbability(prediction.token.probability)}
              </>
            ) : (
              <>
                {quotedAt(texts, prediction.query)} predicting{" "}
                <Token text={prediction.token.text} /> (
                {formatProbability(prediction.token.probability)})
              </>
            )}
            {prediction.row === null && (
              <span class="av-muted">
                {isGenerating(context.common)
                  ? " · the model reads it next"
                  : " · the model never read it, so it is not a query"}
              </span>
            )}
          </p>
          <Candidates of={prediction} />
        </>
      ) : (
        <p class="av-muted">Each token is shown with the row of the query that predicted it.</p>
      )}
    </fieldset>
  );
}

function Token({ text }: { text: string }) {
  return <b class="av-generated-token">{printable(text)}</b>;
}

/** Render the most likely tokens, and also the produced token if it is not among them. */
function Candidates({ of }: { of: Prediction }) {
  const { candidates, token } = of;
  const among = candidates.some((candidate) => candidate.id === token.id);
  return (
    <ol class="av-candidates" aria-label="Candidates">
      {(among ? candidates : [...candidates, token]).map((candidate) => (
        <CandidateItem key={candidate.id} of={candidate} came={candidate.id === token.id} />
      ))}
    </ol>
  );
}

function CandidateItem({ of, came }: { of: Candidate; came: boolean }) {
  return (
    <li {...(came ? { "aria-current": "true" } : {})}>
      <span class="av-generated-token" title={of.text}>
        {came ? "✓ " : ""}
        {printable(of.text)}
      </span>{" "}
      <span class="av-number">{formatProbability(of.probability)}</span>
      <i style={{ width: `${100 * of.probability}%` }} />
    </li>
  );
}
