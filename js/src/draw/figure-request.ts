/** Options of a figure that a script exports, as in `view.save("x.pdf", width="84mm")`. */

import { isFontInstalled } from "./fonts";
import { FONTS } from "./marks";

/** Layers of a figure that consists of images: the layer that the view shows, or all layers. */
export type ImageContent = "image" | "layers";

/**
 * Options of a figure. Lengths are in CSS pixels of the exported figure. If an option is undefined,
 * the figure is exported as the view shows it.
 */
export interface FigureRequest {
  /**
   * "image" for the images of the model's input with weights over them, without the plot. "layers"
   * for these images of every layer.
   */
  content?: "view" | ImageContent | undefined;
  /** Width of the whole figure. */
  width?: number | undefined;
  /** Size of the smallest text. */
  fontSize?: number | undefined;
  /** Font families, first of ordinary text, then of tokens. */
  fonts?: readonly [string, string] | undefined;
  /** Title above the figure. "" means no title, and undefined the name of the model. */
  title?: string | undefined;
  /** Pixels per CSS pixel of the figure that matter: those of a PNG, or those of a printer. */
  scale?: number | undefined;
  caption: boolean;
  legend: boolean;
  /** Whether the figure is a part of another one, which has its captions and its colour scale. */
  isPart?: boolean;
  /** Number of columns of the figure of which this is one, and the gap between them. */
  columns?: { count: number; gap: number };
  /** "transparent" or "#rrggbb". */
  background?: string | undefined;
  /**
   * Colours "#rrggbb" in place of the palette's head colours: the first is for the head that was
   * chosen first, and so on. Everything else in a head colour, such as pinned tokens, uses them,
   * too.
   */
  colors?: readonly string[] | undefined;
}

/**
 * Error for a figure that cannot be drawn with the requested options. Users see its message.
 * `width` is the width in CSS pixels that would suffice, or 0 if the width is not the reason.
 */
export class FigureError extends Error {
  override name = "FigureError";

  constructor(
    message: string,
    readonly width = 0,
  ) {
    super(message);
  }
}

/**
 * Text size of a printed figure in layout pixels, in which `figure.ts` composes a figure.
 * `figureScale` converts layout pixels to CSS pixels.
 */
export const PRINT_FONT_SIZE = 10;
/** Text size in CSS pixels (8 points) of a figure for which only a width is requested. */
const DEFAULT_FONT_SIZE = (8 * 96) / 72;

/** Return whether a width or a text size is requested. The figure then has the layout for print. */
export function isPrinted(request: FigureRequest | undefined): boolean {
  return request?.width !== undefined || request?.fontSize !== undefined;
}

/**
 * Return the number of CSS pixels per layout pixel, the unit in which `figure.ts` composes a
 * figure. It is 1 unless the figure is printed.
 */
export function figureScale(request: FigureRequest | undefined): number {
  return isPrinted(request) ? (request?.fontSize ?? DEFAULT_FONT_SIZE) / PRINT_FONT_SIZE : 1;
}

/**
 * Return the options that a script has set in this page, or undefined. If they contain fonts, all
 * texts are drawn in these fonts from now on.
 */
export function figureRequest(): FigureRequest | undefined {
  const request = (globalThis as { attnvizFigure?: FigureRequest }).attnvizFigure;
  if (request?.fonts) [FONTS.text, FONTS.token] = request.fonts;
  return request;
}

/** @throws FigureError if a requested font is not installed. */
export function checkFonts(request: FigureRequest | undefined): void {
  for (const family of new Set(request?.fonts)) {
    if (!isFontInstalled(family))
      throw new FigureError(
        `font: ${JSON.stringify(family)} is not installed on the computer that draws the figure. ` +
          "Install it, pass another font, or omit font=.",
      );
  }
}
