/**
 * Export menu of every view, and the functions with which scripts export the same files.
 *
 * In this file, "the page" is the web page in the browser. An HTML page that a view exports is one
 * file with the view and its data, which works without a kernel.
 */

import type { ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ReplyProgress } from "../../client/protocol";
import type { ExportedFile } from "../../client/source";
import { toPng } from "../../draw/canvas";
import { type Captions, composeFigure, type Figure, type FigureParts } from "../../draw/figure";
import { FigureError, type ImageContent } from "../../draw/figure-request";
import { printPicture } from "../../draw/printing";
import { toSvg } from "../../draw/svg";
import type { MenuEntry } from "../controls/menu";
import { changedMark, laterInWords } from "../text/captions";
import { withColumn } from "../text/csv";
import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { valuesOf } from "../view/state";
import { saveFile } from "./offered-file";

/**
 * Names and functions that a view provides for its exports. The functions may request data that the
 * view does not show.
 */
export interface Exports {
  /** Name of the view, as a part of the names of exported files. */
  name: string;
  /** Return the picture of the view. @throws Error if nothing is drawn yet. */
  figure: () => Figure | Promise<Figure>;
  /** Picture of the images alone. Undefined in views without an image panel. */
  image?: ImageExport;
  csv: () => string | Promise<string>;
  /** Label of the menu entry that exports the table. It says what the table contains. */
  csvLabel: string;
}

/** Picture of the images of the model's input with weights over them. */
export interface ImageExport {
  /** Whether weights are shown over an image. */
  isOffered: ReadonlySignal<boolean>;
  /** @throws FigureError if no weights are shown over an image. */
  figure: (content: ImageContent) => Promise<Figure>;
}

/**
 * Parts from which the figure of a view is composed. `viewFigure` adds the colours and the title,
 * which is the name of the model.
 */
export type ViewFigure = Omit<FigureParts, "palette" | "captions"> & {
  captions: Omit<Captions, "title">;
};

/**
 * Compose the figure of a view for export. Screen readers read its title, which consists of the
 * name of the model, the subtitle and the first caption.
 */
export function viewFigure<S extends RecordState>(
  { record, palette, figure }: ViewContext<S>,
  parts: ViewFigure,
): Figure {
  const title = record.description.peek()?.model || "attention";
  const changed = changedMarkOf(record);
  const captions = { ...parts.captions, title, changed };
  const scene = composeFigure({ ...parts, palette: palette.peek(), captions }, figure);
  const named = [title, captions.subtitle, changed].filter(Boolean).join(", ");
  const { scales = [] } = parts;
  return { scene, title: `${named}. ${captions.sentence}`, parts: { captions, scales } };
}

/** Return the words that mark pictures and tables of a changed run, or "". */
function changedMarkOf(record: ViewContext<RecordState>["record"]): string {
  const selection = record.selection.peek();
  return selection ? changedMark(selection.stack) : "";
}

/**
 * Return `drawn`, which exists only after a view has drawn something. @throws Error if it does not
 * exist yet.
 */
export function drawnYet<T>(drawn: T | null | undefined): T {
  if (!drawn) throw new Error("Nothing is drawn yet, so there is nothing to export.");
  return drawn;
}

/**
 * Attach the export functions to the root of a view, where scripts find them. Return the entries of
 * the export menu.
 */
export function useExports<S extends RecordState>(
  context: ViewContext<S>,
  exports: Exports,
): MenuEntry[] {
  const { root, source, record } = context;
  const figure = async (): Promise<Figure> => {
    const { content = "view" } = context.figure ?? {};
    if (content === "view") return exports.figure();
    if (!exports.image)
      throw new FigureError(
        `content="${content}" is for show_head_view and show_matrix_view. Pass the record to one of ` +
          "them, or omit content=.",
      );
    return exports.image.figure(content);
  };
  const csv = async (): Promise<string> =>
    withColumn(await exports.csv(), "run", changedMarkOf(record));
  const svg = async (draw: typeof figure = figure): Promise<string> => {
    const { scene, title } = await draw();
    return toSvg(scene, title);
  };
  const png = async (scale: number, draw: typeof figure = figure): Promise<Blob> =>
    toPng((await draw()).scene, scale);
  useEffect(() => {
    root.attnviz = { figure, svg: () => svg(), png, csv };
  }, []);

  const entry = (label: string, run: () => Promise<void>): MenuEntry => ({
    label,
    run: () => {
      context.offered.value = null;
      run().catch(record.fail);
    },
  });
  const save = async (name: string, content: BlobPart, type: string): Promise<void> => {
    context.offered.value = await saveFile(name, new Blob([content], { type }));
  };
  const nameWith = (ending: string): string => {
    const name = record.description.peek()?.file ?? "attention";
    return `${name}-${exports.name}-layer-${record.selection.peek()?.layer ?? 0}.${ending}`;
  };
  const pictures = (what: string, ending: string, draw: typeof figure): MenuEntry[] => [
    entry(`${what}, SVG`, async () =>
      save(nameWith(`${ending}svg`), await svg(draw), "image/svg+xml"),
    ),
    entry(`${what}, PNG`, async () =>
      save(nameWith(`${ending}png`), await png(2, draw), "image/png"),
    ),
    entry(`${what}, PDF …`, async () => {
      const { scene, title } = await draw();
      // The print dialog suggests the title as the file name.
      printPicture(toSvg(scene, title), scene, nameWith(`${ending}pdf`));
    }),
  ];
  const { image } = exports;
  const entries = [
    ...pictures("Picture", "", figure),
    ...(image?.isOffered.value
      ? pictures("Picture of the image", "image.", () => image.figure("image"))
      : []),
    entry(exports.csvLabel, async () => save(nameWith("csv"), await csv(), "text/csv")),
  ];
  if (source.transport.live && !context.embedded) {
    const savePage = async (): Promise<void> => {
      const { name, bytes } = await madePage(context);
      await save(name, bytes, "text/html");
    };
    entries.push(entry("Page, HTML", savePage));
  }
  return entries;
}

/**
 * Return an HTML page with the view and its data. While the kernel makes it, the frame shows the
 * progress and a button that cancels the export.
 */
async function madePage<S extends RecordState>(context: ViewContext<S>): Promise<ExportedFile> {
  const { source, state, record, root, ended } = context;
  const controller = new AbortController();
  ended.addEventListener("abort", () => controller.abort(), { signal: controller.signal });
  const cancel = (): void => {
    controller.abort();
    // The Cancel button has the focus, and the frame removes it. Move the focus to the export menu.
    root.querySelector<HTMLElement>("[aria-haspopup=menu]")?.focus();
  };
  // Cancel an export that is still running. This one replaces it.
  record.job.peek()?.cancel();
  record.job.value = { text: "Making the page …", done: null, cancel };
  const report = (later: ReplyProgress): void => {
    if (record.job.peek()?.cancel !== cancel) return;
    const text = `Making the page: ${laterInWords(later)}.`;
    record.job.value = { text, done: later.progress, cancel };
  };
  try {
    return await source.page(valuesOf(state), controller.signal, report);
  } finally {
    controller.abort();
    if (record.job.peek()?.cancel === cancel) record.job.value = null;
  }
}
