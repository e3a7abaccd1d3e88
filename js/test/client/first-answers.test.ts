import { deflateSync } from "node:zlib";
import { describe, expect, it, vi } from "vitest";
import { asBytes } from "../../src/client/codec";
import { type AnswersModel, FirstReplies } from "../../src/client/first-answers";
import { KernelChannel } from "../../src/client/kernel";

const DEFLATED = deflateSync(Uint8Array.from([7, 7, 7, 7, 7, 7]));

function answers(): object {
  return {
    replies: [
      { name: "describe", arguments: {}, header: { model: "m" } },
      { name: "block", arguments: { layer: 1, heads: [2] }, header: { a: 1 }, bytes: 2 },
      { name: "maps", arguments: { layer: 1 }, header: {}, bytes: DEFLATED.length, deflated: true },
    ],
    // As JupyterLab gives it: a part of a larger message.
    data: new DataView(Uint8Array.from([0, 0, 0, 5, 6, ...DEFLATED]).buffer, 3),
  };
}

function modelWith(value: unknown): AnswersModel & { state: Record<string, unknown> } {
  const state: Record<string, unknown> = { _first_answers: value };
  return {
    state,
    get: (name) => state[name],
    set: (name, now) => {
      state[name] = now;
    },
  };
}

describe("answers that came with a widget", () => {
  it("are found by what they answer, whatever the order of the arguments", async () => {
    const first = new FirstReplies(modelWith(answers()), false);
    expect(first.has("block", { heads: [2], layer: 1 })).toBe(true);
    const reply = await first.take("block", { heads: [2], layer: 1, rows: undefined });
    expect(reply?.header).toEqual({ a: 1 });
    expect([...asBytes(reply?.data as Uint8Array)]).toEqual([5, 6]);
    const maps = await first.take("maps", { layer: 1 });
    expect([...asBytes(maps?.data as Uint8Array)]).toEqual([7, 7, 7, 7, 7, 7]);
    expect(await first.take("describe", {})).toEqual({ header: { model: "m" }, data: null });
  });

  it("answer nothing else", () => {
    const first = new FirstReplies(modelWith(answers()), false);
    for (const args of [{ layer: 1, heads: [3] }, { layer: 2, heads: [2] }, { layer: 1 }])
      expect(first.take("block", args)).toBeNull();
    expect(first.take("tile", { layer: 1, heads: [2] })).toBeNull();
  });

  it("are given once, and leave the widget's state, where a kernel is there", () => {
    const model = modelWith(answers());
    const first = new FirstReplies(model, false);
    expect(model.state._first_answers).toBeNull();
    expect(first.take("describe", {})).not.toBeNull();
    expect(first.take("describe", {})).toBeNull();
  });

  it("stay where none is", () => {
    const model = modelWith(answers());
    const first = new FirstReplies(model, true);
    expect(model.state._first_answers).not.toBeNull();
    expect(first.take("describe", {})).not.toBeNull();
    expect(first.take("describe", {})).not.toBeNull();
  });

  it.each([[null], [undefined], [{}], [{ replies: [] }], ["text"]])(
    "may be missing: %j",
    (value) => {
      expect(new FirstReplies(modelWith(value), false).take("describe", {})).toBeNull();
      expect(new FirstReplies({}, false).take("describe", {})).toBeNull();
    },
  );

  it("without their buffer are asked for", () => {
    const dropped = { ...answers(), data: null };
    const first = new FirstReplies(modelWith(dropped), false);
    expect(first.take("block", { layer: 1, heads: [2] })).toBeNull();
    expect(first.take("describe", {})).not.toBeNull();
  });

  it("send no message, and are not given to who has given up", async () => {
    const send = vi.fn();
    const model = { ...modelWith(answers()), send, on: () => {}, off: () => {} };
    const channel = new KernelChannel(model);
    await expect(channel.ask("describe", {}, AbortSignal.abort())).rejects.toThrow("cancelled");
    expect((await channel.ask("describe", {})).header).toEqual({ model: "m" });
    expect(send).not.toHaveBeenCalled();
    void channel.ask("describe", {});
    expect(send).toHaveBeenCalledOnce();
  });
});
