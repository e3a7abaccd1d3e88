// @vitest-environment node

import { describe, expect, it } from "vitest";
import type { Range, TokenList } from "../../../src/client/protocol";
import { withPatchNames } from "../../../src/draw/patches";
import { openingWindows, sectionsOf, ticksOf } from "../../../src/ui/axis";
import {
  axisLabel,
  silenceInWords,
  silenceTimes,
  spanOf,
  timeText,
  withPlaceNames,
} from "../../../src/ui/text/places";
import { described, readFixture, sentences, stackOf, tokensOf } from "../../builders";

interface Case {
  name: string;
  tokens: TokenList;
  /** Start and end of a frame or of a patch, time of an image, or name of a group. */
  places: ([number, number] | [string, string] | number | string | null)[];
}

/** Tokens of models, and what their inputs say (tests/fixtures/make_places.py). */
const { cases } = readFixture<{ cases: Case[] }>("places.json");

function named(tokens: TokenList): TokenList {
  const description = described(stackOf({ query_tokens: tokens }));
  const images = [
    { height: 4, width: 4 },
    { height: 4, width: 4 },
  ];
  const [stack] = withPatchNames(withPlaceNames({ ...description, images })).stacks;
  return (stack as { query_tokens: TokenList }).query_tokens;
}

function caseOf(name: string) {
  const item = cases.find((other) => other.name === name) as Case;
  const tokens = named(item.tokens);
  const whole: Range = [0, tokens.text.length];
  return { tokens, whole, places: item.places };
}

/** Return the seconds of a time such as "1.24 s", "1.24" or "1:02.5". */
function secondsOf(text: string): number {
  const [seconds = 0, minutes = 0] = text.replace(" s", "").split(":").reverse().map(Number);
  return 60 * minutes + seconds;
}

const FRAMES = ["long", "filled up"];

describe("names", () => {
  it.each(FRAMES)("of frames have their start and their end: %s", (name) => {
    const { tokens, places } = caseOf(name);
    const times = tokens.text.map((text) => text.split(",")[0]?.split("–").map(secondsOf));
    expect(times).toEqual(places);
  });

  it("of a range have the start of its first and the end of its last token", () => {
    const [long, filled, dated] = FRAMES.concat("dated").map((name) => caseOf(name).tokens);
    expect(spanOf(long as TokenList, [3, 6])).toBe("0.6–1.2 s");
    expect(spanOf(long as TokenList, [298, 305])).toBe("59.6 s–1:01.0");
    expect(spanOf(filled as TokenList, [20, 50])).toBe("0.40–1.00 s");
    expect(spanOf(filled as TokenList, [21, 50])).toBe("0.42–1.00 s, silence");
    expect(spanOf(dated as TokenList, [8, 16])).toBe("x2 2024-02-01 – 2024-03-03");
    expect(spanOf(dated as TokenList, [7, 9])).toBe(
      "x1 2024-02-29 – 2024-03-03 – x2 2024-02-01 – 2024-02-04",
    );
  });

  it("of silence say so", () => {
    const { text } = caseOf("filled up").tokens;
    expect(text.map((name) => name.endsWith(", silence"))).toEqual(text.map((_, i) => i >= 21));
  });

  it("of patches of a video have the time of their frame", () => {
    const { tokens, places } = caseOf("filmed");
    const times = tokens.text.map((text) => /^patch \d,\d at (.*)$/.exec(text)?.[1] ?? null);
    expect(times).toEqual(
      places.map((time) => (time === null ? null : secondsText(time as number))),
    );
    expect(times[5]).toBe("0.5 s");
    expect(axisLabel(tokens, 6)).toBe("patch 0,1");
  });

  it("of a user have their group", () => {
    const { tokens, places } = caseOf("numbered");
    expect(tokens.text).toEqual(["<cls>", "V1, H", "Q2, H", "L2A, H", "V1, L", "D2, L", "<eos>"]);
    const labels = tokens.text.map((_, token) => axisLabel(tokens, token));
    expect(labels).toEqual(["<cls>", "V1", "Q2", "L2A", "V1", "D2", "<eos>"]);
    expect(groupsOf(tokens)).toEqual(places);
  });

  it("of a user stay beside seconds", () => {
    const span = { start: 0, columns: 2, name: "", unit: "s", origin: 1, step: 0.25, width: 0.5 };
    const tokens = named(tokensOf(["AH", "0.25s"], { spans: [span] }));
    expect(tokens.text).toEqual(["AH, 1.00–1.50 s", "1.25–1.75 s"]);
    expect([0, 1].map((token) => axisLabel(tokens, token))).toEqual(["AH", "1.25 s"]);
  });

  it("of rows have the name of their board or band", () => {
    const { tokens, places } = caseOf("boarded");
    expect(groupsOf(tokens).slice(0, 7)).toEqual(places.slice(0, 7));
    expect(tokens.text.slice(6)).toEqual([
      "board 1,2",
      ...["0.0–0.5 s, band 0", "0.5–1.0 s, band 0", "0.0–0.5 s, band 1", "0.5–1.0 s, band 1"],
    ]);
    expect(axisLabel(tokens, 6)).toBe("1,2");
  });
});

function secondsText(seconds: number): string {
  return `${seconds.toFixed(1)} s`;
}

/** Return the name of the section of each token, or null. */
function groupsOf(tokens: TokenList): (string | null)[] {
  const window: Range = [0, tokens.text.length];
  const sections = sectionsOf({ tokens, window });
  return tokens.text.map((_, token) => {
    const own = sections.filter(
      (section) => section.tokens[0] <= token && token < section.tokens[1],
    );
    expect(own).toHaveLength(1);
    return own[0]?.name || null;
  });
}

describe("labels", () => {
  it.each(FRAMES)("of frames are their start: %s", (name) => {
    const { tokens, places } = caseOf(name);
    const starts = tokens.text.map((_, token) => secondsOf(axisLabel(tokens, token)));
    expect(starts).toEqual(places.map((ends) => (ends as [number, number])[0]));
  });

  it("of patches of a series are their first date", () => {
    const { tokens, places } = caseOf("dated");
    const labels = tokens.text.map((_, token) => axisLabel(tokens, token));
    expect(labels).toEqual(places.map((ends) => (ends as [string, string])[0]));
  });

  it("of single steps with a hyphen are not divided", () => {
    const span = { start: 0, columns: 1, name: "", unit: "step", origin: 0, step: 1, width: 1 };
    expect(axisLabel(tokensOf(["2024-01"], { spans: [span] }), 0)).toBe("2024-01");
    const patches = tokensOf(["x1 0-15"], { spans: [{ ...span, name: "x1", width: 16 }] });
    expect(axisLabel(patches, 0)).toBe("0");
  });

  sentences({
    "12.4 s": timeText(12.4, 1),
    "59.9 s": timeText(59.94, 1),
    "1:00.0": timeText(59.96, 1),
    "1:02.5": timeText(62.5, 1),
    "1:09": timeText(69, 0),
    "12:30": timeText(750, 0),
  });
});

describe("ticks", () => {
  const zooms = [0.25, 1, 3, 8, 30];

  it.each(zooms)("of a sound are at their times, with %f pixels per token", (step) => {
    const { tokens, whole } = caseOf("long");
    for (const window of [whole, [40, 90] as Range]) {
      const ticks = ticksOf({ tokens, window }, step, 44);
      // Frames of 0.2 seconds.
      for (const { at, text } of ticks) expect(secondsOf(text)).toBeCloseTo(at * 0.2, 6);
      const gaps = ticks.slice(1).map(({ at }, i) => (at - (ticks[i]?.at ?? 0)) * step);
      expect(Math.min(44, ...gaps)).toBeGreaterThan(43.9);
      expect(Math.max(0, ...gaps)).toBeLessThan(44 * 3 + step);
      const inside = ticks.filter(({ at }) => at >= window[0] && at < window[1]);
      expect(inside).toEqual(ticks);
      if ((window[1] - window[0]) * step > 3 * 44) expect(ticks.length).toBeGreaterThan(0);
    }
  });

  it("continue from a sound into the silence after it", () => {
    const { tokens, whole } = caseOf("filled up");
    const ticks = ticksOf({ tokens, window: whole }, 4, 26);
    expect(ticks.map(({ text }) => text)).toEqual(["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]);
  });

  it.each(zooms)("of a series are dates in each channel, with %f pixels per token", (step) => {
    const { tokens, whole, places } = caseOf("dated");
    const ticks = ticksOf({ tokens, window: whole }, step, 44);
    expect(ticks.slice(0, 3).map(({ token }) => token)).toEqual([0, 8, 16]);
    for (const { token, text } of ticks) expect(text).toBe((places[token ?? -1] as string[])[0]);
  });

  it("of words are those with round indices", () => {
    const tokens = tokensOf(Array.from({ length: 30 }, (_, i) => `t${i}`));
    const ticks = ticksOf({ tokens, window: [3, 28] }, 9, 44);
    expect(ticks.map(({ text }) => text)).toEqual(["t5", "t10", "t15", "t20", "t25"]);
  });
});

describe("sections", () => {
  it("are the visible parts of channels", () => {
    const { tokens } = caseOf("dated");
    expect(sectionsOf({ tokens, window: [6, 18] })).toEqual([
      { name: "x1", tokens: [6, 8] },
      { name: "x2", tokens: [8, 16] },
      { name: "x3", tokens: [16, 18] },
    ]);
  });

  it("are the frames of a video, and the text around them", () => {
    const { tokens, whole } = caseOf("filmed");
    const names = sectionsOf({ tokens, window: whole }).map(({ name }) => name);
    expect(names).toEqual(["", "0.0 s", "0.5 s", ""]);
    expect(sectionsOf({ tokens, window: [0, 1] })).toEqual([]);
  });
});

describe("silence", () => {
  const { tokens } = caseOf("filled up");

  it("is not in the window with which a stack opens", () => {
    const words = tokensOf(["a", "b"]);
    expect(openingWindows({ query_tokens: words, key_tokens: tokens })).toEqual({
      query_window: null,
      key_window: [0, 21],
    });
    expect(openingWindows({ query_tokens: tokens, key_tokens: null }, () => [0, 8])).toEqual({
      ...{ query_window: null, key_window: null },
    });
  });

  it("is named in captions if it is outside of the window", () => {
    const sound = { tokens, window: [0, 21] as Range };
    const words = { tokens: tokensOf(["a"]), window: [0, 1] as Range };
    expect(silenceInWords({ query: words, key: sound })).toBe(
      "The silence after the sound, 0.42–1.00 s, is outside the window.",
    );
    expect(silenceInWords({ query: sound, key: { tokens, window: [0, 22] } })).toBe("");
    expect(silenceInWords({ query: words, key: words })).toBe("");
    expect(silenceTimes(words.tokens)).toBe("");
  });
});
