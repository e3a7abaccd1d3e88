/**
 * Download of exported files. If an iframe that contains the page may block downloads, the file is
 * offered in a box, from which the reader saves it without a download.
 */

import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Chip } from "../controls/fields";
import { runKey } from "../controls/keys";

export interface OfferedFile {
  name: string;
  /** Reason why the file is offered, and instructions for saving it. */
  words: string;
  /** Text of a text file (CSV, SVG, HTML), or data URL of a PNG. */
  content: { text: string } | { picture: string };
}

/**
 * Return whether downloads are allowed: false inside a frame whose sandbox lacks `allow-downloads`,
 * null if this cannot be determined.
 *
 * A blocked download fires no event, so this function reads the attributes of all frames around the
 * page. It cannot read these attributes if the page and its parent have different origins. A page
 * in a sandbox without `allow-same-origin` has another origin than its parent.
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
  // Browsers read the file after click() has returned, so keep the URL valid for a while.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return a data URL with the content. A blob URL would be valid only inside the sandbox. */
function dataAddress(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/**
 * Download a file unless downloads are blocked. Return the file to offer if they are blocked or may
 * be blocked, else null.
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

/** Render the offered file as a box over the plot, so the layout does not change. */
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
