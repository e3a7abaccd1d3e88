/** Tests of `inflatedText`, which waits until the browser has parsed the text of an element. */

import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { inflatedText } from "../../../src/client/page/texts";

let state: DocumentReadyState;

const base64 = (...bytes: number[]): string =>
  deflateSync(Uint8Array.from(bytes)).toString("base64");

function append(id: string, text: string): HTMLTemplateElement {
  const template = document.createElement("template");
  template.id = id;
  template.innerHTML = text;
  document.body.append(template);
  return template;
}

function end(): void {
  state = "interactive";
  document.dispatchEvent(new Event("DOMContentLoaded"));
}

beforeEach(() => {
  state = "loading";
  document.body.innerHTML = "";
  vi.spyOn(document, "readyState", "get").mockImplementation(() => state);
});

afterEach(() => vi.restoreAllMocks());

it("inflates the text of an element after the page has loaded", async () => {
  const text = base64(4, 5, 6);
  const inflated = inflatedText("#attnviz-0001");
  const template = append("attnviz-0001", text.slice(0, 5));
  await Promise.resolve();
  template.content.append(text.slice(5));
  end();
  expect([...(await inflated)]).toEqual([4, 5, 6]);
});

it("inflates the text of an element while the page loads if another element follows", async () => {
  append("attnviz-0001", base64(7, 8));
  append("attnviz-0002", "");
  expect([...(await inflatedText("#attnviz-0001"))]).toEqual([7, 8]);
});

it("reports an element that is missing after the page has loaded", async () => {
  const inflated = inflatedText("#attnviz-0001");
  end();
  await expect(inflated).rejects.toThrow("This file is incomplete: these weights are missing.");
});
