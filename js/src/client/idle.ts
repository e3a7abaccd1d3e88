/** Longest wait for an animation frame in milliseconds. Hidden tabs have no such frames. */
const LONGEST_FRAME_MS = 100;

/**
 * Wait until the browser has painted, at most `LONGEST_FRAME_MS`, and then until it has nothing
 * else to do.
 */
export async function idle(): Promise<void> {
  await new Promise<void>((resolve) => {
    // The callbacks of a frame run before the browser paints. A timer that such a callback starts
    // runs after the browser has painted.
    globalThis.requestAnimationFrame?.(() => setTimeout(resolve));
    setTimeout(resolve, LONGEST_FRAME_MS);
  });
  // Safari has no requestIdleCallback, so only a timer runs there.
  await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
}
