import { expect, it, onTestFinished, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import { defineView, type ViewContext } from "../../../src/ui/view/define-view";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";
import { described, transportOf } from "../../builders";
import { mount, pass, until, useFakeClock } from "../../dom";

function Model({ context }: { context: ViewContext<RecordState> }) {
  return <p>{context.record.description.value?.model ?? "not yet"}</p>;
}

/** Open the page of a view that shows the name of the model. */
function openPage(model: Promise<string>) {
  const requests: string[] = [];
  const view = defineView<RecordState>({
    ...{ name: "small", defaults: RECORD_DEFAULTS, hash: {}, css: "", component: Model },
    pageTransport: () =>
      transportOf(
        async (name) => {
          requests.push(name);
          return { header: { ...described(), model: await model }, data: null };
        },
        { live: false },
      ),
  });
  const root = mount(null);
  const end = view.openPage(root, { format: 2, view: "small", state: {} } as PageData);
  onTestFinished(end);
  return { requests, root, end };
}

useFakeClock();

it("uses the transport that a view defines for its pages", async () => {
  const { requests, root } = openPage(Promise.resolve("small of a corpus"));
  await until(() => expect(root.querySelector("p")?.textContent).toBe("small of a corpus"));
  expect(requests).toEqual(["describe"]);
});

it("shows nothing after a page has ended", async () => {
  let resolve = (_: string): void => undefined;
  const model = new Promise<string>((answer) => {
    resolve = answer;
  });
  const { root, end } = openPage(model);
  expect(root.querySelector("p")?.textContent).toBe("not yet");
  const frames = vi.spyOn(globalThis, "requestAnimationFrame");
  end();
  resolve("too late");
  await pass(1000);
  expect(root.childElementCount).toBe(0);
  expect(frames).not.toHaveBeenCalled();
});
