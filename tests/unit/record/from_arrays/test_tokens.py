"""Keys of a Linformer (Wang et al. 2020), named by the tokens that they combine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn

from attnviz.record.from_arrays.tokens import ProjectedKeys
from attnviz.record.record import AttentionRecord, load
from attnviz.record.tokens import Tokens
from unit.records import shares, vectors, words

TEXT = ["the", " cat", " sat", " on", " the", " mat", "."]


def convolved(keys: torch.Tensor, kernel: int, stride: int, padding: int) -> torch.Tensor:
    """Return keys (heads, n, d) after a convolution over the tokens, the same in all dimensions."""
    layer = nn.Conv1d(1, 1, kernel, stride=stride, padding=padding, bias=False)
    heads, tokens, dims = keys.shape
    columns = keys.permute(0, 2, 1).reshape(heads * dims, 1, tokens)
    with torch.no_grad():
        # With no weight of 0, every token that the convolution reads changes the key.
        layer.weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
        convolved_columns: torch.Tensor = layer(columns)
    return convolved_columns.reshape(heads, dims, -1).permute(0, 2, 1)


def tokens_that_matter(kernel: int, stride: int, padding: int, count: int) -> list[list[int]]:
    """Return for each key of a convolution the tokens that change it."""
    tokens = torch.eye(count)[:, :, None]
    # In row n only token n is 1. Keys that are not 0 read this token.
    read = convolved(tokens, kernel, stride, padding)[:, :, 0] != 0
    return [torch.nonzero(read[:, key]).flatten().tolist() for key in range(read.shape[1])]


def token_numbers(label: str) -> list[int]:
    match = re.search(r"\((\d+)(?:–(\d+))?\)$", label)
    assert match is not None, label
    first = int(match[1])
    return list(range(first, int(match[2] or first) + 1))


def test_a_convolution_names_groups_of_tokens() -> None:
    record = AttentionRecord.from_weights(
        [shares(2, 7, 4)], TEXT, key_tokens=ProjectedKeys(kernel=3, stride=2, padding=1)
    )
    assert record.stack().key_tokens.text == (
        "the … ·cat (0–1)",
        "·cat … ·on (1–3)",
        "·on … ·mat (3–5)",
        "·mat … . (5–6)",
    )
    assert record.notes == ()


@settings(max_examples=80)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(1, 12))
def test_groups_are_the_tokens_that_change_a_key(
    kernel: int, stride: int, padding: int, count: int
) -> None:
    # In torch the padding is at most half of the kernel.
    assume(2 * padding <= kernel <= count + 2 * padding)
    expected = tokens_that_matter(kernel, stride, padding, count)
    assume(all(expected))
    tokens = Tokens.of(words(count))
    labels = ProjectedKeys(kernel, stride, padding).tokens(tokens, len(expected))
    assert [token_numbers(label) for label in labels] == expected


def test_pooling_that_rounds_up_ends_with_a_smaller_group() -> None:
    pooled = nn.AvgPool1d(3, ceil_mode=True)(vectors(1, 1, 7))
    named = ProjectedKeys(kernel=3).tokens(Tokens.of(TEXT), pooled.shape[2])
    assert list(named) == ["the … ·sat (0–2)", "·on … ·mat (3–5)", ". (6)"]


def test_a_dense_projection_is_numbered_and_noted(tmp_path: Path) -> None:
    record = AttentionRecord.from_weights([shares(2, 7, 3)], TEXT, key_tokens=ProjectedKeys())
    assert list(record.stack().key_tokens) == ["projection 0", "projection 1", "projection 2"]
    (note,) = record.notes
    assert "3 keys are combinations of all tokens by a dense projection" in note
    assert "columns do not correspond to tokens" in note
    again = load(record.save(tmp_path / "x.safetensors"))
    assert again.notes == record.notes
    assert again.stack().key_tokens == record.stack().key_tokens
    vectors_too = AttentionRecord.from_qk(
        [vectors(2, 7, 4)], [vectors(2, 3, 4)], TEXT, key_tokens=ProjectedKeys()
    )
    assert vectors_too.notes == record.notes


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
        ({"kernel": 2, "stride": 0}, "stride=0 must be at least 1"),
        ({"stride": 2}, r"stride= and padding= need kernel=\. Pass kernel= as well"),
    ],
)
def test_invalid_projections_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProjectedKeys(**options)


@pytest.mark.parametrize("keys", [ProjectedKeys(kernel=2), ProjectedKeys(kernel=7, stride=3)])
def test_the_number_of_groups_must_equal_the_number_of_keys(keys: ProjectedKeys) -> None:
    weights = [shares(1, 7, 6)]
    with pytest.raises(
        ValueError,
        match=rf"key_tokens=ProjectedKeys\(kernel={keys.kernel}, .*gives [13] keys for 7 tokens, "
        r"but there are 6\. .*\(Linformer: only kernel=2\), or ProjectedKeys\(\)",
    ):
        AttentionRecord.from_weights(weights, TEXT, key_tokens=keys)
