"""Channel in the kernel that receives the requests of a view in the browser and sends replies.

Requests and replies are custom messages of a widget. ``js/src/client/kernel.ts`` is the browser
side, which decides how long to wait for a reply and how many requests to send at once.

A reply can be unfinished for two reasons. If the computation takes long, the reply has only its
progress, and the browser repeats the request. If the content is long, the reply has only one of
several parts, and the browser requests the next part.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from cachetools import LRUCache

from attnviz.server.base import BaseServer

_logger = logging.getLogger(__name__)

# Maximum number of stored ids of cancelled requests. Also the maximum number of stored requests
# with unfinished replies. A browser has far fewer requests at the same time.
_MAX_IDS = 256
# Maximum length of an error message. The message may quote long arguments of the request.
_MAX_CHARACTERS = 2_000


class KernelChannel:
    """Channel that answers requests one at a time.

    Parameters
    ----------
    server : BaseServer
        Server that computes the answers.
    send : callable
        Function that sends a message (a dict) and its buffers (a list of bytes) to the browser.
    record : int, default 0
        Number of the record that the view shows. It increases when the view shows another record.
        Requests with another number are ignored, because the browser no longer waits for them when
        it receives the new number.
    """

    def __init__(
        self,
        server: BaseServer,
        send: Callable[[dict[str, Any], list[bytes]], None],
        record: int = 0,
    ) -> None:
        self._server = server
        self._send = send
        self._record = record
        self._cancelled: deque[str] = deque(maxlen=_MAX_IDS)
        self._pending: LRUCache[str, tuple[str, Any]] = LRUCache(_MAX_IDS)
        # The lock is needed because subshells of JupyterLab may call `receive` from several
        # threads.
        self._lock = threading.Lock()

    def receive(self, message: Any) -> None:
        """Handle one message from the browser.

        Answer ``{"attnviz": "request", "id", "name", "arguments", "record"}`` with a reply or an
        error. For ``{"attnviz": "cancel", "id"}``, stop the work on the request with this id, and
        do not answer the request if it arrives later. Ignore other messages.
        """
        if not isinstance(message, dict):
            return
        if message.get("attnviz") == "cancel":
            self._cancelled.append(str(message.get("id")))
            # If another thread has the lock, do not wait for it. That thread will call
            # `_drop_cancelled` when it has answered its request.
            if self._lock.acquire(blocking=False):
                try:
                    self._drop_cancelled()
                finally:
                    self._lock.release()
        elif message.get("attnviz") == "request" and message.get("record", 0) == self._record:
            with self._lock:
                self._answer(message)
                self._drop_cancelled()

    def _drop_cancelled(self) -> None:
        """Stop the work on unfinished replies whose requests were cancelled."""
        for identifier in set(self._pending) & set(self._cancelled):
            self._server.cancel(*self._pending.pop(identifier))

    def _answer(self, message: dict[str, Any]) -> None:
        identifier = str(message.get("id"))
        if identifier in self._cancelled:
            return
        name, arguments = str(message.get("name")), message.get("arguments") or {}
        try:
            reply = self._server.reply(name, arguments)
        # Report the interrupt in the view, so that the user knows that the interrupt stopped a view
        # and not a cell.
        except KeyboardInterrupt:
            problem = "The kernel was interrupted. Nothing was changed."
        # Catch every exception, because the view waits for a reply or an error.
        except Exception as error:
            _logger.debug("request %r failed", message.get("name"), exc_info=True)
            problem = _error_message(error)
        else:
            # Store unfinished replies, so that they can be cancelled.
            if "pending" in reply.header or "parts" in reply.header:
                self._pending[identifier] = (name, arguments)
            buffers = [] if reply.data is None else [reply.data]
            self._send({"attnviz": "reply", "id": identifier, "header": reply.header}, buffers)
            return
        self._send({"attnviz": "error", "id": identifier, "message": problem}, [])


def _error_message(error: Exception) -> str:
    # Do not use str() of a KeyError, which puts the message in quotes. If the argument of the
    # KeyError has no space, it is not a message but the missing key. Create a message from it.
    text = str(error) or type(error).__name__
    if isinstance(error, KeyError) and error.args:
        key = str(error.args[0])
        text = key if " " in key else f"{key!r} is missing"
    num_cut = len(text) - _MAX_CHARACTERS
    if num_cut <= 0:
        return text
    return f"{text[:_MAX_CHARACTERS]} … ({num_cut:,} more characters)"
