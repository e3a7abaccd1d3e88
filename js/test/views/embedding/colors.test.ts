// @vitest-environment node
import { describe, expect, it } from "vitest";
import { numberColors } from "../../../src/ui/colors/color-scales";
import { PALETTES, type ThemeName } from "../../../src/ui/colors/palette";
import {
  type Coloring,
  type ColorRoom,
  coloring,
  UNKNOWN,
} from "../../../src/views/embedding/colors";
import { contrast, distance, SIGHT } from "../../sight";
import { corpusWith } from "./kernel";

const THEMES = Object.keys(PALETTES) as ThemeName[];

function roomOf(theme: ThemeName, changed: Partial<ColorRoom> = {}): ColorRoom {
  return { palette: PALETTES[theme], theme, norms: null, head: "", ...changed };
}

const LIGHT = roomOf("light");
const corpus = corpusWith();

/** Return the colour of every point, in the order of the points. */
function colorsOf({ index, palette }: Coloring): string[] {
  return Array.from(index, (entry) => palette[entry] ?? "none");
}

/** Return the label and count of each legend entry. */
function entriesOf({ legend }: Coloring): [string, number][] {
  if (legend.kind !== "categories") throw new Error("a scale");
  return legend.entries.map(({ label, count }) => [label, count]);
}

/** Return for every point the label of its colour in the legend. */
function labelsOf(colored: Coloring): (string | undefined)[] {
  const { legend } = colored;
  if (legend.kind !== "categories") throw new Error("a scale");
  return colorsOf(colored).map(
    (color) => legend.entries.find((entry) => entry.color === color)?.label,
  );
}

function scaleOf({ legend }: Coloring) {
  if (legend.kind !== "scale") throw new Error("kinds");
  return legend;
}

describe("colourings", () => {
  it("colour positions from the first to the last", () => {
    const colored = coloring(corpus, "position", LIGHT);
    const { low, high, stops, log, unknown } = scaleOf(colored);
    expect([low, high, log, unknown]).toEqual([0, 3, false, null]);
    const colors = colorsOf(colored);
    expect(colors[0]).toBe(stops[0]);
    expect(colors[3]).toBe(stops.at(-1));
    // The last position is 3, so position 1 has the colour at one third of the scale.
    expect(colors[1]).toBe(stops[Math.round((stops.length - 1) / 3)]);
    expect(colors.slice(6)).toEqual(colors.slice(0, 6));
  });

  it("colour position mod 5 in numerical order", () => {
    const positions = [0, 4, 5, 6, 12, 3];
    const queries = {
      text: [1, 1, 1, 1, 1, 1],
      position: positions,
      token: positions.map(() => 0),
    };
    const colored = coloring(corpusWith({ queries }), "position mod 5", LIGHT);
    expect(labelsOf(colored).slice(0, 6)).toEqual(
      positions.map((position) => String(position % 5)),
    );
    expect(entriesOf(colored)).toEqual([
      ["0", 4],
      ["1", 2],
      ["2", 2],
      ["3", 2],
      ["4", 2],
    ]);
  });

  it("colour by norm, and by kind until norms are loaded", () => {
    const norms = Float32Array.from({ length: 12 }, (_, point) => 2 + point);
    const colored = coloring(corpus, "norm", { ...LIGHT, norms, head: "layer 5, head 2" });
    const { low, high, stops } = scaleOf(colored);
    expect([low, high]).toEqual([2, 13]);
    expect([colorsOf(colored)[0], colorsOf(colored)[11]]).toEqual([stops[0], stops.at(-1)]);
    expect(colored.note).toBe("Lengths of the vectors of layer 5, head 2.");
    const before = coloring(corpus, "norm", LIGHT);
    expect(labelsOf(before)[0]).toBe("queries");
    expect(before.note).toContain("Loading");
  });

  it("colour frequencies on a logarithmic scale", () => {
    const colored = coloring(
      corpusWith({ frequency: [1, 10, 100, 1, 1, 100] }),
      "frequency",
      LIGHT,
    );
    const { low, high, log, stops } = scaleOf(colored);
    expect([low, high, log]).toEqual([1, 100, true]);
    // On a logarithmic scale from 1 to 100, the middle is 10.
    expect(colorsOf(colored)[1]).toBe(stops[Math.round((stops.length - 1) / 2)]);
    expect(colorsOf(colored)[2]).toBe(stops.at(-1));
  });

  it("colour eight texts separately and the others together", () => {
    const texts = Array.from({ length: 12 }, (_, i) => (i < 2 ? 0 : i - 1));
    const side = { text: texts, position: texts.map((_, i) => i), token: texts.map(() => 0) };
    const changed = { num_queries: 12, num_keys: 12, queries: side, columns: [] };
    const names = texts.map((_, i) => `text ${i}`);
    const colored = coloring(corpusWith({ ...changed, names }), "text", LIGHT);
    const entries = entriesOf(colored);
    expect(entries).toHaveLength(9);
    expect(entries[0]).toEqual(["text 0", 4]);
    expect(entries.at(-1)).toEqual(["other", 6]);
    expect(colored.note).toBe(
      "The 8 with most points have separate colours. The other 3 share one.",
    );
    expect(labelsOf(colored)[11]).toBe("other");
    expect(entries.reduce((sum, [, count]) => sum + count, 0)).toBe(24);
  });

  it("colour a column of categories, with unknown values separate", () => {
    const colored = coloring(corpus, "tag", LIGHT);
    const side = ["other", "noun", "other", "other", "other", "unknown"];
    expect(labelsOf(colored)).toEqual([...side, ...side]);
    expect(entriesOf(colored)).toEqual([
      ["other", 8],
      ["noun", 2],
      ["unknown", 2],
    ]);
    expect(colored.note).toBe("“tag” is unknown for 2 points.");
  });

  it("colour a column of numbers, with unknown values separate", () => {
    const colored = coloring(corpus, "score", LIGHT);
    const { low, high, stops, unknown } = scaleOf(colored);
    expect([low, high, unknown?.count]).toEqual([0, 2, 1]);
    const colors = colorsOf(colored);
    expect(colors[5]).toBe(unknown?.color);
    expect(stops).not.toContain(colors[5]);
    expect(colors[6]).toBe(stops.at(-1));
  });

  it("prefer a column over the colouring of the same name", () => {
    const [tag] = corpus.columns;
    const columns = [
      {
        name: "position",
        categories: ["near", "far"],
        queries: [0, 0, 1, 1, 0, 1],
        keys: [1, 1, 1, 1, 1, 1],
      },
    ];
    expect(tag).toBeDefined();
    expect(entriesOf(coloring(corpusWith({ columns }), "position", LIGHT))).toEqual([
      ["far", 9],
      ["near", 3],
    ]);
  });

  it("fall back to queries and keys if there is no such column", () => {
    const colored = coloring(corpus, "gone", LIGHT);
    expect([colored.name, labelsOf(colored)[0]]).toEqual(["type", "queries"]);
    expect(colored.note).toBe("There is no column “gone”.");
  });
});

it("colours of norms exist if all are equal or unknown, and for no points", () => {
  const withNorms = (value: number) =>
    coloring(corpus, "norm", { ...LIGHT, norms: new Float32Array(12).fill(value) });
  const [same, unknown] = [withNorms(3), withNorms(Number.NaN)];
  expect(new Set(colorsOf(same)).size).toBe(1);
  expect(scaleOf(same)).toMatchObject({ low: 3, high: 3 });
  expect(scaleOf(unknown)).toMatchObject({ low: 0, high: 0, unknown: { count: 12 } });
  const none = { text: [], position: [], token: [] };
  const empty = corpusWith({ num_queries: 0, num_keys: 0, queries: none, columns: [] });
  for (const name of ["type", "position", "frequency", "text"])
    expect(coloring(empty, name, LIGHT).index).toHaveLength(0);
});

describe.each(THEMES)("colours of points in the %s theme", (theme) => {
  const { background } = PALETTES[theme];
  const stops = numberColors(theme);
  const unknown = UNKNOWN[theme];

  it("have a contrast of at least 3 to 1 with the background", () => {
    const kinds = coloring(corpus, "tag", roomOf(theme));
    for (const color of [...stops, ...kinds.palette, unknown])
      expect(contrast(color, background), color).toBeGreaterThanOrEqual(3);
  });

  it.each(Object.entries(SIGHT))("tell numbers apart to %s sight", (_name, sight) => {
    // Any two of five colours along the scale differ at least as much as the colours of two heads.
    // From one to the next, the colour always changes in the same direction.
    const five = [0, 1, 2, 3, 4].map((i) => stops[Math.round((i * (stops.length - 1)) / 4)] ?? "");
    const near: string[] = [];
    five.forEach((a, i) => {
      for (const b of five.slice(i + 1)) {
        const apart = distance(a, b, sight);
        if (apart < 0.085) near.push(`${a} ${b} ${apart.toFixed(3)}`);
      }
    });
    for (const stop of stops) {
      const apart = distance(stop, unknown, sight);
      if (apart < 0.085) near.push(`${stop} ${unknown} ${apart.toFixed(3)}`);
    }
    expect(near).toEqual([]);
  });
});
