"""Local copies of the scripts that static pages with widgets load from a CDN."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Route

PACKAGES = Path(__file__).parents[2] / "js" / "node_modules"
# Scripts by a part of their URL.
SCRIPTS = {
    "/@jupyter-widgets/html-manager@": PACKAGES.joinpath(
        "@jupyter-widgets", "html-manager", "dist", "embed-amd.js"
    ),
    "/anywidget@": Path(sys.prefix, "share", "jupyter", "nbextensions", "anywidget", "index.js"),
    "/require": PACKAGES / "requirejs" / "require.js",
}


def serve_scripts(route: Route) -> None:
    """Answer a request with a local file, or abort it. No request reaches the network."""
    url = route.request.url
    script = next((path for part, path in SCRIPTS.items() if part in url), None)
    if script is None:
        route.abort()
        return
    headers = {"Access-Control-Allow-Origin": "*"}
    route.fulfill(path=script, content_type="text/javascript", headers=headers)
