// Unpacks the view's code and opens the view with the data of the page. Runs after note.js.
const page = globalThis.attnvizPage;

if (page.begin()) {
  const element = (id) => document.getElementById(id);
  let damaged = true;
  try {
    const binary = atob(element("attnviz-bundle").textContent);
    const packed = Uint8Array.from(binary, (each) => each.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const code = await new Response(unpacked).text();
    const text = element("attnviz-data").textContent;
    const data = JSON.parse(text);
    damaged = false;
    run(code);
    if (page.view) {
      page.view.openPage(element("attnviz"), data);
      const sum = String(checksum(text)).padStart(10, "0");
      page.opened(sum === element("attnviz-data").dataset.checksum);
    } else {
      page.forbidden();
    }
  } catch (error) {
    page.failed(error, damaged);
    throw error;
  }
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

// Adler-32 of the text in UTF-16, low bytes first, as `zlib.adler32` has it.
function checksum(text) {
  let [sum, sums] = [1, 0];
  for (let start = 0; start < text.length; start += 1000) {
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
  return sums * 65536 + sum;
}
