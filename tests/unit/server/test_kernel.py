"""The kernel's side of the request channel."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from attnviz.server.kernel import KernelChannel
from attnviz.server.protocol import Reply
from attnviz.server.server import RecordServer
from unit.records import given_record

BLOCK = {
    "stack": "self",
    "layer": 0,
    "heads": [1],
    "rows": [1, 3],
    "columns": [0, 5],
}


class Browser:
    """A receiver that stores the messages of a channel."""

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
    browser.ask("tab-1", "block", BLOCK)
    expected = RecordServer(given_record()).reply("block", BLOCK)
    assert browser.received == [
        ({"attnviz": "reply", "id": "tab-1", "header": expected.header}, [expected.data])
    ]
    assert expected.header["shape"] == (1, 2, 5)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("block", BLOCK | {"layer": 7}, "layer=7: stack 'self' has layers 0, 1"),
        ("block", None, "'stack' is missing"),
        ("block", [1], "arguments=[1] must be a mapping"),
        ("page", {"part": 0, "state": {}}, "this view has no HTML export"),
        ("", {}, "request '' is unknown. The attnviz of the kernel may be older than the view."),
    ],
)
def test_errors_are_sent(name: str, arguments: Any, expected: str) -> None:
    browser = Browser()
    browser.ask("tab-1", name, arguments)
    assert browser.error() == expected
    # The channel continues to work.
    browser.ask("tab-2", "describe", {})
    assert browser.received[1][0]["attnviz"] == "reply"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "Permission denied", "head.js"), "[Errno 13] Permission denied: 'he"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("of torch"), "of torch"),
    ],
)
def test_errors_of_any_type_are_sent(error: Exception, expected: str) -> None:
    def fail(_: object) -> tuple[str, str]:
        raise error

    browser = Browser(RecordServer(given_record(), page=fail))
    browser.ask("tab-1", "page", {"part": 0, "state": {}})
    assert browser.error().startswith(expected)


def test_an_interrupt_is_sent_and_the_next_request_answered() -> None:
    class Interrupted(RecordServer):
        interrupts = 1

        def reply(self, name: str, arguments: Any) -> Reply:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            return super().reply(name, arguments)

    browser = Browser(Interrupted(given_record()))
    browser.ask("1", "block", BLOCK)
    assert browser.error().startswith("The kernel was interrupted. Nothing was changed")
    browser.ask("2", "block", BLOCK)
    assert browser.received[1][0]["attnviz"] == "reply"


def test_a_cancelled_request_is_not_answered() -> None:
    browser = Browser()
    browser.channel.receive({"attnviz": "cancel", "id": "tab-1"})
    browser.ask("tab-1", "describe", {})
    assert browser.received == []
    browser.ask("tab-2", "describe", {})
    assert [message["id"] for message, _ in browser.received] == ["tab-2"]


def test_cancelled_requests_are_not_stored_forever() -> None:
    browser = Browser()
    for number in range(10_000):
        browser.channel.receive({"attnviz": "cancel", "id": f"tab-{number}"})
    browser.ask("tab-9999", "describe", {})
    assert browser.received == []
    assert len(browser.channel._cancelled) < 1000


@pytest.mark.parametrize(
    "message",
    [None, "request", 7, [], {}, {"type": "anywidget-command"}, {"attnviz": "reply", "id": "1"}],
)
def test_other_messages_are_ignored(message: Any) -> None:
    browser = Browser()
    browser.channel.receive(message)
    assert browser.received == []


def test_requests_from_several_threads_are_answered_one_at_a_time() -> None:
    running: list[str] = []
    overlaps: list[list[str]] = []
    pause = threading.Event()

    class Slow(RecordServer):
        def reply(self, name: str, arguments: Any) -> Reply:
            running.append(name)
            if len(running) > 1:
                overlaps.append(list(running))
            pause.wait(0.002)
            running.remove(name)
            return super().reply(name, arguments)

    browser = Browser(Slow(given_record()))
    with ThreadPoolExecutor(8) as threads:
        for number in range(24):
            threads.submit(browser.ask, f"tab-{number}", "block", BLOCK)
    assert overlaps == []
    assert sorted(m["id"] for m, _ in browser.received) == sorted(f"tab-{n}" for n in range(24))


def test_a_cancel_overtakes_waiting_requests() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Stuck(RecordServer):
        def reply(self, name: str, arguments: Any) -> Reply:
            begun.set()
            go_on.wait(10)
            return super().reply(name, arguments)

    browser = Browser(Stuck(given_record()))
    with ThreadPoolExecutor(2) as threads:
        threads.submit(browser.ask, "first", "describe", {})
        begun.wait(10)
        threads.submit(browser.ask, "second", "describe", {})
        # Sent from a third thread while the first request is computed and the second one waits.
        browser.channel.receive({"attnviz": "cancel", "id": "second"})
        # Receiving the cancel message did not wait for the first request.
        assert browser.received == []
        go_on.set()
    assert [message["id"] for message, _ in browser.received] == ["first"]
