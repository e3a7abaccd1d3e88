import { describe, expect, it } from "vitest";
import { inSlices, SLICE, type Tasks } from "../../src/draw/slices";

/** A clock that each step of the work moves, and tasks that run when they are told to. */
function madeTasks() {
  const waiting: (() => void)[] = [];
  const clock = { time: 0, frames: 0 };
  const tasks: Tasks = {
    now: () => clock.time,
    later: (run) => waiting.push(run),
    afterFrame: (run) => {
      clock.frames++;
      waiting.push(run);
    },
  };
  return { tasks, clock, waiting, run: () => waiting.shift()?.() };
}

describe("work in slices", () => {
  it("begins after a frame, stops at the slice's end and goes on in the next task", () => {
    const { tasks, clock, waiting, run } = madeTasks();
    let steps = 0;
    const work = (function* () {
      for (let i = 0; i < 20; i++) {
        steps++;
        clock.time += 3;
        yield;
      }
    })();
    inSlices(work, tasks);
    expect(steps).toBe(0);
    expect(clock.frames).toBe(1);
    const slices: number[] = [];
    while (waiting.length > 0) {
      const before = steps;
      run();
      slices.push(steps - before);
    }
    expect(steps).toBe(20);
    // The step that passes the end is the last.
    expect(Math.max(...slices)).toBe(Math.ceil(SLICE / 3));
    expect(clock.frames).toBe(1);
  });

  it("does nothing more when it was stopped, before its first slice and between two", () => {
    for (const turns of [0, 1, 2]) {
      const { tasks, clock, waiting, run } = madeTasks();
      let steps = 0;
      const work = (function* () {
        for (;;) {
          steps++;
          clock.time += SLICE;
          yield;
        }
      })();
      const stop = inSlices(work, tasks);
      for (let turn = 0; turn < turns; turn++) run();
      stop();
      while (waiting.length > 0) run();
      expect(steps).toBe(turns);
    }
  });

  it("ends in a hidden tab, which has no frames", async () => {
    const hidden = Object.getOwnPropertyDescriptor(Document.prototype, "hidden");
    const frames = globalThis.requestAnimationFrame;
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    globalThis.requestAnimationFrame = () => {
      throw new Error("No frame comes in a hidden tab.");
    };
    try {
      await new Promise<void>((resolve) => {
        const work = (function* () {
          for (let i = 0; i < 5; i++) yield;
          resolve();
        })();
        inSlices(work);
      });
    } finally {
      globalThis.requestAnimationFrame = frames;
      Reflect.deleteProperty(document, "hidden");
      expect(Object.getOwnPropertyDescriptor(Document.prototype, "hidden")).toEqual(hidden);
    }
  });
});
