/** Cache of the most recently used values, up to a number of bytes. */
export class LruCache<V> {
  readonly #limit: number;
  // Entries in order of their last use. The first entry is dropped first.
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  #bytes = 0;

  /** @param limit maximum size in bytes. The newest value is kept even if it alone is larger. */
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
