import { signal } from "@preact/signals";
import { expect, it, vi } from "vitest";
import type { LegendScale } from "../../../src/draw/figure";
import type { Scaling } from "../../../src/ui/colors/color-scales";
import { ColorLegend, fitSwitch } from "../../../src/ui/colors/legend";
import { scaleLabels } from "../../../src/ui/heat-map/legend";
import { pointIn } from "../../../src/ui/plot/plot";
import { mount } from "../../dom";

it("the legend of a colour scale is a labelled switch", () => {
  const onChange = vi.fn();
  const toggle = { label: "scale to the largest drawn", title: "the end", on: true, onChange };
  const scale: LegendScale = {
    color: (position) => [0, 0, 0, 255 * position],
    labels: ["0", "weight", "1"],
  };
  const root = mount(<ColorLegend scale={scale} toggle={toggle} />);
  const input = root.querySelector<HTMLInputElement>("input[role=switch]");
  expect(input?.getAttribute("aria-label")).toBe("scale to the largest drawn");
  expect([input?.checked, input?.getAttribute("aria-checked")]).toEqual([true, "true"]);
  input?.click();
  // A click on the colours also toggles the switch.
  root.querySelector<HTMLElement>(".av-ramp")?.click();
  expect(onChange).toHaveBeenCalledTimes(2);
});

it("the switch is on for a fitted scale, even if nothing visible changes", () => {
  const scaling = signal<Scaling>("auto");
  const at = (end: number) => fitSwitch("scale", scaling, { end, maximum: 1 });
  expect([at(0.2).on, at(1).on]).toEqual([true, false]);
  at(1).onChange();
  expect([scaling.value, at(1).on]).toEqual(["largest", true]);
  at(1).onChange();
  expect([scaling.value, at(0.2).on]).toEqual(["whole", false]);
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
