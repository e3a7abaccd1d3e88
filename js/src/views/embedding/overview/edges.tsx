/** What tells at the edges of the grid of all heads that there are more of them. */

import type { RefObject } from "preact";

/** Where tiles go on out of sight. */
export interface Beyond {
  right: boolean;
  below: boolean;
}

export function beyondOf(box: HTMLElement | null): Beyond {
  if (!box) return { right: false, below: false };
  return {
    right: box.scrollLeft + box.clientWidth < box.scrollWidth - 1,
    below: box.scrollTop + box.clientHeight < box.scrollHeight - 1,
  };
}

/** Tells at an edge that there are more, because a bar is often hidden; a click leads there. */
export function MoreTiles(props: { box: RefObject<HTMLElement | null>; beyond: Beyond }) {
  const { box, beyond } = props;
  const by = (across: number, down: number): void => {
    const { clientWidth = 0, clientHeight = 0 } = box.current ?? {};
    const to = { left: across * clientWidth * 0.7, top: down * clientHeight * 0.7 };
    box.current?.scrollBy({ ...to, behavior: "smooth" });
  };
  // Arrow keys move over the heads anyway: no stop for the keyboard.
  return (
    <>
      {beyond.right && (
        <button
          type="button"
          tabIndex={-1}
          class="av-embedding-beyond av-embedding-right"
          aria-label="More heads to the right"
          title="More heads to the right"
          onClick={() => by(1, 0)}
        >
          ›
        </button>
      )}
      {beyond.below && (
        <button
          type="button"
          tabIndex={-1}
          class="av-embedding-beyond av-embedding-below"
          aria-label="More layers below"
          title="More layers below"
          onClick={() => by(0, 1)}
        >
          ⌄
        </button>
      )}
    </>
  );
}
