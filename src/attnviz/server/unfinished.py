"""Replies that take longer than `REPLY_SECONDS`, which are computed over several requests.

If a reply is not finished after `REPLY_SECONDS`, the kernel returns only its progress
(`LaterHeader`). ``js/src/client/kernel.ts`` then sends the same request again, and the kernel
continues the work. Nothing runs between two requests, so the kernel can answer other requests and
run the user's cells. If the browser does not send the request again, the work has stopped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypedDict

from attnviz.server.protocol import Reply
from attnviz.utils.progress import Steps, Work

__all__ = ["MOST_UNFINISHED", "REPLY_SECONDS", "Later", "LaterHeader", "Unfinished"]

#: Maximum seconds of work per request. Other requests and the user's cells wait up to this long.
REPLY_SECONDS = 0.2
#: Maximum number of pending replies: as many as a browser requests at once. Each takes a few MB.
MOST_UNFINISHED = 4
# A pending reply may be dropped after this many requests for other replies.
_FORGOTTEN_AFTER = 64


class Later(TypedDict):
    """Progress of a pending reply.

    Attributes
    ----------
    doing : str
        Name of the current task.
    progress : float
        Finished share of the task, 0 to 1.
    seconds_left : float or None
        Estimated remaining time of the task, or None if there is no estimate yet.
    """

    doing: str
    progress: float
    seconds_left: float | None


class LaterHeader(TypedDict):
    """Header of a reply that is not finished. Sending the same request again continues it."""

    later: Later


@dataclass
class _Asked:
    request: object
    work: Work[Reply]
    last: int


class Unfinished:
    """Pending replies of a server, by request.

    Examples
    --------
    >>> from attnviz.utils.progress import Progress
    >>> def answer():
    ...     yield Progress("counting", 1, 2)
    ...     return Reply({"counted": 2})
    >>> unfinished = Unfinished()
    >>> unfinished.reply("count to 2", answer(), seconds=0).header["later"]["progress"]
    0.5
    >>> unfinished.reply("count to 2", answer(), seconds=0).header
    {'counted': 2}
    """

    def __init__(self) -> None:
        self._asked: list[_Asked] = []
        self._count = 0
        # A cancel may come from another thread than the requests.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._asked)

    def reply(self, request: object, steps: Steps[Reply], seconds: float | None = None) -> Reply:
        """Continue the reply to `request`, or begin it with `steps` if it is not pending."""
        asked = self._found(request, steps)
        if asked is None:
            return _later(Later(doing="waiting for other replies", progress=0.0, seconds_left=None))
        done = False
        try:
            done = asked.work.run_for(REPLY_SECONDS if seconds is None else seconds)
        except BaseException:
            # A generator that raised cannot continue.
            self._drop(asked)
            raise
        if done:
            self._drop(asked)
            return asked.work.result
        progress = asked.work.progress
        if progress is None:
            raise RuntimeError("a reply stopped before its first step")
        return _later(
            Later(
                doing=progress.doing,
                progress=float(min(1.0, progress.done / max(1, progress.total))),
                seconds_left=asked.work.seconds_left,
            )
        )

    def forget(self, request: object) -> None:
        """Stop the pending reply to `request`, if any, and free its memory."""
        with self._lock:
            given_up = [each for each in self._asked if _same(each.request, request)]
            self._asked = [each for each in self._asked if each not in given_up]
        for each in given_up:
            each.work.cancel()

    def _found(self, request: object, steps: Steps[Reply]) -> _Asked | None:
        """Return the pending reply to `request`, or a new one, or None if too many are pending."""
        with self._lock:
            self._count += 1
            for each in self._asked:
                if _same(each.request, request):
                    each.last = self._count
                    return each
            if len(self._asked) >= MOST_UNFINISHED:
                oldest = min(self._asked, key=lambda each: each.last)
                if self._count - oldest.last <= _FORGOTTEN_AFTER:
                    return None
                self._asked.remove(oldest)
                oldest.work.cancel()
            asked = _Asked(request, Work(steps), self._count)
            self._asked.append(asked)
            return asked

    def _drop(self, asked: _Asked) -> None:
        with self._lock:
            self._asked = [each for each in self._asked if each is not asked]


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _later(later: Later) -> Reply:
    return Reply(LaterHeader(later=later))
