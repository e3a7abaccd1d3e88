import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { isAbort, KernelChannel, MAX_IN_FLIGHT } from "../../src/client/kernel";
import { RECORD_NUMBER } from "../../src/client/record-number";
import type { Connection } from "../../src/client/transport";

type Listener = (message: unknown, buffers?: DataView[]) => void;
interface Sent {
  attnviz: string;
  id: string;
  name?: string;
  arguments?: object;
}

/** Fake of a host. It stores the messages that a widget sends, and tests call it to reply. */
class Host {
  sent: Sent[] = [];
  listeners = new Set<Listener>();
  send(content: unknown): void {
    this.sent.push(content as Sent);
  }
  on(_event: string, listener: (...args: never[]) => void): void {
    this.listeners.add(listener as Listener);
  }
  off(_event?: string | null, listener?: ((...args: never[]) => void) | null): void {
    this.listeners.delete(listener as Listener);
  }
  answer(message: object, buffers?: DataView[]): void {
    for (const listener of this.listeners) listener(message, buffers);
  }
  reply(id: string, header: unknown): void {
    this.answer({ attnviz: "reply", id, header });
  }
  requests(): Sent[] {
    return this.sent.filter((message) => message.attnviz === "request");
  }
  id(index: number): string {
    return (this.requests()[index] as Sent).id;
  }
}

let host: Host;
let channel: KernelChannel;
let end: AbortController;
let seen: Connection[];

beforeEach(() => {
  vi.useFakeTimers();
  host = new Host();
  end = new AbortController();
  channel = new KernelChannel(host, end.signal);
  seen = [];
  channel.watch((connection) => seen.push(connection), end.signal);
});
afterEach(() => vi.useRealTimers());

describe("a replaced record", () => {
  let number = 0;
  const replace = (): void => {
    number += 1;
    // A host calls all listeners for each message. They then read the record number.
    host.answer({});
  };
  beforeEach(() => {
    number = 0;
    const model = Object.assign(host, { get: (name: string) => name === RECORD_NUMBER && number });
    channel = new KernelChannel(model, end.signal);
  });

  it("cancels requests about the previous record", async () => {
    const answer = channel.request("block", { stack: "self" });
    replace();
    await expect(answer).rejects.toSatisfy(isAbort);
    expect(channel.record.value).toBe(1);
    host.reply(host.id(0), { late: true });
    await expect(channel.request("block", { stack: "self" })).rejects.toSatisfy(isAbort);
    expect(host.requests()).toHaveLength(1);
  });

  it("is requested by its number, with the kernel's names of stacks", () => {
    replace();
    replace();
    channel.request("block", { stack: "self@2", layer: 3 }).catch(() => {});
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toMatchObject([
      { name: "block", arguments: { stack: "self", layer: 3 }, record: 2 },
      { name: "describe", arguments: {}, record: 2 },
    ]);
  });
});

describe("a description that was sent with the widget", () => {
  const state: Record<string, unknown> = {};
  const opened = (described: object, record = 0): [KernelChannel, Host] => {
    Object.assign(state, { _description: described, [RECORD_NUMBER]: record });
    const model = Object.assign(new Host(), {
      get: (name: string) => state[name],
      set: (name: string, value: unknown) => {
        state[name] = value;
      },
    });
    return [new KernelChannel(model, end.signal), model];
  };

  it("answers the first request for it, and is removed from the widget's state", async () => {
    const [channel, host] = opened({ model: "m", record: 0 });
    expect(state._description).toBeNull();
    expect(await channel.request("describe", {})).toEqual({ header: { model: "m" }, data: null });
    expect(host.requests()).toEqual([]);
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toHaveLength(1);
  });

  it("is requested again if its record was replaced", () => {
    const [channel, host] = opened({ model: "m", record: 0 }, 1);
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toHaveLength(1);
  });
});

describe("the request channel", () => {
  it("returns the reply with its buffer", async () => {
    const answer = channel.request("block", { layer: 3 });
    expect(host.sent[0]).toMatchObject({
      attnviz: "request",
      name: "block",
      arguments: { layer: 3 },
    });
    const data = new DataView(new ArrayBuffer(2));
    host.answer({ attnviz: "reply", id: host.id(0), header: { a: 1 } }, [data]);
    expect(await answer).toEqual({ header: { a: 1 }, data });
  });

  it("rejects with the kernel's message", async () => {
    const answer = channel.request("block", {});
    host.answer({ attnviz: "error", id: host.id(0), message: "layer 99 is out of range" });
    await expect(answer).rejects.toThrow("layer 99 is out of range");
  });

  it("ignores messages of others", () => {
    const answer = vi.fn();
    void channel.request("describe", {}).then(answer);
    host.answer({ other: "message" });
    host.reply("of-another-tab-0", {});
    expect(answer).not.toHaveBeenCalled();
  });

  it("sends only a few requests at once, and the next after each reply", async () => {
    const answers = Array.from({ length: 6 }, (_, i) => channel.request("block", { i }));
    expect(host.requests()).toHaveLength(MAX_IN_FLIGHT);
    host.reply(host.id(1), "second");
    expect(host.requests()).toHaveLength(MAX_IN_FLIGHT + 1);
    expect((await answers[1])?.header).toBe("second");
    expect(host.requests()[4]?.arguments).toEqual({ i: 4 });
  });

  it("sends a cancellation, frees the slot, and ignores a late reply", async () => {
    const controller = new AbortController();
    const cancelled = channel.request("block", { i: 0 }, controller.signal);
    for (let i = 1; i < 5; i++) void channel.request("block", { i });
    const id = host.id(0);
    controller.abort();
    await expect(cancelled).rejects.toSatisfy(isAbort);
    expect(host.sent).toContainEqual({ attnviz: "cancel", id });
    expect(host.requests()).toHaveLength(5);
    expect(() => host.reply(id, {})).not.toThrow();
  });

  it("sends none of many queued requests that are cancelled together", async () => {
    const many = Array.from({ length: 40 }, (_, i) => {
      const controller = new AbortController();
      const answer = channel.request("block", { i }, controller.signal);
      answer.catch(() => undefined);
      return controller;
    });
    for (const controller of many) controller.abort();
    void channel.request("block", { i: "new" });
    await Promise.resolve();
    const sent = host.requests().map((request) => (request.arguments as { i: unknown }).i);
    expect(sent).toEqual([0, 1, 2, 3, "new"]);
  });

  it("rejects at once if the signal is already aborted", async () => {
    await expect(channel.request("block", {}, AbortSignal.abort())).rejects.toSatisfy(isAbort);
    expect(host.sent).toHaveLength(0);
  });

  it("reports that there is no kernel if the widget was stored without one", async () => {
    for (const [layout, expected] of [
      [{ comm_live: false }, "detached"],
      [{ comm_live: true, comm: {} }, "waiting"],
      // A kernel was restarted, or a host connects the widget later.
      [{ comm_live: false, comm: {} }, "waiting"],
      ["IPY_MODEL_1", "waiting"],
      [undefined, "waiting"],
      [null, "waiting"],
    ] as const) {
      const states: Connection[] = [];
      const model = Object.assign(new Host(), { get: () => layout });
      const stored = new KernelChannel(model, end.signal);
      stored.watch((connection) => states.push(connection), end.signal);
      const answer = stored.request("describe", {});
      vi.advanceTimersByTime(1_000);
      expect(states).toEqual(["ready", expected]);
      vi.advanceTimersByTime(9_000);
      expect(states.at(-1)).toBe(expected === "detached" ? "detached" : "unanswered");
      // If an answer arrives, the state "detached" or "unanswered" was wrong.
      model.reply(model.id(0), "late");
      expect((await answer).header).toBe("late");
      expect(states.at(-1)).toBe("ready");
    }
  });

  it("sends the request again on a retry, and uses the first answer", async () => {
    const answer = channel.request("describe", {});
    vi.advanceTimersByTime(10_000);
    channel.retry();
    expect(seen.at(-1)).toBe("ready");
    expect(host.requests()).toHaveLength(2);
    expect(host.id(1)).not.toBe(host.id(0));
    host.reply(host.id(0), "to the first");
    host.reply(host.id(1), "to the second");
    expect((await answer).header).toBe("to the first");
  });

  it("is ready again when a slow request is cancelled", () => {
    const controller = new AbortController();
    channel.request("block", {}, controller.signal).catch(() => undefined);
    vi.advanceTimersByTime(2_000);
    controller.abort();
    expect(seen.at(-1)).toBe("ready");
  });

  it("closes with its signal: rejects pending requests and removes its listener", async () => {
    const answer = channel.request("block", {});
    end.abort();
    await expect(answer).rejects.toSatisfy(isAbort);
    expect(host.listeners.size).toBe(0);
  });

  it("creates ids that differ between tabs", () => {
    const other = new KernelChannel(host);
    void channel.request("describe", {});
    void other.request("describe", {});
    expect(host.id(0)).not.toBe(host.id(1));
  });
});

describe("a slow answer", () => {
  const later = (progress: number): object => ({
    pending: { doing: "scores", progress, seconds_left: 8 },
  });

  it("is requested again, with the same arguments, until it is complete", async () => {
    const answer = channel.request("scores", { pattern: "self" });
    host.reply(host.id(0), later(0.25));
    host.reply(host.id(1), later(0.5));
    host.reply(host.id(2), { scores: [] });
    expect((await answer).header).toEqual({ scores: [] });
    expect(host.requests().map((request) => request.arguments)).toEqual(
      Array(3).fill({ pattern: "self" }),
    );
    expect(new Set(host.requests().map(({ id }) => id)).size).toBe(3);
    expect(seen).toEqual(["ready"]);
  });

  it("stays among the requests that were sent", () => {
    for (let i = 0; i < MAX_IN_FLIGHT + 2; i++) void channel.request("block", { i });
    host.reply(host.id(0), later(0.5));
    const asked = host.requests().map((request) => (request.arguments as { i: number }).i);
    expect(asked).toEqual([...Array(MAX_IN_FLIGHT).keys(), 0]);
  });

  it("is not requested again after a cancellation, which is sent to the kernel", async () => {
    const controller = new AbortController();
    const answer = channel.request("scores", {}, controller.signal);
    host.reply(host.id(0), later(0.25));
    controller.abort();
    await expect(answer).rejects.toSatisfy(isAbort);
    host.reply(host.id(1), later(0.5));
    expect(host.requests()).toHaveLength(2);
    const cancelled = host.sent.filter(({ attnviz }) => attnviz === "cancel");
    expect(cancelled.map(({ id }) => id)).toEqual([host.id(1)]);
  });

  it("reports its progress after a while, and can be stopped", async () => {
    const answer = channel.request("scores", {});
    host.reply(host.id(0), later(0.25));
    vi.advanceTimersByTime(900);
    host.reply(host.id(1), later(0.5));
    expect(seen).toEqual(["ready"]);
    vi.advanceTimersByTime(200);
    host.reply(host.id(2), later(0.75));
    expect(seen).toEqual(["ready", { doing: "scores", progress: 0.75, seconds_left: 8 }]);
    channel.stop();
    await expect(answer).rejects.toThrow("The computation was stopped.");
    expect(seen.at(-1)).toBe("ready");
    host.reply(host.id(3), later(0.9));
    expect(host.requests()).toHaveLength(4);
  });

  it("reports its progress only to `report`, if that was passed", () => {
    const reported: number[] = [];
    void channel.request("page", {}, undefined, ({ progress }) => reported.push(progress));
    host.reply(host.id(0), later(0.25));
    vi.advanceTimersByTime(1100);
    host.reply(host.id(1), later(0.5));
    channel.stop();
    expect(reported).toEqual([0.25, 0.5]);
    expect(seen.every((connection) => typeof connection === "string")).toBe(true);
    host.reply(host.id(2), later(0.75));
    expect(reported).toEqual([0.25, 0.5, 0.75]);
  });

  it("continues once after several retries", () => {
    void channel.request("scores", {});
    channel.retry();
    host.reply(host.id(0), later(0.25));
    expect(host.requests()).toHaveLength(2);
    host.reply(host.id(1), later(0.25));
    expect(host.requests()).toHaveLength(3);
  });
});
