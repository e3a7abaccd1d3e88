/** Light or dark: what the trait says, else what the host shows. */

import { signal as makeSignal, type ReadonlySignal } from "@preact/signals";
import { renderAtOnce } from "../exports/printing";
import type { ThemeName } from "./palette";

/**
 * The host's theme: JupyterLab's word first, then VS Code's, Colab's, marimo's, the system's.
 *
 * @param element any element of the view: marimo mounts widgets in a shadow tree.
 */
export function hostTheme(element: Element): ThemeName {
  const body = element.ownerDocument.body;
  const lab = body.getAttribute("data-jp-theme-light");
  if (lab !== null) return lab === "false" ? "dark" : "light";
  const kind = body.getAttribute("data-vscode-theme-kind") ?? body.className;
  if (/vscode-(dark|high-contrast(?!-light))/.test(kind)) return "dark";
  if (/vscode-(light|high-contrast-light)/.test(kind)) return "light";
  // Colab's way.
  const named = element.ownerDocument.documentElement.getAttribute("theme");
  if (named !== null) return named === "dark" ? "dark" : "light";
  for (let node: Node | null = element; node; node = parentOf(node)) {
    if (!(node instanceof Element)) continue;
    // Our own root contains the result, so it must not be read as the question.
    if (node.classList.contains("attnviz")) continue;
    if (node.classList.contains("dark") || node.classList.contains("dark-theme")) return "dark";
  }
  if (body.classList.contains("light") || body.classList.contains("light-theme")) return "light";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function parentOf(node: Node): Node | null {
  return node instanceof ShadowRoot ? node.host : node.parentNode;
}

/** Calls `listener` whenever the host's theme may have changed, until the signal is aborted. */
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

/** The theme that a medium needs, whatever the host's or the trait's is; null on a plain screen. */
export function mediumTheme(signal: AbortSignal): ReadonlySignal<ThemeName | null> {
  const medium = (query: string): MediaQueryList | undefined => globalThis.matchMedia?.(query);
  const [print, forced, dark] = [
    medium("print"),
    medium("(forced-colors: active)"),
    medium("(prefers-color-scheme: dark)"),
  ];
  let printing = false;
  const read = (): ThemeName | null => {
    // Paper is white, whether backgrounds are printed or not.
    if (printing || print?.matches) return "light";
    // The system's colours take the place of the host's and of ours.
    if (forced?.matches) return dark?.matches ? "dark" : "light";
    return null;
  };
  const theme = makeSignal(read());
  const update = (): void => {
    theme.value = read();
  };
  for (const each of [print, forced, dark]) {
    each?.addEventListener("change", update);
    signal.addEventListener("abort", () => each?.removeEventListener("change", update));
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
