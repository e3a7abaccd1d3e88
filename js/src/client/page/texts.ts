/** Deflated bytes of an exported page, which stand in its data or in elements. */

import { fromBase64, inflate } from "../codec";

/**
 * Inflates a text of the page's data: base64, or the `"#id"` of an element with it.
 *
 * @throws Error where the element is missing, or its bytes were changed.
 */
export async function inflatedText(text: string): Promise<Uint8Array> {
  return inflate(fromBase64(text.startsWith("#") ? await elementText(text) : text));
}

async function elementText(name: string): Promise<string> {
  const found = () => document.querySelector<HTMLTemplateElement>(name);
  // An element that the browser still reads may have a part of its text: nothing stands after it yet.
  if (!found()?.nextElementSibling && document.readyState === "loading") {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
  }
  const template = found();
  if (!template) {
    throw new Error(
      "This file is not complete: these weights are missing. Copy or download it again.",
    );
  }
  // The text of a template is not part of the document.
  return template.content.textContent ?? "";
}
