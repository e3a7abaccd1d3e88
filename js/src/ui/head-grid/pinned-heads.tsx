/** Sentence that names the heads with the most weight from the pinned query to the pinned key. */

import { headName, quantityOf, quotedAt, stackName, written } from "../text/captions";
import type { RecordContext } from "../view/define-view";
import { baseName } from "../view/model-layers";
import { assign } from "../view/state";
import { headOrderOf } from "./order";

/** Maximum number of heads in the sentence. */
const MAX_NAMED = 4;

/**
 * Return the heads with the largest absolute scores in all layers, the largest first. Return at
 * most `MAX_NAMED` heads, and no head whose score is 0 or null.
 *
 * @param scores one list per layer, in the order of `layers`, with one score per head.
 */
export function strongestHeads(
  layers: readonly number[],
  scores: readonly (readonly (number | null)[])[],
): { layer: number; head: number; score: number }[] {
  const heads = scores.flatMap((row, i) =>
    row.map((score, head) => ({ layer: layers[i] as number, head, score: score ?? 0 })),
  );
  heads.sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
  return heads.filter(({ score }) => score !== 0).slice(0, MAX_NAMED);
}

/**
 * Render the sentence. A click on a head shows this head. Render nothing unless a query and a key
 * are pinned and their weights are loaded.
 */
export function PinnedHeads({ context }: { context: RecordContext }) {
  const { record, common } = context;
  const selection = record.selection.value;
  const scores = headOrderOf(record).pinnedScores.value;
  if (!selection || selection.token === null || selection.key === null || !scores) return null;
  const heads = strongestHeads(selection.stack.layers, scores);
  const from = quotedAt(selection.queries.text, selection.token);
  const to = quotedAt(selection.keys.text, selection.key);
  const quantity = quantityOf(selection.stack);
  // Numbers of sibling stacks have different scales, so the heads are those of one stack.
  const isOneOfSeveral = selection.siblings.length > 1;
  const within = isOneOfSeveral ? ` of ${stackName(baseName(selection.stack))}` : "";
  if (heads.length === 0)
    return (
      <p class="av-muted av-pinned-heads">
        No head{within} has any {quantity.name} from {from} to {to}.
      </p>
    );
  return (
    <p class="av-muted av-pinned-heads">
      {`Largest ${quantity.name} from ${from} to ${to} among all heads${within}: `}
      {heads.map(({ layer, head, score }, i) => (
        <span key={`${layer}.${head}`}>
          {i > 0 && ", "}
          <button
            type="button"
            class="av-head-link"
            onClick={() => assign(common, { layer, heads: [head] })}
          >
            {headName({ layer, head })}
          </button>
          {` (${written(quantity, score)})`}
        </span>
      ))}
      .
    </p>
  );
}
