"""Changed attention of a running model, compared with independent ways to make the same change."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.interventions.changes import Change
from models.make_models import make_model
from models.tiny import built
from rounding import UNIT

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
#: Two other texts.
OTHERS = [torch.tensor([3, 80, 41, 60, 12, 9]), torch.tensor([77, 2, 8, 90])]
LAYER, HEAD = 1, 2
#: The output projection of a layer, and the stack of the change.
PROJECTIONS: dict[str, tuple[str, str | None]] = {
    "gpt2": ("transformer.h.1.attn.c_proj", None),
    "llama": ("model.layers.1.self_attn.o_proj", None),
    "mistral": ("model.layers.1.self_attn.o_proj", None),
    "gemma2": ("model.layers.1.self_attn.o_proj", None),
    "gpt_oss": ("model.layers.1.self_attn.o_proj", None),
    "bert": ("bert.encoder.layer.1.attention.output.dense", None),
    "bart": ("model.decoder.layers.1.encoder_attn.out_proj", "cross"),
    "t5": ("encoder.block.1.layer.0.SelfAttention.o", "encoder"),
}

_TEXT = {"vocab_size": 400, "max_position_embeddings": 64, "intermediate_size": 64}
_SIZE = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
#: Models whose attention bypasses the dispatcher, and the output projection of a layer.
TRACED: dict[str, tuple[Any, Any, str]] = {
    "bloom": (
        transformers.BloomForCausalLM,
        transformers.BloomConfig(vocab_size=400, hidden_size=48, n_layer=2, n_head=4),
        "transformer.h.1.self_attention.dense",
    ),
    "deberta-v2": (
        transformers.DebertaV2ForMaskedLM,
        transformers.DebertaV2Config(**_TEXT, **_SIZE),
        "deberta.encoder.layer.1.attention.output.dense",
    ),
    "openai-gpt": (
        transformers.OpenAIGPTLMHeadModel,
        transformers.OpenAIGPTConfig(
            vocab_size=400, n_embd=48, n_layer=2, n_head=4, n_positions=64
        ),
        "transformer.h.1.attn.c_proj",
    ),
}
PROJECTIONS |= {kind: (name, None) for kind, (_, _, name) in TRACED.items()}


def model_of(kind: str) -> Any:
    return built(TRACED[kind][0].__name__, TRACED[kind][1]) if kind in TRACED else make_model(kind)


def inputs_of(kind: str) -> dict[str, torch.Tensor]:
    """Return the inputs of a model of a kind."""
    more = {"decoder_input_ids": IDS[:, :5]} if kind in ("bart", "t5") else {}
    return {"input_ids": IDS, **more}


def difference(model: Any, arguments: Any, pair: tuple[int, int]) -> float:
    """Return the difference of two logits of the model at the last token."""
    # A product with more rows may be rounded differently.
    accepted = inspect.signature(model.forward).parameters
    last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
    with torch.no_grad():
        row = model(**arguments, **last).logits[0, -1].double()
    return float(row[pair[0]] - row[pair[1]])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", [kind for kind in PROJECTIONS if kind not in TRACED])
def test_ablating_a_head_equals_zeros_in_its_slice_of_the_projection(
    kind: str, implementation: str
) -> None:
    model = make_model(kind)
    if kind not in ("gemma2", "gpt_oss"):
        model.set_attn_implementation(implementation)
    name, stack = PROJECTIONS[kind]
    changed = copy.deepcopy(model)
    projection = changed.get_submodule(name)
    own = av.extract(model, inputs_of(kind))
    num_heads = own.stack(stack).attention(LAYER).num_heads
    with torch.no_grad():
        # GPT-2's projections store their inputs as rows.
        rows = projection.weight if kind == "gpt2" else projection.weight.T
        width = len(rows) // num_heads
        rows[HEAD * width : (HEAD + 1) * width] = 0
    change = av.Ablate(layers=LAYER, heads=HEAD, stack=stack)
    for pair in ((7, 8), (100, 30)):
        effect = av.intervene(model, inputs_of(kind), change, answer=pair).effect
        assert effect.before == difference(model, inputs_of(kind), pair)
        assert effect.after == difference(changed, inputs_of(kind), pair)
        assert effect.after != effect.before
        assert effect.noise == 0


def four_axes(cut: list[tuple[int, int]], *, causal: bool) -> torch.Tensor:
    """Return a mask that is added to the logits of all heads and layers."""
    allowed = torch.ones(9, 9, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    for query, key in cut:
        allowed[query, key] = False
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(1, 1, 9, 9).masked_fill(~allowed, lowest)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_knockout_is_a_mask_of_four_axes(kind: str, implementation: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    mask = four_axes([(5, 1), (5, 3), (8, 1), (8, 3)], causal=kind != "bert")
    change = av.Knockout(queries=[5, 8], keys=[1, 3])
    pair = (7, 8)
    record = av.intervene(model, {"input_ids": IDS}, change, answer=pair)
    expected = difference(model, {"input_ids": IDS, "attention_mask": mask}, pair)
    assert record.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(record.effect.change) > 1e-4
    assert record.effect.noise < 1e-6
    # The record has the weights of the changed run in every layer.
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
    # The token keeps itself in its own row.
    assert weights[:, 3, 3].any()


def edited_by(edit: Callable[[torch.Tensor], None]) -> Callable[..., Any]:
    """Return GPT-2's attention function with an edit of the first layer's weights."""

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

    return attend


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
    edit: Callable[[torch.Tensor], None], change: Change, register: Callable[..., str]
) -> None:
    model = make_model("gpt2")
    edited = copy.deepcopy(model)
    edited.set_attn_implementation(register("edited", edited_by(edit)))
    record = av.intervene(model, {"input_ids": IDS}, change, answer=(7, 8))
    expected = difference(edited, {"input_ids": IDS}, (7, 8))
    assert record.effect.after == pytest.approx(expected, abs=1e-6)
    assert abs(record.effect.change) > 1e-4
    own = av.extract(model, {"input_ids": IDS}).stack().weights(layer=0)
    target = torch.from_numpy(own.copy())[None]
    edit(target)
    assert np.abs(record.stack().weights(layer=0) - target[0].numpy()).max() < 1e-6


def test_the_remaining_weights_of_a_row_are_renormalized() -> None:
    model = make_model("gpt_oss")
    own = av.extract(model, {"input_ids": IDS}).stack().weights(layer=0, head=HEAD)
    change = av.Knockout(queries=8, keys=[2, 6], layers=0, heads=HEAD)
    changed = av.intervene(model, {"input_ids": IDS}, change).stack().weights(layer=0, head=HEAD)
    expected = own.copy()
    # A sink takes its share of the remaining weight, too.
    expected[8] /= 1 - own[8, [2, 6]].sum()
    expected[8, [2, 6]] = 0
    assert np.abs(changed - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("kind", "stack"),
    [
        ("gpt2", None),
        ("llama", None),
        ("gpt_oss", None),
        ("bert", None),
        ("albert", None),
        ("bart", "encoder"),
        ("bart", "cross"),
        ("t5", "decoder"),
    ],
)
def test_effects_of_all_heads_are_those_of_each_alone(kind: str, stack: str | None) -> None:
    model = make_model(kind)
    # The answer of a base model without logits is measured on its hidden states.
    pair = None if kind == "albert" else (7, 8)
    effects = av.head_effects(model, inputs_of(kind), answer=pair, stack=stack)
    # A logit is a sum of 48 products of size 1, with an error of up to 48 roundings. An effect is
    # the difference of two such logits, each of hidden states with such an error.
    off = 4 * 48 * UNIT
    assert effects.noise < off
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
    """BERT's language head computes the logits of all positions. Effects are measured on these."""
    model = make_model("bert")
    shapes: list[tuple[int, ...]] = []
    decoder = model.get_output_embeddings()
    handle = decoder.register_forward_hook(lambda *args: shapes.append(tuple(args[2].shape[:2])))
    effects = av.head_effects(model, {"input_ids": IDS}, answer=(7, 8), position=position)
    handle.remove()
    # First the model's own logits, for the comparison, then those of each layer's copies.
    assert shapes[0] == (1, 9)
    assert {rows for _, rows in shapes[1:]} == {9 - position}
    for layer, head in ((0, 1), (2, 3)):
        change = av.Ablate(layer, head)
        alone = av.intervene(
            model, {"input_ids": IDS}, change, answer=(7, 8), position=position
        ).effect
        assert effects[layer][head] == pytest.approx(alone.change, abs=2e-6)
    assert not any("forward" in module.__dict__ for module in model.modules())


WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ([], {}, ValueError, "changes is empty"),
    ("it", {}, TypeError, "changes must be one or several of Ablate"),
    (av.Ablate(layers=9), {}, IndexError, "layers=9: stack 'self' has layers 0 to 2"),
    (av.Ablate(heads=[0, 7]), {}, IndexError, "layer 0 has heads 0 to 3, but not 7"),
    (av.Ablate(layers=[]), {}, ValueError, "layers=.* is empty"),
    (av.Ablate(stack="cross"), {}, KeyError, "cross"),
    (av.Knockout(queries=9), {}, IndexError, "queries=9"),
    (av.Knockout(keys="nothing"), {}, ValueError, "keys='nothing'"),
    (av.HideTokens([]), {}, ValueError, "tokens=.* is empty"),
    (av.SetWeights(0, 0, np.ones((9, 9))), {}, ValueError, "row 0 sums to 9"),
    (av.SetWeights(0, 0, np.eye(3)), {}, ValueError, "shape"),
    (av.SetWeights(0, 0, -np.eye(9)), {}, ValueError, "negative"),
    (av.SetWeights(0, 0, object()), {}, TypeError, "weights"),
    (av.Ablate(0), {"answer": (1, 2, 3)}, ValueError, "pair"),
    (av.Ablate(0), {"answer": 1.5}, TypeError, "answer=1.5"),
    (av.Ablate(0, mean_of=[]), {}, ValueError, "the list is empty"),
    (av.Ablate(0, mean_of="a text"), {}, ValueError, "tokenizer"),
]


@pytest.mark.parametrize(("changes", "options", "error", "words"), WRONG)
def test_invalid_arguments_are_refused(
    changes: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    model = make_model("gpt2")
    with pytest.raises(error, match=words):
        av.intervene(model, {"input_ids": IDS}, changes, **options)


def test_changes_refuse_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="cannot be combined with mean_of"):
        av.Ablate(factor=0.5, mean_of=["a text"])
    with pytest.raises(ValueError, match="tokens=None"):
        av.HideTokens(None)
    for factor in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="factor"):
            av.Ablate(factor=factor)
    with pytest.raises(TypeError, match="factor='half'"):
        av.Ablate(factor="half")  # type: ignore[arg-type]
    for weights in (None, "even"):
        with pytest.raises(ValueError, match="weights="):
            av.SetWeights(weights=weights)


def without_head(model: Any, kind: str, head: int) -> Any:
    """Return a copy of a model whose second layer's output projection ignores a head."""
    changed = copy.deepcopy(model)
    weight = changed.get_submodule(TRACED[kind][2]).weight
    with torch.no_grad():
        rows = weight if kind == "openai-gpt" else weight.T
        rows[head * 12 : (head + 1) * 12] = 0
    return changed


@pytest.mark.parametrize("kind", TRACED)
def test_effects_of_heads_that_bypass_the_dispatcher_are_slices_of_the_projection(
    kind: str,
) -> None:
    """Earlier layers do not run again, and each layer's heads are copies in one batch."""
    make, config, name = TRACED[kind]
    model = built(make.__name__, config)
    inputs = {"input_ids": IDS}
    runs: Counter[int] = Counter()

    def count(number: int) -> Any:
        projection = model.get_submodule(name.replace(".1.", f".{number}."))
        return projection.register_forward_hook(lambda *_: runs.update([number]))

    handles = [count(0), count(1)]
    effects = av.head_effects(model, inputs, answer=(7, 8))
    for handle in handles:
        handle.remove()
    # Both layers run twice unchanged and once with the heads of the first layer. The last layer
    # also runs with its own heads, and before that once to check whether it can run alone.
    assert (runs[0], runs[1]) == (3, 5)
    assert effects.noise < 1e-6
    plain = difference(model, inputs, (7, 8))
    for head, value in enumerate(effects[1]):
        expected = difference(without_head(model, kind, head), inputs, (7, 8)) - plain
        assert value == pytest.approx(expected, abs=1e-6)
        assert abs(value) > 1e-6
    for head in (0, 3):
        alone = av.intervene(model, inputs, av.Ablate(0, head), answer=(7, 8)).effect
        assert effects[0][head] == pytest.approx(alone.change, abs=1e-6)
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("kind", ["gpt2", *TRACED])
def test_effects_of_means_are_those_of_each_text_with_the_others(kind: str) -> None:
    model = model_of(kind)
    texts = [IDS[0], *OTHERS]
    effects = av.head_effects(model, texts, answer=(7, 8), ablate="mean")
    assert effects.num_texts == 3
    alone = [
        av.intervene(
            model,
            texts[index],
            av.Ablate(0, 1, mean_of=[*texts[:index], *texts[index + 1 :]]),
            answer=(7, 8),
        ).effect.change
        for index in range(3)
    ]
    assert effects[0][1] == pytest.approx(np.mean(alone), abs=1e-6)
    assert effects.standard_errors is not None
    error = np.std(alone, ddof=1) / np.sqrt(3)
    assert effects.standard_errors[0][1] == pytest.approx(error, abs=1e-6)


def with_mean(model: Any, name: str) -> Any:
    """Return a copy whose projection gets a head's mean input over other texts at every token."""
    changed = copy.deepcopy(model)
    mine = slice(HEAD * 12, (HEAD + 1) * 12)
    outputs: list[torch.Tensor] = []
    handle = model.get_submodule(name).register_forward_pre_hook(
        lambda _, args: outputs.append(args[0][0, :, mine])
    )
    with torch.no_grad():
        for text in OTHERS:
            model(text[None])
    handle.remove()
    mean = torch.cat(outputs).mean(dim=0)

    def put(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        replaced = args[0].clone()
        replaced[..., mine] = mean
        return (replaced, *args[1:])

    changed.get_submodule(name).register_forward_pre_hook(put)
    return changed


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "gpt_oss", "t5", *TRACED])
def test_a_head_is_set_to_its_mean_over_other_texts(kind: str) -> None:
    model = model_of(kind)
    name, stack = PROJECTIONS[kind]
    if kind == "t5":
        # Only the encoder is changed.
        changed = copy.deepcopy(model)
        name = name.removeprefix("encoder.")
        changed.encoder = with_mean(model.encoder, name)
    else:
        changed = with_mean(model, name)
    expected = difference(changed, inputs_of(kind), (7, 8))
    change = av.Ablate(LAYER, HEAD, stack=stack, mean_of=OTHERS)
    record = av.intervene(model, inputs_of(kind), change, answer=(7, 8))
    assert record.effect.after == pytest.approx(expected, abs=3e-6)
    assert abs(record.effect.change) > 1e-5
    assert record.effect.noise == 0
    assert any("set to its mean over 2 other texts in layer 1" in note for note in record.notes)
    # Earlier changes of the output are replaced, and later ones apply to the mean.
    half = [av.Ablate(LAYER, HEAD, 0.0, stack), change, av.Ablate(LAYER, HEAD, 1.0, stack)]
    again = av.intervene(model, inputs_of(kind), half, answer=(7, 8))
    assert again.effect.after == record.effect.after


@pytest.mark.parametrize("kind", TRACED)
def test_attention_that_bypasses_the_dispatcher_is_changed_at_its_softmax(kind: str) -> None:
    make, config, _ = TRACED[kind]
    model = built(make.__name__, config)
    inputs = {"input_ids": IDS}
    changed = without_head(model, kind, HEAD)
    effect = av.intervene(model, inputs, av.Ablate(1, HEAD), answer=(7, 8)).effect
    assert effect.after == pytest.approx(difference(changed, inputs, (7, 8)), abs=1e-6)
    assert abs(effect.change) > 1e-5
    assert effect.noise == 0
    own = av.extract(model, inputs).stack().weights(layer=0, head=HEAD)
    cut = av.intervene(model, inputs, av.Knockout(8, [2, 6], layers=0, heads=HEAD), answer=(7, 8))
    expected = own.copy()
    expected[8] /= 1 - own[8, [2, 6]].sum()
    expected[8, [2, 6]] = 0
    assert np.abs(cut.stack().weights(layer=0, head=HEAD) - expected).max() < 1e-5
    assert cut.effect.change != 0
    # Replacement by equal weights has the same effect.
    given_so = av.SetWeights(0, HEAD, expected / expected.sum(axis=1, keepdims=True))
    effect = av.intervene(model, inputs, given_so, answer=(7, 8)).effect
    assert effect.change == pytest.approx(cut.effect.change, abs=1e-6)


def test_modules_that_cannot_be_changed_are_named() -> None:
    """torch's own module is a single function, and windows are several attentions in one."""
    pixels = {"pixel_values": torch.rand(1, 3, 32, 32)}
    image = {"image_size": 32, "patch_size": 8}
    siglip = transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(**_SIZE, **image, intermediate_size=64)
    ).eval()
    with pytest.raises(NotImplementedError, match=r"head\.attention \(MultiheadAttention\)"):
        av.intervene(siglip, pixels, av.Ablate(stack="pooling"))
    swin = transformers.SwinForImageClassification(
        transformers.SwinConfig(
            image_size=32,
            patch_size=2,
            embed_dim=24,
            depths=[1, 1],
            num_heads=[2, 4],
            window_size=4,
        )
    ).eval()
    with pytest.raises(NotImplementedError, match=r"changes: .*windows"):
        av.intervene(swin, pixels, av.Ablate(0, 0, stack="vision stage 1"))
    with pytest.raises(NotImplementedError, match=r"head\.attention \(MultiheadAttention\)"):
        av.head_effects(siglip, pixels, stack="pooling")


def test_truncation_is_noted() -> None:
    changes = [av.Knockout(8, [1, 2], layers=0, heads=1), av.Ablate(layers=2)]
    record = av.intervene(make_model("gpt2"), {"input_ids": IDS}, changes, answer=(7, 8))
    notes = " ".join(record.notes)
    assert "Cut before the softmax: “#61” (8) does not read “#17” (1), “#42” (2)" in notes
    assert "The output is set to 0 in layer 2, all heads." in notes
    assert record.effect.candidates_before[0].probability > 0
    assert record.effect.divergence is not None
    assert record.effect.divergence > 0
    assert record.changes == tuple(changes)


def test_a_changed_record_is_saved_unchanged(tmp_path: Any) -> None:
    changes = [av.Knockout(8, [1, 2], layers=0, heads=1), av.HideTokens(3)]
    record = av.intervene(make_model("mistral"), {"input_ids": IDS}, changes)
    record.save(tmp_path / "changed.safetensors")
    loaded = av.load(tmp_path / "changed.safetensors")
    for layer in (0, 1, 2):
        own = record.stack().weights(layer=layer)
        assert np.array_equal(loaded.stack().weights(layer=layer), own)
    assert loaded.notes == record.notes
