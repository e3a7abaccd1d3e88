/** Export menu of every view, and functions that give the same exports to scripts on the page. */

import { useEffect } from "preact/hooks";
import type { ReplyProgress } from "../../client/protocol";
import type { ExportedFile } from "../../client/source";
import { toPng } from "../../draw/canvas";
import { type Captions, composeFigure, type Figure, type FigureParts } from "../../draw/figure";
import { toSvg } from "../../draw/svg";
import type { MenuEntry } from "../controls/menu";
import { laterInWords } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { valuesOf } from "../view/state";
import { download, downloadsAllowed } from "./downloads";
import type { OfferedFile } from "./offered-file";
import { printPicture } from "./pdf";

/** Exports of a view. `figure` and `csv` may request data that is not visible. */
export interface Exports {
  /** Name of the view in file names. */
  name: string;
  /**
   * Return the picture of the view.
   *
   * @throws Error if nothing is drawn yet.
   */
  figure: () => Figure | Promise<Figure>;
  csv: () => string | Promise<string>;
  /** Label of the menu entry that exports the table. It names the contents of the table. */
  csvLabel: string;
}

const LACKS = "this frame does not allow downloads (its sandbox lacks allow-downloads)";

/**
 * Return a file with instructions, so the reader can save it without a download.
 *
 * @param allowed false if downloads are not allowed, null if that is unknown.
 */
async function offeredFile(name: string, file: Blob, allowed: false | null): Promise<OfferedFile> {
  const begin =
    allowed === null ? `If ${name} was not saved, ${LACKS}` : `${name} was not saved: ${LACKS}`;
  if (file.type === "image/png") {
    const words = `${begin}. Save the picture with its context menu (right-click or long press).`;
    return { name, words, content: { picture: await dataAddress(file) } };
  }
  const words = `${begin}. The text is selected. Copy it and paste it into a file named ${name}.`;
  return { name, words, content: { text: await file.text() } };
}

/** Return a data URL with the content. A blob URL would be valid only inside the sandbox. */
function dataAddress(content: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(content);
  });
}

/** Parts of a figure that a view provides. The title of the figure is the name of the model. */
export type ViewFigure = Omit<FigureParts, "palette" | "captions"> & {
  captions: Omit<Captions, "title">;
};

/** Compose the figure of a view. */
export function viewFigure<S extends RecordState>(
  { record, palette, figure }: ViewContext<S>,
  parts: ViewFigure,
): Figure {
  const title = record.description.peek()?.model || "attention";
  const captions = { ...parts.captions, title };
  const scene = composeFigure({ ...parts, palette: palette.peek(), captions }, figure);
  return { scene, title: `${title}, ${captions.subtitle}. ${captions.sentence}` };
}

/**
 * Return what a view has drawn.
 *
 * @throws Error if nothing is drawn yet.
 */
export function drawnYet<T>(drawn: T | null | undefined): T {
  if (!drawn) throw new Error("Nothing is drawn yet, so there is nothing to export.");
  return drawn;
}

/** Attach the export functions to the root of a view, and return its export menu's entries. */
export function useExports<S extends RecordState>(
  context: ViewContext<S>,
  exports: Exports,
): MenuEntry[] {
  const { root, source, record } = context;
  const figure = async (): Promise<Figure> => exports.figure();
  const csv = async (): Promise<string> => exports.csv();
  const svg = async (): Promise<string> => {
    const { scene, title } = await figure();
    return toSvg(scene, title);
  };
  const png = async (scale: number): Promise<Blob> => toPng((await figure()).scene, scale);

  useEffect(() => {
    root.attnviz = { figure, svg, png, csv };
  }, []);

  const fileName = (ending: string): string => {
    const name = record.description.peek()?.file ?? "attention";
    return `${name}-${exports.name}-layer-${record.selection.peek()?.layer ?? 0}.${ending}`;
  };
  const entry = (label: string, make: () => Promise<[string, Blob]>): MenuEntry => ({
    label,
    run: () => {
      context.offered.value = null;
      make()
        .then(async ([name, content]) => {
          const allowed = downloadsAllowed();
          if (allowed !== false) download(name, content);
          if (allowed !== true) context.offered.value = await offeredFile(name, content, allowed);
        })
        .catch(record.fail);
    },
  });
  const entries = [
    entry("Picture, SVG", async () => [
      fileName("svg"),
      new Blob([await svg()], { type: "image/svg+xml" }),
    ]),
    entry("Picture, PNG", async () => [fileName("png"), await png(2)]),
    {
      label: "Picture, PDF …",
      run: () => {
        figure()
          .then(({ scene, title }) =>
            // The print dialog suggests the title as the file name.
            printPicture(toSvg(scene, title), scene, fileName("pdf")),
          )
          .catch(record.fail);
      },
    },
    entry(exports.csvLabel, async () => [
      fileName("csv"),
      new Blob([await csv()], { type: "text/csv" }),
    ]),
  ];
  if (source.transport.live && !context.embedded) {
    entries.push(
      entry("Page, HTML", async () => {
        const file = await madePage(context);
        return [file.name, new Blob([file.bytes], { type: "text/html" })];
      }),
    );
  }
  return entries;
}

/**
 * Export a view as a page. Until the page is finished, the frame shows the progress with a button
 * that cancels the export.
 */
async function madePage<S extends RecordState>(context: ViewContext<S>): Promise<ExportedFile> {
  const { source, state, record, root, ended } = context;
  const controller = new AbortController();
  const end = (): void => controller.abort();
  ended.addEventListener("abort", end);
  const cancel = (): void => {
    end();
    // The frame removes the Cancel button, which has the focus. Move the focus to the export menu.
    root.querySelector<HTMLElement>("[aria-haspopup=menu]")?.focus();
  };
  // Cancel an earlier page that is not finished. The new page replaces it.
  record.job.peek()?.cancel();
  const job = { text: "Making the page …", done: null, cancel };
  record.job.value = job;
  const report = (later: ReplyProgress): void => {
    if (record.job.peek()?.cancel !== cancel) return;
    const text = `Making the page: ${laterInWords(later)}.`;
    record.job.value = { text, done: later.progress, cancel };
  };
  try {
    return await source.page(valuesOf(state), controller.signal, report);
  } finally {
    ended.removeEventListener("abort", end);
    if (record.job.peek()?.cancel === cancel) record.job.value = null;
  }
}
