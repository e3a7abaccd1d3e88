/**
 * Exported file that the reader saves without a download. It is offered if an iframe that contains
 * the page may block downloads.
 */

import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { runKey } from "../controls/keys";

export interface OfferedFile {
  name: string;
  /** Reason why the file is offered, and instructions for saving it. */
  words: string;
  /** Text of the file or, for a picture, its data URL. */
  content: { text: string } | { picture: string };
}

/** Render the offered file as a box over the plot, so the layout does not change. */
export function OfferedFilePlace({ offered }: { offered: Signal<OfferedFile | null> }) {
  const file = offered.value;
  return (
    <div class="av-offer-place">
      {file && (
        <FileBox
          key={file}
          file={file}
          onClose={() => {
            offered.value = null;
          }}
        />
      )}
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
      class="av-offer"
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
        <button type="button" class="av-chip" onClick={close}>
          Close
        </button>
      </div>
    </section>
  );
}
