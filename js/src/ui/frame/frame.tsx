/**
 * Frame of all views: header, messages, controls, plot, captions and keyboard help. A pane is one
 * of several views inside a shared frame. Each pane has its own frame without messages, and without
 * the controls that the shared frame has for all panes.
 *
 * A stack is a group of attention layers, such as the self-attention of the decoder. The pins are
 * the query token and the key token that the reader has pinned.
 */

import { batch, type ReadonlySignal, type Signal, useSignal } from "@preact/signals";
import { type ComponentChildren, Fragment } from "preact";
import type { StackDescription } from "../../client/protocol";
import { bound, Choice } from "../controls/fields";
import type { Shortcut } from "../controls/keys";
import { Layers } from "../controls/layers";
import { Menu, type MenuEntry, Panel } from "../controls/menu";
import { effectsOf } from "../effects/effects";
import { OfferedFilePlace } from "../exports/offered-file";
import { GeneratedTokenCursor, PredictedClasses, useRevealed } from "../generated-token/cursor";
import { BY_ROLE } from "../head-grid/head-roles";
import { HeadStrip, HeadTools } from "../head-grid/head-strip";
import { headOrderOf } from "../head-grid/order";
import { hasPair, pairChoices } from "../pairs";
import { BY_PIN, changedMark, embeddedInWords, stackName } from "../text/captions";
import type { RecordContext, ViewContext } from "../view/define-view";
import { atLayer, baseName, firstSiblings, layerText } from "../view/model-layers";
import { openingInWords } from "../view/opening";
import { isGenerating, type RecordState, type Selection } from "../view/record";
import { assign } from "../view/state";
import { ExportProgress, GenerationProgress, Passing, Standing } from "./messages";

export interface ViewFrameProps<S extends RecordState> {
  context: ViewContext<S>;
  /** Name of the view. It is the title of a pane for which `context` has no `paneTitle`. */
  name: string;
  /**
   * Text after the title of the frame, for example the name of the stack, its numbers of tokens and
   * the precision of the weights.
   */
  subtitle: string;
  /** Description of the plot for screen readers. They read it again when it changes. */
  summary: ReadonlySignal<string>;
  exports: MenuEntry[];
  /** Keyboard shortcuts of the view, with their descriptions. The keyboard help lists them. */
  keys: readonly Shortcut[];
  /**
   * Additional controls that only this kind of view has. The frame itself has controls for stack,
   * layer and heads.
   */
  options?: ComponentChildren;
  /**
   * Progress of a long computation of the view, with a button that stops it. It is visible even if
   * the controls are compact or hidden.
   */
  work?: ComponentChildren;
  /**
   * How many heads the reader can choose: any number ("heads", the default) or exactly one
   * ("head"). "none" hides the controls for layers and heads.
   */
  choose?: "heads" | "head" | "none";
  /**
   * Called when the reader chooses another stack. Returns new values for the fields in the view's
   * state that must change with the stack.
   */
  onStack?: (stack: StackDescription) => Partial<S>;
  /**
   * Whether the view shows only one of several sibling stacks (see `model-layers.ts`). The list of
   * stacks then has each sibling. Otherwise, it has one entry for all siblings.
   */
  oneStack?: boolean;
  /**
   * Called when the reader chooses a generated token, with the query that predicted it. If the
   * reader chose the option `as_query`, it is the query of the token itself. Returns new values for
   * the fields in the view's state that must change so that this query is visible.
   */
  onReveal?: (query: number) => Partial<S>;
  /**
   * Called when the pointer or the focus enters a head in the row of head buttons, and with null
   * when it leaves.
   */
  onHover?: (head: number | null) => void;
  children: ComponentChildren;
  footer: ComponentChildren;
}

export function ViewFrame<S extends RecordState>(props: ViewFrameProps<S>) {
  const { context, options, choose } = props;
  const { record, common, embedded } = context;
  const helping = useSignal(false);
  useRevealed(context, props.onReveal);
  const selection = record.selection.value;
  const form = context.controls.value;
  const compact = form === "compact";
  const name = context.paneTitle?.value ?? props.name;
  const { model, notes: texts = [], stacks = [] } = record.description.value ?? {};
  const [first] = stacks;
  const title = model || "attention";
  const changed = selection ? changedMark(selection.stack) : "";
  const shown = selection?.stack ?? first;
  const share = shown?.embedded ? embeddedInWords(shown.embedded, shown, stacks.length > 1) : null;
  const notes = !embedded && (
    <>
      {/* In a narrow view with compact controls, the style sheet shows the subtitle here, below the
         plot, instead of in the header. */}
      {compact && <p class="av-note av-subtitle-below">{props.subtitle}</p>}
      {(share === null ? texts : [...texts, share]).map((note) => (
        <p class="av-note" key={note}>
          {note}
        </p>
      ))}
    </>
  );
  // Selection that the controls of this frame change, or null in a pane. The frame around the panes
  // has the controls for stack, layer and heads.
  const own = embedded ? null : selection;
  const stackChoice = own && <StackChoice {...props} selection={own} />;
  const choice = own && form !== "none" && choose !== "none" && (
    <SelectionControls {...props} selection={own} />
  );
  const cursor = own && <GeneratedTokenCursor context={context} />;
  const classes = !embedded && <PredictedClasses record={record} />;
  const inPanel = selection && compact && (own || options) && (
    <>
      {stackChoice}
      {choice && choose !== "head" && (
        <div class="av-row">
          <span class="av-label">Heads</span>
          <HeadTools context={context} chosen={selection.chosen} />
        </div>
      )}
      {options}
      {cursor}
    </>
  );
  // The frame around panes dims all of them.
  const isOld = !embedded && context.oldPicture.isOld.value;
  const opening = own ? openingInWords(common.opening.value, own) : "";
  const Root = embedded ? "section" : "div";
  return (
    <Root
      class={`av-vertical av-frame${compact ? " av-compact" : ""}${isOld ? " av-old" : ""}`}
      aria-label={embedded ? name : undefined}
      {...helpKeys(helping)}
    >
      <header class="av-header">
        {embedded ? (
          <h2 class="av-pane-title">{name}</h2>
        ) : (
          <>
            <div class="av-headline" {...(compact && { title })}>
              <span class="av-title">{title}</span>{" "}
              {changed && <strong class="av-changed">{changed}</strong>}{" "}
              <span class="av-subtitle">{props.subtitle}</span>
            </div>
            <Passing {...context} />
          </>
        )}
        <Actions {...props} helping={helping} more={inPanel} />
      </header>
      {helping.value && <Keys keys={props.keys} />}
      {!embedded && (
        <>
          {!compact && notes}
          <Standing {...context} />
          {record.job.value && <ExportProgress job={record.job.value} />}
          {BUNDLE_FOR !== "page" && <GenerationProgress generating={common._generating} />}
        </>
      )}
      {selection &&
        (form === "full" ? (
          <div class="av-vertical av-controls">
            {stackChoice}
            {choice}
            {options}
            {props.work}
            {cursor}
          </div>
        ) : (
          <>
            {choice}
            {props.work}
          </>
        ))}
      {classes}
      {/* With this key, Preact keeps the elements of the plot when the controls above it change. */}
      <Fragment key="body">
        {/* Screen readers read the summary when it changes, except while tokens are generated. */}
        <p class="av-unseen av-summary" aria-live={isGenerating(common) ? "off" : "polite"}>
          {props.summary}
        </p>
        <OfferedFilePlace offered={context.offered} />
        {props.children}
      </Fragment>
      {props.footer}
      {opening !== "" && <p class="av-muted av-opening">{opening}</p>}
      {compact && notes}
    </Root>
  );
}

function StackChoice<S extends RecordState>(props: ViewFrameProps<S> & { selection: Selection }) {
  const { context, selection, oneStack = false } = props;
  const description = context.record.description.value;
  if (!description) return null;
  const stacks = oneStack ? description.stacks : firstSiblings(description);
  if (stacks.length < 2) return null;
  const shown = oneStack ? selection.stack : (selection.siblings[0] ?? selection.stack);
  const change = (name: string): void => {
    const next = stacks.find((other) => baseName(other) === name);
    if (!next) return;
    const layer = next.layers.includes(selection.layer) ? selection.layer : (next.layers[0] ?? 0);
    // Remove the pins, because they are indices of tokens, and the tokens of the new stack may
    // differ.
    const moved = { ...atLayer(selection, { stack: next, layer }), token: null, key: null };
    batch(() => {
      assign(context.common, moved);
      assign(context.state, props.onStack?.(next) ?? {});
    });
  };
  return (
    <div class="av-row av-stack">
      <Choice
        label="Stack"
        value={baseName(shown)}
        options={stacks.map((stack) => [baseName(stack), stackName(baseName(stack))] as const)}
        onChange={change}
      />
    </div>
  );
}

function SelectionControls<S extends RecordState>(
  props: ViewFrameProps<S> & { selection: Selection },
) {
  const { context, selection } = props;
  const { common: state } = context;
  const single = props.choose === "head";
  const strip = <HeadStrip {...{ context, selection, single, onHover: props.onHover }} />;
  const { layers, modelLayer } = selection;
  const choose = (layer = modelLayer): void => assign(state, atLayer(selection, layer));
  return context.controls.value === "compact" ? (
    <div class="av-row av-compact-place">
      <Choice
        label="Layer"
        value={layerText(modelLayer)}
        options={layers.map((layer) => [layerText(layer), layerText(layer)] as const)}
        onChange={(text) => choose(layers.find((layer) => layerText(layer) === text))}
      />
      {strip}
    </div>
  ) : (
    <>
      <Layers layers={layers} layer={modelLayer} width={context.width.value} onChange={choose} />
      {strip}
    </>
  );
}

/**
 * Render the field that restricts a view to queries of one text and keys of one text (see
 * `pairs.ts`). Render nothing in a pane, or if the tokens do not consist of two texts.
 */
export function PairControl({ context }: { context: RecordContext }) {
  const selection = context.record.selection.value;
  if (!selection || context.embedded || !hasPair(selection)) return null;
  return (
    <Choice
      label={selection.queries.predictions?.length ? "Texts" : "Sentences"}
      options={pairChoices(selection.queries)}
      {...bound(context.common.pair)}
    />
  );
}

/**
 * Render the field that chooses the order of the heads: by number, by role, by the weights at the
 * pinned tokens, or by a score. Render nothing in a pane.
 */
export function OrderControl({ context }: { context: RecordContext }) {
  const state = context.common;
  const selection = context.record.selection.value;
  if (!selection || context.embedded) return null;
  const { stack } = selection;
  const scoreNames = Object.entries(state.scores.value)
    .filter(([, byStack]) => byStack[baseName(stack)])
    .map(([name]) => name);
  const patterns = stack.patterns.filter((name) => !scoreNames.includes(name));
  const { roles } = headOrderOf(context.record);
  const byRole = roles.value && !scoreNames.includes(BY_ROLE) ? [BY_ROLE] : [];
  const names = [BY_PIN, ...byRole, ...scoreNames, ...patterns];
  const order = names.includes(state.order.value) ? state.order.value : "number";
  return (
    <>
      <Choice
        label="Heads by"
        value={order}
        options={[
          ["number", "number"],
          ...names.map((name) => [name, name === BY_PIN ? "pinned tokens" : name] as const),
        ]}
        onChange={(name) => assign(state, { order: name })}
      />
      {order === BY_PIN && selection.token === null && (
        <span class="av-muted">pin a query token, or a query and a key</span>
      )}
    </>
  );
}

/**
 * Render the field that chooses which of the user's scores of key tokens (`token_scores`) are drawn
 * as bars. Render nothing in a pane, or if the stack has fewer than two kinds of these scores.
 */
export function TokenScoreControl({ context }: { context: RecordContext }) {
  const effects = effectsOf(context.record).tokens.value;
  if (context.embedded || !effects || effects.names.length < 2) return null;
  return (
    <Choice
      label="Bars of keys"
      value={effects.name}
      options={effects.names.map((name) => [name, name] as const)}
      onChange={(token_score) => assign(context.common, { token_score })}
    />
  );
}

/**
 * Render the captions of a plot (`sentence` and `coverage`) and, beside them, its legends
 * (`children`).
 */
export function Footer(props: {
  sentence: string;
  coverage: string;
  /** Additional elements below the captions. */
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

/**
 * Return the key listeners of a frame. "?" opens and closes the keyboard help, and Esc closes it.
 * In a field, "?" is a character, and Esc has another effect, as in an open menu.
 *
 * Keys that the reader types into a field do not reach the notebook, which has shortcuts on single
 * letters. Tab and keys with Ctrl or Meta do.
 *
 * The listener for Esc is in the capture phase. Otherwise, the plot would receive Esc first and
 * remove the pins.
 */
function helpKeys(helping: Signal<boolean>) {
  const isField = (target: Element | undefined): boolean =>
    target?.matches?.("input, select, textarea") === true;
  const targetOf = (event: KeyboardEvent) => event.composedPath()[0] as Element | undefined;
  const show = (event: KeyboardEvent, isShown: boolean): void => {
    helping.value = isShown;
    event.stopPropagation();
    event.preventDefault();
  };
  return {
    onKeyDown: (event: KeyboardEvent): void => {
      const typing = isField(targetOf(event));
      if (event.key === "?" && !typing) show(event, !helping.value);
      else if (typing && !event.metaKey && !event.ctrlKey && event.key !== "Tab")
        event.stopPropagation();
    },
    onKeyDownCapture: (event: KeyboardEvent): void => {
      const target = targetOf(event);
      if (event.key !== "Escape" || !helping.value) return;
      if (!isField(target) && !target?.closest?.(".av-menu-list")) show(event, false);
    },
  };
}

/** Render the buttons of the header: controls (if compact), help and export menu. */
function Actions(props: {
  context: RecordContext;
  helping: Signal<boolean>;
  exports: MenuEntry[];
  /**
   * Content of the box that the button "Controls" opens, if the controls are compact. Otherwise
   * false or null, and there is no such button.
   */
  more: ComponentChildren;
}) {
  const { context, helping, more } = props;
  if (context.controls.value === "none") return null;
  return (
    <div class="av-actions">
      {more && (
        <Panel label="Controls">
          <div class="av-vertical av-controls">{more}</div>
        </Panel>
      )}
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

function Keys({ keys }: { keys: readonly Shortcut[] }) {
  return (
    <dl class="av-keys">
      {[...keys, ["?", "show or hide these keys"] as const].map(([key, meaning]) => (
        <div key={meaning}>
          <dt>{key}</dt>
          <dd>{meaning}</dd>
        </div>
      ))}
    </dl>
  );
}
