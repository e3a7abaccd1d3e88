"""Attention that is changed while a model runs, against other ways to the same change."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.interventions.changes import Change

pytestmark = pytest.mark.models

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
LAYER, HEAD = 1, 2
#: The output projection of a layer, and the change's stack.
PROJECTIONS = {
    "gpt2": ("transformer.h.1.attn.c_proj", None),
    "llama": ("model.layers.1.self_attn.o_proj", None),
    "mistral": ("model.layers.1.self_attn.o_proj", None),
    "gemma2": ("model.layers.1.self_attn.o_proj", None),
    "gpt_oss": ("model.layers.1.self_attn.o_proj", None),
    "bert": ("bert.encoder.layer.1.attention.output.dense", None),
    "bart": ("model.decoder.layers.1.encoder_attn.out_proj", "cross"),
    "t5": ("encoder.block.1.layer.0.SelfAttention.o", "encoder"),
}


def given(kind: str) -> dict[str, torch.Tensor]:
    """What a model of a kind is given."""
    more = {"decoder_input_ids": IDS[:, :5]} if kind in ("bart", "t5") else {}
    return {"input_ids": IDS, **more}


def difference(model: Any, arguments: Any, pair: tuple[int, int]) -> float:
    """The difference of two logits that a model gives by itself at the last token."""
    # A product with more rows may round otherwise.
    accepted = inspect.signature(model.forward).parameters
    last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
    with torch.no_grad():
        row = model(**arguments, **last).logits[0, -1].double()
    return float(row[pair[0]] - row[pair[1]])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_a_head_without_output_is_its_slice_of_the_projection_set_to_zero(
    kind: str, implementation: str, make_model: Callable[..., Any]
) -> None:
    model = make_model(kind)
    if kind not in ("gemma2", "gpt_oss"):
        model.set_attn_implementation(implementation)
    name, stack = PROJECTIONS[kind]
    changed = copy.deepcopy(model)
    projection = changed.get_submodule(name)
    own = av.extract(model, given(kind))
    num_heads = own.stack(stack).attention(LAYER).num_heads
    with torch.no_grad():
        # GPT-2's projections have their inputs as rows.
        rows = projection.weight if kind == "gpt2" else projection.weight.T
        width = len(rows) // num_heads
        rows[HEAD * width : (HEAD + 1) * width] = 0
    change = av.Ablate(layers=LAYER, heads=HEAD, stack=stack)
    for pair in ((7, 8), (100, 30)):
        effect = av.intervene(model, given(kind), change, answer=pair).effect
        assert effect.before == difference(model, given(kind), pair)
        assert effect.after == difference(changed, given(kind), pair)
        assert effect.after != effect.before
        assert effect.noise == 0


def four_axes(cut: list[tuple[int, int]], *, causal: bool) -> torch.Tensor:
    """A mask that is added to the logits of all heads and layers."""
    allowed = torch.ones(9, 9, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    for query, key in cut:
        allowed[query, key] = False
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(1, 1, 9, 9).masked_fill(~allowed, lowest)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_knockout_is_a_mask_of_four_axes(
    kind: str, implementation: str, make_model: Callable[..., Any]
) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    mask = four_axes([(5, 1), (5, 3), (8, 1), (8, 3)], causal=kind != "bert")
    change = av.Knockout(queries=[5, 8], keys=[1, 3])
    pair = (7, 8)
    found = av.intervene(model, {"input_ids": IDS}, change, answer=pair)
    expected = difference(model, {"input_ids": IDS, "attention_mask": mask}, pair)
    assert found.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(found.effect.change) > 1e-4
    assert found.effect.noise < 1e-6
    # The record is that of the changed run, in every layer.
    masked = av.extract(model, {"input_ids": IDS, "attention_mask": mask})
    for layer in (0, 1, 2):
        ours, theirs = (each.stack().weights(layer=layer) for each in (found, masked))
        assert np.abs(ours - theirs).max() < 1e-5
        assert not ours[:, [5, 8]][:, :, [1, 3]].any()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_hidden_token_is_one_that_the_attention_mask_leaves_out(
    kind: str, make_model: Callable[..., Any]
) -> None:
    model = make_model(kind)
    mask = torch.ones_like(IDS)
    mask[0, 3] = 0
    found = av.intervene(model, {"input_ids": IDS}, av.HideTokens(3), answer=(7, 8))
    places = torch.arange(9)[None]
    arguments = {"input_ids": IDS, "attention_mask": mask, "position_ids": places}
    assert found.effect.after == pytest.approx(difference(model, arguments, (7, 8)), abs=1e-6)
    weights = found.stack().weights(layer=2)
    others = np.arange(9) != 3
    assert not weights[:, others, 3].any()
    # Its own row keeps it.
    assert weights[:, 3, 3].any()


def registered(name: str, edit: Callable[[torch.Tensor], None]) -> str:
    """An attention function of GPT-2's formula whose weights are edited in the first layer."""

    def attend(  # noqa: PLR0917 - as transformers calls it
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        logits = query @ key.transpose(2, 3) * scale
        ahead = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        weights = logits.masked_fill(ahead, -torch.inf).softmax(dim=-1)
        if module.layer_idx == 0:
            edit(weights)
        return (weights @ value).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register(name, attend)
    return name


def set_uniform(weights: torch.Tensor) -> None:
    weights[:, HEAD] = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]


def set_previous(weights: torch.Tensor) -> None:
    weights[:, HEAD, 1:] = torch.eye(9)[:-1]


def cut_after(weights: torch.Tensor) -> None:
    weights[:, HEAD, 8, 5:] = 0


OTHER = torch.rand(9, 9, generator=torch.Generator().manual_seed(1)).tril().softmax(dim=-1)


def set_other(weights: torch.Tensor) -> None:
    weights[:, HEAD] = OTHER


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (cut_after, av.Knockout(8, [5, 6, 7, 8], layers=0, heads=HEAD, renormalize=False)),
        (set_uniform, av.SetWeights(0, HEAD, "uniform")),
        (set_previous, av.SetWeights(0, HEAD, "previous token")),
        (set_other, av.SetWeights(0, HEAD, OTHER.numpy())),
    ],
)
def test_weights_that_are_changed_after_the_softmax(
    edit: Callable[[torch.Tensor], None], change: Change, make_model: Callable[..., Any]
) -> None:
    model = make_model("gpt2")
    edited = copy.deepcopy(model)
    edited.set_attn_implementation(registered(f"edited_{edit.__name__}", edit))
    found = av.intervene(model, {"input_ids": IDS}, change, answer=(7, 8))
    expected = difference(edited, {"input_ids": IDS}, (7, 8))
    assert found.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(found.effect.change) > 1e-4
    own = av.extract(model, {"input_ids": IDS}).stack().weights(layer=0)
    wanted = torch.from_numpy(own.copy())[None]
    edit(wanted)
    assert np.abs(found.stack().weights(layer=0) - wanted[0].numpy()).max() < 1e-6


def test_what_is_left_of_a_row_is_shared_out(make_model: Callable[..., Any]) -> None:
    model = make_model("gpt_oss")
    own = av.extract(model, {"input_ids": IDS}).stack().weights(layer=0, head=HEAD)
    change = av.Knockout(queries=8, keys=[2, 6], layers=0, heads=HEAD)
    changed = av.intervene(model, {"input_ids": IDS}, change).stack().weights(layer=0, head=HEAD)
    expected = own.copy()
    # A sink takes its share of what is left, too.
    expected[8] /= 1 - own[8, [2, 6]].sum()
    expected[8, [2, 6]] = 0
    assert np.abs(changed - expected).max() < 1e-6


def test_nothing_is_left_behind(make_model: Callable[..., Any]) -> None:
    model = make_model("gpt2").train()
    before = transformers.AttentionInterface.__dict__["get_interface"]
    with torch.no_grad():
        plain = model.eval()(IDS).logits
    model.train()
    found = av.intervene(model, {"input_ids": IDS}, av.Ablate(factor=1.0), answer=(7, 8))
    assert found.effect.after == found.effect.before
    assert model.training
    assert transformers.AttentionInterface.__dict__["get_interface"] is before
    assert not any(module._forward_hooks for module in model.modules())
    with torch.no_grad():
        assert torch.equal(model.eval()(IDS).logits, plain)
