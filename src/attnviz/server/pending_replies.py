"""Pending replies: unfinished replies to requests whose computation takes long.

If a reply is not finished after `REPLY_SECONDS`, the kernel returns only its progress
(`PendingHeader`). ``js/src/client/kernel.ts`` then sends the same request again, and the kernel
continues the computation. Between these two requests the computation is paused, so the kernel can
answer other requests and run the user's cells. If the browser does not send the request again, the
computation does not continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from attnviz.server.protocol import Reply
from attnviz.utils.progress import PausableJob

#: Time in seconds after which the computation for one request is paused. Other requests, and the
#: user's cells, wait about this long until they can run.
REPLY_SECONDS = 0.2
#: Maximum number of pending replies of a view. A browser does not send more requests at the same
#: time. The limit is needed because each pending reply keeps a few megabytes in memory.
MAX_PENDING = 4
# If `MAX_PENDING` replies are pending, a new reply replaces the one whose request arrived longest
# ago, but only if more than this many other requests have arrived since.
_MAX_OTHER_REQUESTS = 64


class ReplyProgress(TypedDict):
    """Progress of a computation whose reply is not finished.

    A computation can consist of several tasks.

    Attributes
    ----------
    doing : str
        Name of the current task, such as "maps".
    progress : float
        Completed share of the current task, from 0 to 1.
    seconds_left : float or None
        Estimated remaining time of the current task in seconds. None if it cannot be estimated yet.
    """

    doing: str
    progress: float
    seconds_left: float | None


class PendingHeader(TypedDict):
    """Header of a reply that has only the progress of a computation, which takes long.

    The kernel pauses the computation. It continues when the same request is sent again.
    """

    pending: ReplyProgress


@dataclass
class _PendingReply:
    request: object
    job: PausableJob[Reply]
    last: int


class PendingReplies:
    """Unfinished replies of a server.

    Examples
    --------
    >>> from attnviz.utils.progress import report
    >>> def answer():
    ...     report("counting", 1, 2)
    ...     return Reply({"counted": 2})
    >>> pending_replies = PendingReplies()
    >>> pending_replies.reply("count to 2", answer, seconds=0).header["pending"]["progress"]
    0.5
    >>> pending_replies.reply("count to 2", answer, seconds=0).header
    {'counted': 2}
    """

    def __init__(self) -> None:
        self._replies: list[_PendingReply] = []
        self._count = 0
        # The lock is needed because `close` may be called from another thread than `reply`.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._replies)

    def reply(
        self, request: object, answer: Callable[[], Reply], seconds: float | None = None
    ) -> Reply:
        """Compute the reply to `request` for up to `seconds`, by default `REPLY_SECONDS`.

        If the same request has a pending reply, continue its computation. Otherwise begin a
        `PausableJob` that calls `answer`, unless too many other replies are pending. Return the
        reply if it is finished, or else a reply with the progress.
        """
        pending = self._find_or_begin(request, answer)
        if pending is None:
            waiting = ReplyProgress(
                doing="waiting for other replies", progress=0.0, seconds_left=None
            )
            return Reply(PendingHeader(pending=waiting))
        done = False
        try:
            done = pending.job.run_for(REPLY_SECONDS if seconds is None else seconds)
        except BaseException:
            # The computation has ended with an error and cannot continue.
            self._drop(pending)
            raise
        if done:
            self._drop(pending)
            return pending.job.result
        progress = pending.job.progress
        if progress is None:
            raise RuntimeError("a reply stopped before its first step")
        share = ReplyProgress(
            doing=progress.doing,
            progress=float(min(1.0, progress.done / max(1, progress.total))),
            seconds_left=pending.job.seconds_left,
        )
        return Reply(PendingHeader(pending=share))

    def cancel(self, request: object) -> None:
        """If the reply to `request` is pending, stop its computation and free its memory."""
        for pending in list(self._replies):
            if _same(pending.request, request):
                self._drop(pending)
                pending.job.cancel()

    def close(self) -> None:
        """Stop the computation of all pending replies and free their memory."""
        for pending in list(self._replies):
            self._drop(pending)
            pending.job.cancel()

    def _find_or_begin(self, request: object, answer: Callable[[], Reply]) -> _PendingReply | None:
        """Return the pending reply to `request`. If there is none, add one that `answer` computes.

        Return None if `MAX_PENDING` other replies are pending and their requests are too recent to
        drop one of them.
        """
        with self._lock:
            self._count += 1
            for pending in self._replies:
                if _same(pending.request, request):
                    pending.last = self._count
                    return pending
            if len(self._replies) >= MAX_PENDING:
                oldest = min(self._replies, key=lambda pending: pending.last)
                if self._count - oldest.last <= _MAX_OTHER_REQUESTS:
                    return None
                self._replies.remove(oldest)
                oldest.job.cancel()
            pending = _PendingReply(request, PausableJob(answer), self._count)
            self._replies.append(pending)
            return pending

    def _drop(self, pending: _PendingReply) -> None:
        with self._lock:
            self._replies = [reply for reply in self._replies if reply is not pending]


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
