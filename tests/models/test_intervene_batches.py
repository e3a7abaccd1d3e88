"""Each example in a list or padded batch gets the same result from `intervene` as when alone."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from models.explicit_attention import attention_function
from models.make_models import make_model
from models.tiny import SIZE, built
from rounding import forwards_error

TEXTS = [
    "The animal didn't cross the street because it was too tired.",
    "The cat sat on it and looked at the dog.",
    "it sat on the mat",
]


def assert_same(record: Any, alone: Any) -> None:
    """Compare a record from a list or batch with `alone`, the record of the same text alone."""
    assert record.effect.measure == alone.effect.measure
    assert record.effect.after == pytest.approx(alone.effect.after, abs=1e-6)
    assert record.effect.change == pytest.approx(alone.effect.change, abs=1e-6)
    assert record.notes[-2] == alone.notes[-2]
    off = forwards_error(alone)
    for name, stack in alone.stacks.items():
        ours = record.stack(name)
        assert ours.query_tokens.text == stack.query_tokens.text
        for layer in stack.layers:
            difference = ours.weights(layer=layer) - stack.weights(layer=layer)
            assert np.abs(difference).max() < off


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_each_text_of_a_batch_is_changed_at_its_own_tokens(
    kind: str, side: str, byte_tokenizer: Any
) -> None:
    """The key “the”, which the knockout removes, has another position in each text."""
    model = make_model(kind)
    changes = [av.Knockout(queries=-1, keys="the", layers=1), av.Ablate(0, 1)]
    options = {"tokenizer": byte_tokenizer}
    alone = [av.intervene(model, text, changes, **options) for text in TEXTS]
    positions = {record.stack().query_tokens.position("the") for record in alone}
    assert len(positions) == 3
    together = av.intervene(model, TEXTS, changes, **options)
    encoded = byte_tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
    if side == "left":
        # Do not count padding, which would shift the positions of the tokens.
        counted = encoded["attention_mask"].cumsum(dim=-1) - 1
        encoded["position_ids"] = counted.clamp_min(0)
    padded = av.intervene(model, encoded, changes, **options)
    assert len(together) == len(padded) == 3
    for one, *others in zip(alone, together, padded, strict=True):
        assert abs(one.effect.change) > 1e-5
        for other in others:
            assert_same(other, one)


def test_each_text_of_a_list_has_its_answer(byte_tokenizer: Any) -> None:
    model = make_model("gpt2")
    answers = [(7, 8), (9, 10), None]
    options = {"tokenizer": byte_tokenizer}
    records = av.intervene(model, TEXTS, av.Ablate(1), answer=answers, **options)
    for text, answer, record in zip(TEXTS, answers, records, strict=True):
        assert_same(record, av.intervene(model, text, av.Ablate(1), answer=answer, **options))
    with pytest.raises(ValueError, match="answer is a list of 2, but inputs has 3 texts"):
        av.intervene(model, TEXTS, av.Ablate(1), answer=answers[:2], **options)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_each_text_of_a_list_has_its_target(kind: str, byte_tokenizer: Any) -> None:
    model = make_model(kind)
    targets = ["the dog sat", "a cat", "hello the user says"]
    changes = [
        av.Knockout(queries=1, keys="the", layers=1, stack="cross"),
        av.HideTokens("the", stack="encoder"),
        av.Ablate(2, 1, stack="decoder"),
    ]
    options = {"tokenizer": byte_tokenizer}
    records = av.intervene(model, TEXTS, changes, target=targets, **options)
    encoded = byte_tokenizer(TEXTS, padding=True, return_tensors="pt")
    labels = byte_tokenizer(targets, padding=True, return_tensors="pt")
    encoded["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    batch = av.intervene(model, encoded, changes, **options)
    for text, target, record, padded in zip(TEXTS, targets, records, batch, strict=True):
        alone = av.intervene(model, text, changes, target=target, **options)
        assert_same(record, alone)
        assert padded.effect.after == pytest.approx(alone.effect.after, abs=1e-6)
        assert abs(alone.effect.change) > 1e-5


def test_each_image_of_a_batch_is_changed(register: Callable[..., str]) -> None:
    """The answer is the logit of class 1 minus that of class 4."""
    size = {**SIZE, "image_size": 32, "patch_size": 8, "num_labels": 5}
    model = built("ViTForImageClassification", size)
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    change = av.Knockout(queries=0, keys=[3, 4, 9])
    records = av.intervene(model, {"pixel_values": pixels}, change, answer=(1, 4))

    def without(_: Any, logits: torch.Tensor) -> torch.Tensor:
        logits[:, :, 0, [3, 4, 9]] = -torch.inf
        return logits.softmax(dim=-1)

    edited = copy.deepcopy(model)
    edited.set_attn_implementation(register("without", attention_function(without, causal=False)))
    with torch.no_grad():
        before, after = (version(pixel_values=pixels).logits for version in (model, edited))
    for record, one, other in zip(records, before, after, strict=True):
        assert record.effect.before == pytest.approx(float(one[1] - one[4]), abs=1e-6)
        assert record.effect.after == pytest.approx(float(other[1] - other[4]), abs=1e-6)
        assert abs(record.effect.change) > 1e-5
        assert not record.stack().weights(layer=1)[:, 0, [3, 4, 9]].any()


def test_several_changes_keep_their_order() -> None:
    """A knockout that renormalizes keeps its key at weight 0, even if `SetWeights` follows.

    If ``renormalize=False``, a later `SetWeights` makes the weight positive again.
    """
    model = make_model("gpt2")
    ids = torch.tensor([[5, 17, 42, 8, 23]])
    cut = av.Knockout(4, 1, layers=0, heads=0)
    even = av.SetWeights(0, 0, "uniform")
    gone = av.Knockout(4, 2, layers=0, heads=0, renormalize=False)
    rows = {}
    for order in itertools.permutations([cut, even, gone]):
        record = av.intervene(model, {"input_ids": ids}, list(order), answer=(7, 8))
        rows[order] = record.stack().weights(layer=0, head=0)[4].round(4)
    assert rows[cut, gone, even][[1, 2]].tolist() == pytest.approx([0, 0.25], abs=1e-3)
    assert rows[even, cut, gone][[1, 2]].tolist() == [0, 0]
    assert rows[even, cut, gone].sum() == pytest.approx(0.75, abs=1e-3)
    assert rows[even, gone, cut].sum() == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_padding_of_a_single_example_is_removed(kind: str, side: str) -> None:
    """If padding on the left stayed, BERT and GPT-2 would give it the first positions."""
    model = make_model(kind)
    ids = torch.tensor([[5, 17, 42, 8, 23, 9]])
    before, behind = (3, 0) if side == "left" else (0, 3)
    padded = {
        "input_ids": torch.nn.functional.pad(ids, (before, behind)),
        "attention_mask": torch.tensor([[0] * before + [1] * 6 + [0] * behind]),
    }
    alone = {"input_ids": ids}
    options: dict[str, Any] = {"answer": (7, 8)}
    record, expected = (
        av.intervene(model, inputs, av.Knockout(5, 2), **options) for inputs in (padded, alone)
    )
    assert_same(record, expected)

    def results(inputs: Any) -> Iterator[Any]:
        yield np.stack(av.head_effects(model, inputs, **options))
        yield av.permutation_effect(model, inputs, layer=0, head=1, permutations=5).values
        removal: Any
        for removal in ("mask", "mean embedding"):
            yield av.token_effects(model, inputs, removal=removal, **options).values
        method: Any
        for method in ("gradient", "knockout gradient", "integrated gradients", "direct"):
            # BERT normalizes after each layer, so the method "direct" refuses BERT.
            if kind == "gpt2" or method != "direct":
                record = av.attribute(model, inputs, method=method, **options)
                yield record.stack().weights(layer=1)

    for ours, theirs in zip(results(padded), results(alone), strict=True):
        assert np.allclose(ours, theirs, atol=1e-6, equal_nan=True)
        assert np.nanmax(np.abs(theirs)) > 1e-4


def test_padding_before_a_decoders_text_is_no_token() -> None:
    """T5 uses only distances, so its weights do not depend on the position of the first token."""
    model = make_model("t5")
    ids = torch.tensor([[5, 17, 42, 8, 23, 9]])
    alone = {"input_ids": ids, "decoder_input_ids": torch.tensor([[0, 5, 17, 42]])}
    padded = {
        "input_ids": ids,
        "decoder_input_ids": torch.tensor([[0, 0, 0, 5, 17, 42]]),
        "decoder_attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1]]),
    }
    change = av.Knockout(3, 1, stack="decoder")
    record, expected = (
        av.intervene(model, inputs, change, answer=(7, 8)) for inputs in (padded, alone)
    )
    assert abs(expected.effect.change) > 1e-4
    assert_same(record, expected)
    ours, theirs = (av.attribute(model, inputs, answer=(7, 8)) for inputs in (padded, alone))
    for name in ("decoder", "cross"):
        gradients = theirs.stack(name).weights(layer=1)
        assert np.allclose(ours.stack(name).weights(layer=1), gradients, atol=1e-6)
        assert np.abs(gradients).max() > 1e-4
