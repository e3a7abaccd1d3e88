/** The image that contains the chosen patch, with weights drawn over it, for exported pages. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { RecordImage } from "../../../client/requests/images";
import type { Scene } from "../../../draw/marks";
import { patchIn } from "../../../draw/patches";
import { type Panel, type PanelContent, panelMarks, patchUnder } from "../../../ui/image/marks";
import type { Heat } from "../../../ui/image/state";
import { ScenePlot } from "../../../ui/plot/plot";
import { quoted } from "../../../ui/text/captions";
import type { ViewContext } from "../../../ui/view/define-view";
import { assign } from "../../../ui/view/state";
import type { CorpusGrid } from "../client/corpus";
import type { Corpus, Kind } from "../client/requests";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";

interface ImageProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
  corpus: Corpus;
  text: number;
  kind: Kind;
}

const MAX_WIDTH = 360;

/**
 * Return the weights of the chosen point's lines as an array over positions in the text. Return
 * null if its lines are not loaded or belong to another text.
 */
export function embeddedHeat(
  store: Pick<EmbeddingStore, "lines" | "chosen" | "head">,
  corpus: Corpus,
  text: number,
  color: string,
): Heat | null {
  const [lines, chosen, head] = [store.lines.value, store.chosen.value, store.head.value];
  if (!lines || chosen === null || lines.point !== chosen || !head) return null;
  if (corpus.textOf(chosen) !== text || lines.points.length === 0) return null;
  const positions = Array.from(lines.points, (point) => corpus.positionOf(point));
  const grids = corpus.grids.filter((grid) => grid.text === text);
  const end = Math.max(
    ...positions,
    ...grids.map((grid) => grid.start + grid.rows * grid.columns - 1),
  );
  const values = new Float32Array(end + 1);
  positions.forEach((position, i) => {
    values[position] = lines.weights[i] as number;
  });
  const name = `head ${head.head}`;
  return { series: { name, color, textColor: color, heads: [head.head], how: "mean" }, values };
}

/** Return the heading that describes the weights over the image. */
function headingOf(corpus: Corpus, chosen: number, store: EmbeddingStore): string {
  const [lines, token] = [store.lines.value, quoted(corpus.tokenOf(chosen))];
  const count = lines?.points.length ?? 0;
  const strongest = count < (lines?.numTotal ?? 0) ? `the ${count} strongest ` : "";
  return corpus.isKey(chosen) ? `Weights on ${token}` : `Weights of ${token}: ${strongest}keys`;
}

/**
 * Return the patch grid that contains the chosen position, or else the first grid of the text.
 * Return null if the text has no grid.
 */
function gridOf(corpus: Corpus, text: number, position: number | null): CorpusGrid | null {
  const grids = corpus.grids.filter((grid) => grid.text === text);
  return grids.find((grid) => patchIn(grid, position) !== null) ?? grids[0] ?? null;
}

/** The image of one text. A change of the text creates a new component. */
export function TextImage({ context, store, corpus, text, kind }: ImageProps) {
  const plot = useRef<HTMLDivElement>(null);
  const image = useSignal<RecordImage | null>(null);
  const problem = useSignal("");
  const at = useSignal<number | null>(null);
  const source = useMemo(() => store.textSource(text), [text]);
  const chosenAt = useComputed(() => {
    const chosen = store.chosen.value;
    return chosen !== null && corpus.textOf(chosen) === text ? corpus.positionOf(chosen) : null;
  });
  const grid = useComputed(() => gridOf(corpus, text, chosenAt.value));
  const number = grid.value?.image ?? null;
  useEffect(() => {
    if (number === null) return;
    const controller = new AbortController();
    image.value = null;
    problem.value = "";
    source.image(number, controller.signal).then(
      (loaded) => {
        if (!controller.signal.aborted) image.value = loaded;
      },
      (reason: unknown) => {
        if (!controller.signal.aborted)
          problem.value = reason instanceof Error ? reason.message : String(reason);
      },
    );
    return () => controller.abort();
  }, [text, number]);

  const width = useComputed(() => Math.min(MAX_WIDTH, context.width.value));
  const panel = useComputed<Panel | null>(() => {
    const [now, on] = [image.value, grid.value];
    if (!now || !on) return null;
    const palette = context.palette.value;
    const heat = embeddedHeat(store, corpus, text, palette.positive);
    const chosen = store.chosen.value;
    const own = chosenAt.value !== null && patchIn(on, chosenAt.value) ? chosenAt.value : null;
    const picture: PanelContent = {
      width: width.value,
      palette,
      image: now,
      grid: on,
      heats: heat ? [heat] : [],
      captionInput: null,
      ...(heat && chosen !== null && { heading: headingOf(corpus, chosen, store) }),
      end: heat ? Math.max(...heat.values) : 1,
      own: own === null ? null : own - on.start,
      other: null,
      hovered: at.value,
      notes: [own === null ? "Click a patch to choose it." : "Click a patch to choose another."],
    };
    return panelMarks(picture);
  });
  const scene = useComputed<Scene | null>(() => {
    const now = panel.value;
    if (!now) return null;
    const { width, height, marks } = now;
    return { width, height, background: null, back: [], backOpacity: 1, front: marks };
  });
  const drawnId = useComputed(() => (panel.value ? "image" : null));

  const choose = (patch: number): void => {
    const on = grid.peek();
    if (!on) return;
    const point = corpus.pointOf(kind, text, on.start + patch);
    if (point >= 0) store.choose(point);
    else assign(context.state, { text, token: on.start + patch, key: null });
  };
  const under = (event: MouseEvent): number | null => {
    const [now, on] = [panel.peek(), grid.peek()];
    const box = plot.current?.getBoundingClientRect();
    if (!now || !on || !box) return null;
    return patchUnder(now, on, event.clientX - box.left, event.clientY - box.top)?.patch ?? null;
  };
  const point = (patch: number | null): void => {
    at.value = patch;
    const on = grid.peek();
    const over = patch === null || !on ? -1 : corpus.pointOf(kind, text, on.start + patch);
    store.hovered.value = over < 0 ? null : over;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const on = grid.peek();
    if (!on || event.metaKey || event.ctrlKey || event.altKey) return;
    const steps: Record<string, number> = {
      ArrowUp: -on.columns,
      ArrowDown: on.columns,
      ArrowLeft: -1,
      ArrowRight: 1,
    };
    const step = steps[event.key];
    const now = at.peek();
    if (step !== undefined) {
      // The first key press shows the cursor on the chosen patch, without moving it.
      const from = now ?? Math.max(0, (chosenAt.peek() ?? on.start) - on.start);
      const to = now === null ? from : from + step;
      if (to >= 0 && to < on.rows * on.columns) point(to);
    } else if ((event.key === "Enter" || event.key === " ") && now !== null) choose(now);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  if (problem.value !== "") return <p class="av-muted av-text-words">{problem.value}</p>;
  if (!grid.value) return null;
  const patch = patchIn(grid.value, (at.value ?? -1) + grid.value.start);
  return (
    <ScenePlot
      scene={scene}
      drawnId={drawnId}
      onDrawn={() => {}}
      kind="image with weights over it"
      label={patch ? `Patch ${patch.row},${patch.column}` : "Image of the chosen patch"}
      plot={plot}
      hint={null}
      width={width.value}
      events={{
        onPointerMove: (event: PointerEvent) => point(under(event)),
        onPointerLeave: () => point(null),
        onClick: (event: MouseEvent) => {
          const patch = under(event);
          if (patch !== null) choose(patch);
        },
        onKeyDown,
        onBlur: () => point(null),
      }}
    />
  );
}
