"""Tests that masks read from arguments of attention functions equal those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.record.masks import Mask

LENGTH = 7


def call(implementation: str, mask: torch.Tensor | None = None, **options: Any) -> AttentionCall:
    vectors = torch.zeros(1, 2, LENGTH, 4)
    return AttentionCall(
        nn.Identity(), implementation, vectors, vectors, vectors, mask, options, None
    )


def flags_of(mask: Mask | None, length: int = LENGTH) -> torch.Tensor:
    """Return a tensor (queries, keys), True for the allowed pairs of head 0. None allows all."""
    if mask is None:
        return torch.ones(length, length, dtype=torch.bool)
    return mask.allowed(0, slice(0, length), slice(0, length)).cpu()


def transformers_own(function: Any) -> torch.Tensor:
    positions = torch.arange(LENGTH)
    rows = [
        [function(positions[0], positions[0], query, key) for key in positions]
        for query in positions
    ]
    return torch.tensor([list(map(bool, row)) for row in rows])


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_the_causal_flag_distinguishes_layers_with_the_same_mask(order: tuple[bool, bool]) -> None:
    # The reader caches masks by the arguments of calls. The calls differ only in `is_causal`.
    reader, positions = MaskReader(), [Positions(None, None)]
    expected = {True: transformers_own(causal_mask_function), False: flags_of(None)}
    for causal in (*order, *order):
        ((mask, bias),) = reader.read(call("sdpa", is_causal=causal), positions)
        assert bias is None
        assert torch.equal(flags_of(mask), expected[causal])


@pytest.mark.parametrize("implementation", ["flash_attention_2", "flash_attention_3"])
def test_a_window_of_flash_attention_is_the_one_that_transformers_masks(
    implementation: str,
) -> None:
    # One reader must return the right mask for each of several windows in turn.
    reader, positions = MaskReader(), [Positions(None, None)]
    for window in (1, 2, LENGTH - 1, LENGTH, LENGTH + 1, None, 2):
        arguments = call(implementation, is_causal=True, sliding_window=window)
        ((mask, _),) = reader.read(arguments, positions)
        function = (
            causal_mask_function if window is None else sliding_window_causal_mask_function(window)
        )
        assert torch.equal(flags_of(mask), transformers_own(function))


def test_a_window_of_flash_attention_beside_padding() -> None:
    arguments = call(
        "flash_attention_2",
        torch.tensor([[0, 0, *[1] * (LENGTH - 2)]]),
        is_causal=True,
        sliding_window=3,
    )
    unpadded = torch.arange(2, LENGTH)
    ((mask, _),) = MaskReader().read(arguments, [Positions(unpadded, unpadded)])
    expected = transformers_own(sliding_window_causal_mask_function(3))[2:, 2:]
    assert torch.equal(flags_of(mask, LENGTH - 2), expected)
