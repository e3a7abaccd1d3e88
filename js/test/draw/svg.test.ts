import { describe, expect, it } from "vitest";
import { wrap } from "../../src/draw/figure";
import {
  type CurvesMark,
  hitTest,
  isolated,
  type Mark,
  printable,
  type RectMark,
  shiftAfter,
  tokenText,
} from "../../src/draw/marks";
import { escapeXml, toSvg } from "../../src/draw/svg";
import { quoted } from "../../src/ui/text/captions";
import { csvText } from "../../src/ui/text/csv";
import { fitLabel } from "../../src/ui/text/labels";

/** Write marks as SVG, parse it with a strict XML parser, and return the root element. */
function svgOf(front: Mark[], back: Mark[] = [], title = ""): Element {
  const size = { width: 200, height: 100 };
  const scene = { ...size, background: "#ffffff", back, backOpacity: 0.14, front };
  const parsed = new DOMParser().parseFromString(toSvg(scene, title), "image/svg+xml");
  expect(parsed.querySelector("parsererror")).toBeNull();
  return parsed.documentElement;
}

const CURVES: CurvesMark = {
  ...{ kind: "curves", color: "#123456", count: 2 },
  ...{ x0: Float32Array.of(10, 10), y0: Float32Array.of(20, 40) },
  ...{ x1: Float32Array.of(110, 110), y1: Float32Array.of(60, 40) },
  ...{ opacity: Float32Array.of(0.75, 0.25), width: Float32Array.of(2, 1) },
  meaning: (i) => ({ line: i }),
};

const textMark = (text: string): Mark => ({
  ...{ kind: "text", x: 5, y: 9, text, fill: "#111111", size: 12, font: "token" },
});

describe("SVG", () => {
  it("is a complete document with its namespace, size, background and title", () => {
    const root = svgOf([], [], "a & b");
    expect(root.namespaceURI).toBe("http://www.w3.org/2000/svg");
    expect(root.getAttribute("viewBox")).toBe("0 0 200 100");
    expect(root.querySelector("title")?.textContent).toBe("a & b");
    expect(root.querySelector("rect")?.getAttribute("fill")).toBe("#ffffff");
  });

  it("writes text as text, with its style", () => {
    const style = { align: "end", bold: true, struck: true, rotate: -90 };
    const mark = { ...textMark("  two  spaces "), ...style } as Mark;
    const text = svgOf([mark]).querySelector("text");
    expect(text?.textContent).toBe("  two  spaces ");
    expect(text?.getAttribute("text-anchor")).toBe("end");
    expect(text?.getAttribute("transform")).toBe("rotate(-90 5 9)");
    expect(text?.getAttribute("text-decoration")).toBe("line-through");
  });

  it("writes curves with opacities, weak ones below strong ones, and omits invisible marks", () => {
    const invisible: Mark = { kind: "rect", x: 0, y: 0, width: 9, height: 9, meaning: {} };
    const root = svgOf([invisible], [CURVES]);
    const [weak, strong] = root.querySelectorAll("path");
    expect(weak?.getAttribute("stroke-opacity")).toBe("0.25");
    expect(strong?.getAttribute("stroke-opacity")).toBe("0.75");
    expect(strong?.getAttribute("d")).toBe("M10 20C60 20 60 60 110 60");
    expect(strong?.closest("[opacity]")?.getAttribute("opacity")).toBe("0.14");
    // The rectangle without a colour is omitted. Only the background remains.
    expect(root.querySelectorAll("rect")).toHaveLength(1);
  });

  it("writes an image as one rectangle for each run of equal cells", () => {
    const pixels = new Uint8ClampedArray([9, 9, 9, 255, 9, 9, 9, 255, 0, 0, 0, 0, 7, 8, 9, 51]);
    const size = { x: 0, y: 0, width: 40, height: 10, columns: 4, rows: 1 };
    const cells = [...svgOf([{ kind: "image", ...size, pixels }]).querySelectorAll("g rect")];
    expect(cells.map((cell) => cell.getAttribute("width"))).toEqual(["20", "10"]);
    expect(cells[1]?.getAttribute("fill-opacity")).toBe("0.2");
  });
});

describe("hostile tokens", () => {
  it("are text in an SVG that a strict parser accepts", () => {
    const hostile = [
      ...["</script><script>alert(1)</script>", '<img src=x onerror="alert(1)">'],
      ...["\0\x01\x0b", "]]>&amp;&#0;", "\ud83d", "\u202Egnp.exe", "\ufffe\uffff", `"'`],
    ];
    const root = svgOf(hostile.map(textMark), [], hostile.join(" "));
    expect(root.querySelectorAll("script, img, [onerror]")).toHaveLength(0);
    const texts = [...root.querySelectorAll("text")].map((text) => text.textContent);
    for (const i of [0, 1, 3]) expect(texts[i]).toBe(hostile[i]);
  });

  it("lose characters that XML forbids, and show those that change the direction", () => {
    expect(printable("a\0b")).toBe("a\uFFFDb");
    expect(printable("\ud83d!")).toBe("\uFFFD!");
    expect(printable("👩‍👩‍👧 שלום 中文")).toBe("👩‍👩‍👧 שלום 中文");
    expect(printable("\u202Egnp")).toBe("‹U+202E›gnp");
    expect(escapeXml("<&>\"'")).toBe("&lt;&amp;&gt;&quot;&apos;");
  });
});

describe("texts from right to left", () => {
  const [shalom, token] = ["\u05e9\u05dc\u05d5\u05dd", "\u2068\u05e9\u05dc\u05d5\u05dd\u2069"];

  it("are isolated, also in Arabic and in Arabic digits, and others are not", () => {
    expect(isolated(shalom)).toBe(token);
    for (const text of ["\u0639\u0631\u0628\u064a", "\u0663", "\ufefc", "\u{1e900}"])
      expect(isolated(text)).toBe(`\u2068${text}\u2069`);
    for (const text of ["word", "\u4e2d", "1.0", "\u{1f600}", "\u0301"])
      expect(isolated(text)).toBe(text);
  });

  it("keep their isolate in a sentence of an SVG, and other marks of direction are shown", () => {
    const textOf = (text: string) => svgOf([textMark(text)]).querySelector("text")?.textContent;
    expect(textOf(`${token}: 0.90`)).toBe(`${token}: 0.90`);
    expect(textOf(`\u2067${shalom}\u2069`)).toBe(`‹U+2067›${shalom}‹U+2069›`);
    expect(textOf(`a\u2068${shalom}`)).toBe(`a‹U+2068›${shalom}`);
    expect(textOf(`\u2068${shalom}\u202e\u2069`)).toBe(`‹U+2068›${shalom}‹U+202E›‹U+2069›`);
  });

  it("are isolated in each line of a sentence", () => {
    const measure = (text: string): number => text.replace(/[\u2068\u2069]/g, "").length;
    expect(wrap(`\u2068${shalom} ${shalom}\u2069: 1`, 7, measure)).toEqual([token, `${token}: 1`]);
  });

  it("have no isolates in a table", () => {
    expect(csvText(["token"], [[`after: ${token}`]])).toBe(`token\r\n"after: ${shalom}"`);
  });
});

it("a combining mark without a letter is on a dotted circle", () => {
  expect(
    ["\u0301", "\u05b8", "e\u0301", "\u25cc\u0301", ""].map((text) => tokenText(text)),
  ).toEqual([...["\u25cc\u0301", "\u25cc\u05b8", "e\u0301", "\u25cc\u0301", ""]]);
  const { text, width } = fitLabel("\u0301", 99, "font", (shown) => shown.length);
  expect([text, width]).toEqual(["\u25cc\u0301", 2]);
  expect(quoted("\u0301")).toBe("“\u25cc\u0301”");
});

it("a sentence that is cut has no half of an isolate", () => {
  const title = `from ${quoted("\u05d0".repeat(20))}`;
  for (let limit = 8; limit < 40; limit++) {
    const { text } = fitLabel(title, limit, "font", (shown) => shown.length);
    expect(/[\u2068\u2069]/.test(text)).toBe(!text.includes("…"));
  }
});

describe("the mark under the pointer", () => {
  it("is the topmost rectangle with a meaning", () => {
    const rect = (start: number, more: Partial<RectMark>): Mark => ({
      ...{ kind: "rect", x: start, y: start, width: 50, height: 50, ...more },
    });
    const marks = [
      rect(0, { meaning: { token: 1 } }),
      rect(20, { meaning: { token: 2 } }),
      rect(20, { fill: "#000000" }),
    ];
    expect(hitTest(marks, 30, 30)).toEqual({ token: 2 });
    expect(hitTest(marks, 10, 10)).toEqual({ token: 1 });
    expect(hitTest(marks, 90, 90)).toBeNull();
  });

  it("is the nearest curve", () => {
    expect(shiftAfter(0.5)).toBeCloseTo(0.5, 5);
    expect(hitTest([CURVES], 60, 41)).toEqual({ line: 0 });
    expect(hitTest([CURVES], 12, 40)).toEqual({ line: 1 });
    expect(hitTest([CURVES], 12, 70)).toBeNull();
    expect(hitTest([CURVES], 130, 40)).toBeNull();
  });
});
