/** Tokens that are patches of an image. Pure functions. */

import type { Description, PatchGrid, TokenList } from "../client/source";

/** A patch by its place in its grid. */
export interface Patch {
  grid: PatchGrid;
  row: number;
  column: number;
}

/** The token after the last of a grid. */
export function gridEnd(grid: PatchGrid): number {
  return grid.start + grid.rows * grid.columns;
}

/** The patch in a grid that a token is; null where it is none. */
export function patchIn(grid: PatchGrid, token: number | null): Patch | null {
  if (token === null || token < grid.start || token >= gridEnd(grid)) return null;
  const at = token - grid.start;
  return { grid, row: Math.floor(at / grid.columns), column: at % grid.columns };
}

/** The patch that a token is; null where it is none. */
export function patchOf(tokens: TokenList, token: number): Patch | null {
  for (const grid of tokens.grids ?? []) {
    const patch = patchIn(grid, token);
    if (patch) return patch;
  }
  return null;
}

/** "patch 2,3": its row and its column; with its image where there are several. */
function nameOf({ grid, row, column }: Patch, numImages: number): string {
  const image = numImages > 1 ? ` of image ${grid.image}` : "";
  return `patch ${row},${column}${image}`;
}

function named(tokens: TokenList, numImages: number): TokenList {
  if (!tokens.grids) return tokens;
  const text = tokens.text.map((each, token) => {
    const patch = patchOf(tokens, token);
    return patch ? nameOf(patch, numImages) : each;
  });
  return { ...tokens, text };
}

/**
 * A description whose patches are called by their places.
 *
 * What a tokenizer calls them is the same for all patches of an image, or a bare place, of which
 * no sentence says that it is one.
 */
export function withPatchNames(description: Description): Description {
  const count = description.images?.length ?? 0;
  if (count === 0) return description;
  const stacks = description.stacks.map((stack) => ({
    ...stack,
    query_tokens: named(stack.query_tokens, count),
    key_tokens: stack.key_tokens && named(stack.key_tokens, count),
  }));
  return { ...description, stacks };
}

/** How wide the patch that a token is stands to its height; null for a token of text. */
export type PatchShape = (token: number) => number | null;

/** The shapes of a list of tokens; null where none is a patch. */
export function shapesOf(tokens: TokenList, description: Description | null): PatchShape | null {
  const images = description?.images;
  if (!tokens.grids || !images) return null;
  return (token) => {
    const grid = patchOf(tokens, token)?.grid;
    const image = grid && images[grid.image];
    return image ? (image.width / grid.columns) * (grid.rows / image.height) : null;
  };
}
