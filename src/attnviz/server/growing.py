"""Answers about a record that grows, and what the browser is told of each token.

A stack's name says at which length it is meant: ``"self@57"`` is the stack ``"self"`` of the first
57 tokens, which does not change any more. So an answer fits what the browser knows, however many
tokens have come since it asked. ``js/src/ui/view/growth.ts`` is the other side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Prediction
from attnviz.server.codec import PieceHeader, encode
from attnviz.server.protocol import Reply
from attnviz.server.server import RecordServer

__all__ = ["Generating", "Growing", "GrowingServer", "GrownMessage", "GrownStep"]

# Lengths that are answered about at once: a browser asks for the newest, and slowly for others.
_LENGTHS = 4
# So many tokens the browser may be behind before it gets no rows, and before it gets no messages:
# then it is gone or busy, and asks for what it missed once it is back.
_MOST_ROWS_AHEAD = 16
_MOST_MESSAGES_AHEAD = 128


class GrownStep(Protocol):
    """A token as a model produced it."""

    @property
    def position(self) -> int:
        """Where it stands in the text."""
        ...

    @property
    def token(self) -> Candidate:
        """The token that came."""
        ...

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The likeliest tokens."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A generation under way; any thread may ask it."""

    @property
    def running(self) -> bool:
        """Whether more tokens may come."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether it was stopped before its end."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What went wrong."""
        ...

    @property
    def most(self) -> int | None:
        """How many tokens may come."""
        ...

    @property
    def steps(self) -> Sequence[GrownStep]:
        """One for each token that has come."""
        ...

    @property
    def count(self) -> int:
        """How many tokens were read."""
        ...

    @property
    def tokens_per_second(self) -> float | None:
        """How fast they come."""
        ...

    def record_of(self, count: int) -> AttentionRecord:
        """The record of the first tokens of those that were read."""
        ...

    def row(self, stack: str, layer: int, count: int) -> NDArray[np.float32]:
        """Weights of the last of so many tokens, float32, (heads that are kept, keys)."""
        ...

    def kept_heads(self, stack: str, layer: int) -> tuple[int, ...]:
        """Numbers of the heads of `row`."""
        ...

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Have `listener` called after each token and at the end; what comes back ends that."""
        ...

    @property
    def heard(self) -> bool:
        """Whether someone listens."""
        ...

    def wait(self) -> AttentionRecord:
        """Wait for the end."""
        ...

    def wait_for_prompt(self) -> None:
        """Wait until the prompt is read."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Generating(TypedDict):
    """How far a generation is.

    Attributes
    ----------
    came, most : int
        How many tokens have come, of at most how many; null where only the length is bounded.
    rate : float
        Tokens a second; null before the second.
    state : str
        "running", "stopped", "ended" or "failed".
    problem : str
        What went wrong; left out where nothing did.
    """

    came: int
    most: int | None
    rate: float | None
    state: str
    problem: NotRequired[str]


class RowsHeader(PieceHeader):
    """What is said of a layer's rows.

    Attributes
    ----------
    heads : list of int
        The model's numbers of the heads.
    """

    heads: list[int]


class GrownMessage(TypedDict):
    """What the browser is told of a token that was read, and of what was predicted from it.

    Attributes
    ----------
    count : int
        How many tokens there are with it.
    text : str
        The token that was read.
    prediction : Prediction
        What was predicted from it.
    stack : str
        The stack that has become longer.
    layer : int
        The layer whose rows the buffer holds, as `header` says; left out where it holds none.
    """

    attnviz: str
    count: int
    generating: Generating
    text: NotRequired[str]
    prediction: NotRequired[Mapping[str, Any]]
    stack: NotRequired[str]
    layer: NotRequired[int]
    header: NotRequired[RowsHeader]


class GrowingServer:
    """Serves a record that grows, and sends what has come.

    Parameters
    ----------
    growing : Growing
        The generation.
    offered : callable
        The part of a record that is shown.
    serve : callable
        What answers about a record: one that grows, and in the end the whole.
    """

    def __init__(
        self,
        growing: Growing,
        offered: Callable[[AttentionRecord], AttentionRecord],
        serve: Callable[[AttentionRecord | None], RecordServer],
    ) -> None:
        self._growing = growing
        self._offered = offered
        self._serve = serve
        self._servers: LRUCache[int, RecordServer] = LRUCache(_LENGTHS)
        self._whole: RecordServer | None = None
        self._described: RecordServer | None = None
        self._seen = growing.count
        self._told = growing.count
        self._lock = threading.Lock()

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer a request; those about a stack at the length that its name says."""
        if name == "describe":
            return self._describe(arguments)
        server = self._named(arguments.get("stack"))
        return server.reply(name, arguments)

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Stop an answer that would go on."""
        self._named(arguments.get("stack")).cancel(name, arguments)

    def seen(self, count: Any) -> None:
        """Take note of how far a browser is."""
        if isinstance(count, int) and self._seen < count <= self._growing.count:
            self._seen = count

    @property
    def generating(self) -> Generating:
        """How far the generation is."""
        growing = self._growing
        state = "running" if growing.running else "stopped" if growing.stopped else "ended"
        generating = Generating(
            came=len(growing.steps), most=growing.most, rate=growing.tokens_per_second, state=state
        )
        if growing.error is not None and not growing.running:
            generating["state"] = "failed"
            generating["problem"] = f"{type(growing.error).__name__}: {growing.error}"[:2000]
        return generating

    def grown(self, stack: str, layer: int | None) -> tuple[dict[str, Any], list[bytes]] | None:
        """What to tell the browser now, and the rows of a layer; None where it is told nothing.

        In the generation's thread, after each token and at the end.
        """
        growing = self._growing
        count = growing.count
        message = GrownMessage(attnviz="grown", count=count, generating=self.generating)
        if not growing.running:
            return dict(message), []
        behind = count - self._seen
        if count <= self._told or behind > _MOST_MESSAGES_AHEAD:
            return None
        self._told = count
        step = growing.steps[-1]
        before = growing.steps[-2]
        message["text"] = before.token.text
        message["stack"] = stack
        message["prediction"] = asdict(
            Prediction(count - 1, step.token, tuple(step.candidates), None)
        )
        buffers = []
        if layer is not None and behind <= _MOST_ROWS_AHEAD:
            rows = growing.row(stack, layer, count)
            encoded = encode(rows[:, None], "uint8", of=f"layer {layer}")
            message["layer"] = layer
            heads = growing.kept_heads(stack, layer)
            message["header"] = RowsHeader(**encoded.header(), heads=list(heads))
            buffers = [encoded.data]
        return dict(message), buffers

    def _describe(self, arguments: Mapping[str, Any]) -> Reply:
        if not arguments.get("part") or self._described is None:
            generating = self.generating
            self._described = self._newest()
            reply = self._described.reply("describe", arguments)
            if "later" in reply.header:
                return reply
            return Reply({**reply.header, "generating": generating}, reply.data)
        return self._described.reply("describe", arguments)

    def _newest(self) -> RecordServer:
        if self._growing.running or self._growing.error is not None:
            return self._at(self._growing.count)
        if self._whole is None:
            self._whole = self._serve(None)
        return self._whole

    def _named(self, stack: object) -> RecordServer:
        _, at, count = str(stack or "").rpartition("@")
        if not at or not count.isdecimal():
            return self._newest()
        if not 0 < int(count) <= self._growing.count:
            raise ValueError(f"stack {stack!r}: {self._growing.count} tokens have come so far")
        return self._at(int(count))

    def _at(self, count: int) -> RecordServer:
        with self._lock:
            if count not in self._servers:
                record = self._offered(self._growing.record_of(count))
                self._servers[count] = self._serve(_named_by_length(record, count))
            return self._servers[count]


def _named_by_length(record: AttentionRecord, count: int) -> AttentionRecord:
    stacks = {}
    for name, stack in record.stacks.items():
        long = f"{name}@{count}"
        stacks[long] = AttentionStack(
            long,
            {layer: stack.attention(layer) for layer in stack.layers},
            stack.query_tokens,
            None if stack.key_tokens is stack.query_tokens else stack.key_tokens,
        )
    return AttentionRecord(stacks, model=record.model, notes=record.notes, images=record.images)
