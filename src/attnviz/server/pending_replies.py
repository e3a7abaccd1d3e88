"""Replies that take longer than `REPLY_SECONDS`, which are computed over several requests.

If a reply is not finished after `REPLY_SECONDS`, the kernel returns only its progress
(`PendingHeader`). ``js/src/client/kernel.ts`` then sends the same request again, and the kernel
continues the work. Nothing runs between two requests, so the kernel can answer other requests and
run the user's cells. If the browser does not send the request again, the work has stopped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypedDict

from attnviz.server.protocol import Reply
from attnviz.utils.progress import Steps, Work

__all__ = ["MAX_PENDING", "REPLY_SECONDS", "PendingHeader", "PendingReplies", "ReplyProgress"]

#: Maximum seconds of work per request. Other requests and the user's cells wait up to this long.
REPLY_SECONDS = 0.2
#: Maximum number of pending replies: as many as a browser requests at once. Each takes a few MB.
MAX_PENDING = 4
# A pending reply may be dropped after this many requests for other replies.
_MAX_OTHER_REQUESTS = 64


class ReplyProgress(TypedDict):
    """Progress of a pending reply.

    Attributes
    ----------
    doing : str
        Name of the current task.
    progress : float
        Finished share of the task, 0 to 1.
    seconds_left : float or None
        Estimated remaining time of the task, or None without an estimate.
    """

    doing: str
    progress: float
    seconds_left: float | None


class PendingHeader(TypedDict):
    """Header of a reply that is not finished. Sending the same request again continues it."""

    pending: ReplyProgress


@dataclass
class _PendingReply:
    request: object
    work: Work[Reply]
    last: int


class PendingReplies:
    """Pending replies of a server, by request.

    Examples
    --------
    >>> from attnviz.utils.progress import Progress
    >>> def answer():
    ...     yield Progress("counting", 1, 2)
    ...     return Reply({"counted": 2})
    >>> pending_replies = PendingReplies()
    >>> pending_replies.reply("count to 2", answer(), seconds=0).header["pending"]["progress"]
    0.5
    >>> pending_replies.reply("count to 2", answer(), seconds=0).header
    {'counted': 2}
    """

    def __init__(self) -> None:
        self._replies: list[_PendingReply] = []
        self._count = 0
        # A cancel may come from another thread than the requests.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._replies)

    def reply(self, request: object, steps: Steps[Reply], seconds: float | None = None) -> Reply:
        """Continue the reply to `request`, or begin it with `steps` if it is not pending."""
        pending = self._find_or_begin(request, steps)
        if pending is None:
            return _progress_reply(
                ReplyProgress(doing="waiting for other replies", progress=0.0, seconds_left=None)
            )
        done = False
        try:
            done = pending.work.run_for(REPLY_SECONDS if seconds is None else seconds)
        except BaseException:
            # A generator that raised cannot continue.
            self._drop(pending)
            raise
        if done:
            self._drop(pending)
            return pending.work.result
        progress = pending.work.progress
        if progress is None:
            raise RuntimeError("a reply stopped before its first step")
        return _progress_reply(
            ReplyProgress(
                doing=progress.doing,
                progress=float(min(1.0, progress.done / max(1, progress.total))),
                seconds_left=pending.work.seconds_left,
            )
        )

    def cancel(self, request: object) -> None:
        """Stop the pending reply to `request`, if any, and free its memory."""
        with self._lock:
            cancelled = [pending for pending in self._replies if _same(pending.request, request)]
            self._replies = [pending for pending in self._replies if pending not in cancelled]
        for pending in cancelled:
            pending.work.cancel()

    def _find_or_begin(self, request: object, steps: Steps[Reply]) -> _PendingReply | None:
        """Return the pending reply to `request`, or a new one, or None if too many are pending."""
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
                oldest.work.cancel()
            pending = _PendingReply(request, Work(steps), self._count)
            self._replies.append(pending)
            return pending

    def _drop(self, pending: _PendingReply) -> None:
        with self._lock:
            self._replies = [reply for reply in self._replies if reply is not pending]


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _progress_reply(progress: ReplyProgress) -> Reply:
    return Reply(PendingHeader(pending=progress))
