// Runs before all else of a page, and shows what keeps the page from opening. A browser of any age must
// be able to read this file: ECMAScript 5 alone. What comes after it may be cut off or forbidden.
(function () {
  "use strict";
  var note = document.getElementById("attnviz-note");
  var root = document.getElementById("attnviz");
  var browsers = document.getElementById("attnviz-browsers").textContent;
  var said = false;

  // The first reason is the cause; errors that follow from it say less.
  function say(reason) {
    if (said) return;
    said = true;
    note.textContent = reason;
    note.className = "attnviz-said";
    note.setAttribute("role", "alert");
    root.parentNode.insertBefore(note, root);
  }

  function failed(error) {
    var words = String((error && error.message) || error).replace(/\.$/, "");
    say(
      "attnviz could not open this page: " + words + ". Copy or download it again, or open it in " +
        browsers + "."
    );
  }

  // Once something is drawn, the view shows its own errors.
  function whileNothingIsDrawn(event) {
    var error = event.error || event.reason;
    if (error && !document.querySelector("[data-attnviz-drawn]")) failed(error);
  }
  window.addEventListener("error", whileNothingIsDrawn);
  window.addEventListener("unhandledrejection", whileNothingIsDrawn);

  document.addEventListener("DOMContentLoaded", function () {
    if (!document.getElementById("attnviz-end")) failed("the end of the file is missing");
  });

  // Whether a scroll bar takes room from what it scrolls.
  function hasWideScrollBars() {
    var probe = document.createElement("div");
    probe.style.cssText = "position: absolute; width: 60px; height: 60px; overflow: scroll";
    root.parentNode.appendChild(probe);
    var wide = probe.clientWidth < 60;
    probe.parentNode.removeChild(probe);
    return wide;
  }

  // Such a bar would take it from a view that was drawn already. A page in a frame is mostly as high as
  // its frame, and has none.
  if (window.parent === window && hasWideScrollBars()) {
    document.documentElement.style.scrollbarGutter = "stable";
  }

  function tellHeights(asker) {
    function tell() {
      var height = Math.ceil(document.documentElement.getBoundingClientRect().height);
      asker.postMessage({ attnviz: "height", height: height }, "*");
    }
    if (window.ResizeObserver) new ResizeObserver(tell).observe(document.documentElement);
    else tell();
  }

  // A page around this one may ask how high it is, and hears of every change (attnviz.pages.iframe).
  // It may also say whether it is light or dark itself.
  window.addEventListener("message", function (event) {
    var asker = event.source;
    if (asker !== window.parent || asker === window) return;
    var data = event.data;
    if (data === "attnviz: height?") tellHeights(asker);
    else if (data && data.type === "attnviz-theme") {
      // The page's style sheet and its view read this attribute, unless the page has its own theme.
      if (data.theme === "light" || data.theme === "dark") {
        document.documentElement.setAttribute("theme", data.theme);
      }
    }
  });

  window.attnvizPage = {
    failed: failed,
    opened: function () {
      // The picture for readers whose browser may not run the page's code.
      var still = document.getElementById("attnviz-still");
      if (still) still.parentNode.removeChild(still);
      if (!said) note.parentNode.removeChild(note);
    }
  };
})();
