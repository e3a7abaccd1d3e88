// Decompresses the code of the view, runs it, and opens the view with the data of the page. This
// script runs after note.js. In the file, the weights of most layers follow this script, so that
// the browser opens the view before it has read them.
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

  // Decodes and inflates a base64 text. A Response would need several tasks, and the browser would
  // read the rest of the page between them, before it draws the view.
  async function inflated(text) {
    // fromBase64 is many times faster than atob, but some browsers do not have it yet.
    const packed =
      Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    const { readable, writable } = new DecompressionStream("deflate");
    const writer = writable.getWriter();
    // Ignore errors of the writer, because the reader below throws them, too.
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

  // Runs code as an inline script, which the Content-Security-Policy of this page allows by its
  // hash. If a website around this page has another policy, that policy must allow inline scripts,
  // too. An exception in the code does not end this function, but becomes an error of the window.
  function run(code) {
    const script = document.createElement("script");
    try {
      script.textContent = trusted(code);
    } catch {
      // The website requires Trusted Types, but does not allow a policy that creates them. `open`
      // then reports that the view is missing.
      return;
    }
    document.head.append(script);
    script.remove();
  }

  // Returns the code as a TrustedScript, which some websites require instead of a string, or the
  // string if the browser cannot create one.
  function trusted(code) {
    try {
      const types = globalThis.trustedTypes?.createPolicy("attnviz", {
        createScript: (text) => text,
      });
      return types?.createScript(code) ?? code;
    } catch {
      // A website may forbid the name of this policy, and not require Trusted Types.
      return code;
    }
  }

  open();
})();
