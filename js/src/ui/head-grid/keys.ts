/** Moving over a grid of layers and heads: what keys, the pointer and scrolling share. */

/** A head of a layer, by the model's numbers. */
interface HeadPlace {
  layer: number;
  head: number;
}

/** Where cells lie, in pixels: labels first, then a cell every `across` and `down`. */
export interface GridLayout {
  left: number;
  top: number;
  across: number;
  down: number;
  /** Of all cells with their labels, and of the box that they scroll in. */
  width: number;
  height: number;
  boxWidth: number;
  boxHeight: number;
}

/** What a scroll bar takes of a box. */
const SCROLL_BAR = 15;

/** The name of a head's cell in the page; prefixes differ from view to view. */
export function cellId(prefix: string, { layer, head }: HeadPlace): string {
  return `${prefix}-${layer}-${head}`;
}

/** The head of the cell that an event is of; null where it is of none. */
export function cellOf(event: Event, prefix: string): HeadPlace | null {
  const id = (event.target as Element).closest("[role=gridcell]")?.id;
  const [layer, head] =
    id
      ?.slice(prefix.length + 1)
      .split("-")
      .map(Number) ?? [];
  return layer === undefined || head === undefined ? null : { layer, head };
}

/** Rows and columns that a key moves by; null where it does not move. */
export function stepOf(key: string, layout: GridLayout | null): [number, number] | null {
  const page = layout ? Math.max(1, Math.floor(layout.boxHeight / layout.down) - 1) : 1;
  const steps: Record<string, [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    Home: [0, -Number.MAX_SAFE_INTEGER],
    End: [0, Number.MAX_SAFE_INTEGER],
    PageUp: [-page, 0],
    PageDown: [page, 0],
  };
  return steps[key] ?? null;
}

/** Scrolls a box until a row is in sight, and its column where that is wanted. */
export function bringIntoSight(
  box: HTMLElement,
  layout: GridLayout,
  at: { row: number; column: number },
  acrossToo = true,
): void {
  const { left, top, across, down, width, height, boxWidth, boxHeight } = layout;
  const y = at.row * down;
  const roomDown = boxHeight - top - (width > boxWidth ? SCROLL_BAR : 0);
  if (y < box.scrollTop) box.scrollTop = y;
  else if (y + down > box.scrollTop + roomDown) box.scrollTop = y + down - roomDown;
  if (!acrossToo) return;
  const x = at.column * across;
  const roomAcross = boxWidth - left - (height > boxHeight ? SCROLL_BAR : 0);
  if (x < box.scrollLeft) box.scrollLeft = x;
  else if (x + across > box.scrollLeft + roomAcross) box.scrollLeft = x + across - roomAcross;
}
