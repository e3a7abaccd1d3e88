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
    found: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return found


def fixture_corpus() -> Corpus:
    """Return the corpus of `tests/fixtures/embedding.json`."""
    read = fixture()
    records = []
    for each in read["texts"]:
        record = AttentionRecord.from_qk(
            [torch.tensor(layer) for layer in each["queries"]],
            [torch.tensor(layer) for layer in each["keys"]],
            Tokens.of(each["tokens"], special=[token == "[CLS]" for token in each["tokens"]]),
            causal=True,
            model="fixture",
        )
        layers = record.stack()
        numbered = {number: layers.attention(place) for place, number in enumerate(read["layers"])}
        stack = AttentionStack("self", numbered, layers.query_tokens)
        records.append(AttentionRecord({"self": stack}, model="fixture"))
    half = sum(len(each["tokens"]) for each in read["texts"])
    surprise = [place / 2 for place in range(half - 1)] + [np.nan]
    return Corpus(records, columns={"kind": ["prose", "poem"], "surprise": surprise})
