/** Longest wait for an animation frame in milliseconds. Hidden tabs have no such frames. */
const LONGEST_FRAME_MS = 100;

/** Wait until the browser has painted and has nothing else to do. */
export async function idle(): Promise<void> {
  await new Promise<void>((resolve) => {
    // The browser paints after the callbacks of a frame. It calls a timer that such a callback
    // starts only after it has painted.
    globalThis.requestAnimationFrame?.(() => setTimeout(resolve));
    setTimeout(resolve, LONGEST_FRAME_MS);
  });
  // Safari has no requestIdleCallback.
  await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
}
