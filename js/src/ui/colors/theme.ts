/** Theme of a view: the trait if it is set, otherwise the theme of the host. */

import { signal as makeSignal, type ReadonlySignal } from "@preact/signals";
import { renderAtOnce } from "../exports/printing";
import type { ThemeName } from "./palette";

/**
 * Return the theme of the host: JupyterLab, VS Code, Colab, marimo or the system, in this order.
 *
 * @param element any element of the view. marimo mounts widgets in a shadow tree.
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
    // The root element of the view has the class that this function decides.
    if (node.classList.contains("attnviz")) continue;
    if (node.classList.contains("dark") || node.classList.contains("dark-theme")) return "dark";
  }
  if (body.classList.contains("light") || body.classList.contains("light-theme")) return "light";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function parentOf(node: Node): Node | null {
  return node instanceof ShadowRoot ? node.host : node.parentNode;
}

/** Call `listener` when the host's theme may have changed, until the signal is aborted. */
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
 * Return the theme that a medium needs (print, forced colours), or null on a normal screen. It
 * overrides the trait and the host.
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
    // Paper is white, even if backgrounds are printed.
    if (printing || print?.matches) return "light";
    // With forced colours, the system replaces the colours of the host and of the view.
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
