/**
 * Signals of the mean weights of the enlarged head by position. They are loaded while they are
 * shown.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { ColorScale } from "../../../ui/colors/color-scales";
import type { HeadIndex } from "../../../ui/head-grid/grid";
import { aggregateOf, type Corpus } from "../client/requests";
import { answerOfStack } from "../projections";
import { type Context, pictureOf } from "../state";
import { type Bin, type MeanMap, meanMapOf, textsAt } from "./marks";

/** Maximum number of bins per axis. */
const SIZE = 64;

export function createMean(
  context: Context,
  corpus: ReadonlySignal<Corpus | null>,
  head: ReadonlySignal<HeadIndex | null>,
) {
  const { state, record, source } = context;
  const scale = signal<ColorScale>("linear");
  const asked = computed(() => {
    const [points, at] = [corpus.value, head.value];
    if (pictureOf(state) !== "mean" || !points || !at || points.count === 0) return null;
    return { stack: points.stack, ...at, size: SIZE };
  });
  const answered = record.answer(asked, (request, ended) => aggregateOf(source, request, ended));
  const latest = answerOfStack(corpus, answered.latest);
  const settled = computed(() => answered.current.value !== null);
  return {
    /** Mean weights of the current head, or of the previous head until they are loaded. */
    latest,
    /** Mean weights of the current head, or null until they are loaded. */
    current: computed(() => (settled.value ? latest.value : null)),
    settled,
    /** Return the number of texts that have a pair in a bin, or null if unknown. */
    textsAt: (bin: Bin): number | null => {
      const [points, mean] = [corpus.value, latest.value];
      // Points give the lengths of all texts only if neither the corpus nor the mean is a sample.
      const complete = points?.facts.whole && mean && mean.texts === mean.of_texts;
      return complete ? textsAt(points, mean, bin) : null;
    },
    scale,
    hovered: signal<Bin | null>(null),
    /** Return the heat map in a picture of the given width, or null until it is loaded. */
    mapAt: (width: number): MeanMap | null =>
      latest.value &&
      meanMapOf(latest.value, {
        width,
        palette: context.palette.value,
        theme: context.theme.value,
        scale: scale.value,
      }),
  };
}
