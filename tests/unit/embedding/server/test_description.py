"""Description of a corpus for a view: the share of texts that is shown, and caveats."""

from __future__ import annotations

from typing import Any

import pytest

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.server.description import describe_points
from attnviz.record.masks import DistanceBias
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens
from unit.random_corpora import attention, corpus, record
from unit.records import vectors, words


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


def test_caveats_of_moved_keys_have_their_own_kind() -> None:
    options: list[dict[str, Any]] = [
        {},
        {"softcap": 30.0},
        {"sinks": vectors(3)},
        {"bias": DistanceBias(vectors(3, 5), 3)},
        {"softcap": 30.0, "bias": DistanceBias(vectors(3, 5), 3)},
    ]
    layers = {layer: attention(4, **kwargs) for layer, kwargs in enumerate(options)}
    stack = AttentionStack("self", layers, Tokens.of(words(4)))
    caveats = describe_points(Corpus([AttentionRecord({"self": stack})]), "self")["caveats"]
    by_start = {caveat["words"][:20]: (caveat["kind"], caveat["layers"]) for caveat in caveats}
    assert by_start == {
        "This layer soft-caps": ("moving", [1, 4]),
        "Each head of this la": ("moving", [2]),
        "This layer adds a po": ("bias", [3, 4]),
    }
