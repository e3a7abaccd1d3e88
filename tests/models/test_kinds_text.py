"""Records of T5 store its relative position bias by the distance of query and key."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from models.make_models import make_model


def bucket(distance: int, *, both_ways: bool, buckets: int, furthest: int) -> int:
    """Return T5's bucket of a distance: half are for one distance, half for logarithmic ranges."""
    first = 0
    if both_ways:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    further = exact + int(log(distance / exact) / log(furthest / exact) * (buckets - exact))
    return first + min(further, buckets - 1)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_relative_bias_is_kept_by_distance(stack: str) -> None:
    """The bias has one number per head and distance, from the model's table of buckets."""
    model = make_model("t5", relative_attention_num_buckets=8, relative_attention_max_distance=20)
    count = 30
    ids = torch.arange(5, 5 + count)[None]
    record = extract(model, {"input_ids": ids, "decoder_input_ids": ids})
    first_block = getattr(model, stack).block[0].layer[0].SelfAttention
    table = first_block.relative_attention_bias.weight.detach().numpy()
    causal = stack == "decoder"
    distances = np.arange(count) - np.arange(count)[:, None]
    buckets = np.vectorize(bucket)(distances, both_ways=not causal, buckets=8, furthest=20)
    assert len(set(buckets.flat)) > 4
    expected = table[buckets].transpose(2, 0, 1)
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
