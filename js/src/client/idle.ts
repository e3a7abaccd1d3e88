/** A tab that is not in sight has no frames. */
const LONGEST_FRAME_MS = 100;

/** Resolves when the browser has painted what was drawn until now, and has nothing else to do. */
export async function idle(): Promise<void> {
  await new Promise<void>((resolve) => {
    // A frame is painted after its callbacks.
    globalThis.requestAnimationFrame?.(() => setTimeout(resolve));
    setTimeout(resolve, LONGEST_FRAME_MS);
  });
  // Safari has no such callback.
  await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
}
