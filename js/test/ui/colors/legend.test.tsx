import { signal } from "@preact/signals";
import { render } from "preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Scaling } from "../../../src/ui/colors/color-scales";
import { ColorLegend, fitSwitch } from "../../../src/ui/colors/legend";
import { scaleLabels, weightStops } from "../../../src/ui/heat-map/legend";
import { pointIn } from "../../../src/ui/plot/plot";

const box = document.createElement("div");
document.body.append(box);
afterEach(() => render(null, box));

describe("the legend of a colour scale", () => {
  it("has a labelled switch, and the colours of the style sheet by default", () => {
    const onChange = vi.fn();
    const toggle = { label: "scale to the largest drawn", title: "the end", on: true, onChange };
    render(<ColorLegend labels={["0", "weight", "1"]} toggle={toggle} />, box);
    const input = box.querySelector<HTMLInputElement>("input") as HTMLInputElement;
    expect(input.getAttribute("role")).toBe("switch");
    expect(input.getAttribute("aria-label")).toBe("scale to the largest drawn");
    expect([input.checked, input.getAttribute("aria-checked")]).toEqual([true, "true"]);
    input.click();
    // A click on the ramp also changes the switch.
    box.querySelector<HTMLElement>(".av-ramp")?.click();
    expect(onChange).toHaveBeenCalledTimes(2);
    expect(box.querySelector<HTMLElement>("label.av-legend")?.title).toBe("the end");
    expect(box.querySelector<HTMLElement>(".av-ramp")?.style.backgroundImage).toBe("");
    expect(box.querySelector(".av-color-title")).toBeNull();
  });

  it("has its switch on for a fitted scale, even if nothing visible changes", () => {
    const scaling = signal<Scaling>("auto");
    const at = (end: number) =>
      fitSwitch("scale to the largest drawn", scaling, { end, maximum: 1 });
    expect([at(0.2).on, at(1).on]).toEqual([true, false]);
    at(1).onChange();
    expect([scaling.value, at(1).on]).toEqual(["largest", true]);
    at(1).onChange();
    expect([scaling.value, at(0.2).on]).toEqual(["whole", false]);
  });

  it("names the cut of a weight scale", () => {
    expect(scaleLabels({ scale: "linear", end: 0.5 })).toEqual(["0", "0.25", "0.5"]);
    expect(scaleLabels({ scale: "linear", end: 0.5, beyond: true })[2]).toBe("≥0.5");
    // The scale begins at a ten-thousandth of its end, so its logarithmic middle is a hundredth.
    expect(scaleLabels({ scale: "log", end: 1 })).toEqual(["≤0.0001", "0.01", "1"]);
    const stops = weightStops("light");
    expect([stops[0], stops.length, stops.at(-1)]).toEqual([
      "rgb(237 244 241)",
      13,
      "rgb(18 10 26)",
    ]);
  });
});

describe("the pointer in a plot", () => {
  it("has the position in the whole plot, even if the plot is scrolled", () => {
    const plot = document.createElement("div");
    vi.spyOn(plot, "getBoundingClientRect").mockReturnValue({ left: 100, top: 40 } as DOMRect);
    const event = new MouseEvent("pointermove", { clientX: 130, clientY: 45 });
    expect(pointIn(plot, event)).toEqual({ x: 30, y: 5 });
    Object.defineProperty(plot, "scrollLeft", { value: 200 });
    expect(pointIn(plot, event)).toEqual({ x: 230, y: 5 });
  });
});
