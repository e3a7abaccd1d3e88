/**
 * Strip of the heads of a layer. Each head is a toggle button with a small heat map of its weights,
 * which this file calls a map. An effect is a signed number of a head. A role names what a head
 * does, as found over a corpus.
 */

import { useEffect, useRef } from "preact/hooks";
import type { HeadMap } from "../../client/source";
import { type Ink, inkColor } from "../colors/color-scales";
import { headColor, type Palette, rgbOf } from "../colors/palette";
import { EffectBar, EffectNote } from "../effects/bar";
import { type EffectScale, effectText, errorText, shortEffectText } from "../effects/effects";
import type { HeadRole } from "../head-grid/head-roles";
import { formatNumber, formatWeight } from "../text/captions";
import type { HeadOrder } from "../view/record";
import { runKey } from "./keys";

export interface HeadStripProps {
  /** Heads to show, in display order. */
  order: HeadOrder;
  /** Whether the reader chooses exactly one head instead of any number. */
  single: boolean;
  /** Chosen heads, in the order in which the reader chose them. */
  chosen: readonly number[];
  /** Small maps, or null until they are loaded. */
  maps: ReadonlyMap<number, HeadMap> | null;
  palette: Palette;
  /** Whether the maps show signed numbers, which have one colour per sign. */
  signed?: boolean | undefined;
  width: number;
  onToggle: (head: number) => void;
  onAll: () => void;
  onNone: () => void;
  /**
   * Called on a double click. It chooses only this head or, if only this head is chosen, restores
   * the earlier choice.
   */
  onSolo: (head: number) => void;
  onHover: (head: number | null) => void;
  /** Effects of the heads, drawn as bars below the maps. */
  effects?: {
    scale: EffectScale;
    of: (head: number) => number | null;
    /** Return the standard error of a head's effect, or null if it is unknown. */
    errorOf: (head: number) => number | null;
  } | null;
  /** Name of the score that orders the heads. */
  orderedBy?: string;
  /**
   * Roles of the heads over a corpus, which are written below the maps. `ordered` says whether the
   * heads are ordered by role.
   */
  roles?: { of: (head: number) => HeadRole | null; ordered: boolean } | null;
  /** Whether the maps are small, in one scrolling row, and without the buttons "all" and "none". */
  compact?: boolean;
}

/** Smallest side of a map, in pixels, that leaves room for the name of a role under the map. */
const MIN_NAMED_SIZE = 44;

/** Side of a map in a compact strip, in pixels. */
const COMPACT_SIZE = 26;

/**
 * Return the side of a map in pixels, at most 54. All maps fit on one line, unless the side would
 * then be less than 26.
 */
export function mapSize(count: number, width: number): number {
  const room = Math.max(200, width - 66);
  const oneLine = Math.floor(room / Math.max(1, count)) - 10;
  return Math.max(26, Math.min(54, oneLine));
}

/**
 * Return the RGBA pixels of a small map. The opacity is proportional to the square root of the
 * weight, so weak patterns are visible.
 */
export function mapPixels(
  matrix: Float32Array,
  maximum: number,
  ink: Ink,
): Uint8ClampedArray<ArrayBuffer> {
  const [above, below] = [rgbOf(inkColor(ink, 1)), rgbOf(inkColor(ink, -1))];
  const pixels = new Uint8ClampedArray(matrix.length * 4);
  for (let i = 0; i < matrix.length; i++) {
    const value = matrix[i] as number;
    const color = value < 0 ? below : above;
    // Assigning single values is faster than `set`, which would take most of the time of this loop.
    for (let part = 0; part < 3; part++) pixels[i * 4 + part] = color[part] as number;
    pixels[i * 4 + 3] = 255 * Math.sqrt(Math.abs(value) / maximum);
  }
  return pixels;
}

function MapCanvas({ map, ink, size }: { map: HeadMap | undefined; ink: Ink; size: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!map || !context) return;
    const pixels = mapPixels(map.values, map.maximum, ink);
    context.putImageData(new ImageData(pixels, map.columns, map.rows), 0, 0);
  }, [map, ink]);
  return (
    <canvas
      ref={canvas}
      width={map?.columns ?? 1}
      height={map?.rows ?? 1}
      style={{ width: `${size}px`, height: `${size}px` }}
    />
  );
}

/** Format a score with as many digits as fit below a map. */
export function scoreText(score: number | null): string {
  if (score === null) return "–";
  return Math.abs(score) < 10 ? formatWeight(score) : formatNumber(score);
}

/** Return the chosen heads with `head` added or removed. */
export function toggleHead(chosen: readonly number[], head: number): number[] {
  return chosen.includes(head) ? chosen.filter((other) => other !== head) : [...chosen, head];
}

export function HeadTools(props: {
  heads: readonly number[];
  chosen: readonly number[];
  onAll: () => void;
  onNone: () => void;
}) {
  const { heads, chosen } = props;
  // A disabled button would lose the focus of the reader who has just pressed it.
  const button = (label: string, useless: boolean, onClick: () => void) => (
    <button type="button" class="av-plain" aria-disabled={useless} onClick={onClick}>
      {label}
    </button>
  );
  return (
    <div class="av-head-tools">
      {button(
        "all",
        heads.every((head) => chosen.includes(head)),
        props.onAll,
      )}
      {button("none", chosen.length === 0, props.onNone)}
    </div>
  );
}

export function HeadStrip(props: HeadStripProps) {
  const { chosen, palette, order, effects, roles } = props;
  // Show chosen heads even if `order` lacks them because their scores are below the minimum.
  const heads = [...order.heads, ...chosen.filter((head) => !order.heads.includes(head))];
  const size = props.compact ? COMPACT_SIZE : mapSize(heads.length, props.width);
  const strip = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const [row, first] = [strip.current, strip.current?.querySelector('[aria-pressed="true"]')];
    if (!props.compact || !row || !(first instanceof HTMLElement)) return;
    // scrollIntoView would also scroll the page, so set the scroll position of the row.
    row.scrollLeft = first.offsetLeft - row.offsetLeft - row.clientWidth / 2;
  }, [props.compact]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const buttons = Array.from(
      strip.current?.querySelectorAll<HTMLButtonElement>(".av-head") ?? [],
    );
    const root = strip.current?.getRootNode() as Document | ShadowRoot;
    const focused = buttons.indexOf(root.activeElement as HTMLButtonElement);
    const focus = (at: number) => () => buttons[at]?.focus();
    // Handle Home and End, too. By default, they scroll the page away from the heads.
    runKey(event, {
      ArrowRight: focus(focused + 1),
      ArrowLeft: focus(focused - 1),
      Home: focus(0),
      End: focus(buttons.length - 1),
    });
  };
  return (
    <fieldset class="av-row av-heads" aria-label="Heads">
      {!props.compact && (
        <div class="av-label">
          <div>Heads</div>
          {!props.single && <HeadTools {...props} heads={heads} />}
        </div>
      )}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the buttons inside. */}
      <div
        class="av-strip"
        ref={strip}
        onKeyDown={onKeyDown}
        onPointerLeave={() => props.onHover(null)}
      >
        {heads.map((head, i) => {
          const score = roles?.ordered ? undefined : order.scores?.[i];
          const role = roles?.of(head) ?? null;
          const does = role ? `, ${role.label}` : "";
          const bySize = effects && effects.scale.name === props.orderedBy;
          const effect = effects
            ? `, ${effects.scale.name} ${effectText(effects.scale, effects.of(head), effects.errorOf(head))}`
            : "";
          const choiceIndex = chosen.indexOf(head);
          const map = props.maps?.get(head);
          const from = map?.sampled ? ` (map from a sample of ${map.sampled.length} queries)` : "";
          // If the numbers are signed and one head is chosen, the plot shows the colours of the
          // signs, so the head needs no colour.
          const hasOwnColor = choiceIndex >= 0 && !(props.signed && chosen.length === 1);
          const color = hasOwnColor
            ? headColor(palette, choiceIndex, chosen.length)
            : palette.neutral;
          return (
            <button
              type="button"
              class="av-head"
              key={head}
              aria-pressed={choiceIndex >= 0}
              aria-label={
                score === undefined
                  ? `Head ${head}${does}${effect}`
                  : bySize
                    ? // The label contains the score exactly as the button shows it.
                      `Head ${head}, ${score === null ? "none" : shortEffectText(effects.scale, score) + errorText(effects.errorOf(head))} (${effects.scale.name})${does}`
                    : `Head ${head}, score ${scoreText(score)}${does}${effect}`
              }
              title={
                props.single
                  ? `Head ${head}${does}${effect}${from}`
                  : `Head ${head}${does}${effect}${from}. Click to choose it, double-click to choose only it.`
              }
              style={{ "--av-head": color, width: `${size + 6}px` }}
              onClick={() => props.onToggle(head)}
              onDblClick={() => props.onSolo(head)}
              onPointerEnter={() => props.onHover(head)}
              onFocus={() => props.onHover(head)}
              onBlur={() => props.onHover(null)}
            >
              <MapCanvas map={map} ink={props.signed ? palette : color} size={size} />
              {effects && (
                <EffectBar
                  value={effects.of(head)}
                  error={effects.errorOf(head)}
                  end={effects.scale.end}
                  palette={palette}
                />
              )}
              <span>{head}</span>{" "}
              {score !== undefined && (
                <span class="av-score">
                  {bySize ? shortEffectText(effects.scale, score) : scoreText(score)}
                </span>
              )}
              {role && size >= MIN_NAMED_SIZE && <span class="av-role">{role.name}</span>}
            </button>
          );
        })}
        {effects && heads.length > 0 && (
          <EffectNote scale={effects.scale} compact={props.compact} />
        )}
        {heads.length === 0 && <span class="av-muted">no head reaches this score</span>}
      </div>
    </fieldset>
  );
}
