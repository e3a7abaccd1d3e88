import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { isAbort, KernelChannel, MAX_IN_FLIGHT } from "../../src/client/kernel";
import { RECORD_NUMBER } from "../../src/client/record-number";
import type { Connection } from "../../src/client/transport";
import { WidgetModel } from "../fakes";

interface Sent {
  attnviz: string;
  id: string;
  name?: string;
  arguments?: object;
}

/** Fake of a notebook application (host), which replies to a request when a test calls `reply`. */
class Host extends WidgetModel {
  messages(kind: string): Sent[] {
    return (this.sent as Sent[]).filter(({ attnviz }) => attnviz === kind);
  }
  requests(): Sent[] {
    return this.messages("request");
  }
  /** Reply to the request with this index. */
  reply(index: number, header: unknown, buffers: DataView[] = []): void {
    const { id } = this.requests()[index] as Sent;
    this.emit("msg:custom", { attnviz: "reply", id, header }, buffers);
  }
}

let host: Host;
let channel: KernelChannel;
let end: AbortController;
let seen: Connection[];

/** Create a host whose widget has the given traits, and a channel to this host. */
function connect(traits: Record<string, unknown> = {}): void {
  host = new Host(traits);
  end = new AbortController();
  channel = new KernelChannel(host, end.signal);
  seen = [];
  channel.connection.subscribe((connection) => void seen.push(connection));
}

beforeEach(() => {
  vi.useFakeTimers();
  connect();
});
afterEach(() => vi.useRealTimers());

describe("a replaced record", () => {
  it("cancels requests about the previous record", async () => {
    connect({ [RECORD_NUMBER]: 0 });
    const answer = channel.request("block", { stack: "self" });
    host.set(RECORD_NUMBER, 1);
    await expect(answer).rejects.toSatisfy(isAbort);
    expect(channel.record.value).toBe(1);
    host.reply(0, { late: true });
    await expect(channel.request("block", { stack: "self" })).rejects.toSatisfy(isAbort);
    expect(host.requests()).toHaveLength(1);
  });

  it("is requested by its number, with the kernel's names of stacks", () => {
    connect({ [RECORD_NUMBER]: 0 });
    host.set(RECORD_NUMBER, 2);
    channel.request("block", { stack: "self@2", layer: 3 }).catch(() => {});
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toMatchObject([
      { name: "block", arguments: { stack: "self", layer: 3 }, record: 2 },
      { name: "describe", arguments: {}, record: 2 },
    ]);
  });
});

describe("a description that was sent with the widget", () => {
  const description = { model: "m", record: 0 };

  it("answers the first request for it, and is removed from the widget's state", async () => {
    connect({ _description: description, [RECORD_NUMBER]: 0 });
    expect(host.values._description).toBeNull();
    expect(await channel.request("describe", {})).toEqual({ header: { model: "m" }, data: null });
    expect(host.requests()).toEqual([]);
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toHaveLength(1);
  });

  it("is not used for another record", () => {
    connect({ _description: description, [RECORD_NUMBER]: 1 });
    channel.request("describe", {}).catch(() => {});
    expect(host.requests()).toHaveLength(1);
  });
});

describe("the request channel", () => {
  it("rejects with the kernel's message", async () => {
    const answer = channel.request("block", {});
    const [{ id } = { id: "" }] = host.requests();
    host.emit("msg:custom", { attnviz: "error", id, message: "layer 99 is out of range" });
    await expect(answer).rejects.toThrow("layer 99 is out of range");
  });

  it("ignores a reply to another channel of the same widget, as in a second browser tab", async () => {
    const answer = channel.request("block", {});
    const otherAnswer = new KernelChannel(host).request("block", {});
    host.reply(1, "for the other");
    host.reply(0, "for this one");
    expect((await answer).header).toBe("for this one");
    expect((await otherAnswer).header).toBe("for the other");
  });

  it("sends only a few requests at once, and the next after each reply", async () => {
    const answers = Array.from({ length: 6 }, (_, i) => channel.request("block", { i }));
    expect(host.requests()).toHaveLength(MAX_IN_FLIGHT);
    host.reply(1, "second");
    expect(host.requests()).toHaveLength(MAX_IN_FLIGHT + 1);
    expect((await answers[1])?.header).toBe("second");
    expect(host.requests()[4]?.arguments).toEqual({ i: 4 });
  });

  it("sends a cancellation, sends the next request instead, and ignores a late reply", async () => {
    const controller = new AbortController();
    const cancelled = channel.request("block", { i: 0 }, controller.signal);
    for (let i = 1; i <= MAX_IN_FLIGHT; i++) void channel.request("block", { i });
    controller.abort();
    await expect(cancelled).rejects.toSatisfy(isAbort);
    const [first] = host.requests();
    expect(host.sent).toContainEqual({ attnviz: "cancel", id: first?.id });
    expect(host.requests()).toHaveLength(MAX_IN_FLIGHT + 1);
    expect(() => host.reply(0, {})).not.toThrow();
  });

  it("sends none of many queued requests that are cancelled together", async () => {
    const controllers = Array.from({ length: 40 }, () => new AbortController());
    controllers.forEach((controller, i) => {
      channel.request("block", { i }, controller.signal).catch(() => undefined);
    });
    for (const controller of controllers) controller.abort();
    void channel.request("block", { i: "new" });
    await Promise.resolve();
    const sent = host.requests().map((request) => (request.arguments as { i: unknown }).i);
    expect(sent).toEqual([0, 1, 2, 3, "new"]);
  });

  it.each([
    [{ comm_live: false }, "detached", "detached"],
    [{ comm_live: true, comm: {} }, "waiting", "unanswered"],
    // A layout without a comm, as in the first case, has no kernel. A comm that is not live may
    // become live: the kernel was restarted, or the host connects the widget later.
    [{ comm_live: false, comm: {} }, "waiting", "unanswered"],
    [null, "waiting", "unanswered"],
  ])("with the layout %j is %s after a second and %s after ten", async (layout, soon, late) => {
    connect({ layout });
    const answer = channel.request("describe", {});
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(["ready", soon]);
    vi.advanceTimersByTime(9_000);
    expect(seen.at(-1)).toBe(late);
    // A late reply shows that the kernel is connected after all.
    host.reply(0, "late");
    expect((await answer).header).toBe("late");
    expect(seen.at(-1)).toBe("ready");
  });

  it("sends the request again on a retry, and uses the first answer", async () => {
    const answer = channel.request("describe", {});
    vi.advanceTimersByTime(10_000);
    channel.retry();
    expect(seen.at(-1)).toBe("ready");
    const [first, second] = host.requests();
    expect(second?.id).not.toBe(first?.id);
    host.reply(0, "to the first");
    host.reply(1, "to the second");
    expect((await answer).header).toBe("to the first");
  });

  it("closes with its signal: rejects pending requests and removes its listeners", async () => {
    const answer = channel.request("block", {});
    end.abort();
    await expect(answer).rejects.toSatisfy(isAbort);
    expect(host.numListeners).toBe(0);
  });
});

describe("a slow answer", () => {
  const later = (progress: number): object => ({
    pending: { doing: "scores", progress, seconds_left: 8 },
  });

  it("is requested again, with the same arguments, until it is complete", async () => {
    const answer = channel.request("scores", { pattern: "self" });
    host.reply(0, later(0.25));
    host.reply(1, later(0.5));
    host.reply(2, { scores: [] });
    expect((await answer).header).toEqual({ scores: [] });
    const requests = host.requests();
    expect(requests.map((sent) => sent.arguments)).toEqual(Array(3).fill({ pattern: "self" }));
    expect(new Set(requests.map(({ id }) => id)).size).toBe(3);
    expect(seen).toEqual(["ready"]);
  });

  it("is not requested again after a cancellation, which is sent to the kernel", async () => {
    const controller = new AbortController();
    const answer = channel.request("scores", {}, controller.signal);
    host.reply(0, later(0.25));
    controller.abort();
    await expect(answer).rejects.toSatisfy(isAbort);
    host.reply(1, later(0.5));
    expect(host.requests()).toHaveLength(2);
    expect(host.messages("cancel")).toEqual([{ attnviz: "cancel", id: host.requests()[1]?.id }]);
  });

  it("reports its progress after a while, and can be stopped", async () => {
    const answer = channel.request("scores", {});
    host.reply(0, later(0.25));
    vi.advanceTimersByTime(900);
    host.reply(1, later(0.5));
    expect(seen).toEqual(["ready"]);
    vi.advanceTimersByTime(200);
    host.reply(2, later(0.75));
    expect(seen).toEqual(["ready", { doing: "scores", progress: 0.75, seconds_left: 8 }]);
    channel.stop();
    await expect(answer).rejects.toThrow("The computation was stopped.");
    expect(seen.at(-1)).toBe("ready");
    host.reply(3, later(0.9));
    expect(host.requests()).toHaveLength(4);
  });

  it("continues once after several retries", () => {
    void channel.request("scores", {});
    channel.retry();
    host.reply(0, later(0.25));
    expect(host.requests()).toHaveLength(2);
    host.reply(1, later(0.25));
    expect(host.requests()).toHaveLength(3);
  });
});
