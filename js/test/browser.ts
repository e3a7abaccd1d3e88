/** What jsdom lacks of a browser. Without a canvas a view draws nothing, and does all else. */

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

// Tests of what needs no page run without jsdom.
if (typeof HTMLCanvasElement !== "undefined") {
  Object.assign(globalThis, { ResizeObserver: Observer, IntersectionObserver: Observer });
  HTMLCanvasElement.prototype.getContext = () => null;
}
