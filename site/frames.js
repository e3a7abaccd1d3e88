// Live views in frames: as high as their content, light or dark as the site is.
// Listens on the document, since the site changes pages without loading itself again.
const LIVE = ".attnviz-live iframe";

function say(frame) {
  const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  frame.contentWindow?.postMessage({ type: "attnviz-theme", theme }, "*");
}

function begin(frame) {
  say(frame);
  frame.contentWindow?.postMessage("attnviz: height?", "*");
}

document.addEventListener(
  "load",
  ({ target }) => {
    if (target instanceof Element && target.matches(LIVE)) begin(target);
  },
  true,
);
// Those that were loaded before this script.
for (const frame of document.querySelectorAll(LIVE)) begin(frame);

window.addEventListener("message", ({ source, data }) => {
  if (data?.attnviz !== "height") return;
  for (const frame of document.querySelectorAll(LIVE)) {
    if (frame.contentWindow !== source) continue;
    frame.style.height = `${Math.min(Math.max(Number(data.height) || 0, 60), 20000)}px`;
  }
});

new MutationObserver(() => {
  for (const frame of document.querySelectorAll(LIVE)) say(frame);
}).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
