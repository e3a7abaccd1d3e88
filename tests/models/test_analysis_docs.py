"""docs/analysis.md names every function, and its formulas for uniform attention are right."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import attnviz as av

TEXT = (Path(__file__).parents[2] / "docs" / "analysis.md").read_text(encoding="utf-8")


def test_every_function_is_named() -> None:
    for name in av.analysis.__all__:
        if callable(getattr(av.analysis, name)) and name[0].islower() and name != "problems":
            assert name in TEXT, name


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [2, 16, 256])
def test_uniform_attention_has_the_scores_in_the_table(n: int, *, causal: bool) -> None:
    queries = torch.randn(1, 2, n, 4, generator=torch.Generator().manual_seed(0))
    harmonic = sum(1 / number for number in range(1, n + 1))
    scores = dict.fromkeys(["previous token", "next token", "self", "first token"], 1 / n)
    scores["entropy"] = math.log(n)
    if causal:
        scores = {
            "previous token": (harmonic - 1) / (n - 1),
            "self": harmonic / n,
            "first token": harmonic / n,
            "entropy": sum(math.log(number) for number in range(1, n + 1)) / n,
        }
    tokens = [f"t{index}" for index in range(n)]
    record = av.AttentionRecord.from_qk(queries, queries, tokens, causal=causal)
    for pattern, value in scores.items():
        (of_heads,) = av.analysis.uniform_scores(record, pattern)
        assert of_heads == pytest.approx([value, value])
