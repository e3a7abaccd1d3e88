/** Copying a text, also where the page is a frame that the clipboard's interface refuses. */

/**
 * Copies a text.
 *
 * @param near where the text may stand for the moment of copying: in the view, so that the focus
 *   does not leave it.
 * @returns false where neither way is allowed.
 */
export async function copyText(text: string, near: HTMLElement): Promise<boolean> {
  // In a frame the interface is mostly refused, and browsers report an error for the attempt.
  if (window.parent !== window && copySelected(text, near)) return true;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Refused, or missing, as on a page without https.
    return copySelected(text, near);
  }
}

/** The way of before the clipboard's interface, which asks for no permission but a click or a key. */
function copySelected(text: string, near: HTMLElement): boolean {
  const root = near.getRootNode() as Document | ShadowRoot;
  const focused = root.activeElement as HTMLElement | null;
  const box = document.createElement("textarea");
  box.className = "av-unseen";
  box.value = text;
  near.append(box);
  box.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    box.remove();
    focused?.focus({ preventScroll: true });
  }
}
