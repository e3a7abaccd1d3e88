/** Tests of widgets in hosts (notebook applications) that pass no signal or show a widget twice. */

import { describe, expect, it, onTestFinished } from "vitest";
import makeHeadWidget from "../../../src/views/head";
import makeMatrixWidget from "../../../src/views/matrix";
import makeModelWidget from "../../../src/views/model";
import { described, stackOf, tokensOf } from "../../builders";
import { drawnIn, mount, pass, useFakeClock } from "../../dom";
import { WidgetModel } from "../../fakes";

const TOKENS = ["a", "b", "c"];
const HEADS = 2;
const STACK = stackOf({
  layers: [0, 1],
  heads_per_layer: [HEADS, HEADS],
  query_tokens: tokensOf(TOKENS),
});

interface Message {
  attnviz: string;
  id: string;
  name: string;
  arguments: {
    heads?: number[];
    combine?: string;
    rows?: [number, number];
    columns?: [number, number];
  };
}
/** Fake model of a widget whose kernel replies to every request. Queries attend only to key 0. */
class Host extends WidgetModel {
  constructor() {
    super({ stack: "self", layer: 0, heads: [0] });
  }

  override send(content: unknown): void {
    super.send(content);
    const message = content as Message;
    if (message.attnviz === "request") queueMicrotask(() => this.#answer(message));
  }

  #answer({ id, name, arguments: { heads, rows, columns, combine = "separate" } }: Message): void {
    const reply = (header: unknown, buffers: unknown[]): void =>
      this.emit("msg:custom", { attnviz: "reply", id, header }, buffers);
    if (name === "describe") {
      reply(described(STACK), []);
      return;
    }
    // Combined heads have a single matrix.
    const count = combine === "separate" ? (heads?.length ?? HEADS) : 1;
    const [first, stop] = rows ?? [0, TOKENS.length];
    const [left, right] = columns ?? [0, TOKENS.length];
    const shape = [count, stop - first, right - left];
    const codes = new Uint8Array(count * (stop - first) * (right - left));
    for (let i = 0; i < codes.length; i += right - left) codes[i] = 255;
    const header = { shape, encoding: "uint8-sqrt", maximum: 1, error: 0.00392 };
    reply(header, [new DataView(codes.buffer)]);
  }
}

/** Initialize a widget, and show it in a new element of the page until the test ends. */
function show(widget: ReturnType<typeof makeHeadWidget>, model: Host) {
  const el = mount(null);
  const end = widget.initialize({ model: model as never });
  const close = widget.render({ model: model as never, el });
  for (const stop of [end, close]) onTestFinished(stop);
  const drawn = (mark: string) => drawnIn(el.querySelector(".attnviz") as Element, mark);
  return { el, end, close, drawn };
}

useFakeClock();

describe.each([
  ["head", makeHeadWidget],
  ["model", makeModelWidget],
  ["matrix", makeMatrixWidget],
])("the %s view", (name, makeWidget) => {
  it("ends with the returned functions if the host passes no signal", async () => {
    const model = new Host();
    const { el, end, close, drawn } = show(makeWidget(), model);
    await drawn(`${name}:self:0`);
    close();
    expect(el.children).toHaveLength(0);
    end();
    expect(model.numListeners).toBe(0);
    const numSent = model.sent.length;
    model.set("layer", 1);
    await pass(1000);
    expect(model.sent).toHaveLength(numSent);
  });

  it("shows in two outputs, and continues in one when the other is cleared", async () => {
    const model = new Host();
    const widget = makeWidget();
    const { drawn } = show(widget, model);
    const close = widget.render({ model: model as never, el: document.createElement("div") });
    await drawn(`${name}:self:0`);
    close();
    model.set("layer", 1);
    await drawn(`${name}:self:1`);
  });
});
