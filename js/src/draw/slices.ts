/** Work in slices so short that the browser answers and paints between them. */

/** Milliseconds: half of what a frame has. */
export const SLICE = 8;
/** For the first frame to be painted; in a hidden tab none ever is. */
const LONGEST_WAIT = 50;

/** The clock, and what runs something as a task by itself. */
export interface Tasks {
  now: () => number;
  later: (run: () => void) => void;
  /** As soon as what is on the canvas now is on the screen. */
  afterFrame: (run: () => void) => void;
}

/** Messages come at full pace in a hidden tab too, where frames do not and timers are slow. */
export const BROWSER_TASKS: Tasks = {
  now: () => performance.now(),
  later: (run) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      run();
    };
    port2.postMessage(null);
  },
  afterFrame: (run) => {
    let ran = false;
    const once = (): void => {
      if (ran) return;
      ran = true;
      run();
    };
    if (document.hidden) BROWSER_TASKS.later(once);
    else {
      requestAnimationFrame(() => BROWSER_TASKS.later(once));
      setTimeout(once, LONGEST_WAIT);
    }
  },
};

/**
 * Goes on with the work at every task until a slice is over.
 *
 * @returns what stops it before its next step.
 */
export function inSlices(work: Iterator<unknown>, tasks: Tasks = BROWSER_TASKS): () => void {
  let stopped = false;
  const slice = (): void => {
    if (stopped) return;
    const end = tasks.now() + SLICE;
    do {
      if (work.next().done) return;
    } while (tasks.now() < end);
    tasks.later(slice);
  };
  tasks.afterFrame(slice);
  return () => {
    stopped = true;
  };
}
