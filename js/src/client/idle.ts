/** Longest wait for a frame. Hidden tabs have no frames. */
const LONGEST_FRAME_MS = 100;

/** Wait until the browser has painted and has nothing else to do. */
export async function idle(): Promise<void> {
  await new Promise<void>((resolve) => {
    // A browser paints after it has called the callbacks of a frame.
    globalThis.requestAnimationFrame?.(() => setTimeout(resolve));
    setTimeout(resolve, LONGEST_FRAME_MS);
  });
  // Safari has no requestIdleCallback.
  await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
}
