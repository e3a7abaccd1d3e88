import { afterEach, describe, expect, it, vi } from "vitest";
import { hostTheme, watchHostTheme } from "../../../src/ui/colors/theme";

function systemIs(dark: boolean): void {
  const listeners = { addEventListener() {}, removeEventListener() {} };
  vi.stubGlobal("matchMedia", () => ({ matches: dark, ...listeners }));
}

afterEach(() => {
  for (const name of document.body.getAttributeNames()) document.body.removeAttribute(name);
  document.documentElement.removeAttribute("theme");
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

describe("the theme", () => {
  it.each<[string, Record<string, string>, string, string]>([
    ["JupyterLab", { "data-jp-theme-light": "true", class: "vscode-dark dark" }, "", "light"],
    ["JupyterLab", { "data-jp-theme-light": "false", class: "vscode-light" }, "", "dark"],
    ["VS Code", { class: "vscode-light" }, "", "light"],
    ["VS Code", { class: "vscode-high-contrast" }, "", "dark"],
    ["VS Code", { class: "vscode-high-contrast-light" }, "", "light"],
    ["Colab", {}, "dark", "dark"],
    ["Colab", {}, "light", "light"],
  ])("is that of %s with %j and the page theme %j: %s", (_host, attributes, pageTheme, theme) => {
    systemIs(theme === "light");
    for (const [name, value] of Object.entries(attributes)) document.body.setAttribute(name, value);
    if (pageTheme) document.documentElement.setAttribute("theme", pageTheme);
    expect(hostTheme(document.body)).toBe(theme);
  });

  it("is that of the system without a host, and that of marimo even inside a shadow tree", () => {
    const host = document.createElement("div");
    document.body.append(host);
    const inner = document.createElement("div");
    host.attachShadow({ mode: "open" }).append(inner);
    systemIs(true);
    expect(hostTheme(inner)).toBe("dark");
    systemIs(false);
    expect(hostTheme(inner)).toBe("light");
    document.body.classList.add("dark");
    expect(hostTheme(inner)).toBe("dark");
  });

  it("is watched until the end", async () => {
    systemIs(false);
    const changed = vi.fn();
    const end = new AbortController();
    watchHostTheme(document.body, changed, end.signal);
    document.body.setAttribute("data-jp-theme-light", "false");
    // A MutationObserver runs its callback in a microtask, so wait for one.
    await Promise.resolve();
    expect(changed).toHaveBeenCalledTimes(1);
    end.abort();
    document.body.setAttribute("data-jp-theme-light", "true");
    await Promise.resolve();
    expect(changed).toHaveBeenCalledTimes(1);
  });
});
