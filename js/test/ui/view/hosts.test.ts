/** Widgets in notebook applications (hosts) that pass no abort signal, or show a widget twice. */

import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import makeHeadWidget from "../../../src/views/head";
import makeMatrixWidget from "../../../src/views/matrix";
import makeModelWidget from "../../../src/views/model";
import { described, stackOf, tokensOf } from "../../builders";
import { drawnIn, pass, useFakeClock } from "../../dom";
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
  arguments: { heads?: number[]; rows?: [number, number]; columns?: [number, number] };
}
/** Model of a widget whose kernel answers every request. Every query attends only to key 0. */
class Host extends WidgetModel {
  constructor() {
    super({ stack: "self", layer: 0, heads: [0] });
  }

  override send(content: unknown): void {
    super.send(content);
    const message = content as Message;
    if (message.attnviz === "request") queueMicrotask(() => this.#answer(message));
  }

  #answer({ id, name, arguments: { heads, rows, columns } }: Message): void {
    const reply = (header: unknown, buffers: unknown[]): void =>
      this.emit("msg:custom", { attnviz: "reply", id, header }, buffers);
    if (name === "describe") {
      reply(described(STACK), []);
      return;
    }
    // A tile has one matrix, which is the mean of the heads. Other replies have one matrix per
    // head.
    const count = name === "tile" ? 1 : (heads?.length ?? HEADS);
    const [first, stop] = rows ?? [0, TOKENS.length];
    const [left, right] = columns ?? [0, TOKENS.length];
    const shape = [count, stop - first, right - left];
    const codes = new Uint8Array(count * (stop - first) * (right - left));
    for (let i = 0; i < codes.length; i += right - left) codes[i] = 255;
    const header = { shape, encoding: "uint8-sqrt", maximum: 1, error: 0.00392, pooled: "max" };
    reply(header, [new DataView(codes.buffer)]);
  }
}

let container: HTMLElement;

type Widget = ReturnType<typeof makeHeadWidget>;

/** Show a widget in an element, as a host does that passes no abort signal. */
function show(widget: Widget, model: Host, el = container): () => void {
  const end = widget.render({ model: model as never, el });
  onTestFinished(end);
  return end;
}

function initialize(widget: Widget, model: Host): () => void {
  const end = widget.initialize({ model: model as never });
  onTestFinished(end);
  return end;
}

const rootOf = (element: Element): Element => element.querySelector(".attnviz") as Element;

useFakeClock();

beforeEach(() => {
  container = document.createElement("div");
  document.body.append(container);
  onTestFinished(() => {
    container.remove();
    for (const name of document.body.getAttributeNames()) document.body.removeAttribute(name);
  });
});

describe.each([
  ["head", makeHeadWidget],
  ["model", makeModelWidget],
  ["matrix", makeMatrixWidget],
])("the %s view", (name, makeWidget) => {
  it("ends with the returned functions if the host passes no signal", async () => {
    const model = new Host();
    const widget = makeWidget();
    const end = initialize(widget, model);
    const close = show(widget, model);
    await drawnIn(rootOf(container), `${name}:self:0`);
    close();
    expect(container.children).toHaveLength(0);
    end();
    expect(model.numListeners).toBe(0);
    const numSent = model.sent.length;
    model.set("layer", 1);
    document.body.setAttribute("data-jp-theme-light", "false");
    await pass(1000);
    expect(model.sent).toHaveLength(numSent);
  });

  it("shows in two outputs, and continues in one when the other is cleared", async () => {
    const model = new Host();
    const widget = makeWidget();
    initialize(widget, model);
    const closeFirst = show(widget, model, document.createElement("div"));
    show(widget, model);
    await drawnIn(rootOf(container), `${name}:self:0`);
    closeFirst();
    model.set("layer", 1);
    await drawnIn(rootOf(container), `${name}:self:1`);
  });
});
