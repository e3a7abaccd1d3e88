// Unpacks the view's code and opens the view with the data of the page. Runs after note.js, and before
// the browser has read the layers that stand after this script.
(() => {
  "use strict";
  const page = globalThis.attnvizPage;

  async function open() {
    const element = (id) => document.getElementById(id);
    let damaged = true;
    try {
      const code = await inflated(element("attnviz-bundle").textContent);
      const data = JSON.parse(element("attnviz-data").textContent);
      damaged = false;
      run(new TextDecoder().decode(code));
      if (page.view) {
        page.view.openPage(element("attnviz"), data);
        page.opened();
        const sum = String(await checksum()).padStart(10, "0");
        page.checked(sum === element("attnviz-data").dataset.checksum);
      } else {
        page.forbidden();
      }
    } catch (error) {
      page.failed(error, damaged);
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
    // What is wrong with them is read below.
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

  // Adler-32 of the data and the layers after the code in UTF-16, low bytes first, as `zlib.adler32`
  // has it. Once all of them were read, and while nothing else is to be done.
  async function checksum() {
    if (document.readyState === "loading") {
      await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
    }
    let [sum, sums] = [1, 0];
    for (const each of document.querySelectorAll('#attnviz-data, template[id^="attnviz-"]')) {
      const text = (each.content ?? each).textContent;
      for (let start = 0; start < text.length; start += 1000) {
        if (start % 1000000 === 0) {
          await new Promise((done) => (globalThis.requestIdleCallback ?? setTimeout)(done));
        }
        const end = Math.min(start + 1000, text.length);
        for (let at = start; at < end; at++) {
          const unit = text.charCodeAt(at);
          sum += unit & 255;
          sums += sum;
          sum += unit >> 8;
          sums += sum;
        }
        // Both stay below 2 ** 31, where additions are fast.
        sum %= 65521;
        sums %= 65521;
      }
      // A byte of 0 between texts: one that was put in is noticed, and one whose end was moved.
      sums = (sums + sum) % 65521;
    }
    return sums * 65536 + sum;
  }

  if (page.begin()) open();
})();
