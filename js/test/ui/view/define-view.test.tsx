import { expect, it, onTestFinished, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import { defineView, type ViewContext } from "../../../src/ui/view/define-view";
import { type RecordState, viewTraits } from "../../../src/ui/view/record";
import { bindAddress, makeSignals } from "../../../src/ui/view/state";
import { described, transportOf } from "../../builders";
import { RECORD_DEFAULTS } from "../../defaults";
import { mount, pass, useFakeClock } from "../../dom";

function Model({ context }: { context: ViewContext<RecordState> }) {
  return <p>{context.record.description.value?.model ?? "not yet"}</p>;
}

useFakeClock();

it("a page shows nothing after it has ended", async () => {
  let resolve = (_model: string): void => undefined;
  const model = new Promise<string>((answer) => {
    resolve = answer;
  });
  const view = defineView<RecordState>({
    ...{ name: "small", traits: {}, features: [], css: "", component: Model },
    pageTransport: () =>
      transportOf(async () => {
        return { header: { ...described(), model: await model }, data: null };
      }),
  });
  const root = mount(null);
  const end = view.openPage(root, { format: 1, view: "small", state: {} } as PageData);
  onTestFinished(end);
  expect(root.querySelector("p")?.textContent).toBe("not yet");
  const frames = vi.spyOn(globalThis, "requestAnimationFrame");
  end();
  resolve("too late");
  await pass(1000);
  expect(root.childElementCount).toBe(0);
  expect(frames).not.toHaveBeenCalled();
});

it("a view works if its URL is not writable, as in an iframe's srcdoc", () => {
  const write = vi.spyOn(history, "replaceState").mockImplementation(() => {
    throw new DOMException("no", "SecurityError");
  });
  const end = new AbortController();
  onTestFinished(() => end.abort());
  const state = makeSignals(RECORD_DEFAULTS);
  bindAddress(state, viewTraits({}), end.signal);
  state.layer.value = 1;
  expect(write).toHaveBeenCalled();
});
