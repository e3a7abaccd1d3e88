"""Base class of the servers of all views, and the request for an exported page.

A server belongs to one view. Each kind of request is a dataclass in a registry
(`attnviz.server.protocol.Requests`). The fields of the dataclass are the arguments, and its method
`answer` computes the reply. If the computation takes long, the method calls
`attnviz.utils.progress.report` from time to time. After a fraction of a second, such a call pauses
the computation. The computation continues when the browser sends the request again
(`attnviz.server.pending_replies`).
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cachetools import LRUCache

from attnviz.record.storage.mapped import MappedFile, check_mapped
from attnviz.server.pending_replies import MAX_PENDING, PendingReplies
from attnviz.server.protocol import PartHeader, Reply, Requests, get_part

#: Function that makes the exported page of a view. It takes the state of the view, and returns the
#: file name and the HTML text.
MakePage = Callable[[Mapping[str, Any]], tuple[str, str]]


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
        #: File names and contents of the pages that are being sent to browsers, by the state of the
        #: view (`PageRequest.key`). Several tabs may export pages with different states.
        self.pages: LRUCache[str, tuple[str, bytes]] = LRUCache(MAX_PENDING)
        self.pending_replies = PendingReplies()

    @property
    def mapped_files(self) -> Collection[MappedFile]:
        """Memory-mapped files with the data from which replies are computed.

        For each request, `reply` first checks that none of them was truncated.
        """
        return ()

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer the request `name` with JSON arguments.

        If the computation takes too long, return the progress of the computation instead.
        """
        request = self.requests.request(name, arguments)
        check_mapped(self.mapped_files)
        return self.pending_replies.reply(request, lambda: request.answer(self))

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """If the reply to this request is unfinished, stop its computation and free its memory."""
        request = self.requests.request(name, arguments)
        self.pending_replies.cancel(request)
        if isinstance(request, PageRequest):
            # The browser will not request further parts of the page. Free the memory of the page.
            self.pages.pop(request.key, None)

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

    @property
    def key(self) -> str:
        """State of the view as a string. Equal states have equal strings."""
        return json.dumps(self.state, sort_keys=True)

    def answer(self, server: BaseServer) -> Reply:
        """Return a part of the page.

        The page is made if it is not stored yet. It is removed from the store after its last part
        is returned.
        """
        if server.make_page is None:
            raise ValueError("this view has no HTML export")
        if self.part < 0:
            raise ValueError(f"part={reprlib.repr(self.part)} of a page must not be negative")
        page = server.pages.get(self.key)
        if page is None:
            name, text = server.make_page(self.state)
            page = server.pages[self.key] = (name, text.encode())
        name, content = page
        piece, parts = get_part(content, self.part, "a page")
        if self.part == parts - 1:
            server.pages.pop(self.key, None)
        return Reply({"parts": parts, "name": name}, piece)
