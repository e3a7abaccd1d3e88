"""Roles of heads that read or copy a passage, in records with planted weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate, Passage, Prediction, Tokens

N, QUESTION, ANSWER = 30, 24, 26


def planted(seed: int) -> AttentionRecord:
    """Return a record of three heads: one reads the needle, one copies it, one does neither."""
    random = np.random.default_rng(seed)
    start = int(random.integers(4, 18))
    needle = range(start, start + 4)
    texts = [f"w{number}" for number in random.permutation(200)[:N]]
    texts[ANSWER:] = [texts[position] for position in needle]
    passages = (
        Passage("needle", needle.start, needle.stop),
        Passage("question", QUESTION, ANSWER),
        Passage("the answer", ANSWER, N),
    )
    predictions = tuple(
        Prediction(query, Candidate(texts[query + 1], 0, 0.9), (), query + 1)
        for query in range(ANSWER - 1, N - 1)
    )
    tokens = replace(Tokens.of(texts), passages=passages, predictions=predictions)
    weights = np.tril(random.random((3, N, N)) + 0.1)
    weights[0, QUESTION:ANSWER, needle.start : needle.stop] += 20
    for position, prediction in zip(needle, predictions, strict=True):
        weights[1, prediction.query, position] += 20
    return AttentionRecord.from_weights(
        (weights / weights.sum(axis=2, keepdims=True))[None], tokens
    )


def test_heads_that_read_and_copy_a_needle_are_named() -> None:
    records = [planted(seed) for seed in range(12)]
    stack = av.head_statistics(records, progress=False).stack()
    assert stack.roles().names == [["query-focused retrieval", "retrieval", None]]
    # The second head copies all of the needle, which no head does by chance.
    copied, by_chance = stack.mean("copied needle")[0], stack.baseline("copied needle")
    assert copied[1] == 1
    assert by_chance is not None
    # Each of the four queries chooses one of its keys at random.
    expected = np.mean([1 / (query + 1) for query in range(ANSWER - 1, N - 1)])
    assert_allclose(by_chance[0], [expected] * 3, rtol=1e-6)


def test_statistics_of_texts_take_passages() -> None:
    model, tokenizer = av.demos.load("decoder")
    texts = ["the cat sat on the table and the dog ran", "the dog ran and the cat sat on the table"]
    passages = [
        {"needle": "the cat", "question": "the dog"},
        {"needle": "the dog", "question": "the cat"},
    ]
    statistics = av.head_statistics(
        model, texts, passages=passages, tokenizer=tokenizer, progress=False
    ).stack()
    records = [
        av.extract(model, text, tokenizer=tokenizer, passages=own)
        for text, own in zip(texts, passages, strict=True)
    ]
    scores = [av.analysis.head_scores(record, "needle attention") for record in records]
    assert_allclose(statistics.mean("needle attention"), np.mean(scores, axis=0), atol=1e-5)
