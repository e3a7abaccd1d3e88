import { afterEach, expect, it, vi } from "vitest";
import { graphemes } from "../../../src/ui/text/labels";

const ACCENT = "e\u0301";
const FAMILY = "👩\u200d👧";

afterEach(() => vi.unstubAllGlobals());

it.each([
  ["with Intl.Segmenter", Intl],
  ["without it (Firefox before 125)", { ...Intl, Segmenter: undefined }],
])("a text is cut between graphemes in a browser %s", (_name, intl) => {
  vi.stubGlobal("Intl", intl);
  expect(graphemes(`a${ACCENT}${FAMILY}z`)).toEqual(["a", ACCENT, FAMILY, "z"]);
});
