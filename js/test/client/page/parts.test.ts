/** Texts that stand apart from a page's data, while the browser reads them and after. */

import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Answering, atRest, inflatedText, wholeText } from "../../../src/client/page/parts";

let state: DocumentReadyState = "loading";

/** As the browser's parser appends it. */
function read(text: string, tag = "template"): void {
  const part = document.createElement(tag);
  part.className = "attnviz-part";
  (part instanceof HTMLTemplateElement ? part.content : part).textContent = text;
  document.body.append(part);
}

function end(): void {
  state = "interactive";
  document.dispatchEvent(new Event("DOMContentLoaded"));
}

/** Whether it is settled, once all that is due was done. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const set = (): void => {
    settled = true;
  };
  promise.then(set, set);
  await new Promise((resolve) => setTimeout(resolve));
  return settled;
}

beforeEach(() => {
  state = "loading";
  document.body.innerHTML = "";
  vi.spyOn(document, "readyState", "get").mockImplementation(() => state);
});

afterEach(() => vi.useRealTimers());

describe("a part of a page", () => {
  it("is the text itself where the data have it", async () => {
    expect(await wholeText("QUJD")).toBe("QUJD");
    const packed = deflateSync(Uint8Array.of(1, 2, 3)).toString("base64");
    expect([...(await inflatedText(packed))]).toEqual([1, 2, 3]);
  });

  it("is waited for until what comes after it is there", async () => {
    const second = wholeText("#0001");
    read("first");
    expect(await isSettled(second)).toBe(false);
    // What is read now may not be whole.
    read("sec");
    expect(await isSettled(second)).toBe(false);
    (document.body.lastElementChild as HTMLTemplateElement).content.textContent += "ond";
    read("", "p");
    expect(await second).toBe("second");
    expect(await wholeText("#0000")).toBe("first");
  });

  it("is not that of an element that an extension puts behind it", async () => {
    read("fir");
    const first = wholeText("#0000");
    document.body.append(document.createElement("div"));
    expect(await isSettled(first)).toBe(false);
    (document.querySelector(".attnviz-part") as HTMLTemplateElement).content.textContent = "first";
    read("", "p");
    expect(await first).toBe("first");
  });

  it("is whole where the page's code stands behind it", async () => {
    read("first");
    const code = document.createElement("script");
    code.id = "attnviz-bundle";
    code.type = "text/plain";
    document.body.append(code);
    expect(await wholeText("#0000")).toBe("first");
    read("sec");
    expect(await isSettled(wholeText("#0001"))).toBe(false);
  });

  it("is said to be missing where the page ends before it", async () => {
    read("first");
    const [first, second] = [wholeText("#0000"), wholeText("#0001")];
    end();
    await expect(first).rejects.toThrow("This file is not complete: these weights are missing.");
    await expect(second).rejects.toThrow("not complete");
    // And at once, when it is asked for later.
    await expect(wholeText("#0007")).rejects.toThrow("not complete");
  });
});

describe("an answer of a page", () => {
  const heard: unknown[] = [];
  const listen = (answering: Answering): AbortController => {
    heard.length = 0;
    const ended = new AbortController();
    answering.watch((connection) => heard.push(connection), ended.signal);
    return ended;
  };

  it("that the reader waits for is said to be loading", async () => {
    vi.useFakeTimers();
    const answering = new Answering();
    listen(answering);
    let answer: (value: number) => void = () => {};
    const given = answering.of(new Promise<number>((resolve) => (answer = resolve)));
    vi.advanceTimersByTime(10_000);
    expect(heard).toEqual(["ready", "loading"]);
    answer(7);
    expect(await given).toBe(7);
    expect(heard).toEqual(["ready", "loading", "ready"]);
  });

  it("that is not wanted any more is not waited for", async () => {
    vi.useFakeTimers();
    const answering = new Answering();
    listen(answering);
    const asked = new AbortController();
    const given = answering.of(new Promise<number>(() => {}), asked.signal);
    vi.advanceTimersByTime(10_000);
    asked.abort();
    await expect(given).rejects.toMatchObject({ name: "AbortError" });
    expect(heard.at(-1)).toBe("ready");
  });

  it("comes too late for who has asked for another since", async () => {
    state = "complete";
    const asked = new AbortController();
    let answer: (value: number) => void = () => {};
    const given = new Answering().of(
      new Promise<number>((resolve) => (answer = resolve)),
      asked.signal,
    );
    asked.abort();
    answer(7);
    await expect(given).rejects.toMatchObject({ name: "AbortError" });
  });

  it("of a view that has ended is not told of", () => {
    vi.useFakeTimers();
    const answering = new Answering();
    listen(answering).abort();
    void answering.of(new Promise(() => {}));
    vi.advanceTimersByTime(10_000);
    expect(heard).toEqual(["ready"]);
  });

  it("that nobody has asked for yet is prepared once the page is whole", async () => {
    const rest = atRest();
    expect(await isSettled(rest)).toBe(false);
    end();
    await rest;
  });
});
