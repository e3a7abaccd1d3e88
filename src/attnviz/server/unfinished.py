"""Answers that take longer than a moment: a request that is asked again goes on with its work.

Where the work of a request is not done after `REPLY_SECONDS`, its reply says so (`LaterHeader`) and
nothing else. A browser that still wants the answer sends the same request again, as
``js/src/client/kernel.ts`` does. In between nothing runs: other requests and the reader's own cells
have their turn, and what is not asked for again has stopped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypedDict

from attnviz.server.protocol import Reply
from attnviz.utils.progress import Steps, Work

__all__ = ["MOST_UNFINISHED", "REPLY_SECONDS", "Later", "LaterHeader", "Unfinished"]

#: Seconds that a reply computes. Other requests, and the reader's own cells, wait no longer.
REPLY_SECONDS = 0.2
#: Answers that are under way at once: as many as a browser asks for at once. Each holds some MB.
MOST_UNFINISHED = 4
# An answer that was not asked for during so many requests is not wanted any more.
_FORGOTTEN_AFTER = 64


class Later(TypedDict):
    """How far an answer is.

    Attributes
    ----------
    doing : str
        What is being done.
    progress : float
        How far that is, 0 to 1.
    seconds_left : float or None
        What it still takes, measured on what is done; None where that is not known yet.
    """

    doing: str
    progress: float
    seconds_left: float | None


class LaterHeader(TypedDict):
    """What any reply may say in place of its answer: the same request, sent again, goes on."""

    later: Later


@dataclass
class _Asked:
    request: object
    work: Work[Reply]
    last: int


class Unfinished:
    """The answers of a server that are under way, each found by the request that asks for it.

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
        """Go on with the answer to a request; with `steps`, where it is not under way."""
        asked = self._found(request, steps)
        if asked is None:
            return _later(Later(doing="other answers first", progress=0.0, seconds_left=None))
        done = False
        try:
            done = asked.work.go_on(REPLY_SECONDS if seconds is None else seconds)
        except BaseException:
            # What has raised cannot go on.
            self._drop(asked)
            raise
        if done:
            self._drop(asked)
            return asked.work.result
        progress = asked.work.progress
        if progress is None:
            raise RuntimeError("an answer stopped before its first step")
        return _later(
            Later(
                doing=progress.doing,
                progress=float(min(1.0, progress.done / max(1, progress.total))),
                seconds_left=asked.work.seconds_left,
            )
        )

    def forget(self, request: object) -> None:
        """Stop the answer to a request, if it is under way, and free what it holds."""
        with self._lock:
            given_up = [each for each in self._asked if _same(each.request, request)]
            self._asked = [each for each in self._asked if each not in given_up]
        for each in given_up:
            each.work.give_up()

    def _found(self, request: object, steps: Steps[Reply]) -> _Asked | None:
        """The answer under way, one that is begun, or None where too many are under way."""
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
                oldest.work.give_up()
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
