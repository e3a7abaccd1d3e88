/**
 * Signals of the compare view. Members are the compared records. A pane shows the chosen head of
 * one member, or the difference of two members.
 */

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { TokenList } from "../../client/protocol";
import { isPrinted } from "../../draw/figure-request";
import { niceMaximum } from "../../ui/colors/color-scales";
import { createSharedScale } from "../../ui/colors/shared-scale";
import {
  type GridLayout,
  galleryGrid,
  type HeadGrid,
  type HeadIndex,
  layerGrid,
  rankedCells,
} from "../../ui/head-grid/grid";
import { createHeadGrid } from "../../ui/head-grid/store";
import type { ViewContext } from "../../ui/view/define-view";
import { layersOf } from "../../ui/view/model-layers";
import { type RecordStore, type Selection, selectionOf } from "../../ui/view/record";
import { assign, same } from "../../ui/view/state";
import { cellsInRow, layOut } from "./layout";
import { loadMoved } from "./moved";
import {
  type CompareSelection,
  type CompareState,
  compareSelection,
  describedOnce,
  missingQueries,
} from "./state";

/** Pane of the first member ("a"), of the compared member ("b"), or of their difference. */
export type PaneName = "a" | "b" | "difference";

export type CompareStore = ReturnType<typeof createCompareStore>;

const MAX_HEIGHT = 460;

export function createCompareStore(context: ViewContext<CompareState>) {
  const { record, state, source } = context;

  const description = computed(
    () =>
      record.description.value &&
      describedOnce(record.description.value, state.comparison.value, state.member.value),
  );
  const ownSelection = computed<Selection | null>(() => {
    const now = description.value;
    if (!now || now.stacks.length === 0) return null;
    return selectionOf(now, positionOf(state.stack.value));
  });
  const positionOf = (stack: string) => ({
    stack,
    layer: state.layer.value,
    heads: state.heads.value,
    token: state.token.value,
    key: state.key.value,
  });
  const selection = computed<CompareSelection | null>(() => {
    const [comparison, member] = [state.comparison.value, state.member.value];
    return ownSelection.value && compareSelection(ownSelection.value, { comparison, member });
  });
  const frameRecord: RecordStore = { ...record, description, selection: ownSelection };
  const frame: ViewContext<CompareState> = {
    ...context,
    record: frameRecord,
    // `opening` is null, so that the frame does not explain why the view opened at this head. The
    // footer of this view explains it.
    common: { ...context.common, opening: signal(null) },
  };

  const current = computed<HeadIndex | null>(
    () => selection.value && { layer: selection.value.layer, head: selection.value.head },
  );
  const grid = computed<HeadGrid | null>(() => {
    const now = selection.value;
    if (!now) return null;
    if (state.order.value !== "distance") return layerGrid(layersOf({}, [now.stack]));
    const distances = now.compared.distances[now.member] ?? [];
    const cells = rankedCells(now.stack, distances);
    const perRow = Math.min(cells.length, cellsInRow(context.width.value));
    return galleryGrid(now.stack, cells, "distance", perRow);
  });
  const layoutIn = (width: number): GridLayout | null => {
    const now = grid.value;
    if (!now) return null;
    const window = globalThis.innerHeight || 800;
    return layOut(now, {
      width: Math.max(200, width),
      maxHeight: Math.max(240, Math.min(MAX_HEIGHT, Math.floor(window * 0.6))),
      printed: isPrinted(context.figure),
    });
  };
  const layout = computed(() => layoutIn(context.width.value));
  const heads = createHeadGrid({ grid, layout, current, highlighted: true });
  const end = computed(() => {
    const all = selection.value?.compared.distances.flatMap((scores) => scores ?? []).flat() ?? [];
    return niceMaximum(Math.max(0, ...all.map((distance) => distance ?? 0)));
  });

  const question = computed(() => {
    const now = selection.value;
    if (!now) return null;
    const { compared, member, layer, head, token } = now;
    return {
      a: compared.members[0] as string,
      b: compared.members[member] as string,
      difference: compared.differences[member] ?? null,
      layer,
      head,
      token,
      numQueries: now.queries.text.length,
      numKeys: now.keys.text.length,
      missing: missingQueries(now),
    };
  });
  const { current: answered } = record.answer(question, async (asked, ended) => ({
    moved: await loadMoved(source, asked, ended),
  }));

  const panes = computed<PaneName[]>(() => {
    const now = selection.value;
    const difference = now?.compared.differences[now.member] ?? null;
    return difference === null ? ["a", "b"] : ["a", "b", "difference"];
  });
  const paneHeads = headsOf(context, current);
  const inOneFigure = signal(false);
  const scales = { head: createSharedScale(), matrix: createSharedScale() };
  const imageScale = createSharedScale();
  const pane = (name: PaneName): ViewContext<CompareState> => {
    const stack = computed(() => stackOf(selection.value, name));
    const paneSelection = computed<Selection | null>(() => {
      const whole = record.description.value;
      const now = selection.value;
      if (!whole || !now) return null;
      return withGaps(
        selectionOf({ ...whole, siblings: [] }, { ...positionOf(stack.value), heads: [now.head] }),
        now,
        name,
      );
    });
    const title = computed(() => titleOf(selection.value, name));
    const named = computed(() => {
      const whole = record.description.value;
      const model = inOneFigure.value ? "" : whole?.model;
      return whole && { ...whole, model: [model, title.value].filter(Boolean).join(" · ") };
    });
    const own = { stack: stack as Signal<string>, heads: paneHeads };
    return {
      ...context,
      state: { ...context.state, ...own },
      common: { ...context.common, ...own },
      record: { ...record, description: named, selection: paneSelection },
      paneTitle: title,
      // The panes of the members share a colour scale. The pane of the difference has its own
      // scale, which also has colours for negative numbers.
      ...(name !== "difference" && {
        scale: scales[state.form.peek()](name),
        imageScale: imageScale(name),
      }),
    };
  };

  return {
    /** Context of the frame. Its description contains each compared stack once. */
    frame,
    selection,
    heads,
    grid,
    layout,
    /** Return the layout of the grid in another width. */
    layoutIn,
    /** Distance that has the last colour of the grid's scale. It is the same for all members. */
    end,
    /**
     * Attention that moved for the pinned query, or for the query that changed most. Null if it is
     * not loaded or not available.
     */
    moved: computed(() => answered.value?.moved ?? null),
    /** Whether the request for `moved` was answered for the current selection. */
    settled: computed(() => answered.value !== null),
    /**
     * Names of the panes. The pane "difference" is missing if the record does not contain the
     * difference.
     */
    panes,
    pane,
    /**
     * Whether the panes are exported as parts of one figure. The titles of the panes then omit the
     * model's name, which is in the title of the figure.
     */
    inOneFigure,
    /**
     * Identifier of the grid (its stack and layer) if all visible cells are painted, otherwise
     * null.
     */
    gridDrawn: signal<string | null>(null),
    choose: ({ layer, head }: HeadIndex) =>
      batch(() => {
        heads.cursor.value = { layer, head };
        assign(state, { layer, heads: [head] });
      }),
  };
}

function stackOf(selection: CompareSelection | null, name: PaneName): string {
  if (!selection) return "";
  const { members, differences } = selection.compared;
  const at = name === "a" ? 0 : selection.member;
  return (name === "difference" ? differences[at] : members[at]) ?? "";
}

export function titleOf(selection: CompareSelection | null, name: PaneName): string {
  if (!selection) return "";
  const [first, other] = [selection.names[0] ?? "", selection.names[selection.member] ?? ""];
  return { a: first, b: other, difference: `${other} − ${first}` }[name];
}

/**
 * Return the selection of a pane. In the pane of a member, tokens that the member does not have are
 * marked as special tokens, which are drawn faint.
 */
export function withGaps(
  paneSelection: Selection,
  now: CompareSelection,
  name: PaneName,
): Selection {
  const missing = now.compared.missing[name === "a" ? 0 : now.member];
  if (!missing || name === "difference") return paneSelection;
  const withSpecial = (tokens: TokenList, more: number[]): TokenList => ({
    ...tokens,
    special: [...new Set([...tokens.special, ...more])],
  });
  return {
    ...paneSelection,
    queries: withSpecial(paneSelection.queries, missing.queries),
    keys: withSpecial(paneSelection.keys, missing.keys),
  };
}

/**
 * Return the `heads` signal of the panes, which contains only the chosen head. If the reader
 * chooses another head in a pane, that head becomes the chosen head of the view.
 */
function headsOf(
  context: ViewContext<CompareState>,
  current: ReadonlySignal<HeadIndex | null>,
): Signal<number[]> {
  const heads = signal<number[]>([]);
  const { live } = context.record;
  live(() => {
    const now = current.value;
    if (now) assign({ heads }, { heads: [now.head] });
    return undefined;
  });
  live(() => {
    const chosen = heads.value;
    const now = current.peek();
    if (!now || same(chosen, [now.head])) return undefined;
    const other = chosen.find((head) => head !== now.head);
    if (other === undefined) heads.value = [now.head];
    else assign(context.state, { heads: [other] });
    return undefined;
  });
  return heads;
}
