"""What a browser is told while a model generates, and what it may ask meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz import AttentionRecord
from attnviz.record.tokens import Candidate
from attnviz.server.codec import Encoded, decode
from attnviz.server.growing import Growing, GrowingServer
from attnviz.server.server import RecordServer

HEADS = 12


class Step:
    """A token that came."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.token = Candidate(f"token{position}", position, 0.5)
        self.candidates = tuple(Candidate(f"other{each}", each, 0.1) for each in range(5))


class Text:
    """A text that is known from its beginning, and told token by token."""

    def __init__(self, prompt: int, longest: int) -> None:
        generator = torch.Generator().manual_seed(0)
        vectors = [torch.randn(1, HEADS, longest, 16, generator=generator) for _ in range(2)]
        self._vectors = [each.numpy() for each in vectors]
        self._prompt = prompt
        self.running, self.stopped, self.error = True, False, None
        self.most: int | None = longest - prompt
        self.steps = [Step(prompt)]
        self.tokens_per_second: float | None = None

    @property
    def count(self) -> int:
        return self._prompt + len(self.steps) - 1

    def grow(self, tokens: int = 1) -> None:
        self.steps += [Step(self.steps[-1].position + 1 + each) for each in range(tokens)]

    def record_of(self, count: int) -> AttentionRecord:
        queries, keys = (each[:, :, :count] for each in self._vectors)
        names = [f"token{each}" for each in range(count)]
        return AttentionRecord.from_qk(queries, keys, names, causal=True)

    def row(self, stack: str, layer: int, count: int) -> NDArray[np.float32]:
        last = slice(count - 1, count)
        return self.record_of(count).stack(stack).weights(layer=layer, rows=last)[:, 0]

    def kept_heads(self, stack: str, layer: int) -> tuple[int, ...]:
        return self.record_of(self.count).stack(stack).kept_heads(layer)

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        raise NotImplementedError

    @property
    def heard(self) -> bool:
        return False

    def wait(self) -> AttentionRecord:
        return self.record_of(self.count)

    def wait_for_prompt(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopped = True


def serve(text: Text) -> GrowingServer:
    def server_of(record: AttentionRecord | None) -> RecordServer:
        return RecordServer(text.record_of(text.count) if record is None else record)

    return GrowingServer(text, lambda record: record, server_of)


def told(server: GrowingServer, layer: int | None = 0) -> tuple[dict[str, Any], list[bytes]]:
    message = server.grown("self", layer)
    assert message is not None
    return message


def test_it_is_a_generation() -> None:
    assert isinstance(Text(2, 4), Growing)
    assert not isinstance(AttentionRecord.from_weights([[[[1.0]]]], ["a"]), Growing)


def test_a_message_a_token_is_small() -> None:
    text = Text(999, 1001)
    server = serve(text)
    assert server.grown("self", 0) is None
    text.grow()
    message, [data] = told(server)
    assert message["count"] == 1000
    assert message["text"] == "token999"
    assert message["prediction"]["query"] == 999
    assert message["prediction"]["token"]["text"] == "token1000"
    assert len(message["prediction"]["candidates"]) == 5
    assert len(json.dumps(message)) + len(data) <= 20_000
    assert message["header"]["shape"] == (HEADS, 1, 1000)
    assert message["header"]["heads"] == list(range(HEADS))
    codes = np.frombuffer(data, np.uint8).astype(np.float64).reshape(HEADS, 1000)
    expected = text.row("self", 0, 1000)
    assert np.abs((codes / 255) ** 2 - expected).max() <= message["header"]["error"]
    # The same token is told once.
    assert server.grown("self", 0) is None


def test_a_browser_that_is_behind_gets_less_and_then_nothing() -> None:
    text = Text(4, 300)
    server = serve(text)
    rows, messages = 0, 0
    for _ in range(250):
        text.grow()
        message = server.grown("self", 0)
        messages += message is not None
        rows += bool(message and message[1])
    assert (rows, messages) == (16, 128)
    # Once it says where it is, it is told again.
    server.seen(text.count)
    text.grow()
    assert len(told(server)[1]) == 1
    for nonsense in (10**9, -1, "5", None, 2.5, True):
        server.seen(nonsense)
    text.grow(20)
    assert told(server)[1] == []
    text.running = False
    assert told(server)[0]["generating"]["state"] == "ended"


def test_each_length_is_answered_about_as_it_was() -> None:
    text = Text(5, 40)
    server = serve(text)
    text.grow(4)
    described: Any = server.reply("describe", {}).header
    [stack] = described["stacks"]
    assert stack["name"] == "self@9"
    assert stack["query_tokens"]["text"][-1] == "token8"
    assert described["generating"]["came"] == 5
    text.grow(10)
    for count in (5, 9, 19):
        block = {
            "stack": f"self@{count}",
            "layer": 0,
            "heads": [3],
            "precision": "float32",
            "rows": [0, count],
            "columns": [0, count],
        }
        reply = server.reply("block", block)
        header: Any = reply.header
        found = decode(Encoded(**header, data=reply.data or b""))
        expected = text.record_of(count).stack().weights(layer=0, head=3)
        assert np.abs(found - expected).max() < 1e-6
    with pytest.raises(ValueError, match="19 tokens have come"):
        server.reply("maps", {"stack": "self@20", "layer": 0, "size": 8})
    for name in ("self@0", "self@-1", "self@x", "self"):
        with pytest.raises((ValueError, KeyError)):
            server.reply("maps", {"stack": name, "layer": 0, "size": 8})
    server.cancel("maps", {"stack": "self@9", "layer": 0, "size": 8})


def test_in_the_end_it_is_the_usual_record() -> None:
    text = Text(5, 40)
    server = serve(text)
    text.grow(4)
    text.running, text.stopped = False, True
    described: Any = server.reply("describe", {}).header
    assert described["stacks"][0]["name"] == "self"
    assert described["generating"]["state"] == "stopped"
    assert server.reply("maps", {"stack": "self", "layer": 0, "size": 8}).data
    # What was asked for before is answered, too.
    assert server.reply("maps", {"stack": "self@7", "layer": 0, "size": 8}).data


def test_what_went_wrong_is_said() -> None:
    text = Text(5, 40)
    server = serve(text)
    text.grow(2)
    text.running, text.error = False, RuntimeError("x" * 10_000)  # type: ignore[assignment]
    message, data = told(server)
    assert message["generating"]["state"] == "failed"
    assert message["generating"]["problem"].startswith("RuntimeError: xxx")
    assert len(json.dumps(message)) < 3000
    assert data == []
    described: Any = server.reply("describe", {}).header
    assert described["stacks"][0]["name"] == "self@7"
