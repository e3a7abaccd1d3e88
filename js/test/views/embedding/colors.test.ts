// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { ColumnValues } from "../../../src/client/protocol";
import { numberColors } from "../../../src/ui/colors/color-scales";
import { PALETTES, type ThemeName } from "../../../src/ui/colors/palette";
import {
  type Coloring,
  type ColorRoom,
  coloring,
  legendEntries,
  UNKNOWN,
} from "../../../src/views/embedding/colors";
import { contrast, distance, SIGHT } from "../../sight";
import { ANSWER, corpusWith } from "./kernel";

const THEMES = Object.keys(PALETTES) as ThemeName[];

function roomOf(theme: ThemeName, changed: Partial<ColorRoom> = {}): ColorRoom {
  return { palette: PALETTES[theme], theme, norms: null, ...changed };
}

const LIGHT = roomOf("light");
const corpus = corpusWith();

/** Return the colour of every point, in the order of the points. */
function colorsOf({ index, palette }: Coloring): string[] {
  return Array.from(index, (entry) => palette[entry] ?? "none");
}

/** Return the label and count of each legend entry. */
function entriesOf({ entries }: Coloring) {
  return entries.map(({ label, count }) => [label, count]);
}

/** Return for every point the label of its colour in the legend. */
function labelsOf(colored: Coloring): (string | undefined)[] {
  const labels = new Map(colored.entries.map(({ color, label }) => [color, label]));
  return colorsOf(colored).map((color) => labels.get(color));
}

function scaleOf({ scale, entries: [unknown] }: Coloring) {
  return { labels: scale?.labels, unknown, stops: numberColors("light") };
}

/** Return a corpus whose queries have the given indices of texts, or the given positions. */
function corpusOf(fields: { text?: number[]; position?: number[] }) {
  const values = fields.text ?? fields.position ?? [];
  const zeros = values.map(() => 0);
  return corpusWith({
    ...{ num_queries: values.length, num_keys: values.length, columns: [] },
    names: values.map((_, i) => `text ${i}`),
    queries: { text: zeros, position: values.map((_, i) => i), token: zeros, ...fields },
  });
}

describe("colourings", () => {
  it("colour positions from the first to the last", () => {
    const colored = coloring(corpus, "position", LIGHT);
    const { labels, stops, unknown } = scaleOf(colored);
    expect([labels, unknown]).toEqual([["0", "position", "3"], undefined]);
    // The queries have the positions 0, 1, 2, 3, 0 and 2. Position 3 is the end of the scale.
    const expected = [0, 1, 2, 3, 0, 2].map(
      (at) => stops[Math.round(((stops.length - 1) * at) / 3)],
    );
    expect(colorsOf(colored)).toEqual([...expected, ...expected]);
  });

  it("have a legend of the shapes of drawn points, and of their colours", () => {
    const legend = (name: string, points: "both" | "keys") =>
      legendEntries(coloring(corpus, name, LIGHT), points, LIGHT.palette).map(
        ({ label, count, shape }) => [label, count, shape],
      );
    expect(legend("type", "both")).toEqual([
      ["queries", 6, "dot"],
      ["keys", 6, "square"],
    ]);
    expect(legend("tag", "keys").slice(0, 2)).toEqual([
      ["keys", null, "square"],
      ["other", 8, "patch"],
    ]);
  });

  it("colour position mod 5 in numerical order", () => {
    const position = [0, 4, 5, 6, 12, 3];
    const colored = coloring(corpusOf({ position }), "position mod 5", LIGHT);
    expect(labelsOf(colored).slice(0, 6)).toEqual(["0", "4", "0", "1", "2", "3"]);
    expect(entriesOf(colored).map(([label]) => label)).toEqual(["0", "1", "2", "3", "4"]);
  });

  it("colour by norm, and by kind until norms are loaded", () => {
    const lengths = Float32Array.from({ length: 12 }, (_, point) => 2 + point);
    const colored = coloring(corpus, "norm", {
      ...LIGHT,
      norms: { lengths, head: "layer 5, head 2" },
    });
    const { labels, stops } = scaleOf(colored);
    expect(labels).toEqual(["2", "norm", "13"]);
    expect([colorsOf(colored)[0], colorsOf(colored)[11]]).toEqual([stops[0], stops.at(-1)]);
    expect(colored.note).toBe("Lengths of the vectors of layer 5, head 2.");
    expect(coloring(corpus, "norm", LIGHT).note).toContain("Loading");
  });

  it("colour the frequency of a token on a logarithmic scale", () => {
    const frequency = [1, 10, 100, 50, 1, 100];
    const colored = coloring(corpusWith({ frequency }), "frequency", LIGHT);
    const { labels, stops } = scaleOf(colored);
    expect(labels).toEqual(["1", "frequency, logarithmic", "100"]);
    // The first four queries have the tokens 0, 1, 2 and 0, so their frequencies are 1, 10, 100 and
    // 1. The middle of a logarithmic scale from 1 to 100 is 10.
    const middle = stops[Math.round((stops.length - 1) / 2)];
    expect(colorsOf(colored).slice(0, 4)).toEqual([stops[0], middle, stops.at(-1), stops[0]]);
  });

  it("colour eight texts separately and the others together", () => {
    const text = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    const colored = coloring(corpusOf({ text }), "text", LIGHT);
    const entries = entriesOf(colored);
    expect([entries.length, entries[0], entries.at(-1)]).toEqual([9, ["text 0", 4], ["other", 6]]);
    expect(colored.note).toBe(
      "The 8 with most points have separate colours. The other 3 share one.",
    );
    expect(labelsOf(colored)[11]).toBe("other");
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
    const { labels, stops, unknown } = scaleOf(colored);
    expect([labels, unknown?.count]).toEqual([["0", "score", "2"], 1]);
    const colors = colorsOf(colored);
    expect(colors[5]).toBe(unknown?.color);
    expect(stops).not.toContain(colors[5]);
    expect(colors[6]).toBe(stops.at(-1));
  });

  it("prefer a column, and fall back to queries and keys if there is no such column", () => {
    const [tag] = ANSWER.columns;
    const columns = [{ ...(tag as ColumnValues), name: "position" }];
    expect(labelsOf(coloring(corpusWith({ columns }), "position", LIGHT))[1]).toBe("noun");
    const colored = coloring(corpus, "gone", LIGHT);
    expect([colored.name, labelsOf(colored)[0]]).toEqual(["type", "queries"]);
    expect(colored.note).toBe("There is no column “gone”.");
  });

  it("exist if all norms are equal or unknown, and for no points", () => {
    const withNorms = (value: number) =>
      coloring(corpus, "norm", {
        ...LIGHT,
        norms: { lengths: new Float32Array(12).fill(value), head: "" },
      });
    expect(scaleOf(withNorms(3))).toMatchObject({ labels: ["3", "norm", "3"] });
    expect(scaleOf(withNorms(Number.NaN))).toMatchObject({
      labels: ["0", "norm", "0"],
      unknown: { count: 12 },
    });
    const empty = corpusOf({ position: [] });
    for (const name of ["type", "position", "frequency", "text"])
      expect(coloring(empty, name, LIGHT).index).toHaveLength(0);
  });
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
    // Any two of five colours along the scale must differ by at least 0.085, like any two head
    // colours (see palette.test.ts).
    const five = [0, 1, 2, 3, 4].map((i) => stops[Math.round((i * (stops.length - 1)) / 4)] ?? "");
    const pairs = [
      ...five.flatMap((a, i) => five.slice(i + 1).map((b) => [a, b] as const)),
      ...stops.map((stop) => [stop, unknown] as const),
    ];
    expect(pairs.filter(([a, b]) => distance(a, b, sight) < 0.085)).toEqual([]);
  });
});
