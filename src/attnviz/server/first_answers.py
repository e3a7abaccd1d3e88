"""What a view asks first, answered in the message that opens its widget.

So a browser far from the kernel draws without a round trip: ``js/src/client/first-answers.ts`` is
the other side, and `attnviz.views.first_requests` says what each view asks. What is not in the
message, or is asked for otherwise, is asked for as always.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np

from attnviz.server.kernel import Server
from attnviz.server.protocol import Reply
from attnviz.utils.progress import STEP

__all__ = [
    "MOST_BYTES",
    "MOST_WEIGHTS",
    "FirstAnswers",
    "FirstReply",
    "FirstRequest",
    "FirstRequests",
    "first_answers",
]

#: Bytes of all first answers, as JSON and in the buffer: a widget's message stays small.
MOST_BYTES = 256_000
#: Weights that are computed for them: 0.15 s of one core, for 144 heads of 256 tokens 0.11 s.
MOST_WEIGHTS = 3 * STEP
_logger = logging.getLogger(__name__)

# What is shorter gains nothing.
_DEFLATED_FROM = 1024


@dataclass(frozen=True)
class FirstRequest:
    """A request as a browser sends it.

    Attributes
    ----------
    name : str
        Of the request.
    arguments : dict
        As JSON has them, and the same as in the browser: an answer to others is not found.
    weights : int
        How many weights its answer computes, about.
    """

    name: str
    arguments: Mapping[str, Any]
    weights: int = 0


#: What is asked, the most important first; each is told its answer, None where there is none.
FirstRequests = Generator[FirstRequest, Reply | None, None]


class FirstReply(TypedDict):
    """One answer.

    Attributes
    ----------
    bytes : int
        Length of its part of the buffer; left out where it has none.
    deflated : bool
        Whether zlib deflated that part; left out where it did not.
    """

    name: str
    arguments: Mapping[str, Any]
    header: Mapping[str, Any]
    bytes: NotRequired[int]
    deflated: NotRequired[bool]


class FirstAnswers(TypedDict):
    """All first answers: what they say, and one buffer with the data of each after the other."""

    replies: list[FirstReply]
    data: bytes


def first_answers(
    server: Server, requests: FirstRequests, most_bytes: int = MOST_BYTES
) -> FirstAnswers | None:
    """Answer requests as long as that is little: in bytes, and in weights to compute.

    Parameters
    ----------
    server : Server
        Has the answers. What takes it long is left out; it goes on when a browser asks for it.
    requests : generator
        What is asked.
    most_bytes : int
        Bytes of all answers together.

    Returns
    -------
    dict or None
        None where not even the first request has an answer that is small enough.

    Examples
    --------
    >>> from attnviz.record.record import AttentionRecord
    >>> from attnviz.server.server import RecordServer
    >>> def asked():
    ...     yield FirstRequest("describe", {})
    >>> record = AttentionRecord.from_weights([[[[1.0]]]], ["a"])
    >>> [each["name"] for each in first_answers(RecordServer(record), asked())["replies"]]
    ['describe']
    """
    replies: list[FirstReply] = []
    parts: list[bytes] = []
    bytes_left, weights_left = most_bytes, MOST_WEIGHTS
    reply: Reply | None = None
    while True:
        try:
            request = requests.send(reply) if replies else next(requests)
        except StopIteration:
            break
        reply = None
        if request.weights <= weights_left:
            weights_left -= request.weights
            reply = _answered(server, request)
        if reply is not None:
            said, data = _packed(request, reply)
            size = len(json.dumps(said, separators=(",", ":"))) + len(data)
            if size <= bytes_left:
                bytes_left -= size
                replies.append(said)
                parts.append(data)
            else:
                reply = None
        if not replies:
            # What the view is of; without it no other answer is of use.
            return None
    return {"replies": replies, "data": b"".join(parts)} if replies else None


def _answered(server: Server, request: FirstRequest) -> Reply | None:
    """An answer; None where the browser is to ask for it, and to hear what is wrong with it."""
    try:
        reply = server.reply(request.name, request.arguments)
    except Exception:
        _logger.debug("request %r has no first answer", request.name, exc_info=True)
        return None
    return None if "later" in reply.header else reply


def _packed(request: FirstRequest, reply: Reply) -> tuple[FirstReply, bytes]:
    """A reply as it is sent, and its bytes, deflated where that is shorter."""
    header, data = reply.header, reply.data
    said: FirstReply = {"name": request.name, "arguments": request.arguments, "header": header}
    if data is None:
        return said, b""
    if header.get("encoding") == "float32" and len(data) >= _DEFLATED_FROM:
        # The first bytes of weights are alike, also where none is 0: see `attnviz.server.codec`.
        planes = np.frombuffer(data, np.uint8).reshape(-1, 4).T
        packed = zlib.compress(np.ascontiguousarray(planes).tobytes(), 1)
        if len(packed) < len(data):
            said["header"] = {**header, "encoding": "float32-deflated"}
            data = packed
    elif header.get("encoding") != "float32-deflated" and len(data) >= _DEFLATED_FROM:
        packed = zlib.compress(data, 1)
        if len(packed) < 0.9 * len(data):
            said["deflated"] = True
            data = packed
    said["bytes"] = len(data)
    return said, data
