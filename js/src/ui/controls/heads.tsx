/**
 * Strip of the heads of a layer. Each head is a toggle button with a small heat map of its weights,
 * which this file calls a map. An effect is a signed number of a head. A role names what a head
 * does, as found over a corpus.
 */

import { useEffect, useRef } from "preact/hooks";
import type { HeadMap } from "../../client/source";
import type { Ink } from "../colors/color-scales";
import { headColor } from "../colors/palette";
import { EffectBar, EffectNote } from "../effects/bar";
import { effectText, errorText, headEffect, headError, shortEffectText } from "../effects/effects";
import { heatPixels } from "../head-grid/heat-pixels";
import { formatNumber, formatWeight } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState, Selection } from "../view/record";
import { assign } from "../view/state";
import { runKey } from "./keys";

type StripContext = Pick<
  ViewContext<RecordState>,
  "record" | "common" | "palette" | "width" | "controls"
>;

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

function MapCanvas({ map, ink, size }: { map: HeadMap | undefined; ink: Ink; size: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!map || !context) return;
    const pixels = heatPixels(map, map.rows, map.columns, ink);
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

/** Render the buttons that choose all heads or none. */
export function HeadTools({ context, chosen }: { context: StripContext; chosen: number[] }) {
  const { heads } = context.record.order.value;
  // A disabled button would lose the focus of the reader who has just pressed it.
  const button = (label: string, useless: boolean, choice: number[]) => (
    <button
      type="button"
      class="av-plain"
      aria-disabled={useless}
      onClick={() => assign(context.common, { heads: choice })}
    >
      {label}
    </button>
  );
  return (
    <div class="av-head-tools">
      {button(
        "all",
        heads.every((head) => chosen.includes(head)),
        [...heads],
      )}
      {button("none", chosen.length === 0, [])}
    </div>
  );
}

export function HeadStrip(props: {
  context: StripContext;
  selection: Selection;
  /** Whether the reader chooses exactly one head instead of any number. */
  single: boolean;
  onHover?: ((head: number | null) => void) | undefined;
}) {
  const { single, onHover } = props;
  const { record, common } = props.context;
  const { stack, layer, ...selection } = props.selection;
  useEffect(record.wantMaps, []);
  const palette = props.context.palette.value;
  const compact = props.context.controls.value === "compact";
  const chosen = single ? selection.heads.slice(0, 1) : selection.chosen;
  const order = record.order.value;
  const scale = record.headEffects.value;
  const effectOf = (head: number) => scale && headEffect(scale, stack, { layer, head });
  const errorOf = (head: number) => scale && headError(scale, stack, { layer, head });
  const bySize = scale?.name === common.order.value;
  // Show chosen heads even if `order` lacks them because their scores are below the minimum.
  const heads = [...order.heads, ...chosen.filter((head) => !order.heads.includes(head))];
  const size = compact ? COMPACT_SIZE : mapSize(heads.length, props.context.width.value);
  // Read the state instead of the rendered heads. A double click is two clicks, and the second may
  // come before the next rendering.
  const toggle = (head: number): void =>
    assign(common, { heads: single ? [head] : toggleHead(common.heads.peek(), head) });
  const beforeSolo = useRef<number[]>([]);
  /** Choose only this head or, if only this head is chosen, restore the earlier choice. */
  const solo = (head: number): void => {
    const now = common.heads.peek();
    if (now.length === 1 && now[0] === head) {
      assign(common, { heads: beforeSolo.current });
    } else {
      beforeSolo.current = [...now];
      assign(common, { heads: [head] });
    }
  };
  const strip = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const [row, first] = [strip.current, strip.current?.querySelector('[aria-pressed="true"]')];
    if (!compact || !row || !(first instanceof HTMLElement)) return;
    // scrollIntoView would also scroll the page, so set the scroll position of the row.
    row.scrollLeft = first.offsetLeft - row.offsetLeft - row.clientWidth / 2;
  }, [compact]);
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
      {!compact && (
        <div class="av-label">
          <div>Heads</div>
          {!single && <HeadTools context={props.context} chosen={chosen} />}
        </div>
      )}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the buttons inside. */}
      <div
        class="av-strip"
        ref={strip}
        onKeyDown={onKeyDown}
        onPointerLeave={() => onHover?.(null)}
      >
        {heads.map((head, i) => {
          const score = record.byRole.value ? undefined : order.scores?.[i];
          const role = record.roleOf({ layer, head });
          const does = role ? `, ${role.label}` : "";
          const effect = scale
            ? `, ${scale.name} ${effectText(scale, effectOf(head), errorOf(head))}`
            : "";
          const choiceIndex = chosen.indexOf(head);
          const map = record.maps.value?.get(head);
          const from = map?.sampled ? ` (map from a sample of ${map.sampled.length} queries)` : "";
          // If the numbers are signed and one head is chosen, the plot shows the colours of the
          // signs, so the head needs no colour.
          const hasOwnColor = choiceIndex >= 0 && !(stack.signed && chosen.length === 1);
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
                  : scale && bySize
                    ? // The label contains the score exactly as the button shows it.
                      `Head ${head}, ${score === null ? "none" : shortEffectText(scale, score) + errorText(errorOf(head))} (${scale.name})${does}`
                    : `Head ${head}, score ${scoreText(score)}${does}${effect}`
              }
              title={
                single
                  ? `Head ${head}${does}${effect}${from}`
                  : `Head ${head}${does}${effect}${from}. Click to choose it, double-click to choose only it.`
              }
              style={{ "--av-head": color, width: `${size + 6}px` }}
              onClick={() => toggle(head)}
              onDblClick={single ? undefined : () => solo(head)}
              onPointerEnter={() => onHover?.(head)}
              onFocus={() => onHover?.(head)}
              onBlur={() => onHover?.(null)}
            >
              <MapCanvas map={map} ink={stack.signed ? palette : color} size={size} />
              {scale && (
                <EffectBar
                  value={effectOf(head)}
                  error={errorOf(head)}
                  end={scale.end}
                  palette={palette}
                />
              )}
              <span>{head}</span>{" "}
              {score !== undefined && (
                <span class="av-score">
                  {scale && bySize ? shortEffectText(scale, score) : scoreText(score)}
                </span>
              )}
              {role && size >= MIN_NAMED_SIZE && <span class="av-role">{role.name}</span>}
            </button>
          );
        })}
        {scale && heads.length > 0 && <EffectNote scale={scale} compact={compact} />}
        {heads.length === 0 && <span class="av-muted">no head reaches this score</span>}
      </div>
    </fieldset>
  );
}
