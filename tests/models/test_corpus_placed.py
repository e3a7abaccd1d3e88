"""`place` moves queries and keys of a `Corpus` so that an embedding plot can show both together.

The moved vectors give the model's own weights. If weights differ, `Corpus.caveats` has a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz import Corpus, extract_corpus
from attnviz.embedding import Placing, place
from models.make_models import make_model
from models.tiny import reference

TEXTS = [
    "The cat sat on the mat and looked at the dog.",
    "It was too tired.",
    "A date such as 3 May 2021.",
]

Make = Callable[..., Any]


def placed_weights(corpus: Corpus, layer: int, placing: Placing, text: int) -> NDArray[np.float32]:
    """Compute a text's weights, (heads, queries, keys), from the vectors that `place` returns."""
    attention = corpus.attention(None, layer, text)
    points, placed = corpus.points(), place(corpus, None, layer, placing)
    queries = placed.queries[:, points.queries_of(text)]
    keys = placed.keys[:, points.keys_of(text)]
    if placing.lift:
        queries, keys = queries[..., :-1], keys[..., :-1]
    logits = queries @ keys.transpose(1, 2) * attention.scale
    if attention.softcap is not None:
        logits = torch.tanh(logits / attention.softcap) * attention.softcap
    num_heads, num_queries, num_keys = logits.shape
    whole = slice(0, num_queries), slice(0, num_keys)
    for head in range(num_heads):
        if attention.bias is not None:
            logits[head] += attention.bias.added(head, *whole)
        logits[head][~attention.allowed([head], *whole)[0]] = -torch.inf
    if attention.sinks is not None:
        sinks = attention.sinks[:, None, None].expand(-1, num_queries, 1)
        return torch.cat([logits, sinks], dim=2).softmax(dim=2)[..., :-1].numpy()
    return logits.softmax(dim=2).numpy()


def worst(corpus: Corpus, own: list[list[NDArray[np.float32]]], placing: Placing) -> float:
    """Return the largest difference between `placed_weights` and the model's own weights."""
    return max(
        float(np.abs(placed_weights(corpus, layer, placing, text) - weights[0]).max())
        for text, layers in enumerate(own)
        for layer, weights in enumerate(layers)
    )


@pytest.fixture
def make_corpus(byte_tokenizer: Any, word_tokenizer: Any) -> Make:
    """Return a function that makes a model and returns its `Corpus` and own weights for `TEXTS`."""

    def make(kind: str) -> tuple[Corpus, list[list[NDArray[np.float32]]]]:
        tokenizer = word_tokenizer if kind == "bert" else byte_tokenizer
        model = make_model(kind)
        corpus = extract_corpus(model, TEXTS, tokenizer=tokenizer, progress=False)
        assert corpus.text_indices == (0, 1, 2)
        assert corpus.points().whole
        inputs = [{"input_ids": tokenizer(text, return_tensors="pt").input_ids} for text in TEXTS]
        return corpus, [reference(model, encoding)["self"] for encoding in inputs]

    return make


WAYS = [Placing("norms", translate=False), Placing("norms"), Placing("norms", lift=True)]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "mistral"])
def test_every_placement_gives_the_models_own_weights(kind: str, make_corpus: Make) -> None:
    corpus, own = make_corpus(kind)
    for placing in WAYS:
        assert worst(corpus, own, placing) < 2e-4
    assert not any(corpus.caveats(None, layer) for layer in corpus.stack().layers)


@pytest.mark.parametrize(
    ("kind", "caveat"), [("gemma2", "soft-caps its logits"), ("gpt_oss", "has a sink")]
)
def test_soft_caps_and_sinks_make_moving_the_keys_inexact(
    kind: str, caveat: str, make_corpus: Make
) -> None:
    corpus, own = make_corpus(kind)
    # If `place` does not translate the keys, the weights equal the model's own despite the caveat.
    assert worst(corpus, own, Placing("none", translate=False)) < 1e-4
    assert worst(corpus, own, Placing("norms", translate=False)) < 2e-4
    assert worst(corpus, own, Placing("norms")) > 0.01
    for layer in corpus.stack().layers:
        [words] = corpus.caveats(None, layer)
        assert caveat in words


def test_a_position_bias_is_kept_and_noted(make_corpus: Make) -> None:
    corpus, own = make_corpus("bloom")
    assert worst(corpus, own, Placing()) < 2e-4
    assert "adds a position bias" in corpus.caveats(None, 0)[0]
