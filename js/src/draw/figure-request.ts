/** What a script that opens a page asks of its figure: `view.save("x.pdf", width="84mm")`. */

import { isFontInstalled } from "./fonts";
import { FONTS } from "./marks";

/** Lengths are CSS pixels of the figure itself. What is missing is as on the screen. */
export interface FigureRequest {
  /** Of the whole figure. */
  width?: number | undefined;
  /** Of its smallest text. */
  fontSize?: number | undefined;
  /** Families of words and of tokens. */
  fonts?: readonly [string, string] | undefined;
  /** Above the figure; "" for nothing, undefined for the model's name. */
  title?: string | undefined;
  caption: boolean;
  legend: boolean;
  /** "transparent" or "#rrggbb". */
  background?: string | undefined;
  /** Of chosen heads in order, "#rrggbb". */
  colors?: readonly string[] | undefined;
}

/** Why a figure cannot be as it was asked for, in words for the person who asked. */
export class FigureError extends Error {
  override name = "FigureError";
}

/** Texts of a figure of a stated width have this size, in the pixels of its layout. */
export const PRINT_TEXT = 10;
/** Points of text where a width is stated and no size. */
const USUAL_SIZE = (8 * 96) / 72;

/** Whether a width or a size of text is stated, so that the layout is made for print. */
export function isPrinted(request: FigureRequest | undefined): boolean {
  return request?.width !== undefined || request?.fontSize !== undefined;
}

/** CSS pixels of the smallest text. */
export function fontSizeOf(request: FigureRequest | undefined): number {
  return request?.fontSize ?? USUAL_SIZE;
}

/** Pixels of the figure for each pixel of its layout. */
export function unitOf(request: FigureRequest | undefined): number {
  return isPrinted(request) ? fontSizeOf(request) / PRINT_TEXT : 1;
}

/** The request of the script that opened this page; undefined where a person did. */
export function figureRequest(): FigureRequest | undefined {
  const request = (globalThis as { attnvizFigure?: FigureRequest }).attnvizFigure;
  if (request?.fonts) [FONTS.text, FONTS.token] = request.fonts;
  return request;
}

/** @throws FigureError where a font that was asked for is not there. */
export function checkFonts(request: FigureRequest | undefined): void {
  for (const family of new Set(request?.fonts)) {
    if (!isFontInstalled(family))
      throw new FigureError(
        `font: ${JSON.stringify(family)} is not installed where the browser draws; ` +
          "install it, name another, or leave font= out",
      );
  }
}
