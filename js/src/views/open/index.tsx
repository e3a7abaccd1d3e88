/**
 * A page that opens saved records: a file is dropped on it or chosen, read in the browser, and shown
 * in the head, matrix, model and neuron view. Nothing leaves the browser.
 */

import { type Signal, signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Description, StackDescription } from "../../client/protocol";
import { RecordCarrier } from "../../client/record/carrier";
import { RefusedFile } from "../../client/record/fields";
import { openRecord } from "../../client/record/record";
import { Source } from "../../client/source";
import { hostTheme, watchHostTheme } from "../../ui/colors/theme";
import frameCss from "../../ui/frame/frame.css";
import { stackName, tokensInWords } from "../../ui/text/captions";
import type { ShownView, ShowSource } from "../../ui/view/define-view";
import { type RecordState, sameRecordPlace } from "../../ui/view/record";
import { showSource as showHead } from "../head";
import { showSource as showMatrix } from "../matrix";
import { showSource as showModel } from "../model";
import { showSource as showNeuron } from "../neuron";
import css from "./open.css";

const VIEWS = [
  ["head", "Head", showHead],
  ["matrix", "Matrix", showMatrix],
  ["model", "Model", showModel],
  ["neuron", "Neuron", showNeuron],
] as const satisfies readonly (readonly [string, string, ShowSource])[];

type ViewName = (typeof VIEWS)[number][0];

/** A record that is open. */
interface Opened {
  file: { name: string; size: number };
  source: Source;
  description: Description;
}

/** What the page shows. */
interface Opener {
  opened: Signal<Opened | null>;
  /** The name of the file that is being read. */
  reading: Signal<string | null>;
  /** Why a file cannot be shown. */
  failure: Signal<{ file: string; reason: string } | null>;
  view: Signal<ViewName>;
  /** @param isFolder whether the first of them is a folder, whose name a browser gives as a file's. */
  read: (files: ArrayLike<File>, isFolder?: boolean) => Promise<void>;
}

function createOpener(): Opener {
  const opened = signal<Opened | null>(null);
  const reading = signal<string | null>(null);
  const failure = signal<{ file: string; reason: string } | null>(null);
  let last = 0;
  const read = async (files: ArrayLike<File>, isFolder = false): Promise<void> => {
    const file = files[0];
    if (!file) return;
    const turn = ++last;
    failure.value = null;
    reading.value = file.name;
    try {
      if (files.length > 1) {
        throw new RefusedFile(`These are ${files.length} files. Open one record at a time.`);
      }
      if (isFolder) {
        throw new RefusedFile(
          "This is a folder. A record in a folder, as spool= makes it, becomes a file in Python: " +
            'av.load("folder").save("x.safetensors").',
        );
      }
      const carrier = await RecordCarrier.of(await openRecord(file));
      if (turn !== last) return;
      const { description } = carrier;
      opened.value = { file, source: new Source(carrier), description };
      document.title = `${description.model || file.name} · attnviz`;
    } catch (error) {
      if (turn !== last) return;
      failure.value = { file: file.name, reason: reasonOf(error) };
    }
    reading.value = null;
  };
  return { opened, reading, failure, view: signal<ViewName>("head"), read };
}

function reasonOf(error: unknown): string {
  if (error instanceof RefusedFile) return error.message;
  const words = error instanceof Error ? error.message : String(error);
  if (error instanceof RangeError) {
    return `The browser does not have the memory for it (${words}). Close other pages, or save fewer layers: record.only([...]).`;
  }
  return `It cannot be shown: ${words}`;
}

/** Bytes in words. */
function sizeInWords(bytes: number): string {
  const [unit, name] = ([1e9, 1e6, 1e3] as const)
    .map((each, i) => [each, ["GB", "MB", "kB"][i]] as const)
    .find(([each]) => bytes >= each) ?? [1, "bytes"];
  const digits = unit > 1 && bytes / unit < 10 ? 1 : 0;
  return `${(bytes / unit).toFixed(digits)} ${name}`;
}

function stackInWords(stack: StackDescription): string {
  const [queries, keys] = [stack.query_tokens, stack.key_tokens ?? stack.query_tokens];
  const layers = `${stack.layers.length} ${stack.layers.length === 1 ? "layer" : "layers"}`;
  const same = stack.key_tokens === null;
  return `${stackName(stack.name)}: ${layers}, ${tokensInWords(queries.text.length, keys.text.length, same)}`;
}

/** A control that opens the browser's choice of files; its input takes the keyboard. */
function FileButton({ opener, children }: { opener: Opener; children: string }) {
  return (
    <label class="av-open-choose">
      <input
        class="av-unseen"
        type="file"
        accept=".safetensors"
        onChange={(event) => {
          const input = event.currentTarget;
          void opener.read([...(input.files ?? [])]);
          // The same file may be chosen again, after it was changed.
          input.value = "";
        }}
      />
      <span>{children}</span>
    </label>
  );
}

function Failure({ opener }: { opener: Opener }) {
  const failure = opener.failure.value;
  return (
    <div role="alert">
      {failure && (
        <p class="av-open-failure">
          <b>{failure.file}</b> {failure.reason}
        </p>
      )}
    </div>
  );
}

function Reading({ opener }: { opener: Opener }) {
  const name = opener.reading.value;
  return <div role="status">{name !== null && <p class="av-muted">Reading {name} …</p>}</div>;
}

function Start({ opener }: { opener: Opener }) {
  return (
    <main class="av-open-start">
      <h1>Open an attention record</h1>
      <div class="av-open-drop">
        <p>
          Drop a <code>.safetensors</code> file here that <code>record.save("x.safetensors")</code>{" "}
          wrote in Python, or
        </p>
        <FileButton opener={opener}>Choose a file</FileButton>
      </div>
      <Reading opener={opener} />
      <Failure opener={opener} />
      <p class="av-muted">
        The file is read in this browser. Nothing is uploaded: this page has no access to the
        network.
      </p>
    </main>
  );
}

function Tabs({ opener }: { opener: Opener }) {
  const now = opener.view.value;
  const names = VIEWS.map(([name]) => name);
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = names[(names.indexOf(now) + step + names.length) % names.length] as ViewName;
    opener.view.value = next;
    document.getElementById(`av-tab-${next}`)?.focus();
  };
  return (
    <div class="av-open-tabs" role="tablist" aria-label="View" onKeyDown={move}>
      {VIEWS.map(([name, label]) => (
        <button
          key={name}
          id={`av-tab-${name}`}
          type="button"
          role="tab"
          aria-selected={name === now}
          aria-controls="av-open-view"
          tabIndex={name === now ? 0 : -1}
          onClick={() => {
            opener.view.value = name;
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function Record({ opener, opened }: { opener: Opener; opened: Opened }) {
  const place = useRef<HTMLDivElement>(null);
  const shown = useRef<{ source: Source; view: ShownView } | null>(null);
  const name = opener.view.value;
  useEffect(() => {
    const root = document.createElement("div");
    place.current?.append(root);
    const before = shown.current;
    // Another view opens at the same place; another record where its views open.
    const at: Partial<RecordState> =
      before?.source === opened.source ? sameRecordPlace(before.view.state) : {};
    const show = VIEWS.find(([each]) => each === name)?.[2] as ShowSource;
    const view = show(root, opened.source, at);
    shown.current = { source: opened.source, view };
    return () => {
      view.end();
      root.remove();
    };
  }, [opened, name]);
  const { file, description } = opened;
  return (
    <>
      <header class="av-open-bar">
        <div class="av-open-file">
          <h1>{file.name}</h1>
          <p class="av-muted">
            {[sizeInWords(file.size), ...description.stacks.map(stackInWords)].join(" · ")}
          </p>
        </div>
        <FileButton opener={opener}>Open another</FileButton>
      </header>
      <Reading opener={opener} />
      <Failure opener={opener} />
      <Tabs opener={opener} />
      <div
        ref={place}
        id="av-open-view"
        class="av-open-view"
        role="tabpanel"
        aria-labelledby={`av-tab-${name}`}
      />
    </>
  );
}

function Page({ opener }: { opener: Opener }) {
  const opened = opener.opened.value;
  return opened ? <Record opener={opener} opened={opened} /> : <Start opener={opener} />;
}

/** Files that are dropped anywhere on the page are opened by it, and not by the browser. */
function takeDrops(root: HTMLElement, opener: Opener): void {
  let depth = 0;
  const over = (change: number): void => {
    depth = Math.max(0, depth + change);
    root.toggleAttribute("data-dragging", depth > 0);
  };
  window.addEventListener("dragenter", () => over(1));
  window.addEventListener("dragleave", () => over(-1));
  window.addEventListener("dragover", (event) => event.preventDefault());
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    const [first] = event.dataTransfer?.items ?? [];
    const isFolder = first?.webkitGetAsEntry()?.isDirectory;
    void opener.read([...(event.dataTransfer?.files ?? [])], isFolder);
  });
}

export function openPage(root: HTMLElement): void {
  const opener = createOpener();
  const never = new AbortController().signal;
  root.classList.add("attnviz", "av-opener");
  const follow = (): void => root.setAttribute("data-theme", hostTheme(root));
  follow();
  watchHostTheme(root, follow, never);
  takeDrops(root, opener);
  render(
    <>
      <style>{frameCss + css}</style>
      <Page opener={opener} />
    </>,
    root,
  );
}
