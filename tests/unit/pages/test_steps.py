"""Tests that pages are made in small steps, and that they can be cancelled or take turns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import attnviz as av
from attnviz.analysis import heads
from attnviz.pages import encoding, html, packing, vectors
from attnviz.record import softmax
from attnviz.server import pending_replies
from attnviz.server.kernel import KernelChannel
from attnviz.server.server import RecordServer
from attnviz.utils import progress
from attnviz.utils.progress import PausableJob
from attnviz.utils.threads import torch_threads
from attnviz.views.head import HeadView
from attnviz.views.neuron import NeuronView
from attnviz.views.record_view import RecordView
from unit.long_records import long_record

TOKENS = 300
# Limit of weights, logits or bytes per step, so low that a small record takes many steps.
MOMENT = 1 << 13


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each step to about `MOMENT` weights, logits or bytes."""
    for module, name in (
        (progress, "STEP"),
        (heads, "_MAX_ENTRIES"),
        (softmax, "_TILE_ENTRIES"),
        (encoding, "_TILE"),
        (packing, "_PIECE"),
        (packing, "_TRIED"),
        (vectors, "_MAX_WEIGHTS"),
    ):
        monkeypatch.setattr(module, name, MOMENT)
    monkeypatch.setattr(encoding, "_PART_ROWS", 16)
    monkeypatch.setattr(progress, "_CALL", 0)


@pytest.fixture
def compressed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the sizes of the pieces that zlib compresses are appended."""
    sizes: list[int] = []
    make_compressor = zlib.compressobj

    class CountingCompressor:
        def __init__(self, *options: Any) -> None:
            self.compressor = make_compressor(*options)
            self.flush = self.compressor.flush

        def compress(self, data: bytes) -> bytes:
            sizes.append(len(data))
            return self.compressor.compress(data)

    monkeypatch.setattr(zlib, "compressobj", CountingCompressor)
    return sizes


def record() -> av.AttentionRecord:
    return long_record(TOKENS, layers=2, heads=3, key_heads=3)


def steps_of(view: RecordView, max_mb: float | None = None) -> Iterator[str]:
    """Yield "" after each step of making the page of a view, and finally the page."""
    record, embeds = view.served_record, view.embeds
    job = PausableJob(
        lambda: html.make_page(record, view.name, view.state, embeds=embeds, max_mb=max_mb)
    )
    while not job.run_for(0):
        yield ""
    yield job.result


@pytest.mark.usefixtures("moments")
@pytest.mark.parametrize(
    ("make", "max_mb"), [(HeadView, None), (HeadView, 0.19), (NeuronView, None)]
)
def test_no_step_computes_much(
    make: Callable[..., RecordView],
    max_mb: float | None,
    logit_blocks: list[int],
    compressed: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Make pages round their queries and keys, so that one of the steps measures rounding errors.
    monkeypatch.setattr(vectors, "MAX_EXACT_BYTES", 0)
    view = make(record())
    # The first call also compresses the code of the view, which is cached for later pages.
    min_mb = len(html.document(view.record.model, view.name, view.state, {})) / 1e6
    total = num_logits = num_bytes = 0
    compressed.clear()
    logit_blocks.clear()
    for _ in steps_of(view, None if max_mb is None else min_mb + max_mb):
        num_logits = max(num_logits, sum(logit_blocks))
        num_bytes = max(num_bytes, sum(compressed))
        total += sum(logit_blocks)
        logit_blocks.clear()
        compressed.clear()
    # All steps together compute far more than `MOMENT` logits. One step may exceed `MOMENT`,
    # because it may compute the same logits twice, for weights and for sums of rows. Ten times
    # `MOMENT` is a generous limit.
    assert total > 40 * MOMENT
    assert num_logits <= 10 * MOMENT
    assert num_bytes <= 4 * MOMENT


@pytest.mark.usefixtures("moments")
def test_two_pages_at_once_equal_separate_pages() -> None:
    separate_pages = [HeadView(record(), heads=[head]).to_html() for head in (0, 1)]
    both = record()
    pages = [steps_of(HeadView(both, heads=[head])) for head in (0, 1)]
    results = ["", ""]
    # The second page starts later, and the two pages take turns of different lengths.
    for turn in range(2000):
        for number, page in enumerate(pages):
            for _ in range(1 + 2 * number if turn >= 7 * number else 0):
                results[number] = next(page, "") or results[number]
    assert results == separate_pages


class Kernel:
    """A client that requests pages over a `KernelChannel` and stores the headers of replies."""

    def __init__(self, server: RecordServer) -> None:
        self.headers: list[dict[str, Any]] = []
        self.channel = KernelChannel(server, self._take)

    def _take(self, message: dict[str, Any], _buffers: list[bytes]) -> None:
        self.headers.append(message["header"])

    def ask(self, identifier: str, part: int = 0) -> dict[str, Any]:
        arguments = {"part": part, "state": {}}
        message = {"attnviz": "request", "id": identifier, "name": "page", "arguments": arguments}
        self.channel.receive(message)
        return self.headers[-1]


@pytest.fixture
def one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reply run only one step, even on a fast machine."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 0.0)


@pytest.mark.usefixtures("moments", "one_step")
def test_a_cancelled_page_computes_nothing_more(logit_blocks: list[int]) -> None:
    shown_record = record()
    server = RecordServer(shown_record, page=HeadView(shown_record)._page_of)
    kernel = Kernel(server)
    # A second thread would compute a tile ahead, and complete that tile after the cancellation.
    with torch_threads(1):
        for _ in range(200):
            pending = kernel.ask("page")["pending"]
            if pending["doing"] == "weights" and pending["progress"] > 0.5:
                break
        assert pending["progress"] > 0.5
        before = sum(logit_blocks)
        kernel.channel.receive({"attnviz": "cancel", "id": "page"})
        assert len(server.pending_replies) == 0
        assert sum(logit_blocks) == before
        # A new request starts from the beginning.
        assert kernel.ask("again")["pending"]["progress"] <= 0.5


@pytest.mark.usefixtures("one_step")
def test_a_page_cancelled_during_transfer_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.server.base.MAX_REPLY_BYTES", 100_000)
    shown_record = record()
    server = RecordServer(shown_record, page=HeadView(shown_record)._page_of)
    kernel = Kernel(server)
    while "pending" in kernel.ask("first part"):
        pass
    assert kernel.ask("second part", part=1)["parts"] > 2
    assert len(server.stored_answers) == 1
    kernel.channel.receive({"attnviz": "cancel", "id": "second part"})
    assert len(server.stored_answers) == 0
