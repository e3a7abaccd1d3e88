"""Functions that, like a browser, send requests until the reply is complete, and read replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def row_arrays(reply: Reply, num_keys: int) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of a reply about a query and `num_keys` keys, by name."""
    numbers = np.frombuffer(reply.data or b"", "<f4").astype(np.float64)
    head_dim, remainder = divmod(len(numbers) - 4 * num_keys, 1 + num_keys)
    assert remainder == 0
    query, keys, of_keys = np.split(numbers, [head_dim, head_dim * (1 + num_keys)])
    names = ("bias", "allowed", "logits", "weights")
    arrays = dict(zip(names, of_keys.reshape(4, num_keys), strict=True))
    return {"query": query, "keys": keys.reshape(num_keys, head_dim), **arrays}
