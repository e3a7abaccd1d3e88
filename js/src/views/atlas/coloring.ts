/**
 * What heads are coloured by, and the colours. Pure functions.
 *
 * Roles take the colours of chosen heads, which differ for every kind of sight, and each has a letter,
 * so that colour is never alone; numbers take the colour scale of weights.
 */

import type { AtlasStack } from "../../client/protocol";
import { headsOf } from "../../client/source";
import { colorAt, niceMaximum, signColorAt } from "../../ui/colors/color-scales";
import { inkOn, type Palette, rgbOf, type ThemeName } from "../../ui/colors/palette";
import { NO_ROLE, type RoleSign, signedRoles } from "../../ui/head-grid/head-roles";
import type { Table } from "./client/atlas";
import { type Count, wilson } from "./search";

/** How a head's cell looks. */
export interface CellLook {
  /** "#rrggbb"; null where there is nothing to show of the head. */
  fill: string | null;
  /** On that. */
  ink: string;
  /** A letter or a number. */
  sign: string;
}

export interface RoleEntry extends RoleSign {
  /** Index in the stack's roles; null for heads without any. */
  role: number | null;
}

export interface NumberScale {
  name: string;
  unit: string;
  low: number;
  end: number;
  /** The median of the heads' baselines; null where there is none. */
  baseline: number | null;
  /** Colours from the low end to the high one. */
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

/** Opaque, over a background. */
function over(color: readonly [number, number, number, number], background: string): string {
  const share = color[3] / 255;
  return hexOf(rgbOf(background).map((below, i) => below + ((color[i] ?? 0) - below) * share));
}

/** Every head of a stack, layer by layer. */
export function everyHead(stack: AtlasStack): { layer: number; head: number }[] {
  return stack.layers.flatMap((layer) => headsOf(stack, layer).map((head) => ({ layer, head })));
}

/** The roles that heads of a stack have, that of the fewest heads first, and heads with none. */
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

/** Heads by their first role. */
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
  const known = values.filter((each) => each !== null);
  const signed = known.some((each) => each < 0);
  const end = niceMaximum(Math.max(0, ...known.map(Math.abs)));
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

/** Two digits of a number between 0 and 1 without the zero: ".98". */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  const text = size < 0.995 ? size.toFixed(2).slice(1) : size.toPrecision(2);
  return `${value < 0 ? "−" : ""}${text}`;
}

/** Heads by a statistic. */
export function byStatistic(table: Table, statistic: number, room: ColorRoom): Coloring {
  const { stack } = table;
  const { name, unit } = stack.statistics[statistic] ?? { name: "", unit: "" };
  const baselines = everyHead(stack)
    .map(({ layer, head }) => table.figure(statistic, layer, head).baseline)
    .filter((each) => each !== null)
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

/** Heads by the share of their sampled edges that a search found. */
export function byFound(
  stack: AtlasStack,
  room: ColorRoom,
  counts: (layer: number, head: number) => Count | null,
): Coloring {
  const shareOf = (layer: number, head: number): number | null => {
    const count = counts(layer, head);
    return count && count.of > 0 ? count.found / count.of : null;
  };
  const named = { name: "share of sampled edges found", unit: "share", baseline: null };
  const coloring = byNumber(stack, room, named, shareOf, () => "");
  return {
    ...coloring,
    of: (layer, head) => ({
      ...coloring.of(layer, head),
      sign: String(counts(layer, head)?.found ?? "–"),
    }),
  };
}

/** Heads by falling count; of equal ones the surer first. */
export function rankedByFound<T extends { count: Count }>(heads: T[]): T[] {
  const key = ({ count }: T): number => (count.of > 0 ? count.found / count.of : -1);
  return [...heads].sort((a, b) => key(b) - key(a) || wilson(b.count)[0] - wilson(a.count)[0]);
}
