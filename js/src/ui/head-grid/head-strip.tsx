/**
 * Strip of the heads of a layer. Each head is a button that adds it to the chosen heads or removes
 * it. In views of one head, it chooses the head. The button has a small heat map of the head's
 * weights, which this file calls a map.
 *
 * An effect is a signed number of a head, such as the change of an answer without this head. A role
 * says what a head does, according to its scores over a corpus.
 */

import { useEffect, useRef } from "preact/hooks";
import type { Matrix } from "../../client/source";
import type { Ink } from "../colors/color-scales";
import { headColor } from "../colors/palette";
import { runKey } from "../controls/keys";
import { chooseHead } from "../controls/shortcuts";
import { EffectBar } from "../effects/bar";
import {
  effectsInWords,
  effectsOf,
  endText,
  errorText,
  headEffectInWords,
  shortEffectText,
} from "../effects/effects";
import { formatNumber, formatWeight } from "../text/captions";
import type { RecordContext } from "../view/define-view";
import type { Selection } from "../view/record";
import { assign } from "../view/state";
import { gateInWords, gateOf, isClosed, mapInk } from "./gates";
import { heatPixels } from "./heat-pixels";
import { headOrderOf } from "./order";

/**
 * Minimum side in pixels of a map with words below it. They name the role of the head, or say that
 * its gate is closed.
 */
const MIN_NAMED_SIZE = 44;

/** Side of a map, in pixels, if the controls are compact. */
const COMPACT_SIZE = 26;

/**
 * Return the side of a map in pixels if the controls are not compact: the largest one with which
 * `count` maps fit on one line of `width` pixels, but at least 26 and at most 54. With 26, the maps
 * may need several lines.
 */
function mapSize(count: number, width: number): number {
  const room = Math.max(200, width - 66);
  const oneLine = Math.floor(room / Math.max(1, count)) - 10;
  return Math.max(26, Math.min(54, oneLine));
}

function MapCanvas({ map, ink, size }: { map: Matrix | undefined; ink: Ink; size: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!map || !context) return;
    const pixels = heatPixels(map, map.rows, map.columns, ink);
    context.putImageData(new ImageData(pixels, map.columns, map.rows), 0, 0);
  }, [map, ink]);
  return (
    <canvas
      class="av-map"
      ref={canvas}
      width={map?.columns ?? 1}
      height={map?.rows ?? 1}
      style={{ width: `${size}px`, height: `${size}px` }}
    />
  );
}

/**
 * Format a score for the line below a map: with two decimals or, from 10 on, with three significant
 * digits, because the line is short. null is written as "–".
 */
export function scoreText(score: number | null): string {
  if (score === null) return "–";
  return Math.abs(score) < 10 ? formatWeight(score) : formatNumber(score);
}

/**
 * Render the buttons "all" and "none". The first chooses all heads of the layer or, if the reader
 * set a minimum score, all heads that reach it. The second chooses no head.
 */
export function HeadTools({ context, chosen }: { context: RecordContext; chosen: number[] }) {
  const { heads } = headOrderOf(context.record).order.value;
  const hasAll = heads.every((head) => chosen.includes(head));
  // A button that would change nothing is not disabled. Otherwise, it would lose the keyboard focus
  // when a press makes it useless.
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
  /**
   * Whether a click chooses one head and removes the others. If false, the reader can choose any
   * number of heads.
   */
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
  const { byRole, roleOf, ...ordered } = headOrderOf(record);
  const order = ordered.order.value;
  const scale = effectsOf(record).heads.value;
  const note = scale ? effectsInWords(scale, "below heads") : "";
  const bySize = scale?.name === common.order.value ? scale : null;
  const { heads } = order;
  const size = compact ? COMPACT_SIZE : mapSize(heads.length, props.context.width.value);
  const beforeSolo = useRef<number[]>([]);
  /**
   * Choose only this head. If it is already the only chosen head, restore the heads that the last
   * call of this function replaced.
   */
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
    // Scroll only the strip to the first chosen head. `scrollIntoView` would also scroll the page.
    row.scrollLeft = first.offsetLeft - row.offsetLeft - row.clientWidth / 2;
  }, [compact]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const buttons = [...(strip.current?.querySelectorAll<HTMLElement>(".av-head") ?? [])];
    const focused = buttons.findIndex((button) => button.matches(":focus"));
    const focus = (at: number) => () => buttons[at]?.focus();
    // Handle Home and End, too. Otherwise, the browser would scroll to the start or end of the
    // page.
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
        class={`av-wrapping av-strip${record.hasOldMaps.value ? " av-old-maps" : ""}`}
        ref={strip}
        onKeyDown={onKeyDown}
        onPointerLeave={() => onHover?.(null)}
      >
        {heads.map((head, i) => {
          const score = byRole.value ? undefined : order.scores?.[i];
          const scoreWords =
            score !== undefined && (bySize ? shortEffectText(bySize, score) : scoreText(score));
          const role = roleOf({ layer, head });
          const does = role ? `, ${role.label}` : "";
          const effect = scale?.of({ layer, head });
          const gate = gateOf(stack, { layer, head });
          const hasGate = gate === null ? "" : `, ${gateInWords(gate)}`;
          const facts =
            does + hasGate + (scale ? `, ${headEffectInWords(scale, { layer, head })}` : "");
          const choiceIndex = chosen.indexOf(head);
          const map = record.maps.value?.get(head);
          const from = map?.sampled ? ` (map from a sample of ${map.sampled.length} queries)` : "";
          // If the numbers are signed and only one head is chosen, colours in the plot stand for
          // the signs, not for the head. Its button then has no colour.
          const hasOwnColor = choiceIndex >= 0 && !(stack.signed && chosen.length === 1);
          const color = hasOwnColor
            ? headColor(palette, choiceIndex, chosen.length)
            : palette.neutral;
          const ink = mapInk(stack, { layer, head }, stack.signed ? palette : color, palette);
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
                      `Head ${head}, ${score === null ? "none" : scoreWords + errorText(effect?.error)} (${bySize.name})${does}${hasGate}`
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
              <MapCanvas map={map} ink={ink} size={size} />
              {scale && effect && (
                <EffectBar {...effect} end={scale.end} width={size} palette={palette} />
              )}
              <span>{head}</span> {scoreWords && <span class="av-score">{scoreWords}</span>}
              {role && size >= MIN_NAMED_SIZE && <span class="av-role">{role.name}</span>}
              {isClosed(gate) && size >= MIN_NAMED_SIZE && <span class="av-role">closed</span>}
            </button>
          );
        })}
        {scale && (
          <span class="av-muted av-effect-note" title={compact ? note : undefined}>
            {compact ? `${scale.name} ±${endText(scale)}` : note}
          </span>
        )}
      </div>
    </fieldset>
  );
}
