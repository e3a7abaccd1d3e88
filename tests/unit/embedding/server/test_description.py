"""Description of a corpus for a view: the share of texts that is shown, and caveats."""

from __future__ import annotations

import pytest

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.server.description import describe_points
from unit.random_corpora import corpus, record


@pytest.mark.parametrize(
    ("example", "num_skipped", "stopped"),
    [
        (corpus([4, 6]), 0, False),
        # Every text that could be read is included, so nothing was sampled.
        (Corpus([record(4), record(6)], total_texts=5, num_skipped=3), 3, False),
        # Reading stopped before the last two texts.
        (Corpus([record(4), record(6)], total_texts=5, num_skipped=1), 1, True),
        (Corpus([record(4), record(6)], total_texts=5), 0, True),
        # One of the two texts that were read fits.
        (corpus([4, 6], max_points=12), 0, True),
        # A part of the only text.
        (corpus([40], max_points=12), 0, True),
    ],
    ids=["all", "all that fit", "some", "of many", "one of two", "part of one"],
)
def test_the_description_says_why_texts_have_no_points(
    example: Corpus, num_skipped: int, stopped: bool
) -> None:
    description = describe_points(example, "self")
    assert (description["num_skipped"], description["stopped"]) == (num_skipped, stopped)
