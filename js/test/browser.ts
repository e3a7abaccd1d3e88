/** Parts of a browser that jsdom lacks. Without a canvas a view draws nothing, but does everything else. */

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

// Tests with the node environment have no jsdom.
if (typeof HTMLCanvasElement !== "undefined") {
  Object.assign(globalThis, { ResizeObserver: Observer, IntersectionObserver: Observer });
  HTMLCanvasElement.prototype.getContext = () => null;
}
