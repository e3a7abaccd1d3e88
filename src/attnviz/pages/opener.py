"""The page that opens saved records in a browser, without Python and without a server."""

from __future__ import annotations

from attnviz.pages.html import FORMAT, document

__all__ = ["opener_page"]


def opener_page() -> str:
    """Make the page: a reader drops a record's file on it, and sees its views.

    It contains its code and no record, and its Content-Security-Policy allows no network.
    """
    data = {"format": FORMAT, "view": "open", "state": {}}
    return document("", "open", {}, data, title="Open an attention record · attnviz")
