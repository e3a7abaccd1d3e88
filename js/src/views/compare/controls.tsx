/**
 * Controls of the compare view. Members are the records of the comparison. The controls choose the
 * member that is compared with the first one, the picture of a head (lines or matrix), and the
 * order of heads.
 */

import { COMPARE_VIEW_TRAITS } from "../../client/traits";
import { Controls } from "../../ui/controls/declared";
import { StepSlider } from "../../ui/controls/fields";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import type { CompareState } from "./state";
import type { CompareStore } from "./store";

interface ControlProps {
  context: ViewContext<CompareState>;
  store: CompareStore;
}

export function CompareControls({ context }: ControlProps) {
  return (
    <div class="av-row av-options">
      <Controls traits={COMPARE_VIEW_TRAITS} state={context.state} group="heads" />
    </div>
  );
}

/**
 * Slider that chooses the member to compare with the first. It is hidden if the comparison has only
 * two members.
 */
export function MemberSlider({ context, store }: ControlProps) {
  const selection = store.selection.value;
  if (!selection || selection.compared.members.length < 3) return null;
  const { names, member } = selection;
  const name = names[member] ?? String(member);
  return (
    <div class="av-row av-compare-member">
      <span class="av-compare-steps">
        <span class="av-label">Compared</span>
        <StepSlider
          label={`What is compared with ${names[0]}`}
          valueText={`${name}, ${member} of ${names.length - 1}`}
          back="Previous member"
          on="Next member"
          min={1}
          max={names.length - 1}
          value={member}
          onChange={(value) => assign(context.state, { member: value })}
        />
      </span>
      <output>
        {name} <span class="av-muted">with {names[0]}</span>
      </output>
    </div>
  );
}
