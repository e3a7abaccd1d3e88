/**
 * Download of exported files. If an iframe around the page may block downloads, a box shows the
 * content of the file, and the reader copies or saves it from there.
 */

import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Chip } from "../controls/fields";
import { runKey } from "../controls/keys";
import type { OfferedFile } from "../view/define-view";

/**
 * Return whether the page may download files. The result is false if the sandbox of an iframe
 * around the page lacks `allow-downloads`, and null if the attributes of an iframe cannot be read,
 * because its parent has another origin or its sandbox lacks `allow-same-origin`.
 *
 * These attributes are read because a blocked download fires no event.
 */
function downloadsAllowed(): boolean | null {
  for (let view: Window = window; view !== view.parent; view = view.parent) {
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

function download(name: string, file: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  // Browsers read the file only after `click` has returned. Keep the URL valid until then.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Return a data URL with the content of a picture. The box shows the picture, and the reader saves
 * it with its context menu. The browser may then load the URL outside this iframe, where a blob URL
 * from a sandbox is invalid.
 */
function dataAddress(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/**
 * Download a file, unless downloads are blocked. If they are blocked or may be blocked, return the
 * file for the box, otherwise null.
 */
export async function saveFile(name: string, file: Blob): Promise<OfferedFile | null> {
  const allowed = downloadsAllowed();
  if (allowed !== false) download(name, file);
  if (allowed) return null;
  const reason = "this frame does not allow downloads (its sandbox lacks allow-downloads)";
  const begin =
    allowed === null ? `If ${name} was not saved, ${reason}` : `${name} was not saved: ${reason}`;
  if (file.type === "image/png") {
    const words = `${begin}. Save the picture with its context menu (right-click or long press).`;
    return { name, words, content: { picture: await dataAddress(file) } };
  }
  const words = `${begin}. The text is selected. Copy it and paste it into a file named ${name}.`;
  return { name, words, content: { text: await file.text() } };
}

/**
 * Render the box with the offered file, or nothing. The box covers the plot, so that it moves
 * nothing.
 */
export function OfferedFilePlace({ offered }: { offered: Signal<OfferedFile | null> }) {
  const close = (): void => {
    offered.value = null;
  };
  return (
    <div class="av-offer-place">
      {offered.value && <FileBox key={offered.value} file={offered.value} onClose={close} />}
    </div>
  );
}

function FileBox({ file, onClose }: { file: OfferedFile; onClose: () => void }) {
  const { name, words, content } = file;
  const box = useRef<HTMLElement>(null);
  const before = useRef<HTMLElement | null>(null);
  useEffect(() => {
    const root = box.current?.getRootNode() as Document | ShadowRoot;
    before.current = root.activeElement as HTMLElement | null;
    const text = box.current?.querySelector("textarea");
    text?.select();
    (text ?? box.current?.querySelector("button"))?.focus();
  }, []);
  const close = (): void => {
    onClose();
    before.current?.focus({ preventScroll: true });
  };
  return (
    <section
      class="av-vertical av-offer"
      aria-label={name}
      ref={box}
      onKeyDown={(event) => runKey(event, { Escape: close })}
    >
      <p>{words}</p>
      {"text" in content ? (
        <textarea readonly rows={4} aria-label={name} value={content.text} />
      ) : (
        <img src={content.picture} alt={name} />
      )}
      <div class="av-row">
        <Chip onClick={close}>Close</Chip>
      </div>
    </section>
  );
}
