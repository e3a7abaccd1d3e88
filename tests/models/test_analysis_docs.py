"""The numbers of docs/analysis.md are right, and the page names every function."""

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


@pytest.mark.parametrize("n", [2, 16, 256])
def test_uniform_attention_has_the_scores_in_the_table(n: int) -> None:
    queries = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(0))[None]
    tokens = [f"t{index}" for index in range(n)]
    harmonic = sum(1 / number for number in range(1, n + 1))
    causal = av.AttentionRecord.from_qk(queries, queries, tokens, causal=True)
    expected = {
        "previous token": (harmonic - 1) / (n - 1),
        "self": harmonic / n,
        "first token": harmonic / n,
        "entropy": sum(math.log(number) for number in range(1, n + 1)) / n,
    }
    for pattern, value in expected.items():
        (scores,) = av.analysis.uniform_scores(causal, pattern)
        assert scores == pytest.approx([value, value])
    whole = av.AttentionRecord.from_qk(queries, queries, tokens)
    for pattern in ("previous token", "next token", "self", "first token"):
        (scores,) = av.analysis.uniform_scores(whole, pattern)
        assert scores == pytest.approx([1 / n, 1 / n])
    (scores,) = av.analysis.uniform_scores(whole, "entropy")
    assert scores == pytest.approx([math.log(n)] * 2)
    if n == 16:
        assert expected["previous token"] == pytest.approx(0.16, abs=0.005)
        assert expected["self"] == pytest.approx(0.21, abs=0.005)
        assert expected["entropy"] == pytest.approx(1.92, abs=0.005)
    if n == 256:
        assert expected["previous token"] == pytest.approx(0.02, abs=0.005)
