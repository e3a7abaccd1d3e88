"""Functions that, like a browser, send requests to a server until the reply is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.server.base import BaseServer
from attnviz.server.protocol import MAX_REPLY_BYTES, Reply


def replies(server: BaseServer, name: str, arguments: Mapping[str, Any]) -> Iterator[Reply]:
    """Repeat a request until the reply is complete, and yield each reply."""
    while True:
        reply = server.reply(name, arguments)
        yield reply
        if "pending" not in reply.header:
            return


def whole_reply(server: BaseServer, name: str, arguments: Mapping[str, Any]) -> Reply:
    """Return the complete reply to a request."""
    *_, answer = replies(server, name, arguments)
    return answer


def joined_reply(server: BaseServer, name: str, arguments: Mapping[str, Any]) -> Reply:
    """Request all parts of a reply, and return the reply with the joined data."""
    first = server.reply(name, arguments)
    requests = [{**arguments, "part": part} for part in range(1, first.header["parts"])]
    parts = [first.data or b"", *(server.reply(name, request).data or b"" for request in requests)]
    assert all(len(data) <= MAX_REPLY_BYTES for data in parts)
    return Reply(first.header, b"".join(parts))
