"""Simultaneous use of views: threads, tasks, a forked process, closing.

Every reply is compared with weights computed here from the record's queries and keys.
"""

from __future__ import annotations

import multiprocessing
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av

TOKENS, HEADS = 48, 3


class ViewWithBrowser:
    """A view and a browser that requests weights and stores the messages."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        queries, keys = torch.randn(2, 2, HEADS, TOKENS, 8, generator=generator)
        self.logits = (queries.double() @ keys.double().transpose(-1, -2)) / 8**0.5
        self.view = av.HeadView(
            av.AttentionRecord.from_qk(
                queries, keys, [f"w{position}" for position in range(TOKENS)]
            )
        )
        self.received: dict[str, tuple[dict[str, Any], list[bytes]]] = {}
        # Without a browser, a widget's messages are discarded.
        self.view.send = self._take

    def _take(self, message: dict[str, Any], buffers: Any = None) -> None:
        self.received[message["id"]] = (message, [bytes(buffer) for buffer in buffers or []])

    def ask(self, identifier: str, name: str, **arguments: Any) -> dict[str, Any]:
        content = {"attnviz": "request", "id": identifier, "name": name, "arguments": arguments}
        while True:
            self.view._handle_custom_msg(content, [])
            message = self.received[identifier][0]
            if "pending" not in message.get("header", {}):
                return message

    def weights(self, layer: int, head: int, identifier: str) -> NDArray[np.float32]:
        message = self.ask(
            identifier,
            "block",
            stack="self",
            layer=layer,
            heads=[head],
            rows=[0, TOKENS],
            columns=[0, TOKENS],
        )
        header, [data] = message["header"], self.received[identifier][1]
        if header["encoding"] == "float32-deflated":
            data = zlib.decompress(data, -15)
        return np.frombuffer(data, "<f4").reshape(TOKENS, TOKENS)

    def check(self, times: int) -> None:
        for number in range(times):
            layer, head = number % 2, number % HEADS
            expected = torch.softmax(self.logits[layer, head], dim=-1).numpy()
            actual = self.weights(layer, head, f"{layer}-{head}-{number}")
            assert np.abs(actual - expected).max() < 1e-5


def test_four_threads_make_and_use_views() -> None:
    """Each thread makes a view, and all threads use all views."""
    with ThreadPoolExecutor(4) as threads:
        views = list(threads.map(ViewWithBrowser, range(4)))
        for future in [threads.submit(views[number % 4].check, 6) for number in range(16)]:
            future.result()


def _in_a_fork(seed: int) -> None:
    torch.set_num_threads(1)
    ViewWithBrowser(seed).check(6)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_view_works_in_a_forked_process() -> None:
    before = ViewWithBrowser(0)
    before.check(1)
    process = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(1,))
    process.start()
    process.join()
    assert process.exitcode == 0
    before.check(2)


def test_a_page_is_made_while_the_view_answers_requests() -> None:
    shown, separate = ViewWithBrowser(0), ViewWithBrowser(0)
    expected = separate.view.to_html()
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(shown.check, 6) for _ in range(3)]
        pages = [threads.submit(shown.view.to_html) for _ in range(3)]
        for answer in answers:
            answer.result()
        assert {page.result() for page in pages} == {expected}


def test_closing_a_view_does_not_affect_others() -> None:
    """One of two views of a record is closed while both answer requests and a page is made."""
    shown = ViewWithBrowser(0)
    other = ViewWithBrowser(0)
    other.view.close()
    other.view = av.HeadView(shown.view.record)
    other.view.send = other._take
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(user.check, 8) for user in (shown, other, shown)]
        page = threads.submit(other.ask, "page", "page", part=0, state=dict(other.view.state))
        other.view.close()
        for future in answers:
            future.result()
        page.result()
    shown.check(4)
    # `other` still answers requests after its view was closed.
    other.check(2)
