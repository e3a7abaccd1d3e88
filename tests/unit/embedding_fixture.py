"""The corpus of `tests/fixtures/embedding.json` and the requests of a view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.corpus.corpus import Corpus
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens

FIXTURE = Path(__file__).parents[1] / "fixtures" / "embedding.json"

WAY: dict[str, Any] = {"scaling": "norms", "translate": True, "lift": False}
PROJECTING: dict[str, Any] = {
    "method": "pca",
    "dimensions": 2,
    "perplexity": 50,
    "neighbors": 15,
    "seed": 0,
}


def fixture() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return data


def fixture_corpus() -> Corpus:
    """Return the corpus of `tests/fixtures/embedding.json`."""
    data = fixture()
    records = []
    for text in data["texts"]:
        record = AttentionRecord.from_qk(
            [torch.tensor(layer) for layer in text["queries"]],
            [torch.tensor(layer) for layer in text["keys"]],
            Tokens.of(text["tokens"], special=[token == "[CLS]" for token in text["tokens"]]),
            causal=True,
            model="fixture",
        )
        layers = record.stack()
        numbered = {number: layers.attention(index) for index, number in enumerate(data["layers"])}
        stack = AttentionStack("self", numbered, layers.query_tokens)
        records.append(AttentionRecord({"self": stack}, model="fixture"))
    half = sum(len(text["tokens"]) for text in data["texts"])
    surprise = [index / 2 for index in range(half - 1)] + [np.nan]
    return Corpus(records, columns={"kind": ["prose", "poem"], "surprise": surprise})
