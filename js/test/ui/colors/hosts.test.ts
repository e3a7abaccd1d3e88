/**
 * Hosts that cannot run in these tests. They are simulated by the ways in which they differ:
 * buffers, signals and theme attributes.
 */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { KernelChannel } from "../../../src/client/kernel";
import { Source } from "../../../src/client/source";
import { MAX_REPLY_BYTES } from "../../../src/client/transport";
import makeHeadWidget from "../../../src/views/head";
import makeMatrixWidget from "../../../src/views/matrix";
import makeModelWidget from "../../../src/views/model";
import { stackOf, tokensOf } from "../../builders";

const WIDGETS = [
  ["head", makeHeadWidget],
  ["model", makeModelWidget],
  ["matrix", makeMatrixWidget],
] as const;

/**
 * Limit for the size of a message to the kernel, in bytes. The limits of all hosts are far larger.
 */
const MAX_REQUEST_BYTES = 10_000;

const TOKENS = ["a", "b", "c"];
const HEADS = 2;
const DESCRIPTION = {
  model: "m",
  notes: [],
  stacks: [
    stackOf({
      layers: [0, 1],
      heads_per_layer: [HEADS, HEADS],
      query_tokens: tokensOf(TOKENS),
    }),
  ],
};

type Listener = (...args: unknown[]) => void;
interface Message {
  attnviz: string;
  id: string;
  name: string;
  arguments: { heads?: number[]; rows?: [number, number]; columns?: [number, number] };
}
/** Function that converts the bytes of a reply to the type in which a host delivers them. */
type BufferConversion = (bytes: Uint8Array<ArrayBuffer>) => unknown;

/** Model of a widget whose kernel answers every request. Every query attends only to key 0. */
class Host {
  readonly values: Record<string, unknown> = { stack: "self", layer: 0, heads: [0] };
  readonly listeners = new Map<string, Set<Listener>>();
  readonly sent: Message[] = [];
  readonly #convert: BufferConversion;

  constructor(convert: BufferConversion) {
    this.#convert = convert;
  }
  get(name: string): unknown {
    return this.values[name];
  }
  set(name: string, value: unknown): void {
    this.values[name] = value;
  }
  save_changes(): void {}
  on(event: string, listener: Listener): void {
    this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(listener));
  }
  off(event?: string | null, listener?: Listener | null): void {
    if (event && listener) this.listeners.get(event)?.delete(listener);
  }
  count(): number {
    return [...this.listeners.values()].reduce((sum, listeners) => sum + listeners.size, 0);
  }
  send(content: unknown): void {
    const message = content as Message;
    this.sent.push(message);
    if (message.attnviz === "request") queueMicrotask(() => this.#answer(message));
  }
  #answer(message: Message): void {
    if (message.name === "describe") {
      this.#reply(message.id, DESCRIPTION, []);
      return;
    }
    // A tile has one matrix, which is the mean of the heads. Other replies have one matrix per
    // head.
    const heads = message.name === "tile" ? 1 : (message.arguments.heads?.length ?? HEADS);
    const span = (range?: [number, number]): number =>
      range ? range[1] - range[0] : TOKENS.length;
    const shape = [heads, span(message.arguments.rows), span(message.arguments.columns)];
    const [, rows, columns] = shape as [number, number, number];
    const codes = new Uint8Array(heads * rows * columns);
    for (let row = 0; row < heads * rows; row++) codes[row * columns] = 255;
    const header = { shape, encoding: "uint8-sqrt", maximum: 1, error: 0.00392, pooled: "max" };
    this.#reply(message.id, header, [this.#convert(codes)]);
  }
  #reply(id: string, header: unknown, buffers: unknown[]): void {
    for (const listener of this.listeners.get("msg:custom") ?? []) {
      listener({ attnviz: "reply", id, header }, buffers);
    }
  }
}

/**
 * Return a larger buffer that contains the bytes, and their offset, which is not a multiple of
 * four.
 */
function insideLargerBuffer(bytes: Uint8Array): [ArrayBuffer, number] {
  const all = new Uint8Array(bytes.length + 12).fill(7);
  all.set(bytes, 5);
  return [all.buffer, 5];
}

const CONVERSIONS: [string, BufferConversion][] = [
  ["a DataView, as Jupyter and VS Code do", (bytes) => new DataView(bytes.buffer)],
  [
    "a DataView of a part of a message",
    (bytes) => {
      const [buffer, offset] = insideLargerBuffer(bytes);
      return new DataView(buffer, offset, bytes.length);
    },
  ],
  [
    "a Uint8Array, as Colab does, of a part of a message",
    (bytes) => {
      const [buffer, offset] = insideLargerBuffer(bytes);
      return new Uint8Array(buffer, offset, bytes.length);
    },
  ],
  ["an ArrayBuffer", (bytes) => bytes.buffer],
];

let container: HTMLElement;
/** Functions that remove the outputs of the tests. */
let ends: (() => void)[] = [];

beforeEach(() => {
  container = document.createElement("div");
  document.body.append(container);
});

afterEach(() => {
  for (const end of ends) end();
  ends = [];
  container.remove();
  for (const name of document.body.getAttributeNames()) document.body.removeAttribute(name);
});

/** Show a widget in an element, as a host does that passes no abort signal. */
function show(widget: ReturnType<typeof makeHeadWidget>, model: Host, el = container): () => void {
  const end = widget.render({ model: model as never, el });
  ends.push(end);
  return end;
}

function initialize(widget: ReturnType<typeof makeHeadWidget>, model: Host): () => void {
  const end = widget.initialize({ model: model as never });
  ends.push(end);
  return end;
}

async function drawn(name: string, layer = 0): Promise<HTMLElement> {
  const root = container.querySelector(".attnviz") as HTMLElement;
  await vi.waitFor(
    () => expect(root.getAttribute("data-attnviz-drawn")).toBe(`${name}:self:${layer}`),
    { timeout: 15_000 },
  );
  return root;
}

describe.each(WIDGETS)("the %s view", (name, makeWidget) => {
  it.each(CONVERSIONS)("draws where buffers come as %s", async (_how, convert) => {
    const model = new Host(convert);
    const widget = makeWidget();
    initialize(widget, model);
    show(widget, model);
    const root = await drawn(name);
    expect(root.getAttribute("data-attnviz-state")).toBe("ready");
    expect(root.textContent).toContain("“a”");
  });

  it("reports an error if a host drops buffers", async () => {
    const model = new Host(() => undefined);
    const widget = makeWidget();
    initialize(widget, model);
    show(widget, model);
    const root = container.querySelector(".attnviz") as HTMLElement;
    await vi.waitFor(() => expect(root.getAttribute("data-attnviz-state")).toBe("error"));
    expect(root.textContent).toContain("The reply contains no data.");
  });

  it("cleans up through the returned functions if the host passes no signal", async () => {
    const model = new Host(CONVERSIONS[0]?.[1] as BufferConversion);
    const widget = makeWidget();
    const end = initialize(widget, model);
    const close = show(widget, model);
    await drawn(name);
    close();
    expect(container.children).toHaveLength(0);
    end();
    expect(model.count()).toBe(0);
    const numSent = model.sent.length;
    model.set("layer", 1);
    document.body.setAttribute("data-jp-theme-light", "false");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(model.sent).toHaveLength(numSent);
  });

  it("draws if a host renders without initialising", async () => {
    const model = new Host(CONVERSIONS[0]?.[1] as BufferConversion);
    const close = show(makeWidget(), model);
    await drawn(name);
    close();
    expect(model.count()).toBe(0);
  });

  it("shows in two outputs, and continues in one when the other is cleared", async () => {
    const model = new Host(CONVERSIONS[0]?.[1] as BufferConversion);
    const widget = makeWidget();
    initialize(widget, model);
    const first = document.createElement("div");
    const closeFirst = show(widget, model, first);
    show(widget, model);
    await drawn(name);
    closeFirst();
    model.set("layer", 1);
    for (const listener of model.listeners.get("change:layer") ?? []) listener();
    await drawn(name, 1);
  });
});

describe("requests", () => {
  it("stay small for large records", async () => {
    const sent: string[] = [];
    const model = {
      send: (content: unknown) => sent.push(JSON.stringify(content)),
      on() {},
      off() {},
    };
    const end = new AbortController();
    const source = new Source(new KernelChannel(model, end.signal));
    const many = Array.from({ length: 128 }, (_, head) => head);
    const common = { stack: "encoder", layer: 95, heads: many };
    const span: [number, number] = [99_000, 100_000];
    const requests = [
      source.block({ ...common, rows: span, columns: span }),
      source.maps({ ...common, size: 64 }),
      // This request leaves out a thousand keys, so it is the largest.
      source.page({ ...common, leave_out: Array.from({ length: 1_000 }, (_, key) => key) }),
    ];
    end.abort();
    await Promise.allSettled(requests);
    expect(sent.length).toBeGreaterThanOrEqual(2);
    for (const message of sent) expect(message.length).toBeLessThan(MAX_REQUEST_BYTES);
    expect(MAX_REPLY_BYTES).toBeLessThanOrEqual(1_000_000);
  });
});
