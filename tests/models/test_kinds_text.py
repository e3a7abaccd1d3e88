"""Records of T5 store the relative position bias by the distance of query and key."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from models.make_models import make_model


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_relative_bias_is_kept_by_distance(stack: str) -> None:
    """The bias has one number per head and distance, equal to the model's own bias."""
    model = make_model("t5", relative_attention_num_buckets=8, relative_attention_max_distance=20)
    count = 30
    ids = torch.arange(5, 5 + count)[None]
    record = extract(model, {"input_ids": ids, "decoder_input_ids": ids})
    first_block = getattr(model, stack).block[0].layer[0].SelfAttention
    expected = first_block.compute_bias(count, count)[0].detach().numpy()
    causal = stack == "decoder"
    visible = np.tri(count, dtype=bool) if causal else np.ones((count, count), bool)
    for number in record.stacks[stack].layers:
        attention = record.stacks[stack].attention(number)
        assert isinstance(attention, QueryKeyAttention)
        assert isinstance(attention.bias, DistanceBias)
        assert attention.bias.values.shape == (4, 2 * count - 1)
        for head in range(4):
            values = attention.bias.added(head, slice(0, count), slice(0, count)).numpy()
            assert np.abs(values - expected[head])[visible].max() < 1e-6
        assert attention.mask == (BandMask(None, 0) if causal else None)
    cross = record.stacks["cross"].attention(0)
    assert isinstance(cross, QueryKeyAttention)
    assert cross.bias is None
