// Runs before all else of a page, and says in words why the page does not open. A browser of any age
// must be able to read this file: ECMAScript 5 alone. What comes after it may be cut off or forbidden.
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

  function missing() {
    var canvas = window.CanvasRenderingContext2D;
    var needed = {
      DecompressionStream: window.DecompressionStream,
      ResizeObserver: window.ResizeObserver,
      "Array.prototype.at": [].at,
      "CanvasRenderingContext2D.roundRect": canvas && canvas.prototype.roundRect
    };
    var names = [];
    for (var name in needed) if (!needed[name]) names.push(name);
    return names;
  }

  function failed(error, damaged) {
    var words = String((error && error.message) || error).replace(/\.$/, "");
    if (/memory|allocat|string length/i.test(words)) {
      say(
        "This page needs more memory than the browser gives it (" + words + "). Close other " +
          'pages, or save a smaller one: view.save("x.html", max_mb=5), or fewer layers.'
      );
    } else if (damaged) {
      say(
        "This file is damaged: what it contains cannot be read (" + words + "). Copy or download " +
          "it again, or save the view again with attnviz."
      );
    } else {
      say(
        "attnviz could not open this page: " + words + ". Load it again, or open it in " +
          browsers + "."
      );
    }
  }

  function forbidden() {
    say(
      "The code of this page is not allowed to run, by a security policy of the website around it, " +
        "or because the file was changed. Open the file itself in " + browsers + "."
    );
  }

  var lacks = missing();
  if (lacks.length > 0) {
    say(
      "This browser cannot draw this page: it lacks " + lacks.join(", ") + ". Open the page in " +
        browsers + "."
    );
  }

  // Once something is drawn, the view tells of its own errors.
  function whileNothingIsDrawn(event) {
    var error = event.error || event.reason;
    if (error && !document.querySelector("[data-attnviz-drawn]")) failed(error, false);
  }
  window.addEventListener("error", whileNothingIsDrawn);
  window.addEventListener("unhandledrejection", whileNothingIsDrawn);

  document.addEventListener("securitypolicyviolation", function (event) {
    if (String(event.violatedDirective).indexOf("script") !== 0) return;
    if (!document.querySelector("[data-attnviz-drawn]")) forbidden();
  });

  document.addEventListener("DOMContentLoaded", function () {
    if (document.getElementById("attnviz-end")) return;
    say(
      "This file is not complete: its end is missing. Copy or download it again, or save the view " +
        "again with attnviz."
    );
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
    // Whether the page's code may begin.
    begin: function () {
      return !said;
    },
    opened: function () {
      // The picture for readers whose browser may not run the page's code.
      var still = document.getElementById("attnviz-still");
      if (still) still.parentNode.removeChild(still);
      if (!said) note.parentNode.removeChild(note);
    },
    checked: function (intact) {
      if (!intact) {
        say(
          "This file was changed after attnviz saved it, so what it shows may be wrong. Copy or " +
            "download it again, or save the view again."
        );
      }
    },
    failed: failed,
    forbidden: forbidden
  };
})();
