import { signal } from "@preact/signals";
import { expect, it } from "vitest";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { assign } from "../../../src/ui/view/state";
import { createDetail } from "../../../src/views/model/store";
import { described, stackOf, tokensOf } from "../../builders";
import { MODEL_DEFAULTS } from "../../defaults";
import { pass, until, useFakeClock } from "../../dom";
import { FakeKernel } from "../../fakes";
import { setUpView } from "../../view-context";

useFakeClock();

class Kernel extends FakeKernel {
  protected override reply(name: string): Reply {
    const stack = stackOf({
      ...{ layers: [0, 5], heads_per_layer: [2, 2] },
      query_tokens: tokensOf(["a", "b"]),
    });
    if (name === "describe") return { header: described(stack), data: null };
    const header = { shape: [1, 2, 2], maximum: 1, error: 0, encoding: "uint8-sqrt" };
    return { header, data: new Uint8Array(4) };
  }
}

it("the detail requests no heads when the open head is closed", async () => {
  const kernel = new Kernel();
  const { state, context } = setUpView({ ...MODEL_DEFAULTS, heads: [1] }, new Source(kernel));
  const { matrix } = createDetail(context, signal(400), () => undefined);
  await until(() => expect(matrix.current.value).toBe(true));
  assign(state, { layer: 5, heads: [] });
  await pass(1000);
  expect(kernel.of("cells").map(({ heads }) => heads)).toEqual([[1]]);
});
