/**
 * Theme of a view. Forced colours have priority, then the widget's trait `theme`, then the host: the
 * program that shows the notebook.
 */

import { signal as makeSignal, type ReadonlySignal } from "@preact/signals";
import type { ThemeName } from "./palette";

/**
 * Return the theme of the host, if it is JupyterLab, VS Code, Colab or marimo and sets a theme.
 * Otherwise, return the theme of the system.
 *
 * @param element any element of the view. Its ancestors, including those outside its shadow tree,
 *   are searched for the class that marimo sets.
 */
export function hostTheme(element: Element): ThemeName {
  const body = element.ownerDocument.body;
  const lab = body.getAttribute("data-jp-theme-light");
  if (lab !== null) return lab === "false" ? "dark" : "light";
  const kind = body.getAttribute("data-vscode-theme-kind") ?? body.className;
  if (/vscode-(dark|high-contrast(?!-light))/.test(kind)) return "dark";
  if (/vscode-(light|high-contrast-light)/.test(kind)) return "light";
  // Colab sets this attribute.
  const named = element.ownerDocument.documentElement.getAttribute("theme");
  if (named !== null) return named === "dark" ? "dark" : "light";
  for (let node: Node | null = element; node; node = parentOf(node)) {
    if (!(node instanceof Element)) continue;
    if (node.classList.contains("dark") || node.classList.contains("dark-theme")) return "dark";
  }
  if (body.classList.contains("light") || body.classList.contains("light-theme")) return "light";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function parentOf(node: Node): Node | null {
  return node instanceof ShadowRoot ? node.host : node.parentNode;
}

/** Attributes of the page in which hosts name their theme. */
const THEME_ATTRIBUTES = [
  ...["class", "style", "theme"],
  ...["data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"],
];

/**
 * Call `listener` after each change that may affect `hostTheme`, until `signal` is aborted. These
 * are changes of the system's theme, and of attributes of the page's `html` and `body` elements.
 */
export function watchHostTheme(element: Element, listener: () => void, signal: AbortSignal): void {
  const observer = new MutationObserver(listener);
  const { body, documentElement } = element.ownerDocument;
  for (const observed of [body, documentElement])
    observer.observe(observed, { attributes: true, attributeFilter: THEME_ATTRIBUTES });
  signal.addEventListener("abort", () => observer.disconnect());
  const system = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  system?.addEventListener("change", listener, { signal });
}

/**
 * Return a signal with the theme of the system if it forces its own colours (high contrast), which
 * is null otherwise. This theme has priority over the trait and the host.
 */
export function forcedTheme(signal: AbortSignal): ReadonlySignal<ThemeName | null> {
  const queries = ["(forced-colors: active)", "(prefers-color-scheme: dark)"];
  const [forced, dark] = queries.map((query) => globalThis.matchMedia?.(query));
  const theme = makeSignal<ThemeName | null>(null);
  const update = (): void => {
    // The system replaces the colours of the host, so only the system's colour scheme counts.
    theme.value = !forced?.matches ? null : dark?.matches ? "dark" : "light";
  };
  update();
  for (const query of [forced, dark]) query?.addEventListener("change", update, { signal });
  return theme;
}
