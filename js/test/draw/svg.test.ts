import { describe, expect, it } from "vitest";
import {
  type CurvesMark,
  hitTest,
  type Mark,
  printable,
  type Scene,
  shiftAfter,
} from "../../src/draw/marks";
import { escapeXml, toSvg } from "../../src/draw/svg";

const SVG = "http://www.w3.org/2000/svg";

function scene(front: Mark[], back: Mark[] = [], backOpacity = 1): Scene {
  return { width: 200, height: 100, background: "#ffffff", back, backOpacity, front };
}

/** Parse an SVG with a strict XML parser. */
function parse(svg: string): Document {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml");
  expect(parsed.querySelector("parsererror")).toBeNull();
  return parsed;
}

function curves(overrides: Partial<CurvesMark> = {}): CurvesMark {
  return {
    kind: "curves",
    columns: "vertical",
    color: "#123456",
    count: 2,
    x0: Float32Array.of(10, 10),
    y0: Float32Array.of(20, 40),
    x1: Float32Array.of(110, 110),
    y1: Float32Array.of(60, 40),
    opacity: Float32Array.of(0.75, 0.25),
    width: Float32Array.of(2, 1),
    meaning: (i) => ({ line: i }),
    ...overrides,
  };
}

describe("SVG", () => {
  it("is a complete document with its namespace, size, background and title", () => {
    const root = parse(toSvg(scene([]), "a & b")).documentElement;
    expect(root.namespaceURI).toBe(SVG);
    expect(root.getAttribute("viewBox")).toBe("0 0 200 100");
    expect(root.querySelector("title")?.textContent).toBe("a & b");
    expect(root.querySelector("rect")?.getAttribute("fill")).toBe("#ffffff");
  });

  it("writes text as text, with its style", () => {
    const mark: Mark = {
      kind: "text",
      x: 5,
      y: 9,
      text: "  two  spaces ",
      fill: "#111111",
      size: 12,
      font: "token",
      align: "end",
      bold: true,
      struck: true,
      rotate: -90,
    };
    const text = parse(toSvg(scene([mark]), "")).querySelector("text");
    expect(text?.textContent).toBe("  two  spaces ");
    expect(text?.getAttribute("text-anchor")).toBe("end");
    expect(text?.getAttribute("transform")).toBe("rotate(-90 5 9)");
    expect(text?.getAttribute("text-decoration")).toBe("line-through");
  });

  it("writes curves with horizontal ends and opacities, weak ones below strong ones", () => {
    const paths = [...parse(toSvg(scene([curves()]), "")).querySelectorAll("path")];
    expect(paths.map((path) => path.getAttribute("stroke-opacity"))).toEqual(["0.25", "0.75"]);
    expect(paths[1]?.getAttribute("d")).toBe("M10 20C60 20 60 60 110 60");
  });

  it("writes curves with vertical ends for horizontal columns", () => {
    const path = parse(toSvg(scene([curves({ columns: "horizontal" })]), "")).querySelectorAll(
      "path",
    )[1];
    expect(path?.getAttribute("d")).toBe("M10 20C10 40 110 40 110 60");
  });

  it("dims the back layer as a group, and omits invisible marks", () => {
    const target: Mark = { kind: "rect", x: 0, y: 0, width: 9, height: 9, meaning: {} };
    const root = parse(toSvg(scene([target], [curves()], 0.14), ""));
    expect(root.querySelector("path")?.closest("[opacity]")?.getAttribute("opacity")).toBe("0.14");
    expect(root.querySelectorAll("rect")).toHaveLength(1);
  });

  it("writes an image as one rectangle for each run of equal cells", () => {
    const pixels = new Uint8ClampedArray([9, 9, 9, 255, 9, 9, 9, 255, 0, 0, 0, 0, 7, 8, 9, 51]);
    const mark: Mark = {
      kind: "image",
      x: 0,
      y: 0,
      width: 40,
      height: 10,
      pixels,
      columns: 4,
      rows: 1,
    };
    const cells = [...parse(toSvg(scene([mark]), "")).querySelectorAll("g rect")];
    expect(cells.map((cell) => cell.getAttribute("width"))).toEqual(["20", "10"]);
    expect(cells[1]?.getAttribute("fill-opacity")).toBe("0.2");
  });
});

describe("hostile tokens", () => {
  const hostile = [
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "\0\x01\x0b",
    "]]>&amp;&#0;",
    "\ud83d",
    "\u202Egnp.exe",
    "\ufffe\uffff",
    `"'`,
  ];

  it("are text in an SVG that a strict parser accepts", () => {
    const marks = hostile.map(
      (text): Mark => ({
        kind: "text",
        x: 0,
        y: 0,
        text,
        fill: "#000000",
        size: 10,
        font: "token",
      }),
    );
    const root = parse(toSvg(scene(marks), hostile.join(" ")));
    expect(root.querySelectorAll("script, img, [onerror]")).toHaveLength(0);
    const texts = [...root.querySelectorAll("text")].map((text) => text.textContent);
    expect(texts[0]).toBe(hostile[0]);
    expect(texts[1]).toBe(hostile[1]);
    expect(texts[3]).toBe("]]>&amp;&#0;");
  });

  it("lose characters that XML forbids, and show those that change the direction", () => {
    expect(printable("a\0b")).toBe("a\uFFFDb");
    expect(printable("\ud83d!")).toBe("\uFFFD!");
    expect(printable("👩‍👩‍👧 שלום 中文")).toBe("👩‍👩‍👧 שלום 中文");
    expect(printable("\u202Egnp")).toBe("‹U+202E›gnp");
    expect(escapeXml("<&>\"'")).toBe("&lt;&amp;&gt;&quot;&apos;");
  });
});

describe("the mark under the pointer", () => {
  it("is the topmost rectangle with a meaning", () => {
    const marks: Mark[] = [
      { kind: "rect", x: 0, y: 0, width: 50, height: 50, meaning: { token: 1 } },
      { kind: "rect", x: 20, y: 20, width: 50, height: 50, meaning: { token: 2 } },
      { kind: "rect", x: 20, y: 20, width: 50, height: 50, fill: "#000000" },
    ];
    expect(hitTest(marks, 30, 30)).toEqual({ token: 2 });
    expect(hitTest(marks, 10, 10)).toEqual({ token: 1 });
    expect(hitTest(marks, 90, 90)).toBeNull();
  });

  it("is the nearest curve", () => {
    expect(shiftAfter(0.5)).toBeCloseTo(0.5, 5);
    expect(shiftAfter(0)).toBeCloseTo(0, 5);
    expect(hitTest([curves()], 60, 41)).toEqual({ line: 0 });
    expect(hitTest([curves()], 12, 22)).toEqual({ line: 0 });
    expect(hitTest([curves()], 12, 40)).toEqual({ line: 1 });
    expect(hitTest([curves()], 12, 70)).toBeNull();
    expect(hitTest([curves()], 130, 40)).toBeNull();
  });
});
