"""Kernel side of the request channel: receives a widget's custom messages and sends replies.

``js/src/client/kernel.ts`` is the browser side. It decides how long to wait for a reply and how
many requests to send at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cachetools import LRUCache

from attnviz.server.protocol import Reply

__all__ = ["KernelChannel", "Server"]

_logger = logging.getLogger(__name__)

# Maximum number of stored ids of cancelled and of continuing requests. A browser has far fewer
# requests in progress.
_MAX_IDS = 256
# Maximum length of an error message, which may quote the request.
_MAX_CHARACTERS = 2_000


class Server(Protocol):
    """Interface of an object that answers requests, about one record or several."""

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Return the answer, or a progress report if the request has to be sent again."""
        ...

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Stop the work on an answer."""
        ...


class KernelChannel:
    """Channel that answers requests one at a time.

    Parameters
    ----------
    server : Server
        Server that computes the answers.
    send : callable
        Function that sends a message (a dict) and its buffers (a list of bytes) to the browser.
    record : int, default 0
        Number of the record that this channel serves. Requests for other records are ignored: the
        browser drops them when it learns of this one.
    """

    def __init__(
        self,
        server: Server,
        send: Callable[[dict[str, Any], list[bytes]], None],
        record: int = 0,
    ) -> None:
        self._server = server
        self._send = send
        self._record = record
        self._cancelled: deque[str] = deque(maxlen=_MAX_IDS)
        self._pending: LRUCache[str, tuple[str, Any]] = LRUCache(_MAX_IDS)
        # JupyterLab's subshells may call from several threads, and the server has state.
        self._lock = threading.Lock()

    def receive(self, message: Any) -> None:
        """Handle one message.

        ``{"attnviz": "request", "id", "name", "arguments", "record"}`` is answered with a reply or
        an error. ``{"attnviz": "cancel", "id"}`` drops a request that has not begun, or stops the
        work on a request that is not completely answered. Other messages are ignored.
        """
        if not isinstance(message, dict):
            return
        if message.get("attnviz") == "cancel":
            self._cancelled.append(str(message.get("id")))
            # Do not wait for the lock: the thread that holds it drops cancelled requests itself.
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
        """Stop the continuing answers whose requests were cancelled."""
        for identifier in set(self._pending) & set(self._cancelled):
            self._server.cancel(*self._pending.pop(identifier))

    def _answer(self, message: dict[str, Any]) -> None:
        identifier = str(message.get("id"))
        if identifier in self._cancelled:
            return
        name, arguments = str(message.get("name")), message.get("arguments") or {}
        try:
            reply = self._server.reply(name, arguments)
        # Report it, so that the user sees that the interrupt stopped a view and not a cell.
        except KeyboardInterrupt:
            message_text = "The kernel was interrupted. Nothing was changed."
            self._send({"attnviz": "error", "id": identifier, "message": message_text}, [])
            return
        # The view must receive every error.
        except Exception as error:
            _logger.debug("request %r failed", message.get("name"), exc_info=True)
            self._send({"attnviz": "error", "id": identifier, "message": _error_message(error)}, [])
            return
        # The remaining parts of a reply can be cancelled as well.
        if "pending" in reply.header or "parts" in reply.header:
            self._pending[identifier] = (name, arguments)
        buffers = [] if reply.data is None else [reply.data]
        self._send({"attnviz": "reply", "id": identifier, "header": reply.header}, buffers)


def _error_message(error: Exception) -> str:
    # str() of a KeyError is the repr of its message, which is only the key if the key is missing.
    if isinstance(error, KeyError) and error.args:
        key = str(error.args[0])
        return _shorten(key if " " in key else f"{key!r} is missing")
    return _shorten(str(error) or type(error).__name__)


def _shorten(text: str) -> str:
    num_cut = len(text) - _MAX_CHARACTERS
    if num_cut <= 0:
        return text
    return f"{text[:_MAX_CHARACTERS]} … ({num_cut:,} more characters)"
