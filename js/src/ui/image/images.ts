/** The images of a record where a view is: their pixels, and the room that they are drawn in. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { RecordImage } from "../../client/requests/images";
import type { TokenList } from "../../client/source";
import type { ViewContext } from "../define-view";
import type { RecordState } from "../record";

/** The record's images by their number; null for those that are not asked for, or on their way. */
export type Images = readonly (RecordImage | null)[];

/** Images, and how a picture shares its width with the panel that lays weights over them. */
export interface ImageRoom {
  images: ReadonlySignal<Images>;
  /** Whether all images of the tokens at this place are there. */
  ready: ReadonlySignal<boolean>;
  /** Whether keys are patches of an image, over which weights can lie. */
  shown: ReadonlySignal<boolean>;
  beside: ReadonlySignal<boolean>;
  plotWidth: ReadonlySignal<number>;
  panelWidth: ReadonlySignal<number>;
  /** Whether the panel is drawn, or there is none. */
  drawn: Signal<boolean>;
}

/** From this width on the panel stands beside the picture. */
const BESIDE = 760;
export const BETWEEN = 28;
const SHARE = 0.34;
const LEAST = 230;
const MOST = 380;
const MOST_BELOW = 420;

function numbersOf(...lists: TokenList[]): number[] {
  const numbers = lists.flatMap(({ grids }) => grids?.map((grid) => grid.image) ?? []);
  return [...new Set(numbers)].sort((a, b) => a - b);
}

export function makeImageRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel: boolean,
): ImageRoom {
  const { record, source, width } = context;
  const wanted = computed(() => {
    const place = record.place.value;
    const numbers = place ? numbersOf(place.queries, place.keys) : [];
    return numbers.length > 0 && record.description.value?.images ? numbers : null;
  });
  const answered = record.answer(wanted, (numbers, ended) =>
    Promise.all(numbers.map((each) => source.image(each, ended))),
  );
  const images = computed<Images>(() => {
    const all: (RecordImage | null)[] = (record.description.value?.images ?? []).map(() => null);
    answered.value?.question.forEach((number, i) => {
      all[number] = answered.value?.answer[i] ?? null;
    });
    return all;
  });
  const shown = computed(
    () => withPanel && wanted.value !== null && (record.place.value?.keys.grids?.length ?? 0) > 0,
  );
  const beside = computed(() => shown.value && width.value >= BESIDE);
  const panelWidth = computed(() =>
    beside.value
      ? Math.round(Math.max(LEAST, Math.min(MOST, width.value * SHARE)))
      : Math.min(MOST_BELOW, width.value),
  );
  return {
    images,
    ready: computed(() => (wanted.value ?? []).every((number) => images.value[number])),
    shown,
    beside,
    plotWidth: computed(() =>
      beside.value ? width.value - panelWidth.value - BETWEEN : width.value,
    ),
    panelWidth,
    drawn: signal(false),
  };
}

/**
 * The same context for a picture that shares its room with a panel.
 *
 * @param withPanel whether it may have one, where there is an image.
 */
export function sharingRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel = true,
): ViewContext<S> {
  const image = makeImageRoom(context, withPanel);
  return { ...context, width: image.plotWidth, image };
}

/** Whether images are there, and the panel that shows them is drawn. */
export function imagesDrawn({ image }: Pick<ViewContext<RecordState>, "image">): boolean {
  return !image || (image.ready.value && (!image.shown.value || image.drawn.value));
}
