import { afterEach, describe, expect, it, vi } from "vitest";
import { hostTheme, watchHostTheme } from "../../../src/ui/colors/theme";

function systemIs(dark: boolean): void {
  vi.stubGlobal("matchMedia", () => ({
    matches: dark,
    addEventListener() {},
    removeEventListener() {},
  }));
}

afterEach(() => {
  for (const name of document.body.getAttributeNames()) document.body.removeAttribute(name);
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

describe("the theme", () => {
  it("is that of JupyterLab before all others", () => {
    systemIs(true);
    document.body.setAttribute("data-jp-theme-light", "true");
    document.body.className = "vscode-dark dark";
    expect(hostTheme(document.body)).toBe("light");
    document.body.setAttribute("data-jp-theme-light", "false");
    expect(hostTheme(document.body)).toBe("dark");
  });

  it("is that of VS Code before that of the system", () => {
    systemIs(true);
    document.body.className = "vscode-light";
    expect(hostTheme(document.body)).toBe("light");
    document.body.className = "vscode-high-contrast";
    expect(hostTheme(document.body)).toBe("dark");
    document.body.className = "vscode-high-contrast-light";
    expect(hostTheme(document.body)).toBe("light");
  });

  it("is that of marimo, even inside a shadow tree", () => {
    systemIs(false);
    const host = document.createElement("div");
    document.body.append(host);
    const inner = document.createElement("div");
    host.attachShadow({ mode: "open" }).append(inner);
    expect(hostTheme(inner)).toBe("light");
    document.body.classList.add("dark");
    expect(hostTheme(inner)).toBe("dark");
  });

  it("is that of Colab, even if the system differs", () => {
    systemIs(false);
    document.documentElement.setAttribute("theme", "dark");
    expect(hostTheme(document.body)).toBe("dark");
    systemIs(true);
    document.documentElement.setAttribute("theme", "light");
    expect(hostTheme(document.body)).toBe("light");
    document.documentElement.removeAttribute("theme");
  });

  it("is that of the system if no host defines one", () => {
    systemIs(true);
    expect(hostTheme(document.body)).toBe("dark");
    systemIs(false);
    expect(hostTheme(document.body)).toBe("light");
  });

  it("is watched until the end", async () => {
    systemIs(false);
    const changed = vi.fn();
    const end = new AbortController();
    watchHostTheme(document.body, changed, end.signal);
    document.body.setAttribute("data-jp-theme-light", "false");
    // Observers of attributes run in a microtask.
    await Promise.resolve();
    expect(changed).toHaveBeenCalledTimes(1);
    end.abort();
    document.body.setAttribute("data-jp-theme-light", "true");
    await Promise.resolve();
    expect(changed).toHaveBeenCalledTimes(1);
  });
});
