/** Words beside points, where there is room for them. Pure functions. */

import type { Projected, Room } from "./scatter";

/** A word at a place of the screen. */
export interface Placed {
  place: number;
  /** The left end of the word and its middle. */
  x: number;
  y: number;
  text: string;
  width: number;
}

/**
 * Words beside their points, as many as there is room for, the first ones first.
 *
 * @param textOf the word of a place and its width; null where it has none.
 * @param taken boxes of words that are there already.
 * @param covers whether a box would hide something: where it can be helped no word stands there.
 * @param least whether a word that can stand nowhere else may do so.
 */
export function placeWords(
  places: Iterable<number>,
  { x, y }: Projected,
  textOf: (place: number) => { text: string; width: number } | null,
  options: {
    room: Room;
    most: number;
    height: number;
    away: number;
    taken?: Placed[];
    covers?: (left: number, middle: number, width: number) => boolean;
    least?: boolean;
  },
): Placed[] {
  const { room, most, height, away, covers } = options;
  const there = [...(options.taken ?? [])];
  const placed: Placed[] = [];
  const free = (left: number, middle: number, width: number): boolean =>
    left >= 2 &&
    left + width <= room.width - 2 &&
    middle >= height / 2 &&
    middle <= room.height - height / 2 &&
    there.every(
      (each) =>
        left > each.x + each.width + 4 ||
        left + width + 4 < each.x ||
        Math.abs(middle - each.y) >= height,
    );
  for (const place of places) {
    if (placed.length >= most) break;
    const word = textOf(place);
    if (!word) continue;
    const [atX, atY] = [x[place] as number, y[place] as number];
    // To the right, to the left, above, below.
    const tries: [number, number][] = [
      [atX + away, atY],
      [atX - away - word.width, atY],
      [atX - word.width / 2, atY - away - height / 2],
      [atX - word.width / 2, atY + away + height / 2],
    ];
    const possible = tries.filter(([left, middle]) => free(left, middle, word.width));
    const found =
      possible.find(([left, middle]) => !covers?.(left, middle, word.width)) ??
      (options.least || !covers ? possible[0] : undefined);
    if (!found) continue;
    const one = { place, x: found[0], y: found[1], ...word };
    placed.push(one);
    there.push(one);
  }
  return placed;
}

/** Places in the room, in the order in which they are drawn, up to a number. */
export function inSight({ x, y }: Projected, room: Room, most: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < x.length && found.length < most; i++) {
    const [px, py] = [x[i] as number, y[i] as number];
    if (px >= 0 && py >= 0 && px < room.width && py < room.height) found.push(i);
  }
  return found;
}
