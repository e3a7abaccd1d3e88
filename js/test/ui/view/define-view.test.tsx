import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Carrier } from "../../../src/client/carrier";
import type { PageData } from "../../../src/client/page";
import { defineView, type ViewContext } from "../../../src/ui/view/define-view";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";

let root: HTMLElement;

beforeEach(() => {
  // What jsdom lacks of a browser.
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe(): void {}
      disconnect(): void {}
    },
  );
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  root.remove();
  vi.unstubAllGlobals();
});

function Model({ context }: { context: ViewContext<RecordState> }) {
  return <p>{context.record.description.value?.model ?? "not yet"}</p>;
}

it("asks what a view names for its own pages", async () => {
  const asked: string[] = [];
  const carrierOf = (data: PageData): Carrier => ({
    live: false,
    ask: async (name) => {
      asked.push(name);
      return { header: { model: `${data.view} of a corpus`, notes: [], stacks: [] }, data: null };
    },
    retry: () => undefined,
    watch: (listener) => listener("ready"),
  });
  const view = defineView<RecordState>({
    name: "small",
    defaults: RECORD_DEFAULTS,
    hash: {},
    css: "",
    component: Model,
    pageCarrier: carrierOf,
  });
  const data = { format: 2, view: "small", state: {} } as PageData;
  view.openPage(root, data);
  await vi.waitFor(() => expect(root.querySelector("p")?.textContent).toBe("small of a corpus"));
  expect(asked).toEqual(["describe"]);
});
