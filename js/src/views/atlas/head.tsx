/**
 * The chosen head: its roles with their evidence, and all its statistics. A role names what a head
 * does, such as "induction".
 */

import { RoleLetter } from "../../ui/head-grid/head-roles";
import { capital } from "../../ui/text/captions";
import {
  definitionInWords,
  evidenceInWords,
  noRoleInWords,
  unitInWords,
  withError,
} from "./captions";
import type { AtlasProps } from "./controls";

export function ChosenHead({ context, store }: AtlasProps) {
  const chosen = store.chosen.value;
  if (!chosen) return null;
  const { head, table, stack, title } = chosen;
  const roles = table.roles(head);
  return (
    <section class="av-atlas-head" aria-label={title}>
      <h2 class="av-pane-title">{title}</h2>
      {roles.length === 0 && <p>{capital(noRoleInWords(stack))}.</p>}
      <ul class="av-vertical av-atlas-evidence">
        {roles.map((role) => {
          const kind = stack.roles[role.role];
          // A role has a colour only if it is the strongest role of at least one head.
          const entry = store.roles.value?.find((candidate) => candidate.role === kind?.name);
          const color = entry?.color ?? context.palette.value.neutral;
          return (
            <li key={role.role}>
              <RoleLetter sign={entry?.sign ?? "+"} color={color} />
              <div>
                <b>{kind?.name}</b> {withError(role.score, role.standard_error)}:{" "}
                <span class="av-muted">{evidenceInWords(role)}.</span>
                <p class="av-muted">{definitionInWords(kind?.definition ?? "")}</p>
              </div>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** Table of all statistics of the chosen head. */
export function Figures({ store }: AtlasProps) {
  const chosen = store.chosen.value;
  if (!chosen) return null;
  const { head, table, stack, title } = chosen;
  const baselines = stack.statistics.some(({ baseline }) => baseline);
  return (
    <div class="av-atlas-figures">
      <table>
        <caption class="av-unseen">All statistics of {title}</caption>
        <thead>
          <tr>
            <th scope="col">Statistic</th>
            <th scope="col">Mean ± error</th>
            {baselines && <th scope="col">Baseline</th>}
            <th scope="col">Texts</th>
          </tr>
        </thead>
        <tbody>
          {stack.statistics.map(({ name, unit, definition }, i) => {
            const { mean, error, baseline, texts } = table.figure(i, head);
            return (
              <tr key={name}>
                <th scope="row" title={definitionInWords(definition)}>
                  {name}
                </th>
                <td>
                  {mean === null ? "not defined" : `${withError(mean, error)}${unitInWords(unit)}`}
                </td>
                {baselines && <td>{baseline === null ? "–" : withError(baseline, null)}</td>}
                <td>{texts}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
