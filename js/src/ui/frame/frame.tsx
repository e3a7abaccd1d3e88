/**
 * Frame of all views: header, connection status, controls, plot, captions and keyboard help. A pane
 * is a view inside the frame of another view. Its own frame has fewer parts.
 */

import { batch, type ReadonlySignal, type Signal, useSignal } from "@preact/signals";
import { type ComponentChildren, Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { StackDescription } from "../../client/protocol";
import { headsOf } from "../../client/source";
import type { Connection } from "../../client/transport";
import { Choice } from "../controls/fields";
import { HeadStrip, HeadTools, toggleHead } from "../controls/heads";
import type { Shortcut } from "../controls/keys";
import { Layers } from "../controls/layers";
import { Menu, type MenuEntry, Panel } from "../controls/menu";
import { headEffect, headError, tokenScoreNames } from "../effects/effects";
import { OfferedFilePlace } from "../exports/offered-file";
import { GeneratedTokenCursor, useRevealed } from "../generated-token/cursor";
import { BY_ROLE, RoleLine } from "../head-grid/head-roles";
import { BY_PIN, orderLabel } from "../head-grid/pinned-weights";
import { hasPair, type Pair, pairChoices } from "../pairs";
import { embeddedInWords, laterInWords, selectionInWords, stackName } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { History } from "../view/history";
import { openingInWords } from "../view/opening";
import {
  type ControlsForm,
  type Generating,
  isGenerating,
  type Job,
  RECORD_DEFAULTS,
  type RecordState,
  type Selection,
} from "../view/record";
import { assign } from "../view/state";
import { baseName } from "../what-if/changed-run";

export interface ViewFrameProps<S extends RecordState> {
  context: ViewContext<S>;
  /** Name of the view. It is the title of a pane without a `paneTitle`. */
  name: string;
  /** Description of the stack, its tokens and the precision. */
  subtitle: string;
  /** Description of the plot for screen readers. It depends on the pins and keyboard cursor. */
  summary: ReadonlySignal<string>;
  exports: MenuEntry[];
  /** Keyboard shortcuts and their descriptions. */
  keys: readonly Shortcut[];
  /** Controls of the view, in rows. */
  options?: ComponentChildren;
  /**
   * Progress of running work, with a button that stops it. It is visible even if the controls are
   * compact or hidden.
   */
  work?: ComponentChildren;
  /**
   * Number of heads that the reader can choose: any number ("heads", the default) or one ("head").
   * "none" hides the controls for layers and heads.
   */
  choose?: "heads" | "head" | "none";
  /** Return the fields of the view's state that change when the reader chooses another stack. */
  onStack?: (stack: StackDescription) => Partial<S>;
  /** Return the fields of the view's own state that must change to make a query visible. */
  onReveal?: (query: number) => Partial<S>;
  /** Called with the head under the pointer in the row of heads, or with null. */
  onHover?: (head: number | null) => void;
  children: ComponentChildren;
  footer: ComponentChildren;
}

export function ViewFrame<S extends RecordState>(props: ViewFrameProps<S>) {
  const { context } = props;
  const { record } = context;
  const description = record.description.value;
  const first = description?.stacks[0];
  const embedded = first?.embedded ? embeddedInWords(first.embedded, first) : null;
  const selection = record.selection.value;
  const opening = selection ? openingInWords(context.common.opening.value, selection) : "";
  useRevealed(context, props.onReveal);
  const form = context.controls.value;
  const chooses = props.choose !== "none";
  const body = (
    // With this key, Preact keeps the elements of the plot when the controls above it change.
    <Fragment key="body">
      <Summary text={props.summary} quiet={isGenerating(context.common)} />
      {selection && !context.embedded && <p class="av-printed">{selectionInWords(selection)}</p>}
      <OfferedFilePlace offered={context.offered} />
      {props.children}
    </Fragment>
  );
  if (context.embedded) {
    return (
      <PaneFrame
        name={context.paneTitle?.value ?? props.name}
        exports={props.exports}
        keys={props.keys}
        form={form}
        controls={selection && form === "full" && <div class="av-controls">{props.options}</div>}
        more={selection && form === "compact" && props.options}
        footer={props.footer}
      >
        {body}
      </PaneFrame>
    );
  }
  return (
    <Frame
      title={description?.model || "attention"}
      subtitle={props.subtitle}
      notes={[...(description?.notes ?? []), ...(embedded === null ? [] : [embedded])]}
      connection={record.connection.value}
      job={record.job.value}
      generating={context.common._generating}
      error={record.error.value}
      onRetry={record.retry}
      onStop={record.stop}
      history={context.history}
      exports={props.exports}
      keys={[...props.keys, ["Ctrl-Z", "undo, with Shift: redo"]]}
      form={form}
      controls={
        selection &&
        (form === "full" ? (
          <div class="av-controls">
            <StackChoice {...props} selection={selection} />
            {chooses && <SelectionControls {...props} selection={selection} />}
            {props.options}
            {props.work}
            <GeneratedTokenCursor context={context} />
          </div>
        ) : (
          <>
            {form !== "none" && chooses && (
              <SelectionControls {...props} selection={selection} compact />
            )}
            {props.work}
          </>
        ))
      }
      more={
        selection &&
        form === "compact" && (
          <>
            <StackChoice {...props} selection={selection} />
            {chooses && props.choose !== "head" && (
              <AllOrNone context={context} selection={selection} />
            )}
            {props.options}
            <GeneratedTokenCursor context={context} />
          </>
        )
      }
      footer={
        <>
          {props.footer}
          {opening !== "" && <p class="av-muted av-opening">{opening}</p>}
        </>
      }
    >
      {body}
    </Frame>
  );
}

/** Render text for screen readers only. They read it when it changes, unless it is `quiet`. */
function Summary({ text, quiet }: { text: ReadonlySignal<string>; quiet: boolean }) {
  return (
    <p class="av-unseen av-summary" aria-live={quiet ? "off" : "polite"}>
      {text}
    </p>
  );
}

/** If a layer has at most this many heads, all are chosen at the start, as in Python. */
const HEADS_AT_ONCE = 4;

/** Return the heads that are chosen by default: all or, above `HEADS_AT_ONCE`, none. */
function defaultHeads(all: number[]): number[] {
  return all.length <= HEADS_AT_ONCE ? all : [];
}

function StackChoice<S extends RecordState>(props: ViewFrameProps<S> & { selection: Selection }) {
  const { context, selection } = props;
  const state = context.common;
  const stacks = context.record.description.value?.stacks ?? [];
  if (stacks.length < 2) return null;
  const change = (name: string): void => {
    const next = stacks.find((other) => baseName(other) === name);
    if (!next) return;
    const layer = next.layers.includes(selection.layer) ? selection.layer : (next.layers[0] ?? 0);
    // Remove the pinned tokens. Another stack has other tokens at the same positions.
    const moved: Partial<RecordState> = { stack: name, layer, token: null, key: null };
    if (selection.chosen.length === selection.allHeads.length)
      moved.heads = defaultHeads(headsOf(next, layer));
    batch(() => {
      assign(state, moved);
      assign(context.state, props.onStack?.(next) ?? {});
    });
  };
  return (
    <div class="av-row av-stack">
      <Choice
        label="Stack"
        value={baseName(selection.stack)}
        options={stacks.map((stack) => [baseName(stack), stackName(baseName(stack))] as const)}
        onChange={change}
      />
    </div>
  );
}

/**
 * Render the buttons that choose all heads or none. The compact form has these buttons in the box
 * that a button opens.
 */
function AllOrNone<S extends RecordState>(props: {
  context: ViewContext<S>;
  selection: Selection;
}) {
  const { context, selection } = props;
  const { heads } = context.record.order.value;
  return (
    <div class="av-row">
      <span class="av-label">Heads</span>
      <HeadTools
        heads={heads}
        chosen={selection.chosen}
        onAll={() => assign(context.common, { heads: [...heads] })}
        onNone={() => assign(context.common, { heads: [] })}
      />
    </div>
  );
}

function SelectionControls<S extends RecordState>(
  props: ViewFrameProps<S> & { selection: Selection; compact?: boolean },
) {
  const { context, selection, compact = false } = props;
  const { record } = context;
  const state = context.common;
  const beforeSolo = useRef<number[]>([]);
  const single = props.choose === "head";
  useEffect(record.wantMaps, []);
  const order = record.order.value;
  const effects = record.headEffects.value;

  const solo = (head: number): void => {
    const chosen = state.heads.peek();
    if (chosen.length === 1 && chosen[0] === head) {
      assign(state, { heads: beforeSolo.current });
    } else {
      beforeSolo.current = [...chosen];
      assign(state, { heads: [head] });
    }
  };
  const strip = (
    <HeadStrip
      order={order}
      chosen={single ? selection.heads.slice(0, 1) : selection.chosen}
      single={single}
      maps={record.maps.value}
      palette={context.palette.value}
      signed={selection.stack.signed}
      effects={
        effects && {
          scale: effects,
          of: (head) => headEffect(effects, selection.stack, { layer: selection.layer, head }),
          errorOf: (head) => headError(effects, selection.stack, { layer: selection.layer, head }),
        }
      }
      orderedBy={state.order.value}
      roles={
        record.roles.value && {
          of: (head) => record.roleOf({ layer: selection.layer, head }),
          ordered: record.byRole.value,
        }
      }
      width={context.width.value}
      // Read the state instead of the rendered props. A double click is two clicks, and the second
      // may come before the next rendering.
      onToggle={(head) =>
        assign(state, { heads: single ? [head] : toggleHead(state.heads.peek(), head) })
      }
      onAll={() => assign(state, { heads: [...order.heads] })}
      onNone={() => assign(state, { heads: [] })}
      onSolo={single ? () => {} : solo}
      onHover={(head) => props.onHover?.(head)}
      compact={compact}
    />
  );
  const { layers } = selection.stack;
  return compact ? (
    <div class="av-row av-compact-place">
      <Choice
        label="Layer"
        value={String(selection.layer)}
        options={layers.map((layer) => [String(layer), String(layer)] as const)}
        onChange={(layer) => assign(state, { layer: Number(layer) })}
      />
      {strip}
    </div>
  ) : (
    <>
      <Layers
        layers={layers}
        layer={selection.layer}
        width={context.width.value}
        onChange={(layer) => assign(state, { layer })}
      />
      {strip}
      {record.roles.value && (
        <RoleLine
          layer={selection.layer}
          heads={single ? selection.heads.slice(0, 1) : selection.heads}
          of={(head) => record.roleOf({ layer: selection.layer, head })}
        />
      )}
    </>
  );
}

/**
 * Render the field that chooses from which of two texts the shown queries and keys come. Render
 * nothing if the tokens do not belong to two texts.
 */
export function PairControl<S extends RecordState>({ context }: { context: ViewContext<S> }) {
  const { pair } = context.common;
  const selection = context.record.selection.value;
  // A pane does not have this control. The frame around the panes has it.
  if (!selection || context.embedded || !hasPair(selection)) return null;
  return (
    <Choice<Pair>
      label={selection.queries.predictions?.length ? "Texts" : "Sentences"}
      value={pair.value}
      options={pairChoices(selection.queries)}
      onChange={(value) => assign(context.common, { pair: value })}
    />
  );
}

/** Render the controls that order the heads and that hide heads below a smallest score. */
export function OrderControl<S extends RecordState>({ context }: { context: ViewContext<S> }) {
  const state = context.common;
  const selection = context.record.selection.value;
  if (!selection || context.embedded) return null;
  const { stack } = selection;
  const scoreNames = Object.entries(state.scores.value)
    .filter(([, byStack]) => byStack[baseName(stack)])
    .map(([name]) => name);
  const patterns = stack.patterns.filter((name) => !scoreNames.includes(name));
  const byRole = context.record.roles.value && !scoreNames.includes(BY_ROLE) ? [BY_ROLE] : [];
  const names = [BY_PIN, ...byRole, ...scoreNames, ...patterns];
  const order = names.includes(state.order.value) ? state.order.value : RECORD_DEFAULTS.order;
  return (
    <>
      <Choice
        label="Heads by"
        value={order}
        options={[
          ["number", "number"],
          ...names.map((name) => [name, name === BY_PIN ? "pinned tokens" : name] as const),
        ]}
        onChange={(name) => assign(state, { order: name, min_score: null })}
      />
      {order === BY_PIN && selection.token === null && (
        <span class="av-muted">pin a query token, or a query and a key</span>
      )}
      {order !== "number" && !context.record.byRole.value && (
        <label class="av-field">
          <span>from</span>
          <input
            class="av-least"
            type="number"
            step="0.05"
            aria-label={`Minimum ${
              order === context.record.headEffects.value?.name ? "size" : "score"
            }, ${orderLabel(order)}`}
            value={state.min_score.value ?? ""}
            placeholder="all"
            onChange={(event) => {
              const value = event.currentTarget.valueAsNumber;
              assign(state, { min_score: Number.isFinite(value) ? value : null });
            }}
          />
        </label>
      )}
    </>
  );
}

/**
 * Render the field that chooses the token scores, which are drawn as one bar for each key. Render
 * nothing in a pane, or if the stack has fewer than two kinds of token scores.
 */
export function TokenScoreControl<S extends RecordState>(props: { context: ViewContext<S> }) {
  const { common, embedded, record } = props.context;
  const selection = record.selection.value;
  if (!selection || embedded) return null;
  const names = tokenScoreNames(selection.stack, common.token_scores.value);
  if (names.length < 2) return null;
  return (
    <Choice
      label="Bars of keys"
      value={names.find((name) => name === common.token_score.value) ?? (names[0] as string)}
      options={names.map((name) => [name, name] as const)}
      onChange={(token_score) => assign(common, { token_score })}
    />
  );
}

/** Render the captions of a plot, and its legends beside the captions. */
export function Footer(props: {
  sentence: string;
  coverage: string;
  /** Additional line below the captions. */
  more?: ComponentChildren;
  class?: string;
  children?: ComponentChildren;
}) {
  return (
    <footer class={`av-footer ${props.class ?? ""}`}>
      <div class="av-words">
        <p class="av-sentence">{props.sentence}</p>
        <p class="av-muted">{props.coverage}</p>
        {props.more}
      </div>
      <div class="av-legends">{props.children}</div>
    </footer>
  );
}

interface FrameProps {
  /** Name of the model. */
  title: string;
  /** Description of the stack, its tokens and the precision. */
  subtitle: string;
  notes: readonly string[];
  connection: Connection;
  job: Job | null;
  generating: Signal<Generating | null>;
  error: string | null;
  onRetry: () => void;
  onStop: () => void;
  history: History;
  exports: MenuEntry[];
  /** Keyboard shortcuts and their descriptions. */
  keys: readonly Shortcut[];
  form: ControlsForm;
  controls: ComponentChildren;
  /** Controls in a box that a button opens, for the compact form. */
  more: ComponentChildren;
  children: ComponentChildren;
  footer: ComponentChildren;
}

const STANDS: { [connection in Connection & string]?: string } = {
  unanswered: "The kernel does not answer. It is busy or gone. The picture stays.",
  detached:
    "This view was stored without its kernel, which has the weights. In a notebook, run the cell " +
    'again. For readers without a kernel, use view.snapshot() or view.save("view.html").',
};

/** Render an error or a lost connection. The message stays while the problem lasts. */
function Standing({
  connection,
  error,
  onRetry,
}: Pick<FrameProps, "connection" | "error" | "onRetry">) {
  const text = error ?? (typeof connection === "string" ? STANDS[connection] : undefined) ?? null;
  return (
    <div role="status">
      {text !== null && (
        <div class={`av-standing${error !== null ? " av-error" : ""}`}>
          <span>{text}</span>
          {(error !== null || connection !== "detached") && (
            <button type="button" onClick={onRetry}>
              Try again
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/**
 * Render a message while the view waits for the kernel or while the kernel computes.
 *
 * The message covers the title line, so it moves nothing and hides no control of the plot.
 */
function Passing({
  connection,
  error,
  onStop,
}: Pick<FrameProps, "connection" | "error" | "onStop">) {
  const working = typeof connection === "object";
  return (
    <div role="status" class="av-passing-place">
      {error === null && (working || connection === "waiting") && (
        <div class="av-standing av-passing">
          {working ? (
            <>
              {/* Screen readers read this text once. The next text changes with every percent,
                  so it is hidden from them. */}
              <span class="av-unseen">The kernel computes {connection.doing}.</span>
              <span aria-hidden="true">The kernel computes {laterInWords(connection)}.</span>
              <button
                type="button"
                title="Cancel the computation. Other parts of the view stay."
                onClick={onStop}
              >
                Cancel
              </button>
            </>
          ) : (
            <span>Waiting for the kernel …</span>
          )}
        </div>
      )}
    </div>
  );
}

/** Render the progress of an export, with a button that cancels it. */
function Waiting({ job }: { job: Job }) {
  return (
    <div class="av-standing av-job">
      <progress aria-label="Progress of the page" {...(job.done !== null && { value: job.done })} />
      <span>{job.text}</span>
      <button type="button" title="Cancel the page and discard its data" onClick={job.cancel}>
        Cancel
      </button>
    </div>
  );
}

/** Describe the progress or the failure of a generation. */
export function generatingInWords({ came, most, problem }: Generating): string {
  if (problem !== undefined) return `The generation failed after ${came} tokens: ${problem}`;
  return `Generating: ${came} ${most === null ? "" : `of at most ${most} `}tokens`;
}

/** Render the progress of a generation, with a button that stops it. A failure has no button. */
function Generation({ generating }: { generating: Signal<Generating | null> }) {
  const now = generating.value;
  if (!now) return null;
  const failed = now.problem !== undefined;
  const stop = (): void => {
    generating.value = null;
  };
  return (
    <div class={`av-standing av-job av-generating${failed ? " av-error" : ""}`}>
      {!failed && (
        <progress
          aria-label="Produced tokens"
          {...(now.most !== null && { value: now.came, max: now.most })}
        />
      )}
      {/* Hide this text from screen readers while its number of tokens changes. */}
      <span aria-hidden={!failed}>{generatingInWords(now)}</span>
      <span class="av-unseen" aria-live="polite">
        {failed ? generatingInWords(now) : "Generating."}
      </span>
      {!failed && (
        <button type="button" title="Stop generating. Tokens so far are kept." onClick={stop}>
          Stop
        </button>
      )}
    </div>
  );
}

/**
 * Return a listener that opens and closes the help with "?". The listener also stops keys that the
 * reader types into fields, because the notebook would handle them, too.
 */
function keysOf(helping: Signal<boolean>): (event: KeyboardEvent) => void {
  return (event) => {
    const typing = (event.composedPath()[0] as Element | undefined)?.matches?.(
      "input, select, textarea",
    );
    if (event.key === "?" && !typing) {
      helping.value = !helping.value;
      event.stopPropagation();
      event.preventDefault();
    } else if (typing && !event.metaKey && !event.ctrlKey && event.key !== "Tab") {
      event.stopPropagation();
    }
  };
}

/**
 * Return a listener that closes the help with Esc. The listener runs before that of a plot, which
 * would remove the pins. The focus stays where it is, because the help never has the focus. Fields
 * and open menus handle Esc themselves.
 */
function closesKeys(helping: Signal<boolean>): (event: KeyboardEvent) => void {
  return (event) => {
    const at = event.composedPath()[0] as Element | undefined;
    if (event.key !== "Escape" || !helping.value) return;
    if (at?.matches?.("input, select, textarea") || at?.closest?.(".av-menu-list")) return;
    helping.value = false;
    event.stopPropagation();
    event.preventDefault();
  };
}

function Undo({ history }: { history: History }) {
  const button = (name: string, keys: string, sign: string, can: boolean, run: () => void) => (
    <button
      type="button"
      class="av-plain av-undo"
      aria-label={name}
      // A disabled button would lose the keyboard focus, so only the ARIA attribute is set.
      aria-disabled={!can}
      title={`${name} (${keys})`}
      onClick={run}
    >
      {sign}
    </button>
  );
  return (
    <>
      {button("Undo", "Ctrl-Z", "↶", history.canUndo.value, history.undo)}
      {button("Redo", "Shift-Ctrl-Z", "↷", history.canRedo.value, history.redo)}
    </>
  );
}

/** Render the buttons of the header: controls, undo and redo, help, and export menu. */
function Actions(
  props: Pick<FrameProps, "exports" | "form" | "more"> & {
    helping: Signal<boolean>;
    history?: History;
  },
) {
  const { helping, form, history } = props;
  if (form === "none") return null;
  return (
    <div class="av-actions">
      {props.more && (
        <Panel label="Controls">
          <div class="av-controls">
            {props.more}
            {history && (
              <div class="av-row">
                <Undo history={history} />
              </div>
            )}
          </div>
        </Panel>
      )}
      {history && !props.more && <Undo history={history} />}
      <button
        type="button"
        class="av-plain"
        aria-expanded={helping.value}
        aria-label="Keys"
        title="Keys"
        onClick={() => {
          helping.value = !helping.value;
        }}
      >
        ?
      </button>
      <Menu label="Export" entries={props.exports} />
    </div>
  );
}

function Keys({ keys }: { keys: FrameProps["keys"] }) {
  return (
    <dl class="av-keys">
      {[...keys, ["?", "show or hide these keys"] as const].map(([key, meaning]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{meaning}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Render the frame of a pane. */
function PaneFrame(
  props: Pick<
    FrameProps,
    "exports" | "keys" | "form" | "controls" | "more" | "children" | "footer"
  > & { name: string },
) {
  const helping = useSignal(false);
  return (
    <section
      class={`av-frame${props.form === "compact" ? " av-compact" : ""}`}
      aria-label={props.name}
      onKeyDown={keysOf(helping)}
      onKeyDownCapture={closesKeys(helping)}
    >
      <header class="av-header">
        <h2 class="av-pane-title">{props.name}</h2>
        <Actions {...props} helping={helping} />
      </header>
      {helping.value && <Keys keys={props.keys} />}
      {props.controls}
      {props.children}
      {props.footer}
    </section>
  );
}

function Frame(props: FrameProps) {
  const helping = useSignal(false);
  const compact = props.form === "compact";
  // The compact form has no space above the plot, so the subtitle is below the plot.
  const below = compact ? [props.subtitle] : [];
  const notes = [...below, ...props.notes].map((note) => (
    <p class={`av-note${note === below[0] ? " av-subtitle-below" : ""}`} key={note}>
      {note}
    </p>
  ));
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: handles the keys of the controls inside.
    <div
      class={`av-frame${compact ? " av-compact" : ""}`}
      onKeyDown={keysOf(helping)}
      onKeyDownCapture={closesKeys(helping)}
    >
      <header class="av-header">
        <div class="av-headline" {...(compact ? { title: props.title } : {})}>
          <span class="av-title">{props.title}</span>{" "}
          <span class="av-subtitle">{props.subtitle}</span>
        </div>
        <Passing {...props} />
        <Actions {...props} helping={helping} />
      </header>
      {helping.value && <Keys keys={props.keys} />}
      {!compact && notes}
      <Standing {...props} />
      {props.job && <Waiting job={props.job} />}
      {BUNDLE_FOR !== "page" && <Generation generating={props.generating} />}
      {props.controls}
      {props.children}
      {props.footer}
      {compact && notes}
    </div>
  );
}
