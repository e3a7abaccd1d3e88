/**
 * Parts of a browser that jsdom lacks. A canvas has no context here, so a view draws nothing but
 * does everything else.
 */

import { setMaxListeners } from "node:events";

// A view registers about twelve listeners for its end on one signal. Node warns above ten. With this
// limit, it still warns about listeners that are never removed.
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
