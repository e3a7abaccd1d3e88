/**
 * The roles of heads, as views of one text name them.
 *
 * A role is found over a corpus (`attnviz.head_statistics`) and says nothing of the text that is
 * shown: what is written of it says so.
 */

import type { StackDescription } from "../../client/protocol";
import { headsOf } from "../../client/source";
import type { HeadIndex } from "./grid";

/** What heads are ordered by where those of the same role stand together. */
export const BY_ROLE = "role";

/** Of a stack, layer by layer and head by head; null where a head has no role. */
export interface NamedHeads {
  names: (string | null)[][];
  /** With the score: "induction 0.98 ± 0.01". */
  labels: (string | null)[][];
  /** What heads are ordered by. */
  ranks: (number | null)[][];
}

export interface HeadRole {
  name: string;
  label: string;
}

/** The role of a head; null where it has none. */
export function roleOf(
  roles: NamedHeads | null | undefined,
  stack: Pick<StackDescription, "layers">,
  { layer, head }: HeadIndex,
): HeadRole | null {
  const at = stack.layers.indexOf(layer);
  const name = roles?.names[at]?.[head];
  return name ? { name, label: roles?.labels[at]?.[head] ?? name } : null;
}

/** "1.0 induction 0.98 ± 0.01" */
export function labelOf({ layer, head }: HeadIndex, role: HeadRole): string {
  return `${layer}.${head} ${role.label}`;
}

/** Heads of a role that a caption names. */
const MOST_NAMED = 4;

/** Which heads have which role, in a sentence; "" where no roles are given. */
export function rolesInWords(roles: NamedHeads | null, stack: StackDescription): string {
  if (!roles) return "";
  const heads = new Map<string, { rank: number; of: string[] }>();
  let all = 0;
  stack.layers.forEach((layer, at) => {
    for (const head of headsOf(stack, layer)) {
      all++;
      const name = roles.names[at]?.[head];
      if (!name) continue;
      const known = heads.get(name) ?? { rank: roles.ranks[at]?.[head] ?? 0, of: [] };
      known.of.push(`${layer}.${head}`);
      heads.set(name, known);
    }
  });
  const kinds = [...heads].sort(([, one], [, other]) => other.rank - one.rank);
  const count = kinds.reduce((sum, [, { of }]) => sum + of.length, 0);
  if (count === 0) return `None of ${all} heads has a role over the corpus.`;
  const named = kinds.map(([name, { of }]) => {
    const more = of.length - MOST_NAMED;
    return `${name} ${of.slice(0, MOST_NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  });
  const has = count === 1 ? "head has" : "heads have";
  return `${count} of ${all} ${has} a role, found over a corpus and not in what is shown (layer.head): ${named.join("; ")}.`;
}

/** Pixels of a letter of a role's name. */
const LETTER = 5.2;

/** The beginning of a role's name, as far as it fits below a picture. */
export function fittedName(name: string, width: number): string {
  const most = Math.floor(width / LETTER);
  return name.length <= most ? name : `${name.slice(0, Math.max(1, most - 1))}…`;
}

/** Roles that a line below the heads names in full. */
const MOST_IN_LINE = 8;

/** The roles of some heads with their scores, below the heads of a layer. */
export function RoleLine(props: {
  layer: number;
  heads: readonly number[];
  of: (head: number) => HeadRole | null;
}) {
  const { layer, heads, of } = props;
  const labels = heads.flatMap((head) => {
    const role = of(head);
    return role ? [labelOf({ layer, head }, role)] : [];
  });
  const more = labels.length - MOST_IN_LINE;
  return (
    <p class="av-muted av-role-line" title="Found over a corpus of texts, and not in this one">
      Over the corpus:{" "}
      {labels.length === 0
        ? heads.length === 1
          ? "this head has no role"
          : "none of these heads has a role"
        : `${labels.slice(0, MOST_IN_LINE).join(" · ")}${more > 0 ? ` · ${more} more` : ""}`}
    </p>
  );
}
