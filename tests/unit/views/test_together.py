"""Tests of views that threads or a forked process use, or that are closed while in use."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.server.codec import decode
from attnviz.server.protocol import Reply
from unit.formulas import weights_of
from unit.records import vectors, words

TOKENS, HEADS = 48, 3


class ViewWithBrowser:
    """A view with a simulated browser, which requests weights and stores the replies."""

    def __init__(self, view: av.HeadView) -> None:
        self.view = view
        self.received: dict[str, tuple[dict[str, Any], list[bytes]]] = {}
        # Store the messages that the widget sends to the browser.
        view.send = self._take

    def _take(self, message: dict[str, Any], buffers: Any = None) -> None:
        self.received[message["id"]] = (message, [bytes(buffer) for buffer in buffers or []])

    def ask(self, identifier: str, name: str, **arguments: Any) -> dict[str, Any]:
        content = {"attnviz": "request", "id": identifier, "name": name, "arguments": arguments}
        while True:
            self.view._handle_custom_msg(content, [])
            message = self.received[identifier][0]
            if "pending" not in message.get("header", {}):
                return message

    def check(self, times: int) -> None:
        """Request weights `times` times, and compare each reply with the softmax of the record."""
        pairs = {"rows": [0, TOKENS], "columns": [0, TOKENS]}
        for number in range(times):
            layer, head = number % 2, number % HEADS
            identifier = f"{layer}-{head}-{number}"
            message = self.ask(identifier, "read", stack="self", layer=layer, heads=[head], **pairs)
            header, [data] = message["header"], self.received[identifier][1]
            actual = decode(Reply(header, data))[0]
            expected = weights_of(self.view.record.stack().attention(layer))[head]
            assert np.abs(actual - expected).max() < 1e-5


def made(seed: int) -> ViewWithBrowser:
    queries, keys = vectors(2, 2, HEADS, TOKENS, 8, seed=seed)
    return ViewWithBrowser(av.HeadView(av.AttentionRecord.from_qk(queries, keys, words(TOKENS))))


def test_four_threads_make_and_use_views() -> None:
    """Each thread makes a view, and all threads use all views."""
    with ThreadPoolExecutor(4) as threads:
        views = list(threads.map(made, range(4)))
        for future in [threads.submit(views[number % 4].check, 6) for number in range(16)]:
            future.result()


def _in_a_fork() -> None:
    torch.set_num_threads(1)
    made(1).check(6)


def _use_and_fork() -> None:
    made(0).check(1)
    process = multiprocessing.get_context("fork").Process(target=_in_a_fork)
    process.start()
    process.join(60)
    process.kill()
    process.join()
    sys.exit(process.exitcode)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_view_works_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # The memory allocator of MKL can hang in a fork of a process in which several threads compute.
    # Therefore fork in a new process, without threads of other tests and without this allocator.
    monkeypatch.setenv("MKL_DISABLE_FAST_MM", "1")
    process = multiprocessing.get_context("spawn").Process(target=_use_and_fork)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_page_is_made_and_a_view_is_closed_while_others_answer_requests() -> None:
    shown, expected = made(0), made(0).view.to_html()
    other = ViewWithBrowser(av.HeadView(shown.view.record))
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(user.check, 8) for user in (shown, other, shown)]
        pages = [threads.submit(shown.view.to_html) for _ in range(2)]
        other.view.close()
        for answer in answers:
            answer.result()
        assert {page.result() for page in pages} == {expected}
    # A closed view still answers requests.
    other.check(2)
