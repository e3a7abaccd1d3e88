"""Effects of changed attention equal those of the same changes made without attnviz."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.interventions.changes import Change
from models.explicit_attention import attention_function
from models.make_models import make_model
from models.tiny import SIZE, built
from rounding import UNIT

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
#: Ids of two texts, over which the outputs of a head are averaged.
OTHERS = [torch.tensor([3, 80, 41, 60, 12, 9]), torch.tensor([77, 2, 8, 90])]
LAYER, HEAD = 1, 2
#: Kinds of models that compute attention in their own code, not with `AttentionInterface`.
TRACED = ("bloom", "deberta-v2", "openai-gpt")
#: Output projection of layer 1 in each kind of model, and its stack (None if there is only one).
PROJECTIONS: dict[str, tuple[str, str | None]] = {
    "bloom": ("transformer.h.1.self_attention.dense", None),
    "deberta-v2": ("deberta.encoder.layer.1.attention.output.dense", None),
    **dict.fromkeys(["openai-gpt", "gpt2"], ("transformer.h.1.attn.c_proj", None)),
    **dict.fromkeys(
        ["llama", "mistral", "gemma2", "gpt_oss"], ("model.layers.1.self_attn.o_proj", None)
    ),
    "bert": ("bert.encoder.layer.1.attention.output.dense", None),
    "bart": ("model.decoder.layers.1.encoder_attn.out_proj", "cross"),
    "t5": ("encoder.block.1.layer.0.SelfAttention.o", "encoder"),
}


def inputs_of(kind: str) -> dict[str, torch.Tensor]:
    more = {"decoder_input_ids": IDS[:, :5]} if kind in ("bart", "t5") else {}
    return {"input_ids": IDS, **more}


def difference(model: Any, arguments: Any, pair: tuple[int, int]) -> float:
    """Return the logit of `pair[0]` minus the logit of `pair[1]` at the last token."""
    # Compute only the last row of logits, as `intervene` does: more rows can be rounded
    # differently.
    accepted = inspect.signature(model.forward).parameters
    last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
    with torch.no_grad():
        row = model(**arguments, **last).logits[0, -1].double()
    return float(row[pair[0]] - row[pair[1]])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_ablating_a_head_equals_zeros_in_its_slice_of_the_projection(
    kind: str, implementation: str
) -> None:
    model = make_model(kind)
    if kind not in ("gemma2", "gpt_oss", *TRACED):
        model.set_attn_implementation(implementation)
    name, stack = PROJECTIONS[kind]
    changed = copy.deepcopy(model)
    projection = changed.get_submodule(name)
    own = av.extract(model, inputs_of(kind))
    num_heads = own.stack(stack).attention(LAYER).num_heads
    with torch.no_grad():
        # GPT and GPT-2 store projections as (inputs, outputs), nn.Linear as (outputs, inputs).
        rows = projection.weight if "gpt" in kind and kind != "gpt_oss" else projection.weight.T
        width = len(rows) // num_heads
        rows[HEAD * width : (HEAD + 1) * width] = 0
    change = av.Ablate(layers=LAYER, heads=HEAD, stack=stack)
    for pair in ((7, 8), (100, 30)):
        effect = av.intervene(model, inputs_of(kind), change, answer=pair).effect
        assert effect.before == difference(model, inputs_of(kind), pair)
        expected = difference(changed, inputs_of(kind), pair)
        assert effect.after == pytest.approx(expected, abs=1e-6 if kind in TRACED else 0)
        assert abs(effect.change) > 1e-5
        assert 0 < effect.noise < 1e-4


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_knockout_equals_a_mask_of_four_axes(kind: str, implementation: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    allowed = torch.ones(9, 9, dtype=torch.bool)
    if kind != "bert":
        allowed = allowed.tril()
    for query in (5, 8):
        allowed[query, [1, 3]] = False
    lowest = torch.finfo(torch.float32).min
    mask = torch.zeros(1, 1, 9, 9).masked_fill(~allowed, lowest)
    change = av.Knockout(queries=[5, 8], keys=[1, 3])
    pair = (7, 8)
    record = av.intervene(model, {"input_ids": IDS}, change, answer=pair)
    expected = difference(model, {"input_ids": IDS, "attention_mask": mask}, pair)
    assert record.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(record.effect.change) > 1e-4
    assert record.effect.noise < 1e-6
    masked = av.extract(model, {"input_ids": IDS, "attention_mask": mask})
    for layer in (0, 1, 2):
        ours, theirs = (item.stack().weights(layer=layer) for item in (record, masked))
        assert np.abs(ours - theirs).max() < 1e-5
        assert not ours[:, [5, 8]][:, :, [1, 3]].any()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_hiding_a_token_equals_masking_it(kind: str) -> None:
    model = make_model(kind)
    mask = torch.ones_like(IDS)
    mask[0, 3] = 0
    record = av.intervene(model, {"input_ids": IDS}, av.HideTokens(3), answer=(7, 8))
    positions = torch.arange(9)[None]
    arguments = {"input_ids": IDS, "attention_mask": mask, "position_ids": positions}
    assert record.effect.after == pytest.approx(difference(model, arguments, (7, 8)), abs=1e-6)
    weights = record.stack().weights(layer=2)
    others = np.arange(9) != 3
    assert not weights[:, others, 3].any()
    # A hidden token still attends to itself.
    assert weights[:, 3, 3].any()


#: Random weights, (queries, keys), that are not causal.
OTHER = torch.rand(9, 9, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)
#: Changes, each with a function that changes the weights of a head in the same way.
EDITS: dict[str, tuple[Change, Callable[[torch.Tensor], torch.Tensor]]] = {
    "cut": (
        av.Knockout(8, [5, 6, 7, 8], layers=0, heads=HEAD, renormalize=False),
        lambda own: torch.cat([own[:8], torch.cat([own[8:, :5], torch.zeros(1, 4)], dim=1)]),
    ),
    "uniform": (
        av.SetWeights(0, HEAD, "uniform"),
        lambda _: torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None],
    ),
    "previous token": (
        av.SetWeights(0, HEAD, "previous token"),
        lambda own: torch.cat([own[:1], torch.eye(9)[:-1]]),
    ),
    "other": (av.SetWeights(0, HEAD, OTHER.numpy()), lambda _: OTHER),
}


@pytest.mark.parametrize("kind", EDITS)
def test_weights_are_changed_after_the_softmax(kind: str, register: Callable[..., str]) -> None:
    change, edit = EDITS[kind]

    def weights_of(module: Any, logits: torch.Tensor) -> torch.Tensor:
        weights = logits.softmax(dim=-1)
        if module.layer_idx == 0:
            weights[0, HEAD] = edit(weights[0, HEAD])
        return weights

    model = make_model("gpt2")
    edited = copy.deepcopy(model)
    edited.set_attn_implementation(register("edited", attention_function(weights_of)))
    record = av.intervene(model, {"input_ids": IDS}, change, answer=(7, 8))
    expected = difference(edited, {"input_ids": IDS}, (7, 8))
    assert record.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(record.effect.change) > 1e-4
    own = torch.from_numpy(av.extract(model, {"input_ids": IDS}).stack().weights(layer=0).copy())
    own[HEAD] = edit(own[HEAD])
    assert np.abs(record.stack().weights(layer=0) - own.numpy()).max() < 1e-6
    assert record.stack().causal == (kind != "other")


@pytest.mark.parametrize("kind", ["gpt_oss", *TRACED])
def test_the_remaining_weights_of_a_row_are_renormalized(kind: str) -> None:
    model, inputs = make_model(kind), {"input_ids": IDS}
    own = av.extract(model, inputs).stack().weights(layer=0, head=HEAD)
    cut = av.intervene(model, inputs, av.Knockout(8, [2, 6], layers=0, heads=HEAD), answer=(7, 8))
    expected = own.copy()
    # Without keys 2 and 6, the row and the sink of gpt-oss sum to 1 minus the weights of both keys.
    expected[8] /= 1 - own[8, [2, 6]].sum()
    expected[8, [2, 6]] = 0
    off = 1e-5 if kind in TRACED else 1e-6
    assert np.abs(cut.stack().weights(layer=0, head=HEAD) - expected).max() < off
    assert cut.effect.change != 0
    if kind in TRACED:
        # Setting the weights of the head to `expected` has the same effect as the knockout.
        same = av.SetWeights(0, HEAD, expected / expected.sum(axis=1, keepdims=True))
        effect = av.intervene(model, inputs, same, answer=(7, 8)).effect
        assert effect.change == pytest.approx(cut.effect.change, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "stack"),
    [
        *((kind, None) for kind in ("gpt2", "gpt_oss", "albert", "gemma3n", *TRACED)),
        ("bart", "encoder"),
        ("bart", "cross"),
        ("t5", "decoder"),
    ],
)
def test_effects_of_all_heads_are_those_of_each_alone(kind: str, stack: str | None) -> None:
    model = make_model(kind)
    # `AlbertModel` has no logits, so effects are measured on its hidden states.
    pair = None if kind == "albert" else (7, 8)
    effects = av.head_effects(model, inputs_of(kind), answer=pair, stack=stack)
    # An effect is a difference between two differences of logits, so it has the errors of four
    # logits. A logit is a sum of 48 products of about 1, with one rounding of `UNIT` each.
    off = 4 * 48 * UNIT
    # The noise is a bound, and so larger than most errors.
    assert 0 < effects.noise < 10 * off
    record = av.extract(model, inputs_of(kind)).stack(stack)
    assert [len(values) for values in effects] == list(record.heads_per_layer)
    assert effects.layers == record.layers
    for layer, values in zip(effects.layers, effects, strict=True):
        for head in (0, 3):
            change = av.Ablate(layer, head, stack=record.name)
            alone = av.intervene(model, inputs_of(kind), change, answer=pair)
            assert values[head] == pytest.approx(alone.effect.change, abs=off)
            assert values[head] != 0


@pytest.mark.parametrize("position", [8, 3])
def test_a_language_head_computes_only_the_requested_logits(position: int) -> None:
    """BERT computes the logits of all positions. Effects need only those from `position` on."""
    model = make_model("bert")
    shapes: list[tuple[int, ...]] = []
    decoder = model.get_output_embeddings()
    handle = decoder.register_forward_hook(lambda *args: shapes.append(tuple(args[2].shape[:2])))
    effects = av.head_effects(model, {"input_ids": IDS}, answer=(7, 8), position=position)
    handle.remove()
    # The first call is a forward of the unchanged model, which computes all logits.
    assert shapes[0] == (1, 9)
    assert {rows for _, rows in shapes[1:]} == {9 - position}
    for layer, head in ((0, 1), (2, 3)):
        change = av.Ablate(layer, head)
        alone = av.intervene(
            model, {"input_ids": IDS}, change, answer=(7, 8), position=position
        ).effect
        assert effects[layer][head] == pytest.approx(alone.change, abs=2e-6)
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (list, ValueError, "changes is empty"),
        (lambda: "it", TypeError, "changes must be one or several of Ablate"),
        (lambda: av.Ablate(layers=9), IndexError, "layers=9: stack 'self' has layers 0 to 2"),
        (lambda: av.Ablate(heads=[0, 7]), IndexError, r"heads=\[0, 7\]: layer 0 has heads 0 to 3"),
        (lambda: av.Ablate(stack="cross"), KeyError, "cross"),
        (lambda: av.Ablate(factor=0.5, mean_of=["a"]), ValueError, "cannot be combined with mean"),
        (lambda: av.Ablate(factor=float("nan")), ValueError, "factor"),
        (lambda: av.Knockout(queries=9), IndexError, "queries=9"),
        (lambda: av.HideTokens([]), ValueError, r"tokens=\[\] is empty. Pass at least one token"),
        (lambda: av.SetWeights(0, 0, np.ones((9, 9))), ValueError, "every row must sum to 1"),
        (lambda: av.SetWeights(0, 0, -np.eye(9)), ValueError, "negative"),
    ],
)
def test_invalid_changes_are_refused(
    make: Callable[[], Any], error: type[Exception], words: str
) -> None:
    model = make_model("gpt2")
    with pytest.raises(error, match=words):
        av.intervene(model, {"input_ids": IDS}, make())


def test_effects_of_heads_run_no_earlier_layer_again() -> None:
    """A forward that ablates heads of a layer starts at this layer."""
    model = make_model("bloom")
    runs: Counter[int] = Counter()
    for number, block in enumerate(model.transformer.h):
        dense = block.self_attention.dense
        dense.register_forward_hook(lambda *_, number=number: runs.update([number]))
    av.head_effects(model, {"input_ids": IDS}, answer=(7, 8))
    # Layers 0 and 1 run twice in the unchanged model, once for the noise, and once for the heads of
    # layer 0. Layer 1 also runs once as a check that it can run alone, and once for its own heads.
    assert (runs[0], runs[1]) == (4, 6)
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
def test_effects_of_means_are_those_of_each_text_with_the_others(kind: str) -> None:
    model = make_model(kind)
    texts = [IDS[0], *OTHERS]
    effects = av.head_effects(model, texts, answer=(7, 8), ablate="mean")
    assert effects.num_texts == 3
    alone = []
    for index, text in enumerate(texts):
        change = av.Ablate(0, 1, mean_of=[*texts[:index], *texts[index + 1 :]])
        alone.append(av.intervene(model, text, change, answer=(7, 8)).effect.change)
    assert effects[0][1] == pytest.approx(np.mean(alone), abs=1e-6)
    assert effects.standard_errors is not None
    error = np.std(alone, ddof=1) / np.sqrt(3)
    assert effects.standard_errors[0][1] == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "gpt_oss", "t5", *TRACED])
def test_a_head_is_set_to_its_mean_over_other_texts(kind: str) -> None:
    model = make_model(kind)
    name, stack = PROJECTIONS[kind]
    change = av.Ablate(LAYER, HEAD, stack=stack, mean_of=OTHERS)
    record = av.intervene(model, inputs_of(kind), change, answer=(7, 8))

    # For comparison, set the head's part of the projection's input to its mean over `OTHERS`.
    mine = slice(HEAD * 12, (HEAD + 1) * 12)
    outputs: list[torch.Tensor] = []

    def edit(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        inputs = args[0].clone()
        if len(outputs) < len(OTHERS):
            outputs.append(args[0][0, :, mine])
        else:
            inputs[..., mine] = torch.cat(outputs).mean(dim=0)
        return (inputs, *args[1:])

    model.get_submodule(name).register_forward_pre_hook(edit)
    with torch.no_grad():
        for text in OTHERS:
            (model.encoder if kind == "t5" else model)(text[None])
    expected = difference(model, inputs_of(kind), (7, 8))
    assert record.effect.after == pytest.approx(expected, abs=3e-6)
    assert abs(record.effect.change) > 1e-5
    assert 0 < record.effect.noise < 1e-4
    assert any("set to its mean over 2 other texts in layer 1" in note for note in record.notes)


def test_modules_that_cannot_be_changed_are_named() -> None:
    """torch's own attention module and attention in windows cannot be changed."""
    pixels = {"pixel_values": torch.rand(1, 3, 32, 32)}
    siglip = built("SiglipVisionModel", {**SIZE, "image_size": 32, "patch_size": 8})
    with pytest.raises(NotImplementedError, match=r"head\.attention \(MultiheadAttention\)"):
        av.intervene(siglip, pixels, av.Ablate(stack="pooling"))
    stages = {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
    swin = built("SwinForImageClassification", {"image_size": 32, "patch_size": 2, **stages})
    with pytest.raises(NotImplementedError, match=r"changes: .*windows"):
        av.intervene(swin, pixels, av.Ablate(0, 0, stack="vision stage 1"))


def test_a_changed_record_names_the_changes_and_is_saved_unchanged(tmp_path: Any) -> None:
    changes = [av.Knockout(8, [1, 2], layers=0, heads=1), av.HideTokens(3), av.Ablate(layers=2)]
    record = av.intervene(make_model("mistral"), {"input_ids": IDS}, changes, answer=(7, 8))
    notes = " ".join(record.notes)
    assert "Cut before the softmax: “#61” (8) does not read “#17” (1), “#42” (2)" in notes
    assert "The output is set to 0 in layer 2, all heads." in notes
    assert record.changes == tuple(changes)
    assert record.effect.divergence is not None
    assert record.effect.divergence > 0
    record.save(tmp_path / "changed.safetensors")
    loaded = av.load(tmp_path / "changed.safetensors")
    for layer in (0, 1, 2):
        own = record.stack().weights(layer=layer)
        assert np.array_equal(loaded.stack().weights(layer=layer), own)
    assert loaded.notes == record.notes
