import { afterEach, describe, expect, it, vi } from "vitest";
import { graphemes } from "../../../src/ui/text/labels";

const ACCENT = "e\u0301";
const FAMILY = "👩\u200d👧";

describe("the graphemes of a text", () => {
  afterEach(() => vi.unstubAllGlobals());

  it("are cut between letters, not between a letter and its accent", () => {
    expect(graphemes(`a${ACCENT}${FAMILY}`)).toEqual(["a", ACCENT, FAMILY]);
  });

  it("are the same in a browser without Intl.Segmenter (Firefox before 125)", () => {
    vi.stubGlobal("Intl", { ...Intl, Segmenter: undefined });
    expect(graphemes(`a${ACCENT}${FAMILY}z`)).toEqual(["a", ACCENT, FAMILY, "z"]);
    expect(graphemes("")).toEqual([]);
    expect(graphemes("\u0301b")).toEqual(["\u0301", "b"]);
  });
});
