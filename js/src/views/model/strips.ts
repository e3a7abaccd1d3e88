/** A head's strip: where its weight goes, as a pile of bands. Pure functions. */

import type { Strip } from "../../client/requests/strips";
import { type Box, namedColors } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import { counted, formatWeight } from "../../ui/captions";
import type { Palette } from "../../ui/palette";
import type { Square } from "./marks";

/** What a band is called where there is little room. */
const SHORT: Record<string, string> = {
  "first token": "first",
  "own window": "window",
  "previous token": "previous",
};

/** The hue of a part among those of chosen heads; the first is left to the head that is open. */
const HUES: Record<string, number> = {
  "first token": 1,
  "own window": 2,
  "previous token": 3,
  "no key": 4,
};

/** What is elsewhere steps back. The others are text colours, so that numbers on them are read. */
export function partColor(palette: Palette, part: string): string {
  const hue = HUES[part];
  return (hue === undefined ? undefined : palette.headTexts[hue]) ?? palette.rule;
}

/** Parts in the order of the pile: from the start of the text, above, to the query, below. */
export const PARTS = ["no key", "first token", "elsewhere", "own window", "previous token"];

/** Where the bands of a pile `side` high begin and end, in whole pixels of the screen. */
export function bandsOf(
  strip: Strip,
  side: number,
  scale: number,
): { part: string; share: number; top: number; bottom: number }[] {
  let sum = 0;
  const edge = (share: number): number => Math.round(share * side * scale) / scale;
  return PARTS.flatMap((part) => {
    const share = strip.shares[strip.parts.indexOf(part)] ?? 0;
    const top = edge(sum);
    sum += share;
    const bottom = edge(Math.min(1, sum));
    return bottom > top ? [{ part, share, top, bottom }] : [];
  });
}

/** Numbers are written into bands of thumbnails from this side on, names from the next. */
const NUMBERED = 44;
const NAMED = 90;

/** A head's strip as marks. */
export function stripMarks(strip: Strip, square: Square, palette: Palette, scale: number): Mark[] {
  const { x, y, side } = square;
  return bandsOf(strip, side, scale).flatMap(({ part, share, top, bottom }): Mark[] => {
    const height = bottom - top;
    const fill = partColor(palette, part);
    const band: Mark = { kind: "rect", x, y: y + top, width: side, height, fill };
    if (side < NUMBERED || height < 12) return [band];
    const number = `${Math.round(100 * share)}%`;
    return [
      band,
      {
        kind: "text",
        x: x + side / 2,
        y: y + top + height / 2 + 0.5,
        text: side < NAMED ? number : `${SHORT[part] ?? part} ${number}`,
        fill: part in HUES ? palette.background : palette.ink,
        size: 10,
        font: "text",
        align: "middle",
      },
    ];
  });
}

/** The parts in the order of the pile, each with its colour. */
export function stripColors(
  parts: readonly string[],
  palette: Palette,
): { name: string; color: string }[] {
  return PARTS.filter((part) => parts.includes(part)).map((name) => ({
    name,
    color: partColor(palette, name),
  }));
}

/** What colours mean, above a figure. */
export function stripLegend(parts: readonly string[], palette: Palette, width: number): Box {
  const box = namedColors(stripColors(parts, palette), width, palette.ink);
  return { ...box, height: box.height + 6 };
}

/** "64 of 32,768 queries". */
export function takenInWords(taken: number, of: number): string {
  return `${taken} of ${counted(of)} queries`;
}

/** "the query and the 64 tokens before it"; nothing where there is no window. */
export function windowInWords({ window, own_window: own, parts }: Strip): string {
  if (!parts.includes("own window")) return "";
  if (!window) return "the model's own window";
  const [before, after] = window;
  const around = after === 0 ? "before it" : after === before ? "on either side" : "";
  const which = around
    ? `${counted(before)} tokens ${around}`
    : `${counted(before)} tokens before and ${counted(after)} after it`;
  return `${own ? "the model's window, " : ""}the query and the ${which}`;
}

/** A share with its standard error, where it is an estimate. */
function shareInWords(share: number, error: number): string {
  return error > 0 ? `${formatWeight(share)} ± ${formatWeight(error)}` : formatWeight(share);
}

/** Each part with its share: "first token 0.62 ± 0.03". */
export function sharesInWords(strip: Strip): { part: string; text: string }[] {
  const known = strip.shares.every(Number.isFinite);
  return PARTS.flatMap((part) => {
    const at = strip.parts.indexOf(part);
    if (at < 0 || !known) return [];
    const text = shareInWords(strip.shares[at] as number, strip.errors[at] as number);
    return [{ part, text: `${part} ${text}` }];
  });
}

/** A head's strip in one line. */
export function stripInWords(strip: Strip): string {
  return (
    sharesInWords(strip)
      .map(({ text }) => text)
      .join(", ") || "no weight at all"
  );
}
