"""Records of text models: the position bias of T5, and the pooled queries of Funnel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from models.make_models import make_model
from models.tiny import IDS, built, extracted, reference


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


def test_layers_of_funnel_have_fewer_queries_than_tokens() -> None:
    """Funnel pools pairs of tokens to one query in the first layer of its second block."""
    settings = {"d_model": 48, "n_head": 4, "d_head": 12, "d_inner": 64}
    model = built("FunnelBaseModel", {**settings, "block_sizes": [1, 2]})
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if path.endswith(("q_head.weight", "k_head.weight")):
                parameter.mul_(8.0)
    record = extracted(model, {"input_ids": IDS})
    stacks = [record.stacks[name] for name in ("self stage 1", "cross", "self stage 2")]
    layers = [stack.weights(layer=stack.layers[0]) for stack in stacks]
    own = reference(model, {"input_ids": IDS})["self"]
    assert [weights.shape for weights in layers] == [(4, 10, 10), (4, 5, 10), (4, 5, 5)]
    assert np.mean([weights.max(-1).mean() for weights in own]) > 0.3
    for weights, expected in zip(layers, own, strict=True):
        assert np.abs(weights - expected[0]).max() < 1e-4
