// @vitest-environment node
import { describe, expect, it } from "vitest";
import { csvText, roundedTo, roundedUp, shortest, tabbedText } from "../../src/ui/csv";

describe("a table", () => {
  it("holds no formula: what came in as data never runs", () => {
    expect(csvText(["token"], [["=1+1"], ["+a"], ["-"], ["@x"], ["a=b"]])).toBe(
      ["token", '"\'=1+1"', '"\'+a"', '"\'-"', '"\'@x"', '"a=b"'].join("\r\n"),
    );
  });

  it.each(["=", "+", "-", "@", "\t", "\r"])("keeps a text that begins with %j as text", (sign) => {
    expect(csvText(["token"], [[`${sign}SUM(A1)`]])).toBe(`token\r\n"'${sign}SUM(A1)"`);
    // Only at the beginning: elsewhere it is a sign like any other.
    expect(csvText(["token"], [[`x${sign}1`]])).toBe(`token\r\n"x${sign}1"`);
  });

  it("doubles quotes and leaves out what is not known", () => {
    expect(csvText(["a", "b"], [['say "x"', null]])).toBe('a,b\r\n"say ""x""",');
  });

  it("gives no more digits than are exact", () => {
    expect(roundedTo(0.123456789, 0.004)).toBe(0.1235);
    expect(roundedTo(0.123456789, 0)).toBe(0.1234568);
    expect(roundedUp(0.00392)).toBe(0.004);
  });

  it("is the same with tabs: no token ends its cell or begins a formula", () => {
    const hostile = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tA", "\rB", "a\tb", "a\nb", '"q"'];
    const text = tabbedText(
      ["token", "weight"],
      hostile.map((each) => [each, 0.5]),
    );
    expect(text.split(/\t0\.5\n?/)).toEqual([
      `token\tweight\n"'=cmd|' /C calc'!A0"`,
      `"'+1"`,
      `"'-1"`,
      `"'@x"`,
      `"'\tA"`,
      `"'\rB"`,
      '"a\tb"',
      '"a\nb"',
      '"""q"""',
      "",
    ]);
  });

  it("has every digit of a single-precision number, and no more", () => {
    for (const value of [0.1, 1 / 3, 2 ** -20, 0.024468931, 1e-38, 0, 1]) {
      const single = Math.fround(value);
      expect(Math.fround(shortest(single))).toBe(single);
    }
    expect(shortest(Math.fround(0.1))).toBe(0.1);
    expect(String(shortest(Math.fround(1 / 3))).length).toBeLessThanOrEqual(11);
  });
});
