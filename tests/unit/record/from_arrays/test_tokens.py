"""Tests of `ProjectedKeys`, which describes keys that combine several tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn

from attnviz.record.from_arrays.tokens import ProjectedKeys
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens
from unit.records import shares, vectors, words

TEXT = ["the", " cat", " sat", " on", " the", " mat", "."]


def convolved(keys: torch.Tensor, kernel: int, stride: int, padding: int) -> torch.Tensor:
    """Convolve keys (heads, tokens, dims) over the tokens, with equal weights for all dims."""
    layer = nn.Conv1d(1, 1, kernel, stride=stride, padding=padding, bias=False)
    heads, tokens, dims = keys.shape
    columns = keys.permute(0, 2, 1).reshape(heads * dims, 1, tokens)
    with torch.no_grad():
        # All weights are positive, so every token that the kernel covers changes the output.
        layer.weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
        convolved_columns: torch.Tensor = layer(columns)
    return convolved_columns.reshape(heads, dims, -1).permute(0, 2, 1)


def tokens_that_matter(kernel: int, stride: int, padding: int, count: int) -> list[list[int]]:
    """Return a list for each output of a convolution: the tokens that change the output."""
    tokens = torch.eye(count)[:, :, None]
    # In head n only token n is 1, so an output that is not 0 depends on token n.
    read = convolved(tokens, kernel, stride, padding)[:, :, 0] != 0
    return [torch.nonzero(read[:, key]).flatten().tolist() for key in range(read.shape[1])]


@settings(max_examples=80)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(1, 12))
def test_a_group_is_named_by_the_tokens_that_change_its_key(
    kernel: int, stride: int, padding: int, count: int
) -> None:
    # Pooling in torch needs a padding of at most half the kernel, and a kernel that is at most as
    # long as the padded tokens.
    assume(2 * padding <= kernel <= count + 2 * padding)
    groups = tokens_that_matter(kernel, stride, padding, count)
    assume(all(groups))
    labels = ProjectedKeys(kernel, stride, padding).tokens(Tokens.of(words(count)), len(groups))
    assert list(labels) == [
        f"t{first} … t{last} ({first}–{last})" if last > first else f"t{first} ({first})"
        for first, *_, last in ([*group, group[-1]] for group in groups)
    ]


def test_pooling_that_rounds_up_ends_with_a_smaller_group() -> None:
    pooled = nn.AvgPool1d(3, ceil_mode=True)(vectors(1, 1, 7))
    labels = ProjectedKeys(kernel=3).tokens(Tokens.of(TEXT), pooled.shape[2])
    assert list(labels) == ["the … ·sat (0–2)", "·on … ·mat (3–5)", ". (6)"]


def test_keys_of_a_dense_projection_are_numbered_and_noted() -> None:
    record = AttentionRecord.from_weights([shares(2, 7, 3)], TEXT, key_tokens=ProjectedKeys())
    assert list(record.stack().key_tokens) == ["projection 0", "projection 1", "projection 2"]
    (note,) = record.notes
    assert "3 keys are combinations of all tokens by a dense projection" in note
    from_vectors = AttentionRecord.from_qk(
        [vectors(2, 7, 4)], [vectors(2, 3, 4)], TEXT, key_tokens=ProjectedKeys()
    )
    assert from_vectors.notes == record.notes


def test_groups_belong_to_the_text_of_their_tokens() -> None:
    tokens = Tokens.of(
        ["[CLS]", "a", "b", "c", "d", "e"],
        special=[True] + [False] * 5,
        sequence=[None, 0, 0, 0, 1, 1],
    )
    assert ProjectedKeys(kernel=2).tokens(tokens, 3).sequence == (0, 0, 1)
    assert ProjectedKeys(kernel=3).tokens(tokens, 2).sequence == (0, None)
    assert ProjectedKeys().tokens(tokens, 2).sequence == (None, None)


def test_queries_are_merged_into_words_and_groups_stay() -> None:
    weights = shares(1, 4, 2)
    record = AttentionRecord.from_weights(
        [weights], ["un", "do", "Ġit", "Ġall"], key_tokens=ProjectedKeys(kernel=2)
    )
    merged = record.merge_words().stack()
    assert list(merged.query_tokens) == ["undo", "·it", "·all"]
    assert merged.key_tokens.text == record.stack().key_tokens.text
    expected = np.stack([weights[0, :2].mean(0), weights[0, 2], weights[0, 3]])
    assert_allclose(merged.weights(layer=0, head=0), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 0}, "kernel=0 must be at least 1"),
        ({"stride": 2}, r"stride= and padding= need kernel=\. Pass kernel= as well"),
        (
            {"kernel": 2},
            r"key_tokens=ProjectedKeys\(kernel=2, .*gives 3 keys for 7 tokens, but there are 6\. "
            r".*\(Linformer: only kernel=2\), or ProjectedKeys\(\)",
        ),
    ],
)
def test_invalid_projections_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionRecord.from_weights([shares(1, 7, 6)], TEXT, key_tokens=ProjectedKeys(**options))
