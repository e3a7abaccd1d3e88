/** What a view says once: what it copied, and what a reader can take by hand where nothing else works. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { copyText } from "../exports/clipboard";

/** What is offered to be taken by hand. */
export type Offer =
  | { kind: "text"; name: string; text: string }
  /** `address` of a picture, to be saved by its context menu. */
  | { kind: "picture"; name: string; address: string };

export interface Notice {
  words: string;
  /** It stays until the reader closes it. */
  offer?: Offer;
}

/** A longer text is copied, and not shown. */
const MOST_SHOWN = 200_000;
/** Words alone go away after so many milliseconds. */
const LASTS = 5000;

/** Before the picture, and over it, so that nothing moves. */
export function NoticePlace({ notice }: { notice: Signal<Notice | null> }) {
  const now = notice.value;
  useEffect(() => {
    if (!now || now.offer) return;
    const timer = setTimeout(() => {
      if (notice.peek() === now) notice.value = null;
    }, LASTS);
    return () => clearTimeout(timer);
  }, [now]);
  return (
    <div class="av-notice-place">
      {/* There before it says anything: only then is it read out. */}
      <div aria-live="polite" class={now && !now.offer ? "av-notice" : "av-unseen"}>
        {now?.words}
      </div>
      {now?.offer && (
        <OfferBox
          key={now}
          words={now.words}
          offer={now.offer}
          onClose={() => {
            notice.value = null;
          }}
        />
      )}
    </div>
  );
}

function OfferBox(props: { words: string; offer: Offer; onClose: () => void }) {
  const { offer, onClose } = props;
  const box = useRef<HTMLElement>(null);
  const text = useRef<HTMLTextAreaElement>(null);
  const outcome = useSignal("");
  const before = useRef<HTMLElement | null>(null);
  useEffect(() => {
    const root = box.current?.getRootNode() as Document | ShadowRoot;
    before.current = root.activeElement as HTMLElement | null;
    box.current?.querySelector("button")?.focus();
  }, []);
  const close = (): void => {
    onClose();
    before.current?.focus({ preventScroll: true });
  };
  const copy = async (): Promise<void> => {
    if (offer.kind !== "text" || !box.current) return;
    const copied = await copyText(offer.text, box.current);
    outcome.value = copied
      ? "Copied."
      : text.current
        ? "The text is selected: press Ctrl-C, or Cmd-C."
        : "The frame does not allow copying, either.";
    if (copied) return;
    text.current?.focus();
    text.current?.select();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Escape") return;
    close();
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <section class="av-notice av-offer" aria-label={offer.name} ref={box} onKeyDown={onKeyDown}>
      <p>{props.words}</p>
      {offer.kind === "picture" ? (
        <img src={offer.address} alt={offer.name} />
      ) : (
        offer.text.length <= MOST_SHOWN && (
          <textarea ref={text} readonly rows={4} aria-label={offer.name} value={offer.text} />
        )
      )}
      <div class="av-row">
        {offer.kind === "text" && (
          <button type="button" class="av-chip" onClick={copy}>
            Copy the text
          </button>
        )}
        <button type="button" class="av-chip" onClick={close}>
          Close
        </button>
        <output>{outcome}</output>
      </div>
    </section>
  );
}
