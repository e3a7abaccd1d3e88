"""Tests of `KernelChannel`, which answers requests of the browser in the kernel."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from attnviz.server.kernel import KernelChannel
from attnviz.server.protocol import Reply
from attnviz.server.server import RecordServer
from unit.records import given_record

BLOCK = {"stack": "self", "layer": 0, "heads": [1], "rows": [1, 3], "columns": [0, 5]}


class Browser:
    """A client that sends requests to a `KernelChannel` and stores the received messages."""

    def __init__(self, server: RecordServer | None = None) -> None:
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []
        self.channel = KernelChannel(server or RecordServer(given_record()), self._take)

    def _take(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.received.append((message, buffers))

    def ask(self, identifier: str, name: str, arguments: Any) -> None:
        self.channel.receive(
            {"attnviz": "request", "id": identifier, "name": name, "arguments": arguments}
        )

    def error(self) -> str:
        [(message, buffers)] = self.received
        assert message.keys() == {"attnviz", "id", "message"}
        assert message["attnviz"] == "error"
        assert buffers == []
        return str(message["message"])


def test_a_request_is_answered_with_a_header_and_a_buffer() -> None:
    browser = Browser()
    browser.ask("tab-1", "read", BLOCK)
    expected = RecordServer(given_record()).reply("read", BLOCK)
    assert browser.received == [
        ({"attnviz": "reply", "id": "tab-1", "header": expected.header}, [expected.data])
    ]
    assert expected.header["shape"] == (1, 2, 5)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", BLOCK | {"layer": 7}, "layer=7: stack 'self' has layers 0, 1"),
        ("read", [1], "request 'read': Expected `object`, got `array`"),
        ("page", {"part": 0, "state": {}}, "this view has no HTML export"),
        ("", {}, "request '' is unknown. The attnviz of the kernel may be older than the view."),
    ],
)
def test_errors_are_sent(name: str, arguments: Any, expected: str) -> None:
    browser = Browser()
    browser.ask("tab-1", name, arguments)
    assert browser.error() == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "Permission denied", "a.js"), "[Errno 13] Permission denied: 'a.js'"),
        (MemoryError(), "MemoryError"),
        (KeyboardInterrupt(), "The kernel was interrupted. Nothing was changed"),
    ],
)
def test_errors_of_any_type_are_sent_and_the_next_request_is_answered(
    error: BaseException, expected: str
) -> None:
    def fail(_: object) -> tuple[str, str]:
        raise error

    browser = Browser(RecordServer(given_record(), page=fail))
    browser.ask("1", "page", {"part": 0, "state": {}})
    assert browser.error().startswith(expected)
    browser.ask("2", "read", BLOCK)
    assert browser.received[1][0]["attnviz"] == "reply"


def test_cancelled_requests_are_not_answered_and_not_stored_forever() -> None:
    browser = Browser()
    for number in range(10_000):
        browser.channel.receive({"attnviz": "cancel", "id": f"tab-{number}"})
    browser.ask("tab-9999", "describe", {})
    browser.ask("other", "describe", {})
    assert [message["id"] for message, _ in browser.received] == ["other"]
    assert len(browser.channel._cancelled) < 1000


@pytest.mark.parametrize("message", [None, "request", {}, {"attnviz": "reply", "id": "1"}])
def test_other_messages_are_ignored(message: Any) -> None:
    browser = Browser()
    browser.channel.receive(message)
    assert browser.received == []


def test_a_cancel_overtakes_waiting_requests() -> None:
    is_running, may_end = threading.Event(), threading.Event()

    class Stuck(RecordServer):
        def reply(self, name: str, arguments: Any, *, complete: bool = False) -> Reply:
            is_running.set()
            may_end.wait(10)
            return super().reply(name, arguments, complete=complete)

    browser = Browser(Stuck(given_record()))
    with ThreadPoolExecutor(2) as threads:
        threads.submit(browser.ask, "first", "describe", {})
        is_running.wait(10)
        threads.submit(browser.ask, "second", "describe", {})
        browser.channel.receive({"attnviz": "cancel", "id": "second"})
        # The first request still runs, and the second request waits for its end.
        assert browser.received == []
        may_end.set()
    assert [message["id"] for message, _ in browser.received] == ["first"]
