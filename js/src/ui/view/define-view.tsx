/**
 * What every view shares: a root in the page, the theme, the width, the transport.
 *
 * A view is one file that gives `defineView` its name, its state's defaults and a component.
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

/** What a view has at hand. */
export interface ViewContext<S extends RecordState> {
  root: AttnvizElement;
  source: Source;
  state: Signals<S>;
  /** The same signals, as far as every view has them. */
  common: Signals<RecordState>;
  palette: ReadonlySignal<Palette>;
  theme: ReadonlySignal<ThemeName>;
  record: RecordStore;
  /** Pixels that the host gives to the view's content. */
  width: ReadonlySignal<number>;
  /** What the script that opened the page asks of its figure; undefined for a person's view. */
  figure?: FigureRequest | undefined;
  /** Which controls are in sight. */
  controls: ReadonlySignal<ControlsForm>;
  /** Whether the view stands among others in one frame, which has layers, heads and title. */
  embedded: boolean;
  /** What it is called there; its own name where it is left out. */
  paneTitle?: ReadonlySignal<string>;
  /** The scale that it has in common with others there. */
  scale?: SharedScale;
  /** Whether it shows the image itself where it is embedded: no other view there does. */
  ownImage?: boolean;
  /** The images that tokens are patches of, where a view draws them. */
  image?: ImageRoom;
  /** The reader's last choices, to be taken back. */
  history: History;
  /** An exported file that the reader can take by hand. */
  offered: Signal<OfferedFile | null>;
  /** Says on the root what is drawn, after the last call that draws; null while it is not yet. */
  setDrawn: (place: string | null) => void;
  /** Aborted when the view goes away. */
  ended: AbortSignal;
}

/** What a view puts on its root for exporters. */
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
  /** What answers on an exported page whose data are not one record's. */
  pageTransport?: ((data: PageData) => Transport) | undefined;
  /** What is said of that, as views know records. */
  described?: ((answer: unknown) => Description) | undefined;
}

type Model = TraitModel & MessageModel;

interface Props {
  model: Model;
  signal?: AbortSignal;
}

/** An anywidget definition: its own object for each widget. */
interface Widget {
  initialize(props: Props): () => void;
  render(props: Props & { el: HTMLElement }): () => void;
}

/**
 * What a bundle is for: the build makes one for each, and leaves out of it what the other needs.
 * Tests have both in one.
 */
declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Left and right of a view's content, as frame.css has it. */
const PADDING = 48;
/** A page in a lower frame takes compact controls by itself, so that its picture is in sight. */
const LOW_FRAME = 600;
/** The same on a phone. */
const NARROW_FRAME = 480;

/** Sets or takes away the sign of being drawn, which tests and benchmarks wait for. */
export function markDrawn(root: HTMLElement, place: string | null): void {
  if (place === null) root.removeAttribute("data-attnviz-drawn");
  else root.setAttribute("data-attnviz-drawn", place);
}

/**
 * Keeps a notebook from taking the view's keys for its own shortcuts.
 *
 * Notebook 7 listens before anything in the page hears of a key, so that it cannot be stopped from
 * inside. Lumino, which both it and JupyterLab are made of, passes over an element with this mark,
 * looking at the one that has the focus first.
 */
function keepKeys(root: HTMLElement, ended: AbortSignal): void {
  const listener = (event: KeyboardEvent): void => {
    const focused = event.composedPath()[0];
    if (!(focused instanceof Element) || !root.contains(focused)) return;
    // What is pressed with Ctrl or Meta, and Shift-Enter, stays the notebook's; but not its undo.
    const host =
      ((event.ctrlKey || event.metaKey) && historyKey(event) === null) ||
      (event.shiftKey && event.key === "Enter");
    focused.toggleAttribute("data-lm-suppress-shortcuts", !host);
  };
  window.addEventListener("keydown", listener, { capture: true, signal: ended });
}

/**
 * Whether a page's window or frame is low, or as narrow as a phone; of a notebook's page a view takes
 * as much as it needs.
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
    const wanted = medium.value ?? state.theme.value;
    return wanted === "auto" ? host.value : (wanted as ThemeName);
  });
  const stopTheme = theme.subscribe((value) => {
    root.setAttribute("data-theme", value);
    // A theme that was asked for against the host's cannot use the host's colours.
    root.toggleAttribute("data-own-colours", value !== host.peek());
  });
  const small = smallFrame(source.transport.live, ended);
  const controls = computed<ControlsForm>(() => {
    const wanted = state.controls.value;
    if (wanted !== "auto") return wanted;
    return small.value ? "compact" : "full";
  });
  const stopControls = controls.subscribe((form) => root.setAttribute("data-controls", form));
  // What is left within the root's padding, so that the first picture need not be drawn twice.
  const figure = figureRequest();
  const stated = pictureWidth(figure);
  const width = signal(stated ?? (root.clientWidth > PADDING ? root.clientWidth - PADDING : 800));
  const observer = new ResizeObserver((entries) => {
    const inner = entries[0]?.contentRect.width ?? 0;
    // A hidden tab has no width; what was drawn for the last one stays.
    if (inner > 0 && stated === null) width.value = Math.floor(inner);
  });
  observer.observe(root);
  printCopies(root, ended);
  // What is printed is made to fit by it.
  const stopWidth = width.subscribe((value) => root.style.setProperty("--av-width", `${value}px`));
  const common = state as unknown as Signals<RecordState>;
  const drawn = signal<string | null>(null);
  const record = createRecordStore(source, common, ended, drawn, takeUp);
  const stopStanding = effect(() => {
    const connection = record.connection.value;
    const there = typeof connection === "object" ? "working" : connection;
    const standing = record.error.value === null ? there : "error";
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
    setDrawn: (place) => {
      markDrawn(root, place);
      drawn.value = place;
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

/** What asks a kernel; not in a page's bundle. */
function fromKernel(
  model: MessageModel,
  ended: AbortSignal,
  { described }: Pick<ViewDefinition<RecordState>, "described">,
): Source {
  return typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "page"
    ? noSource()
    : new Source(new KernelChannel(model, ended), undefined, described);
}

/** What reads a page's data; not in a widget's bundle. */
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
  throw new Error("A widget and an exported page take bundles of their own.");
}

/** A signal that ends with `outer`, and the function that ends it before. */
function endable(outer: AbortSignal | undefined): [AbortSignal, () => void] {
  const controller = new AbortController();
  outer?.addEventListener("abort", () => controller.abort(), { once: true });
  if (outer?.aborted) controller.abort();
  return [controller.signal, () => controller.abort()];
}

/** The two ways into a view: as a widget, and as an exported page. */
export function defineView<S extends RecordState>(
  definition: ViewDefinition<S>,
): {
  widget: () => Widget;
  /** Shows a page's data in an element until what it returns is called. */
  openPage: (root: HTMLElement, data: PageData) => () => void;
} {
  const widget = (): Widget => {
    // One table of requests and one store of weights for all outputs that show this widget.
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
