/**
 * Parts of a browser that jsdom lacks. A canvas has no context here, so a view draws nothing but
 * does everything else.
 */

import { setMaxListeners } from "node:events";

// A view adds about twelve listeners to the abort signal that ends it. Node warns above ten by
// default. With a limit of 20, it still warns about listeners that are never removed.
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
