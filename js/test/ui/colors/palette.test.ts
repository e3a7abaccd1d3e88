// @vitest-environment node
import { describe, expect, it } from "vitest";
import { headColor, MAX_COLOURS, PALETTES } from "../../../src/ui/colors/palette";
import { contrast, distance, SIGHT } from "../../sight";

describe.each(Object.entries(PALETTES))("the %s palette", (_name, palette) => {
  it.each(Object.entries(SIGHT))(
    "has distinct heads and neutral ink for %s vision",
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

  it("contrasts with its background", () => {
    for (const color of palette.heads) {
      expect(contrast(color, palette.background), color).toBeGreaterThanOrEqual(3);
    }
  });

  it.each(Object.entries(SIGHT))(
    "has distinct colours below and above zero for %s vision",
    (_sight, sight) => {
      const { positive, negative, background } = palette;
      // Signs must be visible in cells of a few pixels, so 0.2 is more than twice the distance that
      // head colours need.
      expect(distance(positive, negative, sight)).toBeGreaterThan(0.2);
      for (const color of [positive, negative]) {
        expect(distance(color, background, sight)).toBeGreaterThan(0.2);
        expect(contrast(color, background)).toBeGreaterThanOrEqual(3);
      }
    },
  );

  it("assigns colours in order of choice, shared by neighbours above eight heads", () => {
    expect(headColor(palette, 0, 3)).toBe(palette.heads[0]);
    expect(headColor(palette, 7, MAX_COLOURS)).toBe(palette.heads[7]);
    for (const count of [9, 12, 16, 17, 32, 64, 128]) {
      const colors = Array.from({ length: count }, (_, index) => headColor(palette, index, count));
      expect(palette.heads).toEqual(expect.arrayContaining(colors));
      const changes = colors.filter((color, index) => color !== colors[index - 1]);
      // Heads with the same colour are adjacent: a colour does not occur again after another
      // colour.
      expect(new Set(changes).size).toBe(changes.length);
    }
  });
});
