/**
 * Check of the format of an exported page, and decoding of its deflated bytes, which are in the
 * page's data or in separate elements.
 */

import { fromBase64, inflate } from "../codec";

/** @throws Error if this bundle does not support the format of a page's data. */
export function checkFormat({ format }: { format: number }): void {
  if (format !== 1) {
    throw new Error(`The page’s data have format ${format}, but only format 1 is supported.`);
  }
}

/**
 * Inflate a string of the page's data: base64, or "#id" of an element that contains base64.
 *
 * @throws Error if the element is missing or the bytes are damaged.
 */
export async function inflatedText(text: string): Promise<Uint8Array> {
  return inflate(fromBase64(text.startsWith("#") ? await elementText(text) : text));
}

async function elementText(name: string): Promise<string> {
  const findTemplate = () => document.querySelector<HTMLTemplateElement>(name);
  // While the browser parses the page, the last element may be incomplete. Wait until all of the
  // page is parsed.
  if (!findTemplate()?.nextElementSibling && document.readyState === "loading") {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
  }
  const template = findTemplate();
  if (!template) {
    throw new Error(
      "This file is incomplete: these weights are missing. Copy or download it again.",
    );
  }
  // The text of a template is a child of its `content`, not of the template itself.
  return template.content.textContent ?? "";
}
