"""Forwarding of requests about one text of a corpus to the record server of this text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from attnviz.record.record import AttentionRecord
from attnviz.server.protocol import Reply, parse_dataclass
from attnviz.server.server import RecordServer

# Number of texts whose servers are cached. More servers need more memory, because each caches the
# softmax normalizers of rows.
_CACHED = 4


class TextServers:
    """Record servers of the texts of a corpus. Each is created at the first request for its text.

    Parameters
    ----------
    open_text : callable
        Function that returns the record of a text by its index.
    """

    def __init__(self, open_text: Callable[[int], AttentionRecord]) -> None:
        self._open = open_text
        self._servers: LRUCache[int, RecordServer] = LRUCache(_CACHED)

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply | None:
        """Answer a request whose arguments contain the index ``text`` of a text.

        Return None if the arguments contain no ``text``. The request is then about the whole
        corpus.
        """
        text = _number_of_text(arguments)
        return None if text is None else self._server(text).reply(name, _without_text(arguments))

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Cancel the pending reply to a request about one text.

        Return False if the arguments contain no ``text``, and True otherwise.
        """
        text = _number_of_text(arguments)
        if text is not None and text in self._servers:
            self._servers[text].cancel(name, _without_text(arguments))
        return text is not None

    def close(self) -> None:
        """Stop the computation of all unfinished replies."""
        for server in self._servers.values():
            server.close()

    def record_of(self, text: int) -> AttentionRecord:
        """Return the record of a text. Open it if its server is not cached."""
        return self._server(text).record

    def _server(self, text: int) -> RecordServer:
        server = self._servers.get(text)
        if server is None:
            server = RecordServer(self._open(text), share=_CACHED)
            self._servers[text] = server
        return server


@dataclass(frozen=True)
class _OfText:
    text: int


def _number_of_text(arguments: Mapping[str, Any]) -> int | None:
    if not isinstance(arguments, dict) or arguments.get("text") is None:
        return None
    return parse_dataclass(_OfText, arguments).text


def _without_text(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "text"}
