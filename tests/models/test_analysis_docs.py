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
    queries = torch.randn(1, 2, n, 4, generator=torch.Generator().manual_seed(0))
    harmonic = sum(1 / number for number in range(1, n + 1))
    scores_by_mask = {
        True: {
            "previous token": (harmonic - 1) / (n - 1),
            "self": harmonic / n,
            "first token": harmonic / n,
            "entropy": sum(math.log(number) for number in range(1, n + 1)) / n,
        },
        False: {
            **dict.fromkeys(["previous token", "next token", "self", "first token"], 1 / n),
            "entropy": math.log(n),
        },
    }
    for causal, scores in scores_by_mask.items():
        tokens = [f"t{index}" for index in range(n)]
        record = av.AttentionRecord.from_qk(queries, queries, tokens, causal=causal)
        for pattern, value in scores.items():
            (of_heads,) = av.analysis.uniform_scores(record, pattern)
            assert of_heads == pytest.approx([value, value])
    # The table has these numbers for 16 and 256 tokens.
    for pattern, numbers in {
        "previous token": {16: 0.16, 256: 0.02},
        "self": {16: 0.21, 256: 0.02},
        "entropy": {16: 1.92},
    }.items():
        if n in numbers:
            assert scores_by_mask[True][pattern] == pytest.approx(numbers[n], abs=0.005)
