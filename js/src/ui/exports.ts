/** The export menu of every view, and the same files for scripts that drive the page. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { toPng } from "../draw/canvas";
import type { Figure } from "../draw/figure";
import { toSvg } from "../draw/svg";
import { download, type MenuEntry } from "./controls/menu";
import type { ViewContext } from "./define-view";
import type { RecordState } from "./record";
import { valuesOf } from "./state";

/** What a view exports. Both may have to request what is not in sight. */
export interface Exports {
  /** The view's name, in names of files. */
  name: string;
  /** @throws Error where nothing is drawn yet. */
  figure: () => Figure | Promise<Figure>;
  csv: () => string | Promise<string>;
  /** What the table holds, in the menu. */
  csvLabel: string;
}

/** Puts a view's exporters on its root, and gives the entries of its menu. */
export function useExports<S extends RecordState>(
  context: ViewContext<S>,
  exports: Exports,
): { entries: MenuEntry[]; busy: Signal<string | null> } {
  const { root, source, state, record } = context;
  const busy = useSignal<string | null>(null);
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
    const name = (record.description.peek()?.model || "attention").replace(/[^\w.-]+/g, "-");
    return `${name}-${exports.name}-layer-${record.place.peek()?.layer ?? 0}.${ending}`;
  };
  const entry = (label: string, make: () => Promise<[string, Blob]>): MenuEntry => ({
    label,
    run: () => {
      make()
        .then(([name, content]) => download(name, content))
        .catch(record.fail)
        .finally(() => {
          busy.value = null;
        });
    },
  });
  const entries = [
    entry("Picture, SVG", async () => [
      fileName("svg"),
      new Blob([await svg()], { type: "image/svg+xml" }),
    ]),
    entry("Picture, PNG", async () => [fileName("png"), await png(2)]),
    entry(exports.csvLabel, async () => [
      fileName("csv"),
      new Blob([await csv()], { type: "text/csv" }),
    ]),
  ];
  if (source.carrier.live && !context.embedded) {
    entries.push(
      entry("Page, HTML", async () => {
        busy.value = "Making the page …";
        const file = await source.page(valuesOf(state), context.ended);
        return [file.name, new Blob([file.bytes], { type: "text/html" })];
      }),
    );
  }
  return { entries, busy };
}
