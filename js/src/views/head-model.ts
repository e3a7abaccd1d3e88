/** The head view's live state: from its traits to what is drawn, as signals. */

import {
  batch,
  computed,
  effect,
  type ReadonlySignal,
  type Signal,
  signal,
  untracked,
} from "@preact/signals";
import { isAbort } from "../channel/kernel";
import type { Connection, Description, Piece } from "../channel/source";
import { measureText } from "../draw/canvas";
import type { Mark, Scene } from "../draw/marks";
import type { ViewContext } from "../ui/mount";
import { assign, follow, valuesOf } from "../ui/state";
import { niceMaximum } from "./head-bars";
import { captionOf } from "./head-caption";
import {
  asksForKeys,
  type HeadState,
  type Loaded,
  load,
  loadExact,
  type Plan,
  planOf,
  samePicture,
} from "./head-data";
import type { Caption } from "./head-figure";
import { type Layout, layOut, type Side } from "./head-layout";
import { computeLines, type Lines, leftOutKeys, pairMembers, shownMatrices } from "./head-lines";
import {
  backMarks,
  backOpacity,
  frontMarks,
  type LineAt,
  type Picture,
  type TokenAt,
} from "./head-marks";

/** Maps in the strip have at most this many cells a side. */
const MAP_SIZE = 32;

/** Weights are called small where none drawn reaches this share of the maximum. */
const SMALL_SHARE = 0.4;

/** How full opacity is set: to the largest weight there can be, or to the largest drawn. */
export type Scaling = "auto" | "whole" | "largest";

export interface HeadModel {
  description: Signal<Description | null>;
  connection: Signal<Connection>;
  error: Signal<string | null>;
  plan: ReadonlySignal<Plan | null>;
  loaded: Signal<Loaded | null>;
  maps: Signal<Piece | null>;
  lines: ReadonlySignal<Lines | null>;
  picture: ReadonlySignal<Picture | null>;
  back: ReadonlySignal<Mark[]>;
  scene: ReadonlySignal<Scene | null>;
  /** What is said about the picture. */
  caption: ReadonlySignal<Caption | null>;
  /** Whether what is drawn is what the state asks for. */
  current: ReadonlySignal<boolean>;
  hovered: Signal<TokenAt | null>;
  hoveredLine: Signal<LineAt | null>;
  hoveredHead: Signal<number | null>;
  cursor: Signal<TokenAt | null>;
  search: Signal<string>;
  scaling: Signal<Scaling>;
  retry: () => void;
  /** What is shown, for print: nothing that the pointer brought, and no room for it. */
  still: () => Picture | null;
}

/** The weight that is drawn with full opacity. */
export function scaleOf(lines: Lines, maximum: number, scaling: Scaling): number {
  // Where all weights are small, nothing would be seen on the whole scale.
  const small = lines.largest < SMALL_SHARE * maximum;
  const largest = scaling === "largest" || (scaling === "auto" && small);
  return largest && lines.largest > 0 ? Math.min(niceMaximum(lines.largest), maximum) : maximum;
}

export function makeHeadModel(context: ViewContext<HeadState>): HeadModel {
  const { source, state, ended } = context;
  const description = signal<Description | null>(null);
  const connection = signal<Connection>("ready");
  const error = signal<string | null>(null);
  const loaded = signal<Loaded | null>(null);
  const exact = signal<Loaded | null>(null);
  const maps = signal<Piece | null>(null);
  const attempt = signal(0);
  const hovered = signal<TokenAt | null>(null);
  const hoveredLine = signal<LineAt | null>(null);
  const hoveredHead = signal<number | null>(null);
  const cursor = signal<TokenAt | null>(null);
  const search = signal("");
  const scaling = signal<Scaling>("auto");

  const stops: (() => void)[] = [];
  ended.addEventListener("abort", () => {
    for (const stop of stops) stop();
  });
  /** Runs an effect until the view ends. */
  const live = (run: () => (() => void) | undefined): void => {
    stops.push(effect(run));
  };

  const fail = (reason: unknown): void => {
    if (isAbort(reason) || ended.aborted) return;
    error.value = reason instanceof Error ? reason.message : String(reason);
  };

  source.carrier.watch((value) => {
    connection.value = value;
  }, ended);

  // Apart, so that the plan is made anew only when the answer changes.
  const keysMatter = computed(() =>
    asksForKeys({ leave_out: state.leave_out.value, pair: state.pair.value }),
  );
  const plan = computed<Plan | null>(() => {
    const record = description.value;
    if (!record) return null;
    keysMatter.value;
    const { stack, layer, heads, token, key, query_window, key_window } = state;
    return planOf(record, {
      ...valuesOf(state),
      stack: stack.value,
      layer: layer.value,
      heads: heads.value,
      token: token.value,
      key: key.value,
      query_window: query_window.value,
      key_window: key_window.value,
    });
  });

  live(() => {
    attempt.value;
    if (untracked(() => description.value)) return undefined;
    const controller = new AbortController();
    source
      .describe(controller.signal)
      .then((value) => {
        batch(() => {
          description.value = value;
          error.value = null;
        });
      })
      .catch(fail);
    return () => controller.abort();
  });

  const wantedText = computed(() => {
    const each = plan.value;
    return (
      each &&
      JSON.stringify([
        each.stack.name,
        each.layer,
        each.heads,
        each.rows,
        each.columns,
        each.queryWindow,
        each.keyWindow,
      ])
    );
  });
  live(() => {
    attempt.value;
    if (wantedText.value === null) return undefined;
    const wanted = untracked(() => plan.value) as Plan;
    const controller = new AbortController();
    load(source, wanted, controller.signal)
      .then((value) => {
        batch(() => {
          loaded.value = value;
          exact.value = null;
          error.value = null;
        });
      })
      .catch(fail);
    return () => controller.abort();
  });

  live(() => {
    const now = loaded.value;
    const [token, key] = [plan.value?.token ?? null, plan.value?.key ?? null];
    exact.value = null;
    if (!now || (token === null && key === null)) return undefined;
    const controller = new AbortController();
    loadExact(source, now, token, key, controller.signal)
      .then((value) => {
        if (loaded.peek() === now) exact.value = value;
      })
      .catch(fail);
    return () => controller.abort();
  });

  const mapsText = computed(
    () => plan.value && JSON.stringify([plan.value.stack.name, plan.value.layer]),
  );
  live(() => {
    attempt.value;
    if (mapsText.value === null) return undefined;
    const [stack, layer] = JSON.parse(mapsText.value) as [string, number];
    const controller = new AbortController();
    source
      .maps({ stack, layer, size: MAP_SIZE }, controller.signal)
      .then((value) => {
        maps.value = value;
      })
      .catch(fail);
    return () => controller.abort();
  });

  const options = computed(() => {
    const drawn = loaded.value?.plan;
    if (!drawn) return null;
    const pair = state.pair.value;
    return {
      combine: state.combine.value,
      topK: state.top_k.value,
      threshold: state.threshold.value,
      leftOut: leftOutKeys(drawn.keys, state.leave_out.value),
      pairQueries: pairMembers(drawn.queries, pair, "query"),
      pairKeys: pairMembers(drawn.keys, pair, "key"),
      renormalize: state.renormalize.value,
      queryWindow: drawn.queryWindow,
      keyWindow: drawn.keyWindow,
    };
  });

  const lines = computed<Lines | null>(() => {
    const now = exact.value ?? loaded.value;
    if (!now || !options.value) return null;
    const shown = shownMatrices(now.weights, options.value.combine, now.plan.chosen.length === 0);
    return computeLines(now.weights, options.value, shown);
  });

  const pinsInSight = computed(() => {
    const drawn = loaded.value?.plan;
    const { token = null, key = null } = plan.value ?? {};
    const inside = (
      index: number | null,
      window: readonly [number, number] | undefined,
    ): number | null =>
      index !== null && window && index >= window[0] && index < window[1] ? index : null;
    return { token: inside(token, drawn?.queryWindow), key: inside(key, drawn?.keyWindow) };
  });

  const barSide = computed(() =>
    pinsInSight.value.key !== null && pinsInSight.value.token === null ? "query" : "key",
  );

  const layoutOf = (barSides: readonly Side[], keepRoom: boolean): Layout | null => {
    const drawn = loaded.value?.plan;
    if (!drawn) return null;
    return layOut({
      orientation: state.orientation.value,
      width: context.width.value,
      queryTexts: drawn.queries.text,
      keyTexts: drawn.keys.text,
      queryWindow: drawn.queryWindow,
      keyWindow: drawn.keyWindow,
      barSides,
      keepRoom,
      measure: measureText,
    });
  };
  const layout = computed(() => layoutOf([barSide.value], true));

  const ground = computed<Picture | null>(() => {
    const now = exact.value ?? loaded.value;
    if (!now || !lines.value || !layout.value || !options.value) return null;
    return {
      layout: layout.value,
      palette: context.palette.value,
      queries: now.plan.queries,
      keys: now.plan.keys,
      weights: now.weights,
      lines: lines.value,
      scale: scaleOf(lines.value, now.weights.maximum, scaling.value),
      token: null,
      key: null,
      hovered: null,
      hoveredLine: null,
      hoveredHead: null,
      cursor: null,
      exact: exact.value !== null,
      leftOut: options.value.leftOut,
      pairQueries: options.value.pairQueries,
      pairKeys: options.value.pairKeys,
      search: "",
    };
  });

  const base = computed<Picture | null>(
    () =>
      ground.value && { ...ground.value, ...pinsInSight.value, search: search.value.toLowerCase() },
  );

  const still = (): Picture | null => {
    const now = base.peek();
    if (!now) return null;
    const barSides: Side[] = [];
    if (now.token !== null) barSides.push("key");
    if (now.key !== null) barSides.push("query");
    return { ...now, layout: layoutOf(barSides, false) ?? now.layout };
  };

  const picture = computed<Picture | null>(
    () =>
      base.value && {
        ...base.value,
        hovered: hovered.value,
        hoveredLine: hoveredLine.value,
        hoveredHead: hoveredHead.value,
        cursor: cursor.value,
      },
  );

  // Does not follow the pointer: all lines are laid out anew only when they change.
  const back = computed(() => (ground.value ? backMarks(ground.value) : []));

  const scene = computed<Scene | null>(() => {
    const now = picture.value;
    return (
      now && {
        width: now.layout.width,
        height: now.layout.height,
        background: null,
        back: back.value,
        backOpacity: backOpacity(now),
        front: frontMarks(now),
      }
    );
  });

  const caption = computed<Caption | null>(() => {
    const [now, wanted, drawn] = [picture.value, plan.value, loaded.value?.plan];
    if (!now || !wanted || !drawn) return null;
    // Pins are said as they are asked for, though the weights may be those of a moment ago.
    const said = { ...drawn, token: wanted.token, key: wanted.key };
    return captionOf(said, now, follow(state), true);
  });

  const current = computed(() => {
    const drawn = loaded.value?.plan;
    return drawn !== undefined && plan.value !== null && samePicture(drawn, plan.value);
  });

  return {
    description,
    connection,
    error,
    plan,
    loaded,
    maps,
    lines,
    still,
    picture,
    back,
    scene,
    caption,
    current,
    hovered,
    hoveredLine,
    hoveredHead,
    cursor,
    search,
    scaling,
    retry: () => {
      error.value = null;
      source.carrier.retry();
      attempt.value += 1;
    },
  };
}

/** Pins a token, or takes the pin away where it already is. */
export function togglePin(state: ViewContext<HeadState>["state"], at: TokenAt): void {
  const field = at.side === "query" ? "token" : "key";
  assign(state, {
    [field]: state[field].peek() === at.index ? null : at.index,
  } as Partial<HeadState>);
}
