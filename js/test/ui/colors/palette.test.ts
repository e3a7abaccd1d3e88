// @vitest-environment node
import { describe, expect, it } from "vitest";
import { headColor, MOST_COLOURS, PALETTES } from "../../../src/ui/colors/palette";
import { contrast, distance, SIGHT } from "../../sight";

describe.each(Object.entries(PALETTES))("the %s palette", (_name, palette) => {
  it.each(Object.entries(SIGHT))(
    "tells heads and neutral ink apart to %s sight",
    (_sight, sight) => {
      const colors = [...palette.heads, palette.neutral];
      const near: string[] = [];
      colors.forEach((a, i) => {
        for (const b of colors.slice(i + 1)) {
          const apart = distance(a, b, sight);
          if (apart < 0.085) near.push(`${a} ${b} ${apart.toFixed(3)}`);
        }
      });
      expect(near).toEqual([]);
    },
  );

  it("stands out from its background", () => {
    for (const color of palette.heads) {
      expect(contrast(color, palette.background), color).toBeGreaterThanOrEqual(3);
    }
  });

  it.each(Object.entries(SIGHT))("tells below from above zero to %s sight", (_sight, sight) => {
    const { positive, negative, background } = palette;
    // Three times what tells heads apart: a sign is read from cells a few pixels wide.
    expect(distance(positive, negative, sight)).toBeGreaterThan(0.2);
    for (const color of [positive, negative]) {
      expect(distance(color, background, sight)).toBeGreaterThan(0.2);
      expect(contrast(color, background)).toBeGreaterThanOrEqual(3);
    }
  });

  it("gives its colours in order of choice, and above eight heads to neighbours together", () => {
    expect(headColor(palette, 0, 3)).toBe(palette.heads[0]);
    expect(headColor(palette, 7, MOST_COLOURS)).toBe(palette.heads[7]);
    for (const count of [9, 12, 16, 17, 32, 64, 128]) {
      const colors = Array.from({ length: count }, (_, place) => headColor(palette, place, count));
      expect(palette.heads).toEqual(expect.arrayContaining(colors));
      const changes = colors.filter((color, place) => color !== colors[place - 1]);
      // No colour comes back after another.
      expect(new Set(changes).size).toBe(changes.length);
    }
  });
});
