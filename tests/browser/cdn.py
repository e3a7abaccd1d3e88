"""Local copies of the scripts that static pages with widgets, or of marimo, load from a CDN."""

from __future__ import annotations

import mimetypes
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Route

PACKAGES = Path(__file__).parents[2] / "js" / "node_modules"
# Files of marimo's pages.
MARIMO = Path(getattr(find_spec("marimo"), "origin", None) or "").parent / "_static"
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
    _, is_marimo, path = url.partition("/dist/")
    if "/@marimo-team/frontend@" in url and is_marimo:
        script = MARIMO / path
    if script is None or not script.is_file():
        route.abort()
        return
    headers = {"Access-Control-Allow-Origin": "*"}
    kind = mimetypes.guess_type(script.name)[0] or "application/octet-stream"
    route.fulfill(path=script, content_type=kind, headers=headers)
