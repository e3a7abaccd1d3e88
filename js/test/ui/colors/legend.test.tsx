import { expect, it, vi } from "vitest";
import type { LegendScale } from "../../../src/draw/figure";
import { ColorLegend } from "../../../src/ui/colors/legend";
import { scaleLabels } from "../../../src/ui/heat-map/legend";
import { pointIn } from "../../../src/ui/plot/plot";
import { mount } from "../../dom";

it("the legend of a colour scale is a labelled switch", () => {
  const onChange = vi.fn();
  const toggle = { label: "logarithmic", title: "the type", on: true, onChange };
  const scale: LegendScale = {
    color: (position) => [0, 0, 0, 255 * position],
    labels: ["0", "weight", "1"],
  };
  const root = mount(<ColorLegend scale={scale} toggle={toggle} />);
  const input = root.querySelector<HTMLInputElement>("input[role=switch]");
  expect(input?.getAttribute("aria-label")).toBe("logarithmic");
  expect([input?.checked, input?.getAttribute("aria-checked")]).toEqual([true, "true"]);
  input?.click();
  // A click on the colours also toggles the switch.
  root.querySelector<HTMLElement>(".av-ramp")?.click();
  expect(onChange).toHaveBeenCalledTimes(2);
});

it("the labels of a scale name larger or smaller weights that its end colours include", () => {
  expect(scaleLabels({ scale: "linear", end: 0.5 })).toEqual(["0", "0.25", "0.5"]);
  expect(scaleLabels({ scale: "linear", end: 0.5, beyond: true })[2]).toBe("≥0.5");
  // A logarithmic scale covers four powers of ten: it begins at 0.0001, and 0.01 is its middle.
  expect(scaleLabels({ scale: "log", end: 1 })).toEqual(["≤0.0001", "0.01", "1"]);
});

it("the pointer has a position in the whole plot, even if the plot is scrolled", () => {
  const plot = document.createElement("div");
  vi.spyOn(plot, "getBoundingClientRect").mockReturnValue({ left: 100, top: 40 } as DOMRect);
  Object.defineProperty(plot, "scrollLeft", { value: 200 });
  const event = new MouseEvent("pointermove", { clientX: 130, clientY: 45 });
  expect(pointIn(plot, event)).toEqual({ x: 230, y: 5 });
});
