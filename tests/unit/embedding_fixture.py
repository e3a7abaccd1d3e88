"""Corpus of `tests/fixtures/embedding.json`, and usual fields of requests for a plot."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.corpus.corpus import Corpus
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens

FIXTURE = Path(__file__).parents[1] / "fixtures" / "embedding.json"

PLACING: dict[str, Any] = {"scaling": "norms", "translate": True, "lift": False}
PROJECTING: dict[str, Any] = {
    "method": "pca",
    "dimensions": 2,
    "perplexity": 50,
    "neighbors": 15,
    "seed": 0,
}
LAYERS, HEADS, HEAD_DIM = (2, 5), 2, 3
TOKENS = [["[CLS]", "·the", "·cat", ",", "·sat", "·the"], ["[CLS]", "·a", "</script>"]]


def fixture() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return data


def fixture_vectors(number: int, side: str) -> list[Any]:
    """Return "queries" or "keys" of a text as [layer][head][token][dimension], exact in float32."""
    generator = random.Random(f"{side} of text {number}")  # noqa: S311 - the same every time

    def vector() -> list[float]:
        return [generator.randrange(-200, 201) / 64 for _ in range(HEAD_DIM)]

    return [[[vector() for _ in TOKENS[number]] for _ in range(HEADS)] for _ in LAYERS]


def fixture_corpus() -> Corpus:
    """Return a corpus of two causal texts with a column of values per text and one per token."""
    records = [
        AttentionRecord.from_qk(
            torch.tensor(fixture_vectors(number, "queries")),
            torch.tensor(fixture_vectors(number, "keys")),
            Tokens.of(tokens, special=[token == "[CLS]" for token in tokens]),
            layers=LAYERS,
            causal=True,
            model="fixture",
        )
        for number, tokens in enumerate(TOKENS)
    ]
    surprise = [position / 2 for position in range(sum(map(len, TOKENS)) - 1)] + [np.nan]
    first = len(TOKENS[0])
    by_text = [surprise[:first], surprise[first:]]
    return Corpus(records, columns={"kind": ["prose", "poem"], "surprise": by_text})
