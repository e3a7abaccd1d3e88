"""Keys that a model does not choose for its softmax are left out, and not masked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import attnviz as av
from model_types.build import tiny_model
from model_types.overrides import OVERRIDES

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 3])
COUNT = IDS.shape[1]
CAUSAL = np.tri(COUNT, dtype=np.bool_)

# Model types that choose keys, with settings that leave keys out of a text of `COUNT` tokens.
MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v32": {"index_topk": 8},
    "axk2": {"index_topk": 8},
    # The second layer uses the choice of the first.
    "glm_moe_dsa": {"index_topk": 8, "indexer_types": ["full", "shared"]},
    "hy_v4": {"index_topk": 8},
    "mistral_large4_text": {"index_topk": 8},
    # Layers choose blocks of keys, for each group of heads.
    "minimax_m3_vl_text": {
        "layer_types": ["minimax_m3_sparse"] * 2,
        "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "glm5_next_text": OVERRIDES["glm5_next_text"]["config"],
    "qwen4_exp_text": OVERRIDES["qwen4_exp_text"]["config"],
}


@pytest.mark.parametrize(
    ("model_type", "implementation"),
    [*((model_type, "eager") for model_type in MODELS), ("deepseek_v32", "sdpa")],
)
def test_left_out_keys_are_those_without_a_weight_that_the_mask_allows(
    model_type: str, implementation: str
) -> None:
    model = tiny_model(model_type, None, MODELS[model_type])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(IDS, output_attentions=True, use_cache=False).attentions
    own = [weights[0].numpy() for weights in attentions if weights is not None]
    model.set_attn_implementation(implementation)
    record = av.extract(model, IDS)
    stack = record.stacks["self"]
    assert stack.chooses_keys
    assert "not chosen" in " ".join(record.notes)
    assert len(own) == stack.num_layers
    for layer, weights in zip(stack.layers, own, strict=True):
        for head in range(stack.num_heads(layer)):
            left_out = stack.left_out(layer=layer, head=head)
            assert_array_equal(left_out, CAUSAL & (weights[head] == 0))
            assert_array_equal(stack.allowed(layer=layer, head=head), CAUSAL & ~left_out)
            assert left_out.any()


@pytest.mark.parametrize("model_type", ["deepseek_v32", "hy_v4"])
def test_the_lost_weight_is_that_of_the_model_that_chooses_all_keys(model_type: str) -> None:
    model: Any = tiny_model(model_type, None, {"index_topk": 8})
    stack = av.extract(model, IDS).stacks["self"]
    for layer in model.layers:
        layer.self_attn.indexer.index_topk = COUNT
    model.set_attn_implementation("eager")
    with torch.no_grad():
        dense = model(IDS, output_attentions=True, use_cache=False).attentions[0][0].numpy()
    # Only the first layer has the same inputs in both forwards.
    lost = stack.lost_weight(0)
    left_out = stack.left_out(layer=0, head=0)
    assert lost is not None
    assert_allclose(lost, np.where(left_out, dense, 0).sum(axis=-1), atol=1e-5)
    assert lost.max() > 0.1
    # If all keys are chosen, the record is that of a model without a choice, bit for bit.
    complete = av.extract(model, IDS).stacks["self"]
    assert not complete.chooses_keys
    assert_array_equal(complete.lost_weight(0), 0)


def test_padding_is_neither_chosen_nor_left_out() -> None:
    model = tiny_model("deepseek_v32", None, {"index_topk": 8})
    alone = av.extract(model, IDS[:, :20]).stacks["self"]
    mask = torch.ones(2, COUNT, dtype=torch.int64)
    mask[0, : COUNT - 20] = 0
    ids = IDS.repeat(2, 1)
    ids[0, COUNT - 20 :] = IDS[0, :20]
    padded = av.extract(model, {"input_ids": ids, "attention_mask": mask})[0].stacks["self"]
    for layer in alone.layers:
        pairs = [stack.left_out(layer=layer, head=1) for stack in (alone, padded)]
        assert_array_equal(pairs[0], pairs[1])
        lost, lost_padded = alone.lost_weight(layer), padded.lost_weight(layer)
        assert lost is not None
        assert lost_padded is not None
        assert_allclose(lost_padded, lost, atol=1e-5)


def test_the_choice_is_saved_with_the_record(tmp_path: Any) -> None:
    model = tiny_model("deepseek_v32", None, {"index_topk": 8})
    record = av.extract(model, IDS)
    record.save(tmp_path / "record.safetensors")
    stack, loaded = record.stacks["self"], av.load(tmp_path / "record.safetensors").stacks["self"]
    assert_array_equal(loaded.left_out(layer=1, head=2), stack.left_out(layer=1, head=2))
    assert_array_equal(loaded.lost_weight(1), stack.lost_weight(1))
