// @vitest-environment node
import { describe, expect, it } from "vitest";
import { csvText, roundedTo, shortest, withColumn, writtenError } from "../../../src/ui/text/csv";

describe("a table", () => {
  it("gets a column with one value", () => {
    const table = csvText(["token", "weight"], [["a\nb", 0.5]]);
    expect(withColumn(table, "run", 'after: "it" hidden')).toBe(
      `${table.split("\r\n")[0]},run\r\n${table.split("\r\n")[1]},"after: ""it"" hidden"`,
    );
    expect(withColumn(table, "run", "")).toBe(table);
  });

  it.each(["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])(
    "keeps a text that begins with %j as text, in its cells and in its header",
    (sign) => {
      const text = `${sign}SUM(A1)`;
      expect(csvText([text], [[text]])).toBe(`"'${text}"\r\n"'${text}"`);
      expect(csvText(["token"], [[`x${sign}1`]])).toBe(`token\r\n"x${sign}1"`);
    },
  );

  it("doubles quotes, shows characters that change the direction, and leaves unknown cells empty", () => {
    const header = csvText(["token", "a,b", '=HYPERLINK("a")', "\u202e=1"], []);
    expect(header).toBe(`token,"a,b","'=HYPERLINK(""a"")","‹U+202E›=1"`);
    expect(csvText(["a", "b"], [['say "x"', null]])).toBe('a,b\r\n"say ""x""",');
  });

  it("includes the rounding of a number in its error", () => {
    for (const error of [0.3, 0.004, 0.0039, 3e-4, 9.9e-5, 1e-5, 2e-8]) {
      for (const exact of [0.123456789, 0.00004, 0.0000549, 0.87654321]) {
        for (const value of [exact + error, exact, Math.max(0, exact - error)])
          expect(Math.abs(roundedTo(value, error) - exact)).toBeLessThanOrEqual(
            writtenError(error),
          );
      }
      expect(writtenError(error)).toBeLessThanOrEqual(2.5 * error);
    }
    expect(writtenError(0.00392)).toBe(0.004);
    expect(writtenError(0)).toBe(0);
    expect(roundedTo(0.123456789, 0.004)).toBe(0.1235);
  });

  it("writes all digits of a float32 number, and no more", () => {
    for (const value of [0.1, 1 / 3, 2 ** -20, 0.024468931, 1e-38, 0, 1]) {
      const single = Math.fround(value);
      expect(Math.fround(shortest(single))).toBe(single);
      expect(Math.fround(roundedTo(single, 0))).toBe(single);
    }
    expect(shortest(Math.fround(0.1))).toBe(0.1);
    expect(String(shortest(Math.fround(1 / 3))).length).toBeLessThanOrEqual(11);
  });
});
