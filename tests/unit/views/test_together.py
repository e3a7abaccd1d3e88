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


class Seen:
    """A view and a browser that requests weights and stores the messages."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        queries, keys = torch.randn(2, 2, HEADS, TOKENS, 8, generator=generator)
        self.logits = (queries.double() @ keys.double().transpose(-1, -2)) / 8**0.5
        self.view = av.HeadView(
            av.AttentionRecord.from_qk(queries, keys, [f"w{place}" for place in range(TOKENS)])
        )
        self.received: dict[str, tuple[dict[str, Any], list[bytes]]] = {}
        # Without a browser, a widget's messages are discarded.
        self.view.send = self._take

    def _take(self, message: dict[str, Any], buffers: Any = None) -> None:
        self.received[message["id"]] = (message, [bytes(each) for each in buffers or []])

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
            wanted = torch.softmax(self.logits[layer, head], dim=-1).numpy()
            found = self.weights(layer, head, f"{layer}-{head}-{number}")
            assert np.abs(found - wanted).max() < 1e-5


def test_views_of_four_threads() -> None:
    """Each thread makes a view, and all threads use all views."""
    with ThreadPoolExecutor(4) as threads:
        views = list(threads.map(Seen, range(4)))
        for done in [threads.submit(views[number % 4].check, 6) for number in range(16)]:
            done.result()


def _in_a_fork(seed: int) -> None:
    torch.set_num_threads(1)
    Seen(seed).check(6)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_view_of_a_forked_process() -> None:
    before = Seen(0)
    before.check(1)
    process = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(1,))
    process.start()
    process.join()
    assert process.exitcode == 0
    before.check(2)


def test_a_page_that_is_made_while_a_view_answers() -> None:
    seen, alone = Seen(0), Seen(0)
    wanted = alone.view.to_html()
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(seen.check, 6) for _ in range(3)]
        pages = [threads.submit(seen.view.to_html) for _ in range(3)]
        for each in answers:
            each.result()
        assert {page.result() for page in pages} == {wanted}


def test_a_view_that_is_closed_in_the_middle_leaves_the_others() -> None:
    """One of two views of a record is closed while both answer and its page is being made."""
    seen = Seen(0)
    other = Seen(0)
    other.view.close()
    other.view = av.HeadView(seen.view.record)
    other.view.send = other._take
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(each.check, 8) for each in (seen, other, seen)]
        page = threads.submit(other.ask, "page", "page", part=0, state=dict(other.view.state))
        other.view.close()
        for each in answers:
            each.result()
        assert page.result()["attnviz"] in ("reply", "error")
    seen.check(4)
    # A closed view still answers requests, and can be shown again.
    other.check(2)
