"""Base class of the servers of all views, and the request for an exported page.

A server belongs to one view. Each kind of request is a dataclass in a registry
(`attnviz.server.protocol.Requests`). The fields of the dataclass are the arguments, and its method
`answer` computes the reply. If the computation takes long, the method calls
`attnviz.utils.progress.report` from time to time. After a fraction of a second, such a call pauses
the computation. The computation continues when the browser sends the request again
(`attnviz.server.pending_replies`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import msgspec
from cachetools import LRUCache

from attnviz.server.pending_replies import PendingReplies
from attnviz.server.protocol import MAX_REPLY_BYTES, PartHeader, Reply, Requests

#: Function that makes the exported page of a view. It takes the state of the view, and returns the
#: file name and the HTML text.
MakePage = Callable[[Mapping[str, Any]], tuple[str, str]]
#: Header and buffer of an answer to a request.
Answer = tuple[Mapping[str, Any], bytes]
# Maximum number of stored answers whose last part has not been requested yet.
_MAX_ANSWERS = 16


class RequestForPart(Protocol):
    """Request for one part of an answer that can be too large for one reply."""

    @property
    def part(self) -> int:
        """Index of the part, from 0."""
        ...


class BaseServer:
    """Base class of servers, which answer the requests of views.

    Parameters
    ----------
    make_page : callable, optional
        Function that makes the exported page for the state of a view. If omitted, the page cannot
        be exported from the browser.
    """

    #: Requests that the server answers.
    requests: ClassVar[Requests[Any]]

    def __init__(self, make_page: MakePage | None = None) -> None:
        self.make_page = make_page
        #: Answers that are being sent in parts. Several tabs may request different answers.
        self.stored_answers: LRUCache[object, Answer] = LRUCache(_MAX_ANSWERS)
        self.pending_replies = PendingReplies()

    def reply(self, name: str, arguments: Mapping[str, Any], *, complete: bool = False) -> Reply:
        """Answer the request `name` with JSON arguments.

        If the computation takes too long, return the progress of the computation instead, unless
        `complete` is True.
        """
        request = self.requests.request(name, arguments)
        if complete:
            answer: Reply = request.answer(self)
            return answer
        return self.pending_replies.reply(request, lambda: request.answer(self))

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """If the reply to this request is unfinished, stop its computation and free its memory."""
        request = self.requests.request(name, arguments)
        self.pending_replies.cancel(request)
        if hasattr(request, "part"):
            # The browser will not request further parts.
            self.stored_answers.pop(_key(request), None)

    def part(self, request: RequestForPart, make: Callable[[], Answer]) -> Reply:
        """Return the requested part of a large answer.

        `make` returns the header and the buffer of the answer. It is called for part 0, and the
        answer is stored until its last part is requested. Later parts come from the stored answer,
        so they belong together even if `make` would now return another one. If the stored answer
        was dropped because browsers requested too many others, `make` is called again.
        """
        name, part = type(request).__name__, request.part
        if part < 0:
            raise ValueError(f"part={reprlib.repr(part)} of a {name} must not be negative")
        key = _key(request)
        stored = self.stored_answers.get(key) if part else None
        header, data = stored or make()
        parts = max(1, -(-len(data) // MAX_REPLY_BYTES))
        if part >= parts:
            raise ValueError(f"part={part} of a {name} must be from 0 to {parts - 1}")
        if part < parts - 1:
            self.stored_answers[key] = header, data
        else:
            self.stored_answers.pop(key, None)
        piece = data[part * MAX_REPLY_BYTES : (part + 1) * MAX_REPLY_BYTES]
        return Reply({**header, "parts": parts}, piece)

    def close(self) -> None:
        """Stop the computation of all unfinished replies and free their memory."""
        self.pending_replies.close()


class PageHeader(PartHeader):
    """Header of a reply with one part of an exported page in its buffer.

    Attributes
    ----------
    name : str
        File name of the page.
    """

    name: str


@dataclass(frozen=True)
class PageRequest:
    """Request for one part of the exported page of a view, which is an HTML file.

    `part` is the index of the part, from 0. `state` has the current settings of the view, with
    which the page opens.
    """

    part: int
    state: Mapping[str, Any]

    def answer(self, server: BaseServer) -> Reply:
        make_page = server.make_page
        if make_page is None:
            raise ValueError("this view has no HTML export")

        def make() -> Answer:
            name, text = make_page(self.state)
            return {"name": name}, text.encode()

        return server.part(self, make)


def _key(request: Any) -> object:
    """Return a key that is equal for the requests of all parts of an answer."""
    answer = replace(request, part=0)
    return type(request), msgspec.json.encode(answer, order="deterministic")
