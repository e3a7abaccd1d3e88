/**
 * Strip of the heads of a layer. Each head is a toggle button with a small heat map of its weights,
 * which this file calls a map. An effect is a signed number of a head, such as the change of an
 * answer without this head. A role names what a head does, as found over a corpus.
 */

import { useEffect, useRef } from "preact/hooks";
import type { HeadMap } from "../../client/source";
import type { Ink } from "../colors/color-scales";
import { headColor } from "../colors/palette";
import { EffectBar } from "../effects/bar";
import {
  effectsInWords,
  endText,
  errorText,
  headEffectInWords,
  shortEffectText,
} from "../effects/effects";
import { heatPixels } from "../head-grid/heat-pixels";
import { formatNumber, formatWeight } from "../text/captions";
import type { RecordContext } from "../view/define-view";
import type { Selection } from "../view/record";
import { assign } from "../view/state";
import { runKey } from "./keys";

/** Smallest side of a map, in pixels, that leaves room for the name of a role under the map. */
const MIN_NAMED_SIZE = 44;

/** Side of a map in a compact strip, in pixels. */
const COMPACT_SIZE = 26;

/**
 * Return the side of a map in pixels, from 26 to 54. This is the largest side with which all maps
 * fit on one line, or 26 if they do not fit.
 */
function mapSize(count: number, width: number): number {
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

/**
 * Choose only this head if `single` is true. Otherwise add it to the chosen heads, or remove it if
 * it is chosen.
 */
export function chooseHead({ common }: RecordContext, head: number, single: boolean): void {
  // Read the state instead of the rendered heads. A double click is two clicks, and the second may
  // come before the next rendering.
  const now = common.heads.peek();
  const toggled = now.includes(head) ? now.filter((other) => other !== head) : [...now, head];
  assign(common, { heads: single ? [head] : toggled });
}

/** Render the buttons that choose all heads or none. */
export function HeadTools({ context, chosen }: { context: RecordContext; chosen: number[] }) {
  const { heads } = context.record.order.value;
  const hasAll = heads.every((head) => chosen.includes(head));
  // Useless buttons are not disabled, because a disabled button would lose the focus of the reader
  // who has just pressed it.
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
      {button("all", hasAll, [...heads])}
      {button("none", chosen.length === 0, [])}
    </div>
  );
}

const CHOOSE = ". Click to choose it, double-click to choose only it.";

export function HeadStrip(props: {
  context: RecordContext;
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
  const note = scale ? effectsInWords(scale, "below heads") : "";
  const bySize = scale?.name === common.order.value ? scale : null;
  // Show chosen heads even if `order` lacks them because their scores are below the minimum.
  const heads = [...order.heads, ...chosen.filter((head) => !order.heads.includes(head))];
  const size = compact ? COMPACT_SIZE : mapSize(heads.length, props.context.width.value);
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
    const buttons = [...(strip.current?.querySelectorAll<HTMLElement>(".av-head") ?? [])];
    const focused = buttons.findIndex((button) => button.matches(":focus"));
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
        class="av-wrapping av-strip"
        ref={strip}
        onKeyDown={onKeyDown}
        onPointerLeave={() => onHover?.(null)}
      >
        {heads.map((head, i) => {
          const score = record.byRole.value ? undefined : order.scores?.[i];
          const scoreWords =
            score !== undefined && (bySize ? shortEffectText(bySize, score) : scoreText(score));
          const role = record.roleOf({ layer, head });
          const does = role ? `, ${role.label}` : "";
          const effect = scale?.of({ layer, head });
          const facts = does + (scale ? `, ${headEffectInWords(scale, { layer, head })}` : "");
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
              class="av-vertical av-head"
              key={head}
              aria-pressed={choiceIndex >= 0}
              aria-label={
                !scoreWords
                  ? `Head ${head}${facts}`
                  : bySize
                    ? // The label contains the score exactly as the button shows it.
                      `Head ${head}, ${score === null ? "none" : scoreWords + errorText(effect?.error)} (${bySize.name})${does}`
                    : `Head ${head}, score ${scoreWords}${facts}`
              }
              title={`Head ${head}${facts}${from}${single ? "" : CHOOSE}`}
              style={{ "--av-head": color, width: `${size + 6}px` }}
              onClick={() => chooseHead(props.context, head, single)}
              onDblClick={single ? undefined : () => solo(head)}
              onPointerEnter={() => onHover?.(head)}
              onFocus={() => onHover?.(head)}
              onBlur={() => onHover?.(null)}
            >
              <MapCanvas map={map} ink={stack.signed ? palette : color} size={size} />
              {scale && effect && <EffectBar {...effect} end={scale.end} palette={palette} />}
              <span>{head}</span> {scoreWords && <span class="av-score">{scoreWords}</span>}
              {role && size >= MIN_NAMED_SIZE && <span class="av-role">{role.name}</span>}
            </button>
          );
        })}
        {scale && heads.length > 0 && (
          <span class="av-muted av-effect-note" title={compact ? note : undefined}>
            {compact ? `${scale.name} ±${endText(scale)}` : note}
          </span>
        )}
        {heads.length === 0 && <span class="av-muted">no head reaches this score</span>}
      </div>
    </fieldset>
  );
}
