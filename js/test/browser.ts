/**
 * This file adds parts of a browser that jsdom lacks. A canvas has no context in these tests, so
 * views draw no pixels.
 */

import { setMaxListeners } from "node:events";

// A view adds about twelve listeners to one abort signal. By default, Node warns above ten. With a
// limit of 20, Node still warns about listeners that are never removed.
setMaxListeners(20);

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

// Tests without jsdom have no canvas, and need no observers.
if (typeof HTMLCanvasElement !== "undefined") {
  Object.assign(globalThis, { ResizeObserver: Observer, IntersectionObserver: Observer });
  HTMLCanvasElement.prototype.getContext = () => null;
}
