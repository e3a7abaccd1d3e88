/**
 * Colours of heads. Pure functions.
 *
 * Heads are coloured by role or by a number. A role names what a head does, such as "induction".
 * Roles use the palette of selected heads, whose colours people with any kind of colour vision can
 * distinguish. Each role also has a letter, because colour must not be the only sign. Numbers use
 * the colour scale of weights.
 */

import type { AtlasStack, AtlasStatistic } from "../../client/protocol";
import { headsOf } from "../../client/source";
import { colorAt, niceMaximum, rampOf } from "../../ui/colors/color-scales";
import { hexOf, inkOn, type Palette, rgbOf, type ThemeName } from "../../ui/colors/palette";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { NO_ROLE, type RoleSign, signedRoles } from "../../ui/head-grid/head-roles";
import { figureInWords, noRoleInWords, roleInWords } from "./captions";
import { type Table, tableFor } from "./client/atlas";

/** Appearance of a head's cell. */
export interface CellLook {
  /** Fill colour as "#rrggbb", or null if the head has no value. */
  fill: string | null;
  /** Text colour of `sign`. */
  ink: string;
  /** Letter of the role, or number, that is written in the cell. */
  sign: string;
}

export interface RoleEntry extends RoleSign {
  /** Name of the role, or null for the entry of heads without a role. */
  role: string | null;
}

/** Colour scale of a number. */
export interface NumberScale {
  name: string;
  unit: string;
  /** Smallest number on the scale: 0, or `-end` if some heads have negative numbers. */
  low: number;
  /** Largest number on the scale. */
  end: number;
  /** Median of the heads' baselines, or null if the number has no baseline. */
  baseline: number | null;
  /** Return [red, green, blue, alpha] for a position on the scale, from 0 (`low`) to 1 (`end`). */
  color: (share: number) => [number, number, number, number];
}

export interface Coloring {
  of: (head: HeadIndex) => CellLook;
  /** Return what a head's colour means, for the tooltip and screen readers. */
  words: (head: HeadIndex) => string;
  legend: { kind: "roles"; entries: RoleEntry[] } | ({ kind: "scale" } & NumberScale);
}

export interface ColorRoom {
  palette: Palette;
  theme: ThemeName;
}

/** Draw a translucent colour over a background, and return the result as "#rrggbb". */
function over(color: readonly [number, number, number, number], background: string): string {
  const share = color[3] / 255;
  return hexOf(rgbOf(background).map((below, i) => below + ((color[i] ?? 0) - below) * share));
}

/** Return all heads of a stack, layer by layer. */
export function everyHead(stack: AtlasStack): HeadIndex[] {
  return stack.layers.flatMap((layer) => headsOf(stack, layer).map((head) => ({ layer, head })));
}

/** Opacity, from 0 to 255, of the role that most heads have. */
const QUIET = 110;

/**
 * Return the entries of the legend: roles that are the strongest role of at least one head of any
 * of the stacks, the rarest first, and at the end an entry for heads without a role.
 */
export function roleEntries(tables: readonly Table[], palette: Palette): RoleEntry[] {
  const strongest = tables.flatMap((table) =>
    everyHead(table.stack).map((head) => table.roleName(head)),
  );
  const countOf = (role: string | null): number =>
    strongest.filter((other) => other === role).length;
  const names = new Set(tables.flatMap(({ stack }) => stack.roles.map(({ name }) => name)));
  const kinds = [...names].map((name) => ({ name, role: name, count: countOf(name) }));
  const signed = signedRoles(kinds, palette);
  // A role that most heads have, such as "first token", would be the picture. Draw it in grey, so
  // that the rarer roles are seen.
  const common = signed.length > 1 ? signed.at(-1) : undefined;
  const quiet = over([...rgbOf(palette.muted), QUIET], palette.background);
  const isCommon = (kind: RoleSign): boolean =>
    kind === common && kind.count > strongest.length / 2;
  return [
    ...signed.map((kind) => (isCommon(kind) ? { ...kind, color: quiet } : kind)),
    { role: null, name: "none", sign: NO_ROLE, color: palette.rule, count: countOf(null) },
  ];
}

/** Colour each head by its strongest role. */
export function byRole(tables: readonly Table[], entries: RoleEntry[]): Coloring {
  const looks = new Map(
    entries.map(({ role, sign, color }): [string | null, CellLook] => [
      role,
      { fill: color, ink: inkOn(color), sign },
    ]),
  );
  return {
    of: (head) => looks.get(tableFor(tables, head).roleName(head)) as CellLook,
    words: (head) => {
      const table = tableFor(tables, head);
      const [first] = table.roles(head);
      return first ? roleInWords(table.stack, first) : noRoleInWords(table.stack);
    },
    legend: { kind: "roles", entries },
  };
}

/** Smallest end of a scale, because the cells show numbers with two decimals. */
const MIN_END = 0.01;

/**
 * Format a number for a cell. Numbers that round to less than 1 have two decimals and no leading
 * zero (".98"). Other numbers have two significant digits ("1.5").
 */
function shortNumber(value: number): string {
  const size = Math.abs(value);
  const text = size < 0.995 ? size.toFixed(2).slice(1) : size.toPrecision(2);
  return `${value < 0 ? "−" : ""}${text}`;
}

/**
 * Colour the heads of a stack by the mean of a statistic, given by its index in
 * `stack.statistics`. Heads of its siblings have no colours, because their numbers have another
 * scale.
 */
export function byStatistic(
  table: Table,
  statistic: number,
  { palette, theme }: ColorRoom,
): Coloring {
  const { stack } = table;
  const { name, unit } = stack.statistics[statistic] as AtlasStatistic;
  const isOther = (head: HeadIndex): boolean =>
    head.stack !== undefined && head.stack !== stack.name;
  const figures = everyHead(stack).map((head) => table.figure(statistic, head));
  const means = figures.map(({ mean }) => mean).filter((mean) => mean !== null);
  const baselines = figures
    .map(({ baseline }) => baseline)
    .filter((baseline) => baseline !== null)
    .sort((a, b) => a - b);
  const baseline = baselines[Math.floor(baselines.length / 2)] ?? null;
  const signed = means.some((mean) => mean < 0);
  const end = niceMaximum(Math.max(MIN_END, ...means.map(Math.abs)));
  const low = signed ? -end : 0;
  const color: NumberScale["color"] = signed ? rampOf(palette) : (share) => colorAt(theme, share);
  const empty = { fill: null, ink: palette.muted };
  return {
    of: (head) => {
      if (isOther(head)) return { ...empty, sign: "" };
      const { mean } = table.figure(statistic, head);
      if (mean === null) return { ...empty, sign: "–" };
      const fill = over(color((mean - low) / (end - low)), palette.background);
      return { fill, ink: inkOn(fill), sign: shortNumber(mean) };
    },
    words: (head) =>
      isOther(head)
        ? "choose it to colour its kind of layer"
        : `${name} ${figureInWords(table.figure(statistic, head), unit)}`,
    legend: {
      kind: "scale",
      ...{ name: stack.linear ? `${name} of linear layers` : name, unit, baseline },
      ...{ low, end, color },
    },
  };
}
