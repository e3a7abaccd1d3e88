/**
 * Roles of heads, in views of one text. A role names what a head does, for example "induction".
 *
 * `attnviz.head_statistics` finds roles over a corpus, so they do not describe the shown text. The
 * captions say this.
 */

import type { StackDescription } from "../../client/protocol";
import { countHeads } from "../../client/source";
import type { NamedHeads } from "../../client/traits";
import { measureText } from "../../draw/canvas";
import { type Box, inRows, textMark } from "../../draw/figure";
import { fontOf, type Mark } from "../../draw/marks";
import { inkOn, MAX_COLOURS, type Palette } from "../colors/palette";
import { counted, several } from "../text/captions";
import type { HeadIndex } from "./grid";

/** Name of the order in which heads of the same role are adjacent. */
export const BY_ROLE = "role";

/** Symbol that the atlas shows for heads without a role, in place of a letter. */
export const NO_ROLE = "·";

/**
 * Assign a letter to every name, without using a letter twice. A name gets its first letter that no
 * earlier name got. If all its letters are used, it gets the first unused letter of the alphabet,
 * or "?" if none is left.
 */
export function signsOf(names: readonly string[]): string[] {
  const usedLetters = new Set<string>();
  return names.map((name) => {
    const letters = [...name.toUpperCase()].filter((character) => /\p{L}/u.test(character));
    const sign = [...letters, ..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].find(
      (letter) => !usedLetters.has(letter),
    );
    usedLetters.add(sign ?? "?");
    return sign ?? "?";
  });
}

/**
 * Role with its letter, the background colour of the letter, and the number of heads that have the
 * role.
 */
export interface RoleSign {
  name: string;
  sign: string;
  color: string;
  count: number;
}

/**
 * Return the roles that at least one head has, with letters and colours. The role with the fewest
 * heads comes first. Roles with equally many heads keep their order.
 */
export function signedRoles<Kind extends { name: string; count: number }>(
  kinds: readonly Kind[],
  palette: Palette,
): (Kind & RoleSign)[] {
  const present = kinds.filter(({ count }) => count > 0).sort((a, b) => a.count - b.count);
  const signs = signsOf(present.map(({ name }) => name));
  return present.map((kind, index) => ({
    ...kind,
    sign: signs[index] ?? "?",
    // Roles after the eighth all have the neutral colour and differ only by their letters.
    color: index < MAX_COLOURS ? (palette.heads[index] ?? palette.neutral) : palette.neutral,
  }));
}

/**
 * Return the roles that at least one head has, each with its heads. A head is a pair: the index of
 * its layer in the stack, and its number. The role with the fewest heads comes first, because it
 * has the largest `ranks`.
 */
function rolesPresent({ names, ranks }: NamedHeads) {
  const kinds = new Map<string, { name: string; rank: number; heads: [number, number][] }>();
  names.forEach((row, at) => {
    row.forEach((name, head) => {
      if (!name) return;
      const kind = kinds.get(name) ?? { name, rank: ranks[at]?.[head] ?? 0, heads: [] };
      kind.heads.push([at, head]);
      kinds.set(name, kind);
    });
  });
  return [...kinds.values()].sort((a, b) => b.rank - a.rank);
}

/**
 * Return the roles that at least one head has, with letters and colours. The list is empty if
 * `roles` is null.
 */
export function signsOfHeads(roles: NamedHeads | null, palette: Palette): RoleSign[] {
  const kinds = roles ? rolesPresent(roles) : [];
  const counts = kinds.map(({ name, heads }) => ({ name, count: heads.length }));
  return signedRoles(counts, palette);
}

/** Return the roles of several stacks as those of one, or null if no stack has roles. */
export function joinRoles(stacks: readonly (NamedHeads | undefined)[]): NamedHeads | null {
  const known = stacks.filter((roles) => roles !== undefined);
  if (known.length < 2) return known[0] ?? null;
  return {
    names: known.flatMap(({ names }) => names),
    labels: known.flatMap(({ labels }) => labels),
    ranks: known.flatMap(({ ranks }) => ranks),
  };
}

export function RoleLetter({ sign, color }: Pick<RoleSign, "sign" | "color">) {
  return (
    <span
      class="av-role-sign"
      aria-hidden="true"
      style={{ background: color, color: inkOn(color) }}
    >
      {sign}
    </span>
  );
}

/** Render the legend of role letters, with the number of heads for each role. */
export function RoleLegend({ signs }: { signs: readonly RoleSign[] }) {
  return (
    <p class="av-wrapping av-role-legend">
      {signs.map((role) => (
        <span key={role.name}>
          <RoleLetter {...role} /> {role.name} <span class="av-muted">{counted(role.count)}</span>
        </span>
      ))}
    </p>
  );
}

/**
 * Return the marks of a role letter in a figure: the letter on a square with `side` pixels, centred
 * at (x, y).
 */
export function roleMarks(
  { sign, color }: Pick<RoleSign, "sign" | "color">,
  [x, y]: [number, number],
  side: number,
): Mark[] {
  const box = { x: x - side / 2, y: y - side / 2, width: side, height: side, radius: 2 };
  return [
    { kind: "rect", ...box, fill: color },
    textMark(sign, x, y, inkOn(color), 0.75 * side, { align: "middle" }),
  ];
}

/** Return the legend of roles in a figure. Its rows are at most `width` pixels wide. */
export function roleBox(signs: readonly RoleSign[], palette: Palette, width: number): Box {
  const side = 14;
  const entries = signs.map((role) => {
    const text = textMark(`${role.name} ${role.count}`, side + 6, side / 2, palette.ink, 12);
    const marks = [...roleMarks(role, [side / 2, side / 2], side), text];
    return { width: side + 6 + measureText(text.text, fontOf(text)), marks };
  });
  const rows = inRows(entries, width, 16);
  return { ...rows, height: rows.height + 5 };
}

export interface HeadRole {
  name: string;
  label: string;
}

/** Return the role of a head, or null if the head has none or if the roles are unknown. */
export function roleOf(
  roles: NamedHeads | null | undefined,
  stack: Pick<StackDescription, "layers">,
  { layer, head }: HeadIndex,
): HeadRole | null {
  const at = stack.layers.indexOf(layer);
  const name = roles?.names[at]?.[head];
  return name ? { name, label: roles?.labels[at]?.[head] ?? name } : null;
}

/** Maximum number of heads that a caption names for each role. */
const MAX_NAMED = 4;

/**
 * Return a sentence with the roles of a stack and, for each role, its first `MAX_NAMED` heads in
 * the order of layers. Return "" if `roles` is null.
 */
export function rolesInWords(roles: NamedHeads | null, stack: StackDescription): string {
  if (!roles) return "";
  const [kinds, all] = [rolesPresent(roles), countHeads(stack)];
  const count = kinds.reduce((sum, { heads }) => sum + heads.length, 0);
  if (count === 0) return `None of ${all} heads has a role over the corpus.`;
  const named = kinds.map(({ name, heads }) => {
    const first = heads.slice(0, MAX_NAMED).map(([at, head]) => `${stack.layers[at]}.${head}`);
    const more = heads.length - MAX_NAMED;
    return `${name} ${first.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  });
  const have = count === 1 ? "has" : "have";
  return `${count} of ${several(all, "head")} ${have} a role, found over a corpus, not in this text (layer.head): ${named.join("; ")}.`;
}

/** Approximate width of a letter in the name of a role, in pixels. */
const LETTER = 5.2;

/** Return the name of a role, shortened to about `width` pixels. */
export function fittedName(name: string, width: number): string {
  const maxLetters = Math.floor(width / LETTER);
  return name.length <= maxLetters ? name : `${name.slice(0, Math.max(1, maxLetters - 1))}…`;
}
