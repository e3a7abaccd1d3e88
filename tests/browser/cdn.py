"""What static pages with widgets take from a CDN, served from npm's and anywidget's own files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Route

PACKAGES = Path(__file__).parents[2] / "js" / "node_modules"
# By what their addresses contain.
SCRIPTS = {
    "/@jupyter-widgets/html-manager@": PACKAGES.joinpath(
        "@jupyter-widgets", "html-manager", "dist", "embed-amd.js"
    ),
    "/anywidget@": Path(sys.prefix, "share", "jupyter", "nbextensions", "anywidget", "index.js"),
    "/require": PACKAGES / "requirejs" / "require.js",
}


def serve_scripts(route: Route) -> None:
    """Answer in the CDN's place, or break a request off: nothing reaches the network."""
    url = route.request.url
    found = next((path for part, path in SCRIPTS.items() if part in url), None)
    if found is None:
        route.abort()
        return
    headers = {"Access-Control-Allow-Origin": "*"}
    route.fulfill(path=found, content_type="text/javascript", headers=headers)
