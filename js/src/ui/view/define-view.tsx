/**
 * Definition of views: root element, theme, width, connection and state.
 *
 * A view is one file that passes its name, the defaults of its state and a component to
 * `defineView`.
 */

import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type ComponentType, render } from "preact";
import { KernelChannel, type MessageModel, recordNumber } from "../../client/kernel";
import { type PageData, PageTransport } from "../../client/page";
import type { Description } from "../../client/protocol";
import { Source } from "../../client/source";
import type { Transport } from "../../client/transport";
import { type Figure, pictureWidth } from "../../draw/figure";
import { type FigureRequest, figureRequest } from "../../draw/figure-request";
import { type Palette, paletteOf, type ThemeName } from "../colors/palette";
import type { SharedScale } from "../colors/shared-scale";
import { hostTheme, mediumTheme, watchHostTheme } from "../colors/theme";
import controlsCss from "../controls/controls.css";
import type { OfferedFile } from "../exports/offered-file";
import { printCopies } from "../exports/printing";
import frameCss from "../frame/frame.css";
import generatedTokenCss from "../generated-token/cursor.css";
import imageCss from "../image/image.css";
import type { ImageRoom } from "../image/state";
import { bindAddress } from "./address";
import { createHistory, followReader, type History, historyKey } from "./history";
import { type ControlsForm, createRecordStore, type RecordState, type RecordStore } from "./record";
import {
  assign,
  bindModel,
  type HashFields,
  makeSignals,
  type Signals,
  type TraitModel,
} from "./state";

/** Services and state of an open view. */
export interface ViewContext<S extends RecordState> {
  root: AttnvizElement;
  source: Source;
  state: Signals<S>;
  /** Signals of `state` with the type that all views share. */
  common: Signals<RecordState>;
  palette: ReadonlySignal<Palette>;
  theme: ReadonlySignal<ThemeName>;
  record: RecordStore;
  /** Width of the view's content, in pixels. */
  width: ReadonlySignal<number>;
  /** Figure settings from the script that opened the page, or undefined for a reader. */
  figure?: FigureRequest | undefined;
  /** Form of the controls. */
  controls: ReadonlySignal<ControlsForm>;
  /**
   * Whether the view shares a frame with others. That frame then has the title, layers and heads.
   */
  embedded: boolean;
  /** Title in the shared frame. Default: the name of the view. */
  paneTitle?: ReadonlySignal<string>;
  /** Scale that the views of a frame share. */
  scale?: SharedScale;
  /** Whether an embedded view draws the image because no other view does. */
  ownImage?: boolean;
  /** State of the image panel, in views that draw images. */
  image?: ImageRoom;
  /** Choices of the reader, for undo. */
  history: History;
  /** Exported file that the reader can save without a download. */
  offered: Signal<OfferedFile | null>;
  /**
   * Set the description of what is drawn on the root, after the last draw call, or null while
   * drawing.
   */
  setDrawn: (drawnId: string | null) => void;
  /** Aborted when the view is removed. */
  ended: AbortSignal;
}

/** Export functions that a view attaches to its root. */
export interface Exporter {
  figure(): Promise<Figure>;
  svg(): Promise<string>;
  png(scale: number): Promise<Blob>;
  csv(): Promise<string>;
}

export type AttnvizElement = HTMLElement & { attnviz?: Exporter };

export interface ViewDefinition<S extends RecordState> {
  name: string;
  defaults: S;
  hash: HashFields<S>;
  css: string;
  component: ComponentType<{ context: ViewContext<S> }>;
  /** Create the transport of an exported page whose data is not a single record. */
  pageTransport?: ((data: PageData) => Transport) | undefined;
  /** Convert the reply about such data to a description of a record. */
  described?: ((answer: unknown) => Description) | undefined;
}

type Model = TraitModel & MessageModel;

interface Props {
  model: Model;
  signal?: AbortSignal;
}

/** anywidget definition. Each widget has its own object. */
interface Widget {
  initialize(props: Props): () => void;
  render(props: Props & { el: HTMLElement }): () => void;
}

/**
 * Purpose of the bundle. The build makes one bundle for each and drops the code of the other. Tests
 * have both in one.
 */
declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Horizontal padding of the root in pixels, as in frame.css. */
const PADDING = 48;
/**
 * Below this height in pixels, a page's frame gets compact controls, so that the plot is visible.
 */
const LOW_FRAME = 600;
/** Below this width in pixels, a page gets compact controls. */
const NARROW_FRAME = 480;

/** Set or remove the attribute that marks a finished drawing. Tests and benchmarks wait for it. */
export function markDrawn(root: HTMLElement, drawnId: string | null): void {
  if (drawnId === null) root.removeAttribute("data-attnviz-drawn");
  else root.setAttribute("data-attnviz-drawn", drawnId);
}

/**
 * Prevent a notebook from handling the view's keys as its own shortcuts.
 *
 * Notebook 7 handles keys in the capture phase of the window, so a listener inside the page cannot
 * stop them. Lumino, on which Notebook 7 and JupyterLab are based, ignores keys if the focused
 * element has this attribute.
 */
function keepKeys(root: HTMLElement, ended: AbortSignal): void {
  const listener = (event: KeyboardEvent): void => {
    const focused = event.composedPath()[0];
    if (!(focused instanceof Element) || !root.contains(focused)) return;
    // Keys with Ctrl or Meta and Shift-Enter belong to the notebook, except for undo and redo.
    const host =
      ((event.ctrlKey || event.metaKey) && historyKey(event) === null) ||
      (event.shiftKey && event.key === "Enter");
    focused.toggleAttribute("data-lm-suppress-shortcuts", !host);
  };
  window.addEventListener("keydown", listener, { capture: true, signal: ended });
}

/**
 * Return whether a page's window or frame is low or as narrow as a phone. It is always false in a
 * notebook, where a view can be as high as it needs.
 */
function smallFrame(live: boolean, ended: AbortSignal): ReadonlySignal<boolean> {
  const small = signal(false);
  if (live) return small;
  const look = (): void => {
    small.value = window.innerHeight < LOW_FRAME || window.innerWidth < NARROW_FRAME;
  };
  look();
  window.addEventListener("resize", look, { signal: ended });
  return small;
}

function open<S extends RecordState>(
  definition: ViewDefinition<S>,
  root: AttnvizElement,
  source: Source,
  state: Signals<S>,
  history: History,
  ended: AbortSignal,
  takeUp?: (record: number) => void,
): void {
  root.classList.add("attnviz");
  keepKeys(root, ended);
  followReader(root, history, ended, !source.transport.live);
  const host = signal<ThemeName>(hostTheme(root));
  watchHostTheme(root, () => (host.value = hostTheme(root)), ended);
  const medium = mediumTheme(ended);
  const theme = computed<ThemeName>(() => {
    const requested = medium.value ?? state.theme.value;
    return requested === "auto" ? host.value : (requested as ThemeName);
  });
  const stopTheme = theme.subscribe((value) => {
    root.setAttribute("data-theme", value);
    // If the theme differs from the host's, the host's colours do not fit.
    root.toggleAttribute("data-own-colours", value !== host.peek());
  });
  const small = smallFrame(source.transport.live, ended);
  const controls = computed<ControlsForm>(() => {
    const requestedControls = state.controls.value;
    if (requestedControls !== "auto") return requestedControls;
    return small.value ? "compact" : "full";
  });
  const stopControls = controls.subscribe((form) => root.setAttribute("data-controls", form));
  // The width within the padding of the root. With this initial value, the first picture is not
  // drawn twice.
  const figure = figureRequest();
  const stated = pictureWidth(figure);
  const width = signal(stated ?? (root.clientWidth > PADDING ? root.clientWidth - PADDING : 800));
  const observer = new ResizeObserver((entries) => {
    const inner = entries[0]?.contentRect.width ?? 0;
    // A hidden tab has no width. Keep the last width and picture.
    if (inner > 0 && stated === null) width.value = Math.floor(inner);
  });
  observer.observe(root);
  printCopies(root, ended);
  // The print style sheet scales the view with this width.
  const stopWidth = width.subscribe((value) => root.style.setProperty("--av-width", `${value}px`));
  const common = state as unknown as Signals<RecordState>;
  const drawn = signal<string | null>(null);
  const record = createRecordStore(source, common, ended, drawn, takeUp);
  const stopStanding = effect(() => {
    const connection = record.connection.value;
    const connectionState = typeof connection === "object" ? "working" : connection;
    const standing = record.error.value === null ? connectionState : "error";
    root.setAttribute("data-attnviz-state", standing);
  });
  const context: ViewContext<S> = {
    root,
    source,
    state,
    common,
    record,
    history,
    offered: signal(null),
    embedded: false,
    setDrawn: (drawnId) => {
      markDrawn(root, drawnId);
      drawn.value = drawnId;
    },
    theme,
    palette: computed(() => paletteOf(theme.value, figure)),
    width,
    figure,
    controls,
    ended,
  };
  const View = definition.component;
  render(
    <>
      <style>{frameCss + controlsCss + imageCss + generatedTokenCss + definition.css}</style>
      <View context={context} />
    </>,
    root,
  );
  ended.addEventListener("abort", () => {
    stopTheme();
    stopControls();
    stopWidth();
    stopStanding();
    observer.disconnect();
    render(null, root);
    delete root.attnviz;
  });
}

/** Return a source that sends requests to a kernel. The bundle of pages excludes this code. */
function fromKernel(
  model: MessageModel,
  ended: AbortSignal,
  { described }: Pick<ViewDefinition<RecordState>, "described">,
): Source {
  return typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "page"
    ? noSource()
    : new Source(new KernelChannel(model, ended), undefined, described);
}

/** Return a source that reads the data of a page. The bundle of widgets excludes this code. */
function fromPage(
  data: PageData,
  { pageTransport, described }: Pick<ViewDefinition<RecordState>, "pageTransport" | "described">,
): Source {
  return typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "widget"
    ? noSource()
    : new Source(
        pageTransport ? pageTransport(data) : new PageTransport(data),
        undefined,
        described,
      );
}

function noSource(): never {
  throw new Error("Widgets and exported pages need separate bundles.");
}

/** Return a signal that aborts with `outer`, and a function that aborts it earlier. */
function endable(outer: AbortSignal | undefined): [AbortSignal, () => void] {
  const controller = new AbortController();
  outer?.addEventListener("abort", () => controller.abort(), { once: true });
  if (outer?.aborted) controller.abort();
  return [controller.signal, () => controller.abort()];
}

/** Return the two entry points of a view: the widget and the exported page. */
export function defineView<S extends RecordState>(
  definition: ViewDefinition<S>,
): {
  widget: () => Widget;
  /** Show the data of a page in an element. Return a function that removes the view. */
  openPage: (root: HTMLElement, data: PageData) => () => void;
} {
  const widget = (): Widget => {
    // All outputs that show this widget share one table of requests and one cache of weights.
    let shared: Source | null = null;
    return {
      initialize({ model, signal: outer }) {
        const [ended, end] = endable(outer);
        shared = fromKernel(model, ended, definition);
        return end;
      },
      render({ model, el, signal: outer }) {
        const [ended, end] = endable(outer);
        const source = shared ?? fromKernel(model, ended, definition);
        const state = makeSignals<S>(definition.defaults);
        const history = createHistory(state, ended);
        let drawn = source.record.peek();
        const isBehind = (): boolean => recordNumber(model) !== drawn;
        const take = bindModel(model, state, ended, history.outside, isBehind);
        const takeUp = (record: number): void => {
          const replaced = record !== drawn;
          drawn = record;
          take();
          if (replaced) history.clear();
        };
        const root = document.createElement("div");
        el.classList.add("attnviz-host");
        el.append(root);
        open(definition, root, source, state, history, ended, takeUp);
        return () => {
          end();
          root.remove();
          el.classList.remove("attnviz-host");
        };
      },
    };
  };
  const openPage = (root: HTMLElement, data: PageData): (() => void) => {
    const [ended, end] = endable(undefined);
    const state = makeSignals<S>(definition.defaults);
    assign(state, data.state as Partial<S>);
    const history = createHistory(state, ended);
    bindAddress(state, definition.hash, ended);
    open(definition, root, fromPage(data, definition), state, history, ended);
    return end;
  };
  return { widget, openPage };
}
