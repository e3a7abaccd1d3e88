/**
 * Gates of heads. Some models multiply the output of a head by a gate before the output projection.
 * A head with a closed gate does nothing, whatever it attends to. Views name its gate and draw its
 * map in grey.
 */

import type { StackDescription } from "../../client/protocol";
import type { Ink } from "../colors/color-scales";
import { hexOf, type Palette, rgbOf } from "../colors/palette";
import { capital, formatSmall, headsInWords, withMinus } from "../text/captions";

/**
 * A gate is closed if the absolute value of its mean is below this limit. The head then adds less
 * than a twentieth of its output. The sigmoid of 0, an undecided gate, is ten times as large. Python
 * has the same limit (`attnviz/analysis/heads.py`).
 */
export const CLOSED_GATE = 0.05;

type Gated = Pick<StackDescription, "layers" | "gates">;

interface Head {
  layer: number;
  head: number;
}

/** Return the mean gate of a head, or null if the head has no gate or its gate is not known. */
export function gateOf({ layers, gates }: Gated, { layer, head }: Head): number | null {
  return gates?.[layers.indexOf(layer)]?.[head] ?? null;
}

export function isClosed(gate: number | null | undefined): boolean {
  return typeof gate === "number" && Math.abs(gate) < CLOSED_GATE;
}

/** Format a gate: "0.12", "0.0042", "−0.30", "1.74". */
export function gateText(gate: number): string {
  return withMinus(`${gate < 0 ? "-" : ""}${formatSmall(Math.abs(gate))}`);
}

/** Describe a mean gate: "mean gate 0.12", "gate closed: mean 0.01", or "" for null. */
export function gateInWords(gate: number | null): string {
  if (gate === null) return "";
  return `${isClosed(gate) ? "gate closed: mean" : "mean gate"} ${gateText(gate)}`;
}

/**
 * Return a sentence about the gates of heads of a layer, with a space before it: " Mean gate 0.12."
 * or " Mean gates 0.12 to 0.53, closed in head 3." Return "" if no gate is known.
 */
export function gatesInWords(stack: Gated, layer: number, heads: readonly number[]): string {
  const known = heads.flatMap((head) => {
    const gate = gateOf(stack, { layer, head });
    return gate === null ? [] : [{ head, gate }];
  });
  const [first, second] = known;
  if (!first) return "";
  if (!second) return ` ${capital(gateInWords(first.gate))}.`;
  const gates = known.map(({ gate }) => gate);
  const ends = [Math.min(...gates), Math.max(...gates)].map(gateText);
  const closed = known.filter(({ gate }) => isClosed(gate)).map(({ head }) => head);
  const where = closed.length > 0 ? `, closed in ${headsInWords(closed)}` : "";
  return ` Mean gates ${ends.join(" to ")}${where}.`;
}

/**
 * Return the colours of a head's map: `open`, or a pale variant of the neutral colour if its gate is
 * closed.
 */
export function mapInk(stack: Gated, head: Head, open: Ink, palette: Palette): Ink {
  if (!isClosed(gateOf(stack, head))) return open;
  const [from, to] = [rgbOf(palette.background), rgbOf(palette.neutral)];
  return hexOf(from.map((part, i) => part + 0.35 * ((to[i] as number) - part)));
}
