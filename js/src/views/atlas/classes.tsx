/**
 * Table of the chosen head's mean weights by class of token, such as "punctuation". Rows are
 * classes of queries, and columns are classes of keys.
 */

import type { AtlasClasses } from "../../client/protocol";
import { niceMaximum } from "../../ui/colors/color-scales";
import { rgbOf } from "../../ui/colors/palette";
import { Choice } from "../../ui/controls/fields";
import { formatSmall, formatWeight } from "../../ui/text/captions";
import { shadeOf } from "../../ui/text/running-text";
import type { AtlasProps } from "./controls";
import { MAX_CLASSES } from "./store";

/** Maximum number of columns with numbers in the cells. Larger tables show numbers in tooltips. */
const MAX_WRITTEN = 7;

export function ClassTable({ context, store }: AtlasProps) {
  const [weights, chosen] = [store.classes.weights.value, store.chosen.value];
  const system = store.classes.system.value;
  if (!weights || !chosen || system === undefined) return null;
  const { stack, head, title } = chosen;
  const { values } = stack.classes.find(({ name }) => name === system) as AtlasClasses;
  const weightOf = (query: number, key: number): number =>
    weights[query * values.length + key] as number;
  const all = values.map((_, i) => i);
  // Omit rows of classes without queries, and columns of classes that receive no weight.
  const queries = all.filter((query) => all.some((key) => !Number.isNaN(weightOf(query, key))));
  const keys = all.filter((key) => queries.some((query) => weightOf(query, key) > 0));
  if (queries.length === 0 || keys.length === 0) return null;
  const end = niceMaximum(
    Math.max(0, ...queries.flatMap((query) => keys.map((key) => weightOf(query, key) || 0))),
  );
  const color = rgbOf(context.palette.value.positive).join(" ");
  const written = keys.length <= MAX_WRITTEN;
  const systems = store.classes.systems.value;
  const tooMany = stack.classes.filter(({ values }) => values.length > MAX_CLASSES);
  return (
    <section class="av-atlas-figures" aria-label="Weights by class of token">
      <div class="av-row av-options">
        <h3 class="av-part">Mean weight by class of token</h3>
        {systems.length > 1 && (
          <Choice
            label="Classes"
            value={system}
            options={systems.map((name) => [name, name])}
            onChange={store.classes.choose}
          />
        )}
      </div>
      <table class="av-atlas-classes">
        <caption class="av-unseen">
          {`Mean weight of ${title} from queries of a ${system}, by row, to keys of a ${system}, by column`}
        </caption>
        <thead>
          <tr>
            <th scope="col">query ↓ key →</th>
            {keys.map((key) => (
              <th scope="col" key={key} title={values[key]}>
                {values[key]}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {queries.map((query) => (
            <tr key={query}>
              <th scope="row">{values[query]}</th>
              {keys.map((key) => {
                const weight = weightOf(query, key);
                const number = formatWeight(weight);
                const shade = shadeOf(weight, end);
                return (
                  <td
                    key={key}
                    title={`${values[query]} to ${values[key]}: ${formatSmall(weight)}`}
                    style={shade > 0 ? `background:rgb(${color} / ${shade.toFixed(3)})` : ""}
                  >
                    {written ? number : <span class="av-unseen">{number}</span>}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {tooMany.map(({ name, values }) => (
        <p class="av-muted av-atlas-words" key={name}>
          No table of {name}: it has {values.length} classes, but a table has at most {MAX_CLASSES}.
          Call statistics.stack("{stack.name}").class_weights({head.layer}, "{name}") for all.
        </p>
      ))}
    </section>
  );
}
