/**
 * Colours of heads. Pure functions.
 *
 * Heads are coloured by role or by a number. Roles use the palette of selected heads, whose colours
 * people with any kind of colour vision can distinguish. Each role also has a letter, because
 * colour must not be the only sign. Numbers use the colour scale of weights.
 */

import type { AtlasStack } from "../../client/protocol";
import { headsOf } from "../../client/source";
import { colorAt, niceMaximum, signColorAt } from "../../ui/colors/color-scales";
import { inkOn, type Palette, rgbOf, type ThemeName } from "../../ui/colors/palette";
import { NO_ROLE, type RoleSign, signedRoles } from "../../ui/head-grid/head-roles";
import type { Table } from "./client/atlas";
import { type Count, wilson } from "./search";

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
  /** Index in the stack's roles, or null for the entry of heads without a role. */
  role: number | null;
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
  of: (layer: number, head: number) => CellLook;
  legend: { kind: "roles"; entries: RoleEntry[] } | ({ kind: "scale" } & NumberScale);
}

export interface ColorRoom {
  palette: Palette;
  theme: ThemeName;
}

function hexOf([red, green, blue]: readonly number[]): string {
  const two = (value = 0): string => Math.round(value).toString(16).padStart(2, "0");
  return `#${two(red)}${two(green)}${two(blue)}`;
}

/** Draw a translucent colour over a background, and return the result as "#rrggbb". */
function over(color: readonly [number, number, number, number], background: string): string {
  const share = color[3] / 255;
  return hexOf(rgbOf(background).map((below, i) => below + ((color[i] ?? 0) - below) * share));
}

/** Return all heads of a stack, layer by layer. */
export function everyHead(stack: AtlasStack): { layer: number; head: number }[] {
  return stack.layers.flatMap((layer) => headsOf(stack, layer).map((head) => ({ layer, head })));
}

/**
 * Return the entries of the legend: roles that are the strongest role of at least one head, the
 * rarest first, and at the end an entry for heads without a role.
 */
export function roleEntries(table: Table, { palette }: ColorRoom): RoleEntry[] {
  const { stack } = table;
  const counts = stack.roles.map(() => 0);
  let none = 0;
  for (const { layer, head } of everyHead(stack)) {
    const first = table.roles(layer, head)[0];
    if (first) counts[first.role] = (counts[first.role] ?? 0) + 1;
    else none++;
  }
  const kinds = stack.roles.map(({ name }, role) => ({ name, role, count: counts[role] ?? 0 }));
  return [
    ...signedRoles(kinds, palette),
    { role: null, name: "none", sign: NO_ROLE, color: palette.rule, count: none },
  ];
}

/** Colour each head by its strongest role. */
export function byRole(table: Table, room: ColorRoom): Coloring {
  const entries = roleEntries(table, room);
  const looks = new Map(
    entries.map(({ role, sign, color }): [number | null, CellLook] => [
      role,
      { fill: color, ink: inkOn(color), sign },
    ]),
  );
  return {
    of: (layer, head) => looks.get(table.roles(layer, head)[0]?.role ?? null) as CellLook,
    legend: { kind: "roles", entries },
  };
}

function byNumber(
  stack: AtlasStack,
  { palette, theme }: ColorRoom,
  named: Pick<NumberScale, "name" | "unit" | "baseline">,
  numberOf: (layer: number, head: number) => number | null,
  signOf: (value: number) => string,
): Coloring {
  const values = everyHead(stack).map(({ layer, head }) => numberOf(layer, head));
  const defined = values.filter((value) => value !== null);
  const signed = defined.some((value) => value < 0);
  const end = niceMaximum(Math.max(0, ...defined.map(Math.abs)));
  const low = signed ? -end : 0;
  const color: NumberScale["color"] = (share) =>
    signed ? signColorAt(2 * share - 1, palette) : colorAt(theme, share);
  const nothing: CellLook = { fill: null, ink: palette.muted, sign: "–" };
  return {
    of: (layer, head) => {
      const value = numberOf(layer, head);
      if (value === null) return nothing;
      const fill = over(color((value - low) / (end - low)), palette.background);
      return { fill, ink: inkOn(fill), sign: signOf(value) };
    },
    legend: { kind: "scale", ...named, low, end, color },
  };
}

/**
 * Format a number for a cell. Numbers that round to less than 1 have two decimals and no leading
 * zero (".98"). Other numbers have two significant digits ("1.5").
 */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  const text = size < 0.995 ? size.toFixed(2).slice(1) : size.toPrecision(2);
  return `${value < 0 ? "−" : ""}${text}`;
}

/** Colour heads by the mean of a statistic, given by its index in `stack.statistics`. */
export function byStatistic(table: Table, statistic: number, room: ColorRoom): Coloring {
  const { stack } = table;
  const { name, unit } = stack.statistics[statistic] ?? { name: "", unit: "" };
  const baselines = everyHead(stack)
    .map(({ layer, head }) => table.figure(statistic, layer, head).baseline)
    .filter((value) => value !== null)
    .sort((a, b) => a - b);
  const baseline = baselines[Math.floor(baselines.length / 2)] ?? null;
  return byNumber(
    stack,
    room,
    { name, unit, baseline },
    (layer, head) => table.figure(statistic, layer, head).mean,
    shortNumber,
  );
}

/** Colour heads by the share of their sampled edges that match a search. */
export function byMatches(
  stack: AtlasStack,
  room: ColorRoom,
  counts: (layer: number, head: number) => Count | null,
): Coloring {
  const shareOf = (layer: number, head: number): number | null => {
    const count = counts(layer, head);
    return count && count.numTotal > 0 ? count.numFound / count.numTotal : null;
  };
  const named = { name: "share of sampled edges found", unit: "share", baseline: null };
  const coloring = byNumber(stack, room, named, shareOf, () => "");
  return {
    ...coloring,
    of: (layer, head) => ({
      ...coloring.of(layer, head),
      sign: String(counts(layer, head)?.numFound ?? "–"),
    }),
  };
}

/**
 * Sort heads by decreasing share of matching edges. Among equal shares, the head with the larger
 * lower end of the confidence interval comes first.
 */
export function rankedByMatches<T extends { count: Count }>(heads: T[]): T[] {
  const key = ({ count }: T): number => (count.numTotal > 0 ? count.numFound / count.numTotal : -1);
  return [...heads].sort((a, b) => key(b) - key(a) || wilson(b.count)[0] - wilson(a.count)[0]);
}
