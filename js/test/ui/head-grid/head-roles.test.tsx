/** Tests of how views of one text show the roles of heads. */

import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../../src/client/protocol";
import type { NamedHeads } from "../../../src/client/traits";
import { roleOf, rolesInWords } from "../../../src/ui/head-grid/head-roles";

const stack = { layers: [2, 5], heads_per_layer: [3, 3] } as StackDescription;
const roles: NamedHeads = {
  names: [
    [null, "previous token", null],
    ["induction", null, "induction"],
  ],
  labels: [
    [null, "previous token 0.91 ± 0.01", null],
    ["induction 0.98 ± 0.01", null, null],
  ],
  ranks: [
    [null, 4.9, null],
    [3.98, null, 3.5],
  ],
};

describe("roles of heads", () => {
  it("are found by the model's layer and head numbers", () => {
    expect(roleOf(roles, stack, { layer: 5, head: 0 })?.label).toBe("induction 0.98 ± 0.01");
    // This head has a role but no label, so the name of the role is shown.
    expect(roleOf(roles, stack, { layer: 5, head: 2 })?.label).toBe("induction");
    expect(roleOf(roles, stack, { layer: 2, head: 0 })).toBeNull();
    expect(roleOf(roles, stack, { layer: 3, head: 0 })).toBeNull();
  });

  it("are counted in a caption that says that this text does not show them", () => {
    expect(rolesInWords(roles, stack)).toBe(
      "3 of 6 heads have a role, found over a corpus, not in this text (layer.head): " +
        "previous token 2.1; induction 5.0, 5.2.",
    );
  });
});
