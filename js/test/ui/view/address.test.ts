import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { bindAddress } from "../../../src/ui/view/address";
import { RECORD_HASH } from "../../../src/ui/view/record";
import { assign, makeSignals, type Signals } from "../../../src/ui/view/state";
import { HEAD_DEFAULTS, type HeadState } from "../../../src/views/head/state";

let state: Signals<HeadState>;
let end: AbortController;

beforeEach(() => {
  history.replaceState(null, "", "#");
});

afterEach(() => {
  end.abort();
  vi.restoreAllMocks();
});

function open(hash: string): void {
  if (hash !== location.hash) history.replaceState(null, "", hash);
  end = new AbortController();
  state = makeSignals(HEAD_DEFAULTS);
  bindAddress(state, RECORD_HASH, end.signal);
}

describe("the URL of a page", () => {
  it("may not be writable, as in an iframe's srcdoc", () => {
    vi.spyOn(history, "replaceState").mockImplementation(() => {
      throw new DOMException("no", "SecurityError");
    });
    open(location.hash);
    expect(() => assign(state, { layer: 1 })).not.toThrow();
  });

  it("is no longer written when the view has ended", () => {
    open("#layer=1");
    end.abort();
    assign(state, { layer: 2 });
    expect(location.hash).toBe("#layer=1");
  });
});
