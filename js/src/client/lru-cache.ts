/** Cache of the most recently used values, up to a number of bytes. */
export class LruCache<V> {
  readonly #limit: number;
  // Entries in order of their last use. The first entry is dropped first.
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  #bytes = 0;

  /** @param limit maximum size in bytes. The newest value is kept even if it alone exceeds it. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    this.#entries.set(key, { value, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#limit || oldest === key) break;
      this.delete(oldest);
    }
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (!entry) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
}

/**
 * Return the cached promise for `key`, or call `make` and cache the promise that it returns. If the
 * promise rejects, it is removed from the cache.
 */
export function once<V>(
  cache: LruCache<Promise<V>>,
  key: string,
  make: () => Promise<V>,
  size: (value: V) => number,
): Promise<V> {
  const cached = cache.get(key);
  if (cached) return cached;
  const promise = make();
  cache.set(key, promise, 0);
  // The size of the value counts as 0 above, because it is unknown until the promise resolves.
  promise.then(
    (value) => cache.set(key, promise, size(value)),
    () => cache.delete(key),
  );
  return promise;
}
