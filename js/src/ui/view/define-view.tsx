/**
 * Definition of a kind of view, such as the head view. This file creates what all kinds have in
 * common: root element, theme, width, connection and state. A pane is one of several views that
 * share a frame. A record is the stored attention of one run of a model.
 *
 * The file of a view passes its name, its traits and a component to `defineView` of
 * `frame/define-view.ts`, which adds what all frames have.
 */

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type ComponentType, render } from "preact";
import { KernelChannel, recordNumber, type WidgetModel } from "../../client/kernel";
import type { PageData } from "../../client/page";
import { programTransport } from "../../client/page/program";
import type { Description } from "../../client/protocol";
import { Source } from "../../client/source";
import type { Transport } from "../../client/transport";
import { type Figure, pictureWidth } from "../../draw/figure";
import { type FigureRequest, figureRequest } from "../../draw/figure-request";
import { PALETTE_CSS, type Palette, paletteOf, type ThemeName } from "../colors/palette";
import type { SharedScale } from "../colors/shared-scale";
import { forcedTheme, hostTheme, watchHostTheme } from "../colors/theme";
import { createOldPicture, type OldPicture } from "./old-picture";
import {
  type ControlsForm,
  createRecordStore,
  type Feature,
  type RecordState,
  type RecordStore,
  viewTraits,
} from "./record";
import {
  assign,
  bindAddress,
  bindModel,
  type Declared,
  defaultsOf,
  follow,
  makeSignals,
  type Signals,
} from "./state";

/** Exported file whose download may be blocked. */
export interface OfferedFile {
  name: string;
  /** Sentences for the reader: why the box is shown, and how to save the file. */
  words: string;
  /** Text of the file (CSV, SVG or HTML), or its data URL if it is a PNG. */
  content: { text: string } | { picture: string };
}

/**
 * State, data and settings that a view passes to its components. All kinds of views have these
 * fields.
 */
export interface RecordContext {
  root: AttnvizElement;
  source: Source;
  /**
   * Signals of the traits that all views have in common. A trait is a field of the widget in
   * Python.
   */
  common: Signals<RecordState>;
  palette: ReadonlySignal<Palette>;
  theme: ReadonlySignal<ThemeName>;
  record: RecordStore;
  /**
   * Width that the content of the view may have, in CSS pixels. It does not include the padding of
   * the root, nor an image panel beside the plot.
   */
  width: ReadonlySignal<number>;
  /** Settings of a figure if a script opened the page to export a figure, otherwise undefined. */
  figure?: FigureRequest | undefined;
  controls: ReadonlySignal<ControlsForm>;
  /**
   * Whether the view is a pane. If so, the frame around the panes has the controls for stack, layer
   * and heads.
   */
  embedded: boolean;
  /** Title of a pane. If undefined, the title is the name of the view. */
  paneTitle?: ReadonlySignal<string>;
  /** Colour scale that the panes of a frame share. Undefined if the view has its own. */
  scale?: SharedScale;
  /** Colour scale of the maps over images that the panes share. */
  imageScale?: SharedScale;
  /**
   * Exported file whose download may be blocked. The frame shows it, so that the reader can save it
   * in another way. null without such a file.
   */
  offered: Signal<OfferedFile | null>;
  /**
   * Report that the picture with the id `drawnId` is drawn, or report null while the data of a
   * newer picture are loading. The id is a text that names what is drawn, for example the view,
   * stack and layer. Less urgent requests wait until a picture is drawn. The id also becomes an
   * attribute of `root` (see `markDrawn`).
   *
   * `keeps` says whether the view shows an older picture while `drawnId` is null (see
   * `old-picture.ts`). By default, it does.
   */
  setDrawn: (drawnId: string | null, keeps?: boolean) => void;
  /** Picture of an earlier choice that the view still shows. */
  oldPicture: OldPicture;
  /** Signal that is aborted when the view is removed. */
  ended: AbortSignal;
}

export interface ViewContext<S extends RecordState> extends RecordContext {
  /** Traits of the view: the signals of `common`, and those of this kind of view. */
  state: Signals<S>;
}

/**
 * Functions that export the picture or the table of a view. Scripts call them on its root element.
 */
export interface Exporter {
  figure(): Promise<Figure>;
  svg(): Promise<string>;
  png(scale: number): Promise<Blob>;
  csv(): Promise<string>;
}

export type AttnvizElement = HTMLElement & { attnviz?: Exporter };

export interface ViewDefinition<S extends RecordState> {
  name: string;
  /** Traits of the view, as Python declares them. Those that all views have may be omitted. */
  traits: Declared<Omit<S, keyof RecordState>>;
  features: readonly Feature[];
  css: string;
  component: ComponentType<{ context: ViewContext<S> }>;
  /**
   * Create the transport of an exported page, which answers requests from the data in the page.
   * Undefined in the bundle of a widget, whose kernel answers.
   */
  pageTransport: ((data: PageData) => Transport) | undefined;
  /**
   * Convert the reply to the request "describe" to a `Description`. Undefined if the reply already
   * has this form.
   */
  described?: ((answer: unknown) => Description) | undefined;
}

/** Arguments that anywidget passes to the functions of a widget. */
interface WidgetProps {
  model: WidgetModel;
  signal?: AbortSignal;
}

/** Left plus right padding of the root, in pixels. frame.css sets the padding to the same size. */
const PADDING = 48;
/**
 * Height of the browser window or iframe, in pixels, below which an exported page has compact
 * controls, so that the plot is visible without scrolling.
 */
const LOW_FRAME = 600;
/**
 * Width of the browser window or iframe, in pixels, below which an exported page has compact
 * controls.
 */
const NARROW_FRAME = 480;

/**
 * Store the id of the drawn picture in the attribute `data-attnviz-drawn` of the root, or remove
 * the attribute if `drawnId` is null. Tests and benchmarks wait for the attribute.
 */
export function markDrawn(root: HTMLElement, drawnId: string | null): void {
  if (drawnId === null) root.removeAttribute("data-attnviz-drawn");
  else root.setAttribute("data-attnviz-drawn", drawnId);
}

/**
 * Prevent the notebook from handling keys that are pressed in a view.
 *
 * Notebook 7 handles keys in the capture phase of the window, so listeners in the view are too
 * late. This function sets the attribute `data-lm-suppress-shortcuts` of the focused element
 * instead. Lumino, on which Notebook 7 and JupyterLab are based, ignores keys in elements with this
 * attribute.
 */
function keepKeys(root: HTMLElement, ended: AbortSignal): void {
  const listener = (event: KeyboardEvent): void => {
    const focused = event.composedPath()[0];
    if (!(focused instanceof Element) || !root.contains(focused)) return;
    // The notebook still handles Shift-Enter and keys with Ctrl or Meta.
    const host = event.ctrlKey || event.metaKey || (event.shiftKey && event.key === "Enter");
    focused.toggleAttribute("data-lm-suppress-shortcuts", !host);
  };
  window.addEventListener("keydown", listener, { capture: true, signal: ended });
}

function isSmallFrame(): boolean {
  return window.innerHeight < LOW_FRAME || window.innerWidth < NARROW_FRAME;
}

function open<S extends RecordState>(
  definition: ViewDefinition<S>,
  root: AttnvizElement,
  source: Source,
  state: Signals<S>,
  ended: AbortSignal,
  takeUp?: (record: number) => void,
): void {
  const { live } = source.transport;
  const common = state as unknown as Signals<RecordState>;
  const drawn = signal<string | null>(null);
  const keepsPicture = signal(true);
  const { features } = definition;
  const record = createRecordStore(source, common, ended, drawn, takeUp, features);
  root.classList.add("attnviz");
  keepKeys(root, ended);
  const host = signal<ThemeName>(hostTheme(root));
  watchHostTheme(root, () => (host.value = hostTheme(root)), ended);
  const forced = forcedTheme(ended);
  const theme = computed<ThemeName>(() => {
    const requested = forced.value ?? common.theme.value;
    return requested === "auto" ? host.value : requested;
  });
  // Only in an exported page, the controls depend on the size of the window. In a notebook, a view
  // can be as high as it needs.
  const small = signal(!live && isSmallFrame());
  if (!live)
    window.addEventListener("resize", () => (small.value = isSmallFrame()), { signal: ended });
  const controls = computed<ControlsForm>(() => {
    const requested = common.controls.value;
    return requested === "auto" ? (small.value ? "compact" : "full") : requested;
  });
  // Compute the initial width as the observer below does. Otherwise, the first picture would be
  // drawn twice. A figure may request a width (`stated`), which then does not change.
  const figure = figureRequest();
  const stated = pictureWidth(figure);
  const width = signal(stated ?? (root.clientWidth > PADDING ? root.clientWidth - PADDING : 800));
  const observer = new ResizeObserver((entries) => {
    const inner = entries[0]?.contentRect.width ?? 0;
    // A view in a hidden tab has no width. Keep the last width and picture.
    if (inner > 0 && stated === null) width.value = Math.floor(inner);
  });
  observer.observe(root);
  record.live(() => {
    root.setAttribute("data-theme", theme.value);
    // If the theme of the view differs from that of its host (the notebook or web page), text and
    // background must not inherit the colours of the host.
    root.toggleAttribute("data-own-colours", theme.value !== host.peek());
    root.setAttribute("data-controls", controls.value);
    const connection = record.connection.value;
    const state = typeof connection === "object" ? "working" : connection;
    root.setAttribute("data-attnviz-state", record.error.value === null ? state : "error");
  });
  const context: ViewContext<S> = {
    ...{ root, source, state, common, record, theme, width, figure, controls, ended },
    offered: signal(null),
    embedded: false,
    setDrawn: (drawnId, keeps = true) => {
      markDrawn(root, drawnId);
      batch(() => {
        drawn.value = drawnId;
        keepsPicture.value = keeps;
      });
    },
    oldPicture: createOldPicture(
      record,
      common,
      choicesOf(definition, state),
      computed(() => drawn.value !== null),
      keepsPicture,
    ),
    palette: computed(() => paletteOf(theme.value, figure)),
  };
  const View = definition.component;
  render(
    <>
      <style>{PALETTE_CSS + definition.css}</style>
      <View context={context} />
    </>,
    root,
  );
  ended.addEventListener("abort", () => {
    observer.disconnect();
    render(null, root);
    delete root.attnviz;
  });
}

/** Return the values of the traits that the reader can change. Only `changes` has no kind. */
function choicesOf<S extends RecordState>(
  { traits, features }: ViewDefinition<S>,
  state: Signals<S>,
): ReadonlySignal<object> {
  const declared: Declared<object> = viewTraits(traits, features);
  const choices = Object.entries(declared).flatMap(([name, { kind }]) =>
    kind || name === "changes" ? [[name, state[name as keyof S]]] : [],
  );
  const signals: Signals<Record<string, unknown>> = Object.fromEntries(choices);
  return computed(() => ({ ...follow(signals) }));
}

/**
 * Return an abort signal and a function that aborts it. An abort of `outer` also aborts the signal.
 */
function endable(outer?: AbortSignal): [AbortSignal, () => void] {
  const controller = new AbortController();
  const end = (): void => controller.abort();
  outer?.addEventListener("abort", end, { once: true });
  if (outer?.aborted) end();
  return [controller.signal, end];
}

function wrongBundle(): never {
  throw new Error("Widgets and exported pages need separate bundles.");
}

/**
 * Return the two entry points of a view: `widget` for anywidget, and `openPage` for an exported
 * page.
 */
export function defineView<S extends RecordState>(definition: ViewDefinition<S>) {
  const { pageTransport, described } = definition;
  const traits = viewTraits(definition.traits, definition.features) as Declared<S>;
  const fromKernel = (model: WidgetModel, ended: AbortSignal): Source =>
    BUNDLE_FOR === "page"
      ? wrongBundle()
      : new Source(new KernelChannel(model, ended), undefined, described);
  /**
   * Return the functions of a widget. anywidget calls `initialize` once for each widget, and
   * `render` for each cell output that shows the widget.
   */
  const widget = () => {
    // All outputs of one widget share one source, with its requests and its cache of weights.
    let shared: Source | null = null;
    return {
      initialize({ model, signal: outer }: WidgetProps) {
        const [ended, end] = endable(outer);
        shared = fromKernel(model, ended);
        return end;
      },
      render({ model, el, signal: outer }: WidgetProps & { el: HTMLElement }) {
        const [ended, end] = endable(outer);
        const source = shared ?? fromKernel(model, ended);
        const state = makeSignals(defaultsOf(traits));
        let drawn = source.record.peek();
        const take = bindModel(model, state, ended, () => recordNumber(model) !== drawn);
        const takeUp = (record: number): void => {
          drawn = record;
          take();
        };
        const root = document.createElement("div");
        el.classList.add("attnviz-host");
        el.append(root);
        const picture = model.get("_picture");
        if (source.transport.detached && typeof picture === "string" && picture) {
          // No kernel sends the numbers of the view, so show the picture that was stored with it.
          const { body } = new DOMParser().parseFromString(picture, "text/html");
          root.append(...body.childNodes);
          return () => root.remove();
        }
        open(definition, root, source, state, ended, takeUp);
        return () => {
          end();
          root.remove();
          el.classList.remove("attnviz-host");
        };
      },
    };
  };
  /**
   * Show a view of the data of an exported page in the element `root`. Return a function that
   * removes the view.
   */
  const openPage = (root: HTMLElement, data: PageData): (() => void) => {
    const [ended, end] = endable();
    const state = makeSignals(defaultsOf(traits));
    assign(state, data.state as Partial<S>);
    bindAddress(state, traits, ended);
    const transport = programTransport() ?? pageTransport?.(data) ?? wrongBundle();
    const source = new Source(transport, undefined, described);
    open(definition, root, source, state, ended);
    return end;
  };
  return { widget, openPage };
}
