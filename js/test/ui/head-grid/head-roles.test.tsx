/** Roles of heads in views of one text. */
import { render } from "preact";
import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../../src/client/protocol";
import { PALETTES } from "../../../src/ui/colors/palette";
import {
  fittedName,
  labelOf,
  type NamedHeads,
  RoleLine,
  roleOf,
  rolesInWords,
  signsOfHeads,
} from "../../../src/ui/head-grid/head-roles";

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
    // If a role has no label with a score, its name is the label.
    expect(roleOf(roles, stack, { layer: 5, head: 2 })).toEqual({
      name: "induction",
      label: "induction",
    });
    expect(roleOf(roles, stack, { layer: 2, head: 0 })).toBeNull();
    expect(roleOf(roles, stack, { layer: 3, head: 0 })).toBeNull();
    expect(roleOf(null, stack, { layer: 2, head: 1 })).toBeNull();
  });

  it("have labels with layer and head", () => {
    const role = { name: "induction", label: "induction 0.98 ± 0.01" };
    expect(labelOf({ layer: 1, head: 0 }, role)).toBe("1.0 induction 0.98 ± 0.01");
  });

  it("are counted in a caption that says that this text does not show them", () => {
    expect(rolesInWords(roles, stack)).toBe(
      "3 of 6 heads have a role, found over a corpus, not in this text (layer.head): " +
        "previous token 2.1; induction 5.0, 5.2.",
    );
    expect(rolesInWords(null, stack)).toBe("");
    const none: NamedHeads = { names: [[], []], labels: [[], []], ranks: [[], []] };
    expect(rolesInWords(none, stack)).toBe("None of 6 heads has a role over the corpus.");
  });

  it("name only the first heads of a common role", () => {
    const many = { layers: [0], heads_per_layer: [9] } as StackDescription;
    const names = [Array.from({ length: 9 }, () => "first token")];
    const words = rolesInWords({ names, labels: names, ranks: [Array(9).fill(1)] }, many);
    expect(words).toContain("first token 0.0, 0.1, 0.2, 0.3 and 5 more.");
  });

  it("are written in full below the heads of a layer", () => {
    const box = document.createElement("div");
    const of = (head: number) => roleOf(roles, stack, { layer: 5, head });
    render(<RoleLine layer={5} heads={[0, 1, 2]} of={of} />, box);
    expect(box.textContent).toBe("Over the corpus: 5.0 induction 0.98 ± 0.01 · 5.2 induction");
    render(<RoleLine layer={5} heads={[1]} of={of} />, box);
    expect(box.textContent).toBe("Over the corpus: this head has no role");
    const label = { name: "x", label: "x" };
    render(<RoleLine layer={5} heads={[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]} of={() => label} />, box);
    expect(box.textContent).toMatch(/5\.7 x · 2 more$/);
  });

  it("have letters and colours, starting with the rarest role", () => {
    const signs = signsOfHeads(roles, PALETTES.light).map(({ name, sign, count }) => [
      name,
      sign,
      count,
    ]);
    expect(signs).toEqual([
      ["previous token", "P", 1],
      ["induction", "I", 2],
    ]);
  });

  it("are shortened to the width of a picture", () => {
    expect(fittedName("previous token", 90)).toBe("previous token");
    expect(fittedName("previous token", 52)).toBe("previous …");
  });
});
