/** Messages with which the window around an exported page sets the theme of this page. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hostTheme } from "../src/ui/colors/theme";

const path = resolve(import.meta.dirname, "../../src/attnviz/pages/note.js");
const around = new EventTarget() as Window;
const own = Object.getOwnPropertyDescriptor(window, "parent");

/** Dispatch a message to the page, as if `source` had sent it. */
function says(data: unknown, source: Window = around): void {
  window.dispatchEvent(new MessageEvent("message", { data, source }));
}

const theme = (): string | null => document.documentElement.getAttribute("theme");

describe("a page in a frame", () => {
  beforeEach(() => {
    vi.stubGlobal("matchMedia", () => ({ matches: false }));
    document.body.innerHTML =
      '<p id="attnviz-note"><span id="attnviz-browsers"></span></p><div id="attnviz"></div>';
    Object.defineProperty(window, "parent", { value: around, configurable: true });
    new Function(readFileSync(path, "utf8"))();
  });
  afterEach(() => {
    Object.defineProperty(window, "parent", own as PropertyDescriptor);
    document.documentElement.removeAttribute("theme");
    vi.unstubAllGlobals();
  });

  it("uses the theme of the page around it, after each change", () => {
    expect(hostTheme(document.body)).toBe("light");
    for (const shade of ["dark", "light", "dark"]) {
      says({ type: "attnviz-theme", theme: shade });
      expect(hostTheme(document.body)).toBe(shade);
    }
  });

  it.each([
    null,
    undefined,
    0,
    "attnviz-theme",
    "dark",
    ["attnviz-theme", "dark"],
    { type: "theme", theme: "dark" },
    { type: "attnviz-theme" },
    { type: "attnviz-theme", theme: "auto" },
    { type: "attnviz-theme", theme: '"><img src=x onerror=alert(1)>' },
    { type: "attnviz-theme", theme: ["dark"] },
    { type: "attnviz-theme", theme: { toString: "dark" } },
    { type: ["attnviz-theme"], theme: "dark" },
  ])("ignores the message %j", (data) => {
    says(data);
    expect(theme()).toBeNull();
  });

  it("ignores messages of other windows than its parent", () => {
    const message = { type: "attnviz-theme", theme: "dark" };
    says(message, new EventTarget() as Window);
    says(message, window);
    window.dispatchEvent(new MessageEvent("message", { data: message }));
    expect(theme()).toBeNull();
  });

  it("ignores its own messages if it has no parent", () => {
    Object.defineProperty(window, "parent", { value: window, configurable: true });
    says({ type: "attnviz-theme", theme: "dark" }, window);
    expect(theme()).toBeNull();
  });
});
