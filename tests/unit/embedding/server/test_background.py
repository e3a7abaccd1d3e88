"""Test projections in the background: their end, their errors, and cancelling them."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from attnviz.embedding.placement import Placing
from attnviz.embedding.server.background import BackgroundProjection
from attnviz.embedding.server.plots import EmbeddingAnswers, PlotOptions
from attnviz.embedding.tsne_umap import ProjectionSettings, project
from unit.clusters import clusters
from unit.random_corpora import corpus

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
    ),
    # Even on a busy machine, only a test that hangs reaches this limit.
    pytest.mark.timeout(900),
]
POINTS, _ = clusters(25)
TSNE = ProjectionSettings("tsne", perplexity=10)
# A projection of `MANY` with the settings `LONG` takes minutes.
MANY = clusters(2000)[0]
LONG = ProjectionSettings("tsne", dimensions=3)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_the_result_is_that_of_project() -> None:
    projection = BackgroundProjection(POINTS, TSNE)
    projection.wait()
    work, frame = projection.work(), projection.frame
    assert (work.state, work.done, work.num_total, work.words) == ("done", 750, 750, "t-SNE")
    assert frame is not None
    assert_array_equal(frame.coordinates, project(POINTS, TSNE))


def test_a_cancelled_projection_ends_and_keeps_its_newest_frame() -> None:
    before = threading.active_count()
    projection = BackgroundProjection(MANY, LONG)
    until(lambda: projection.work().done > 0)
    projection.cancel()
    work = projection.work()
    assert work.state == "cancelled"
    assert work.words == f"Cancelled. t-SNE, iteration {work.done} of 750"
    # The thread ends at its next frame, long before the projection would be complete.
    until(lambda: threading.active_count() <= before)
    assert projection.work() == work


def test_an_error_is_reported() -> None:
    projection = BackgroundProjection(np.ones((20, 3), np.float32), TSNE)
    projection.wait()
    assert projection.work().state == "failed"
    assert projection.work().words.startswith("points: all 20 have the same direction")


def test_a_request_for_another_projection_replaces_the_running_one() -> None:
    answers = EmbeddingAnswers(corpus([900, 900]))
    first, other = (PlotOptions("self", 0, Placing(), "tsne", head=head) for head in (0, 1))
    answers.plot(first)
    [running] = answers.projections.values()
    work = answers.plot(other).work
    assert work is not None
    assert (work.state, running.state) == ("running", "cancelled")
    assert list(answers.projections) == [other.key]
    # A key of another projection cancels nothing.
    answers.cancel(first.key)
    assert answers.projections[other.key].state == "running"
    waiter = threading.Timer(0.2, answers.cancel)
    waiter.start()
    with pytest.raises(RuntimeError, match="method='tsne' was cancelled"):
        answers.plot(other, wait=True)
