/**
 * Setup of all tests: observers and a canvas context, which jsdom lacks. The context is null, so
 * views draw no pixels.
 *
 * Effects of components run without a wait for the next frame. Otherwise one that waits at the end
 * of a file fails, because `cancelAnimationFrame` no longer exists.
 */

import { setMaxListeners } from "node:events";
import { options } from "preact";

// A view adds about twelve listeners to one abort signal, and Node warns above ten by default. If
// listeners are never removed, there are soon more than 20.
setMaxListeners(20);

options.requestAnimationFrame = (effects) => {
  setTimeout(effects);
};

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

// Tests in the environment "node" have no canvas and need no observers.
if (typeof HTMLCanvasElement !== "undefined") {
  Object.assign(globalThis, { ResizeObserver: Observer, IntersectionObserver: Observer });
  HTMLCanvasElement.prototype.getContext = () => null;
}
