"""The kernel's end of the request channel: a widget's custom messages in, replies out.

``js/src/client/kernel.ts`` is the other end and decides how long to wait and how much to ask at
once.
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

# Cancelled ids that may still arrive, and ids whose answers go on when they are asked for again; a
# browser has far fewer requests under way.
_IDS_KEPT = 256
# Characters of an error: what was asked may be in it.
_MOST_CHARACTERS = 2_000


class Server(Protocol):
    """Whatever has answers: of one record, or of several."""

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one request, or say that it goes on when it is asked again."""
        ...

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Stop an answer that would go on."""
        ...


class KernelChannel:
    """Answers requests, one at a time.

    Parameters
    ----------
    server : Server
        Has the answers.
    send : callable
        Sends a message (a dict) and its buffers (a list of bytes) to the browser.
    record : int, default 0
        The number of the record that the answers are about: requests about another are left alone,
        as the browser has given them up once it hears of this one.
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
        self._cancelled: deque[str] = deque(maxlen=_IDS_KEPT)
        self._goes_on: LRUCache[str, tuple[str, Any]] = LRUCache(_IDS_KEPT)
        # JupyterLab may call from several threads (subshells); the server keeps state.
        self._lock = threading.Lock()

    def receive(self, message: Any) -> None:
        """Take one message.

        ``{"attnviz": "request", "id", "name", "arguments", "record"}`` is answered with a reply or
        an error; ``{"attnviz": "cancel", "id"}`` drops a request that has not begun, or that would
        go on. Anything else is left.
        """
        if not isinstance(message, dict):
            return
        if message.get("attnviz") == "cancel":
            self._cancelled.append(str(message.get("id")))
            # It does not wait for a request that is being answered, whose end looks for it.
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
        """Stop the answers that would go on and are not wanted any more."""
        for identifier in set(self._goes_on) & set(self._cancelled):
            self._server.cancel(*self._goes_on.pop(identifier))

    def _answer(self, message: dict[str, Any]) -> None:
        identifier = str(message.get("id"))
        if identifier in self._cancelled:
            return
        name, arguments = str(message.get("name")), message.get("arguments") or {}
        try:
            reply = self._server.reply(name, arguments)
        # Otherwise the reader would not learn that the interrupt met a view and not a cell.
        except KeyboardInterrupt:
            said = "The kernel was interrupted; nothing was changed."
            self._send({"attnviz": "error", "id": identifier, "message": said}, [])
            return
        # Whatever went wrong, the view must hear of it.
        except Exception as error:
            _logger.debug("request %r failed", message.get("name"), exc_info=True)
            self._send({"attnviz": "error", "id": identifier, "message": _reason(error)}, [])
            return
        # Of what comes in parts, those that follow may be given up.
        if "later" in reply.header or "parts" in reply.header:
            self._goes_on[identifier] = (name, arguments)
        buffers = [] if reply.data is None else [reply.data]
        self._send({"attnviz": "reply", "id": identifier, "header": reply.header}, buffers)


def _reason(error: Exception) -> str:
    # A KeyError reads as the repr of its message; a missing argument is a key and nothing more.
    if isinstance(error, KeyError) and error.args:
        key = str(error.args[0])
        return _short(key if " " in key else f"{key!r} is missing")
    return _short(str(error) or type(error).__name__)


def _short(words: str) -> str:
    left_out = len(words) - _MOST_CHARACTERS
    if left_out <= 0:
        return words
    return f"{words[:_MOST_CHARACTERS]} … ({left_out:,} more characters)"
