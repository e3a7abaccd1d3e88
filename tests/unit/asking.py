"""Asks a server as a browser does: what is not done in one reply is asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.server.kernel import Server
from attnviz.server.protocol import Reply

__all__ = ["replies", "whole_reply"]


def replies(server: Server, name: str, arguments: Mapping[str, Any]) -> Iterator[Reply]:
    """All replies to a request, of which the last is its answer."""
    while True:
        reply = server.reply(name, arguments)
        yield reply
        if "pending" not in reply.header:
            return


def whole_reply(server: Server, name: str, arguments: Mapping[str, Any]) -> Reply:
    """The answer to a request."""
    *_, answer = replies(server, name, arguments)
    return answer
