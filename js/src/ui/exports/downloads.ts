/** Download of files. An iframe that contains the page can forbid downloads. */

export function download(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // Browsers read the file after click() has returned, so keep the address for a while.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Return whether downloads are allowed: false in a frame whose sandbox lacks `allow-downloads`,
 * null if the answer is unknown.
 *
 * A blocked download fires no event, so this function reads the attributes of all frames around the
 * page. A page from another origin than its parent cannot read these attributes. A page in a
 * sandbox without `allow-same-origin` has another origin.
 */
export function downloadsAllowed(from: Window = window): boolean | null {
  for (let view = from; view !== view.parent; view = view.parent) {
    let frame: Element | null;
    try {
      frame = view.frameElement;
    } catch {
      return null;
    }
    if (!frame) return null;
    const sandbox = frame.getAttribute("sandbox");
    if (sandbox !== null && !/(^|\s)allow-downloads(\s|$)/i.test(sandbox)) return false;
  }
  return true;
}
