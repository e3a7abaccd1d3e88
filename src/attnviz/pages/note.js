// Shows why a page does not open. This script is the first of the page, because later scripts may
// be missing or forbidden. It uses only ECMAScript 5, because the browser may be old.
(function () {
  "use strict";
  var note = document.getElementById("attnviz-note");
  var root = document.getElementById("attnviz");
  var browsers = document.getElementById("attnviz-browsers").textContent;
  var said = false;

  // Show only the first reason, because later errors are mostly its consequences.
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

  // When the view has been drawn, it shows later errors itself.
  function whileNothingIsDrawn(event) {
    var error = event.error || event.reason;
    if (error && !document.querySelector("[data-attnviz-drawn]")) failed(error);
  }
  window.addEventListener("error", whileNothingIsDrawn);
  window.addEventListener("unhandledrejection", whileNothingIsDrawn);

  document.addEventListener("DOMContentLoaded", function () {
    if (!document.getElementById("attnviz-end")) failed("the end of the file is missing");
  });

  // Whether a scroll bar takes space from the content.
  function hasWideScrollBars() {
    var probe = document.createElement("div");
    probe.style.cssText = "position: absolute; width: 60px; height: 60px; overflow: scroll";
    root.parentNode.appendChild(probe);
    var wide = probe.clientWidth < 60;
    probe.parentNode.removeChild(probe);
    return wide;
  }

  // Reserve the space of the scroll bar. Otherwise, the scroll bar would appear after the view was
  // drawn, and make the view narrower. A page in a frame usually has the height of its frame, and
  // no scroll bar.
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

  // Read messages from the document around this page. It may ask for the height of this page, now
  // and after each change (attnviz.pages.iframe), and may send its theme.
  window.addEventListener("message", function (event) {
    var asker = event.source;
    if (asker !== window.parent || asker === window) return;
    var data = event.data;
    if (data === "attnviz: height?") tellHeights(asker);
    else if (data && data.type === "attnviz-theme") {
      // The style sheet and the view read this attribute, unless the page was saved with a theme.
      if (data.theme === "light" || data.theme === "dark") {
        document.documentElement.setAttribute("theme", data.theme);
      }
    }
  });

  window.attnvizPage = {
    failed: failed,
    opened: function () {
      // Remove the picture for users whose browser cannot run the page's code.
      var still = document.getElementById("attnviz-still");
      if (still) still.parentNode.removeChild(still);
      if (!said) note.parentNode.removeChild(note);
    }
  };
})();
