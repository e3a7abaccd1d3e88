/** Handing files to the reader, and whether the frame that a page stands in allows it. */

/** Hands a file to the reader. */
export function download(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // Browsers read the file after the click has returned.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Whether files can be saved from here: false in a frame with a sandbox that lacks
 * `allow-downloads`, null where that cannot be known.
 *
 * A refused download causes no event, and a page of another origin than its frame's host, as every
 * sandbox without `allow-same-origin` makes it, cannot read how it is framed.
 */
export function downloadsAllowed(from: Window = window): boolean | null {
  for (let each = from; each !== each.parent; each = each.parent) {
    let frame: Element | null;
    try {
      frame = each.frameElement;
    } catch {
      return null;
    }
    if (!frame) return null;
    const sandbox = frame.getAttribute("sandbox");
    if (sandbox !== null && !/(^|\s)allow-downloads(\s|$)/i.test(sandbox)) return false;
  }
  return true;
}
