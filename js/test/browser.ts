/**
 * Parts of a browser that jsdom lacks. A canvas has no context here, so a view draws nothing but
 * does everything else.
 */

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

// Tests in the node environment have neither jsdom nor these classes.
if (typeof HTMLCanvasElement !== "undefined") {
  Object.assign(globalThis, { ResizeObserver: Observer, IntersectionObserver: Observer });
  HTMLCanvasElement.prototype.getContext = () => null;
}
