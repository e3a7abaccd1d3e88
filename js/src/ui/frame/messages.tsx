/** Messages of a frame: errors, a kernel that does not answer, and the progress of long work. */

import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Connection } from "../../client/transport";
import { laterInWords } from "../text/captions";
import type { RecordContext } from "../view/define-view";
import type { Generating, Job } from "../view/record";

const STANDS: { [connection in Connection & string]?: string } = {
  unanswered: "The kernel does not answer. It is busy or gone.",
  detached:
    "This view was stored without its kernel, which has the weights. In a notebook, run the cell " +
    'again. For readers without a kernel, use view.snapshot() or view.save("view.html").',
};

/** Render a message with an optional button. */
function Message(props: {
  class?: string;
  children: ComponentChildren;
  button?: { text: string; title?: string; press: () => void } | false;
}) {
  const { button } = props;
  return (
    <div class={`av-standing${props.class ? ` ${props.class}` : ""}`}>
      {props.children}
      {button && (
        <button type="button" title={button.title} onClick={button.press}>
          {button.text}
        </button>
      )}
    </div>
  );
}

/**
 * Render the message of an error or of a lost connection until the problem is solved. The button
 * "Try again" sends the requests again. It is missing if no kernel can answer, because the view was
 * stored without its kernel.
 */
export function Standing({ record, oldPicture }: RecordContext) {
  const [connection, error] = [record.connection.value, record.error.value];
  const text = error ?? (typeof connection === "string" ? STANDS[connection] : undefined);
  const { isOld, inWords } = oldPicture;
  const hasRemains = isOld.value || (error === null && connection === "unanswered");
  const canRetry = error !== null || connection !== "detached";
  return (
    <div role="status">
      {text !== undefined && (
        <Message
          class={error === null ? "" : "av-error"}
          button={canRetry && { text: "Try again", press: record.retry }}
        >
          <span>
            {text}
            {hasRemains && <span class="av-remains"> {inWords("did not arrive")}</span>}
          </span>
        </Message>
      )}
    </div>
  );
}

/**
 * Render a message while the kernel has not answered for a short time, or while it reports the
 * progress of an answer.
 *
 * The message covers the title. Therefore, it moves no other part of the view when it appears, and
 * it hides no control of the plot.
 */
export function Passing({ record, oldPicture }: RecordContext) {
  const connection = record.error.value === null ? record.connection.value : "ready";
  const title = "Cancel the computation. Other parts of the view stay.";
  const remains = oldPicture.isOld.value && ` ${oldPicture.inWords("has not arrived")}`;
  return (
    <div role="status" class="av-passing-place">
      {connection === "waiting" && (
        <Message class="av-passing">
          <span>Waiting for the kernel …{remains}</span>
        </Message>
      )}
      {typeof connection === "object" && (
        <Message class="av-passing" button={{ text: "Cancel", title, press: record.stop }}>
          {/* Screen readers read this text once. The visible text changes with every percent, so
             it is hidden from them. */}
          <span class="av-unseen">The kernel computes {connection.doing}.</span>
          <span aria-hidden="true">The kernel computes {laterInWords(connection)}.</span>
          {remains && <span>{remains}</span>}
        </Message>
      )}
    </div>
  );
}

/** Render the progress of the export of an HTML page, with a button that cancels the export. */
export function ExportProgress({ job }: { job: Job }) {
  const title = "Cancel the page and discard its data";
  return (
    <Message class="av-job" button={{ text: "Cancel", title, press: job.cancel }}>
      <progress aria-label="Progress of the page" {...(job.done !== null && { value: job.done })} />
      <span>{job.text}</span>
    </Message>
  );
}

/**
 * Render the progress of a text generation, with a button that stops it. After a failure, render
 * the error, without a button.
 */
export function GenerationProgress({ generating }: { generating: Signal<Generating | null> }) {
  if (!generating.value) return null;
  const { came, most, problem } = generating.value;
  const failed = problem !== undefined;
  const text = failed
    ? `The generation failed after ${came} tokens: ${problem}`
    : `Generating: ${came} ${most === null ? "" : `of at most ${most} `}tokens`;
  const stop = (): void => {
    generating.value = null;
  };
  const title = "Stop generating. Tokens so far are kept.";
  return (
    <Message
      class={`av-job av-generating${failed ? " av-error" : ""}`}
      button={!failed && { text: "Stop", title, press: stop }}
    >
      {!failed && (
        <progress aria-label="Produced tokens" {...(most !== null && { value: came, max: most })} />
      )}
      {/* Screen readers would read this text again after every token. They read the text below
         instead, which changes only when the generation fails. */}
      <span aria-hidden={!failed}>{text}</span>
      <span class="av-unseen" aria-live="polite">
        {failed ? text : "Generating."}
      </span>
    </Message>
  );
}
