import { expect, it, onTestFinished } from "vitest";
import { recordTransport } from "../../../src/client/page";
import { HEAD_VIEW_TRAITS } from "../../../src/client/traits";
import { defineView } from "../../../src/ui/frame/define-view";
import type { ViewContext } from "../../../src/ui/view/define-view";
import { assign } from "../../../src/ui/view/state";
import type { HeadState } from "../../../src/views/head/state";
import { described, pageOf, stackOf, tokensOf } from "../../builders";
import { mount, pass, useFakeClock } from "../../dom";

useFakeClock();

it("a picture is that of before the last change until a newer one is drawn", async () => {
  let context = null as ViewContext<HeadState> | null;
  const view = defineView<HeadState>({
    ...{ name: "head", traits: HEAD_VIEW_TRAITS, css: "", pageTransport: recordTransport },
    component: (props) => {
      context = props.context;
      return null;
    },
  });
  const stack = stackOf({ layers: [0, 1], query_tokens: tokensOf(["a", "b"]) });
  const state = { stack: "self", layer: 0, heads: [] };
  const data = pageOf({ view: "head", state, description: described(stack), blocks: [] });
  onTestFinished(view.openPage(mount(null), data));
  await pass(100);
  const { oldPicture, common, setDrawn } = context as unknown as ViewContext<HeadState>;
  setDrawn("layer 0");
  await pass(50);
  expect(oldPicture.isOld.value).toBe(false);
  assign(common, { layer: 1 });
  setDrawn(null);
  await pass(50);
  expect(oldPicture.isOld.value).toBe(true);
  expect(oldPicture.inWords("did not arrive")).toContain("The new picture did not arrive.");
  setDrawn("layer 1");
  await pass(50);
  expect(oldPicture.isOld.value).toBe(false);
});
