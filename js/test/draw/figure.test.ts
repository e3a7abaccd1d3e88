import { describe, expect, it } from "vitest";
import { measureText } from "../../src/draw/canvas";
import {
  composeFigure,
  type FigureParts,
  type LegendScale,
  rampBox,
  wrap,
} from "../../src/draw/figure";
import type { FigureRequest } from "../../src/draw/figure-request";
import { fontOf, type Mark, type RectMark, type Scene, type TextMark } from "../../src/draw/marks";
import { toSvg } from "../../src/draw/svg";
import { PALETTES } from "../../src/ui/colors/palette";

const REQUEST: FigureRequest = { caption: true, legend: true };

/** Return the captions, the colour scale and the picture of a figure with the marks `front`. */
function partsOf(width: number, front: Mark[]): FigureParts {
  return {
    palette: PALETTES.light,
    captions: {
      ...{ title: "model", subtitle: "self-attention" },
      ...{ sentence: "What is seen.", coverage: "What is left out." },
    },
    picture: { width, height: 100, back: [], backOpacity: 1, front },
    scales: [{ color: (position) => [0, 0, 0, 255 * position], labels: ["0", "weight", "1"] }],
  };
}

const rect = (x: number, width: number): RectMark => ({
  ...{ kind: "rect", x, y: 0, width, height: 100, fill: "#000000" },
});

function texts(scene: Scene): TextMark[] {
  return [...scene.back, ...scene.front].filter((mark) => mark.kind === "text");
}

describe("a figure with a set width", () => {
  it("has that width and the requested text size", () => {
    const label: Mark = {
      ...{ kind: "text", x: 5, y: 50, text: "token", fill: "#000000", size: 13.5, font: "token" },
    };
    const parts = partsOf(200, [rect(0, 200), label]);
    const scene = composeFigure(parts, { ...REQUEST, width: 320, fontSize: 12 });
    expect(scene.width).toBeCloseTo(320);
    const sizes = texts(scene).map(({ text, size }) => [text, size]);
    expect(sizes).toContainEqual(["token", 12]);
    expect(Math.min(...texts(scene).map(({ size }) => size))).toBeCloseTo(12);
    expect(texts(scene).find(({ text }) => text === "model")?.size).toBeGreaterThan(12);
  });

  it("rejects a wider picture", () => {
    const compose = () =>
      composeFigure(partsOf(400, [rect(0, 400)]), { ...REQUEST, width: 320, fontSize: 10 });
    expect(compose).toThrow(/Pass width="\d+mm" or more/);
  });

  it("names the width of the page if the figure is one of its columns", () => {
    // The picture of 400 layout pixels has margins of 3. With text of 10 pixels, one is a pixel.
    const columns = { count: 2, gap: 20 };
    const compose = () =>
      composeFigure(partsOf(400, [rect(0, 400)]), {
        ...REQUEST,
        width: 320,
        fontSize: 10,
        columns,
      });
    const mm = Math.ceil((2 * 406 + 20) * (25.4 / 96));
    expect(compose).toThrow(`Pass width="${mm}mm" or more`);
  });

  it.each([
    ["left", -20],
    ["right", 180],
  ])("rejects a mark beyond the %s edge of the picture", (_, x) => {
    const compose = () =>
      composeFigure(partsOf(200, [rect(x, 40)]), { ...REQUEST, width: 220, fontSize: 10 });
    expect(compose).toThrow(/Pass width="\d+mm" or more/);
  });

  it("has a colour scale that is not wider", () => {
    const scene = composeFigure(partsOf(90, [rect(0, 90)]), { ...REQUEST, width: 150 });
    const ramp = scene.front.find((mark) => mark.kind === "rect" && mark.ramp) as RectMark;
    expect(ramp.x + ramp.width).toBeLessThanOrEqual(150);
  });
});

it("a figure without texts has them in the description of its file", () => {
  const request = { ...REQUEST, width: 320, caption: false, legend: false, title: "" };
  const scene = composeFigure(partsOf(200, [rect(0, 200)]), request);
  expect(texts(scene)).toHaveLength(0);
  const svg = toSvg(scene, "title");
  expect(svg).toContain("<desc>self-attention. What is seen. What is left out.</desc>");
  expect(svg).not.toContain("linearGradient");
});

it("a figure without a set width has no blank sides, and unchanged distances between marks", () => {
  const scene = composeFigure(partsOf(1000, [rect(300, 10), rect(700, 10)]));
  const rects = scene.front.filter((mark) => mark.kind === "rect" && mark.height === 100);
  const [first, second] = rects as [RectMark, RectMark];
  expect([second.x - first.x, first.width]).toEqual([400, 10]);
  expect(scene.width).toBeLessThan(600);
});

it("a long quantity below a colour scale is broken into lines", () => {
  const quantity = "negative ← thumbnails: ink = √linear weight → positive";
  const scale: LegendScale = {
    ...{ color: () => [0, 0, 0, 255], labels: ["−1", "0", "+1"], quantity },
  };
  const { height, marks } = rampBox(PALETTES.light, scale, 500);
  const lines = marks.filter((mark) => mark.kind === "text").slice(3);
  expect(lines.length).toBeGreaterThan(1);
  expect(lines.map(({ text }) => text).join(" ")).toBe(quantity);
  expect(Math.max(...lines.map(({ y }) => y))).toBeLessThan(height);
});

it("the words below a colour scale are not wider than the scale", () => {
  const quantity = "negative ← integrated gradients → positive";
  const scale: LegendScale = { color: () => [0, 0, 0, 255], labels: ["−1", "0", "+1"], quantity };
  const { width, marks } = rampBox(PALETTES.light, scale, 500);
  for (const mark of marks.filter((mark) => mark.kind === "text")) {
    const half = measureText(mark.text, fontOf(mark)) / 2;
    if (mark.align === "middle") expect(mark.x - half).toBeGreaterThanOrEqual(0);
    if (mark.align === "middle") expect(mark.x + half).toBeLessThanOrEqual(width);
  }
});

it("a word that is wider than a line breaks between characters", () => {
  const measure = (text: string): number => Array.from(text).length;
  expect(wrap("a bc 👩👩👩👩👩", 3, measure)).toEqual(["a", "bc", "👩👩👩", "👩👩"]);
});
