// Unpacks the view's code and opens the view with the data of the page. Runs after note.js, and before
// the browser has read the layers that stand after this script.
(() => {
  "use strict";
  const page = globalThis.attnvizPage;

  async function open() {
    const element = (id) => document.getElementById(id);
    try {
      const code = await inflated(element("attnviz-bundle").textContent);
      const data = JSON.parse(element("attnviz-data").textContent);
      run(new TextDecoder().decode(code));
      if (!page.view) {
        throw new Error(
          "its code may not run, because a website around it forbids that or the file was changed",
        );
      }
      page.view.openPage(element("attnviz"), data);
      page.opened();
    } catch (error) {
      page.failed(error);
      throw error;
    }
  }

  // The bytes of a text. A response would give the same in several tasks, between which the browser
  // reads the rest of the page: the first picture would be later.
  async function inflated(text) {
    // Many times as fast, where the browser has it.
    const packed =
      Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    const { readable, writable } = new DecompressionStream("deflate");
    const writer = writable.getWriter();
    // Reading them below throws what is wrong with them.
    writer.write(packed).catch(() => {});
    writer.close().catch(() => {});
    const reader = readable.getReader();
    const parts = [];
    let length = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      length += part.value.length;
    }
    const bytes = new Uint8Array(length);
    let start = 0;
    for (const part of parts) {
      bytes.set(part, start);
      start += part.length;
    }
    return bytes;
  }

  // Runs code in place: the page's policy allows it by its hash, and a policy around the page needs to
  // allow inline scripts alone. What the code throws is an error of the window.
  function run(code) {
    const script = document.createElement("script");
    try {
      script.textContent = trusted(code);
    } catch {
      // Trust is demanded, and not given: without the view the note says so.
      return;
    }
    document.head.append(script);
    script.remove();
  }

  // Where a website demands it of every text that becomes code.
  function trusted(code) {
    try {
      const types = globalThis.trustedTypes?.createPolicy("attnviz", {
        createScript: (text) => text,
      });
      return types?.createScript(code) ?? code;
    } catch {
      // A website may allow policies of other names alone, and demand nothing.
      return code;
    }
  }

  open();
})();
