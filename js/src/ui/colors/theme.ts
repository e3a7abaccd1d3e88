/** Theme of a view. A medium such as paper has priority, then the trait, then the host. */

import { signal as makeSignal, type ReadonlySignal } from "@preact/signals";
import { renderAtOnce } from "../exports/printing";
import type { ThemeName } from "./palette";

/**
 * Return the theme of the host: JupyterLab, VS Code, Colab or marimo. If none of them sets a theme,
 * return the theme of the system.
 *
 * @param element any element of the view. Its ancestors are searched for the class that marimo
 *   sets, also outside a shadow tree.
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

/** Call `listener` after every change that may affect `hostTheme`, until `signal` is aborted. */
export function watchHostTheme(element: Element, listener: () => void, signal: AbortSignal): void {
  const observer = new MutationObserver(listener);
  const options = {
    attributes: true,
    attributeFilter: [
      "class",
      "data-jp-theme-light",
      "data-jp-theme-name",
      "data-vscode-theme-kind",
      "style",
      "theme",
    ],
  };
  observer.observe(element.ownerDocument.body, options);
  observer.observe(element.ownerDocument.documentElement, options);
  const system = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  system?.addEventListener("change", listener);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    system?.removeEventListener("change", listener);
  });
}

/**
 * Return the theme that the medium needs (print or forced colours), or null on a normal screen.
 * This theme has priority over the trait and the host.
 */
export function mediumTheme(signal: AbortSignal): ReadonlySignal<ThemeName | null> {
  const medium = (query: string): MediaQueryList | undefined => globalThis.matchMedia?.(query);
  const [print, forced, dark] = [
    medium("print"),
    medium("(forced-colors: active)"),
    medium("(prefers-color-scheme: dark)"),
  ];
  let printing = false;
  const read = (): ThemeName | null => {
    // Paper is white, even if the browser prints backgrounds.
    if (printing || print?.matches) return "light";
    // With forced colours, the system replaces the colours of the host, so only the system's colour
    // scheme counts.
    if (forced?.matches) return dark?.matches ? "dark" : "light";
    return null;
  };
  const theme = makeSignal(read());
  const update = (): void => {
    theme.value = read();
  };
  for (const mediaQuery of [print, forced, dark]) {
    mediaQuery?.addEventListener("change", update);
    signal.addEventListener("abort", () => mediaQuery?.removeEventListener("change", update));
  }
  for (const name of ["beforeprint", "afterprint"]) {
    window.addEventListener(
      name,
      () => {
        printing = name === "beforeprint";
        renderAtOnce(update);
      },
      { signal },
    );
  }
  return theme;
}
