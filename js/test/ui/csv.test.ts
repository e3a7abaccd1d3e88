// @vitest-environment node
import { describe, expect, it } from "vitest";
import { csvText, roundedTo, roundedUp } from "../../src/ui/csv";

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
});
