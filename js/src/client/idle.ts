/** Resolves when the browser has nothing else to do, as after it has painted. */
export async function idle(): Promise<void> {
  // Safari has no such callback.
  await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
}
