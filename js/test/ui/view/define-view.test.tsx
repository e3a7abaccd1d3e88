import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { Transport } from "../../../src/client/transport";
import { defineView, type ViewContext } from "../../../src/ui/view/define-view";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";

let root: HTMLElement;
let end = (): void => undefined;

beforeEach(() => {
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  end();
  root.remove();
});

function Model({ context }: { context: ViewContext<RecordState> }) {
  return <p>{context.record.description.value?.model ?? "not yet"}</p>;
}

/** Define a view. Its page answers every request with a description that contains `model`. */
function small(model: Promise<string>, requests: string[] = []) {
  const pageTransport = (): Transport => ({
    live: false,
    request: async (name) => {
      requests.push(name);
      return { header: { model: await model, notes: [], stacks: [] }, data: null };
    },
    retry: () => undefined,
    watch: (listener) => listener("ready"),
  });
  return defineView<RecordState>({
    name: "small",
    defaults: RECORD_DEFAULTS,
    hash: {},
    css: "",
    component: Model,
    pageTransport,
  });
}

const DATA = { format: 2, view: "small", state: {} } as PageData;

it("uses the transport that a view defines for its pages", async () => {
  const requests: string[] = [];
  end = small(Promise.resolve("small of a corpus"), requests).openPage(root, DATA);
  await vi.waitFor(() => expect(root.querySelector("p")?.textContent).toBe("small of a corpus"));
  expect(requests).toEqual(["describe"]);
});

it("shows nothing after a page has ended", async () => {
  let answer = (_: string): void => undefined;
  const model = new Promise<string>((resolve) => {
    answer = resolve;
  });
  end = small(model).openPage(root, DATA);
  expect(root.querySelector("p")?.textContent).toBe("not yet");
  const frames = vi.spyOn(globalThis, "requestAnimationFrame");
  end();
  answer("too late");
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(root.childElementCount).toBe(0);
  expect(frames).not.toHaveBeenCalled();
});
