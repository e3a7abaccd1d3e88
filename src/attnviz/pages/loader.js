// Unpacks the view's code and opens the view with the data of the page. This script runs after note.js
// and before the browser has read the layers that follow.
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
          "its code cannot run, because the website around it forbids that or the file was changed",
        );
      }
      page.view.openPage(element("attnviz"), data);
      page.opened();
    } catch (error) {
      page.failed(error);
      throw error;
    }
  }

  // Decodes and inflates a base64 text. A Response would need several tasks, between which the browser
  // reads the rest of the page, and the first picture would be later.
  async function inflated(text) {
    // fromBase64 is many times faster, but newer.
    const packed =
      Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    const { readable, writable } = new DecompressionStream("deflate");
    const writer = writable.getWriter();
    // Errors are thrown by the reader below.
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

  // Runs code as an inline script, which the page's policy allows by its hash. The policy of an outer
  // page has to allow only inline scripts. Exceptions in the code become errors of the window.
  function run(code) {
    const script = document.createElement("script");
    try {
      script.textContent = trusted(code);
    } catch {
      // Trusted Types are required but refused. The note reports the missing view.
      return;
    }
    document.head.append(script);
    script.remove();
  }

  // Returns the code as TrustedScript, which websites with Trusted Types require.
  function trusted(code) {
    try {
      const types = globalThis.trustedTypes?.createPolicy("attnviz", {
        createScript: (text) => text,
      });
      return types?.createScript(code) ?? code;
    } catch {
      // A website may restrict the names of policies without requiring Trusted Types.
      return code;
    }
  }

  open();
})();
