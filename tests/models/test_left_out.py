"""Losses of a cut cache, compared with the models' own weights and with the models' cut caches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

import attnviz as av
from attnviz.interventions import LeftOut
from model_types.build import tiny_model
from rounding import forwards_error

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 2])
COUNT, HEADS, KEY_HEADS, CONTEXT = IDS.shape[1], 4, 2, 16
DISTANCE = np.subtract.outer(np.arange(COUNT), np.arange(COUNT))
# Models with grouped queries, a sliding window of 5 keys, a soft cap, sinks, linear layers beside
# those with a softmax, and an indexer.
MODELS = ["llama", "mistral", "gemma2", "gpt_oss", "qwen3_next", "deepseek_v32"]
# Kept keys of each key head of the context.
KEPT = np.random.default_rng(0).random((KEY_HEADS, CONTEXT)) < 0.4


def own_attention(
    model: Any,
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return the weights and values of the eager attention function in each softmax layer."""
    weights, values = [], []
    eager = model.config._attn_implementation
    model.set_attn_implementation("eager")
    interface = AttentionInterface.get_interface

    def noting(self: Any, *names: Any) -> Any:
        function = interface(self, *names)

        def noted(module: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
            result = function(module, query, key, value, *rest, **named)
            shared = query.shape[1] // value.shape[1]
            weights.append(result[1][0].double().numpy())
            values.append(value[0].repeat_interleave(shared, 0).double().numpy())
            return result

        return noted

    AttentionInterface.get_interface = noting
    try:
        with torch.no_grad():
            model(IDS, use_cache=False)
    finally:
        AttentionInterface.get_interface = interface
        model.set_attn_implementation(eager)
    return weights, values


def expected_losses(
    weights: NDArray[np.float64], values: NDArray[np.float64], evicted: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the kept weights, divided by their sum, the lost weight, and the change."""
    lost = np.where(evicted, weights, 0).sum(axis=-1)
    kept = np.where(evicted, 0, weights) / (1 - lost[..., None])
    before, after = weights @ values, kept @ values
    change = np.linalg.norm(after - before, axis=-1) / np.linalg.norm(before, axis=-1)
    return kept, lost, change


def evicted_from_context(kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the evicted pairs, (heads, queries, keys), for the kept keys of each key head."""
    evicted = np.zeros((HEADS, COUNT, COUNT), np.bool_)
    evicted[:, CONTEXT:, :CONTEXT] = ~kept.repeat(HEADS // len(kept), axis=0)[:, None]
    return evicted


OUTSIDE = np.broadcast_to((DISTANCE >= 3) & (np.arange(COUNT) >= 2), (HEADS, COUNT, COUNT))


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize(
    ("keep", "evicted"),
    [
        (av.Window(3, sinks=2), OUTSIDE),
        (KEPT[0], evicted_from_context(KEPT[:1])),
        (KEPT.repeat(HEADS // KEY_HEADS, axis=0), evicted_from_context(KEPT)),
    ],
    ids=["window", "keys", "keys of heads"],
)
def test_losses_are_those_of_the_models_own_weights(
    model_type: str, keep: Any, evicted: NDArray[np.bool_]
) -> None:
    model = tiny_model(model_type, None, {"index_topk": 12} if "deepseek" in model_type else {})
    result = av.left_out(model, IDS, keep=keep)
    stack = result.record.stacks["self"]
    weights, values = own_attention(model)
    assert len(weights) == stack.num_layers
    # Bound of the rounding of a weight. The kept weights are divided by their sum.
    rounding = forwards_error(result.complete)
    assert rounding < 1e-3
    for layer, one, value in zip(stack.layers, weights, values, strict=True):
        kept, lost, change = expected_losses(one, value, evicted)
        error = np.abs(stack.weights(layer=layer) - kept)
        assert (error <= 2 * rounding / np.maximum(1 - lost, rounding)[..., None]).all()
        assert_allclose(result.lost[layer], lost, atol=max(1e-5, COUNT * rounding))
        # Where nearly all weight is lost, rounding of the kept weights is scaled up.
        assert_allclose(result.change[layer], change, rtol=1e-3, atol=1e-5)
        pairs = np.stack([stack.left_out(layer=layer, head=head) for head in range(HEADS)])
        expected = evicted & (one > 0)
        if result.complete.stacks["self"].chooses_keys:
            expected = (DISTANCE >= 0) & (evicted | (one == 0))
        assert_array_equal(pairs, expected)
        assert change.max() > 0.1


@pytest.mark.parametrize("keep", [av.Window(3, sinks=1), KEPT], ids=["window", "keys of heads"])
def test_the_first_layer_is_that_of_a_model_with_a_mask_of_the_kept_keys(keep: Any) -> None:
    model: Any = tiny_model("llama", None, {})
    model.set_attn_implementation("eager")
    result = av.left_out(model, IDS, keep=keep)
    kept = evicted_from_context(KEPT)
    if isinstance(keep, av.Window):
        kept = np.broadcast_to((DISTANCE >= 3) & (np.arange(COUNT) >= 1), kept.shape)
    allowed = torch.from_numpy(~kept & (DISTANCE >= 0))
    outputs = []
    projection = model.layers[0].self_attn.o_proj
    handle = projection.register_forward_pre_hook(lambda *call: outputs.append(call[1][0][0]))
    with torch.no_grad():
        model(IDS, use_cache=False)
        mask = torch.where(allowed, 0.0, -torch.inf)[None]
        own = model(IDS, attention_mask=mask, use_cache=False, output_attentions=True)
    handle.remove()
    assert_allclose(result.record.stack().weights(layer=0), own.attentions[0][0], atol=1e-5)
    before, after = (one.unflatten(-1, (HEADS, -1)).transpose(0, 1) for one in outputs)
    change = (after - before).norm(dim=-1) / before.norm(dim=-1)
    assert_allclose(result.change[0], change, rtol=1e-3, atol=1e-5)
    # The next layer has other inputs in the cut model.
    assert not np.allclose(result.record.stack().weights(layer=1), own.attentions[1][0], atol=1e-2)


@pytest.mark.parametrize(
    "keep",
    [av.Window(COUNT), av.Window(1, sinks=COUNT), np.ones(CONTEXT, np.bool_), {}],
    ids=["window", "sinks", "keys", "no layer"],
)
def test_nothing_is_lost_if_all_keys_are_kept(keep: Any) -> None:
    model = tiny_model("gpt_oss", None, {})
    after = CONTEXT if isinstance(keep, dict) else None
    result = av.left_out(model, IDS, keep=keep, after=after)
    record = av.extract(model, IDS)
    for layer in record.stack().layers:
        assert not result.lost[layer].any()
        assert not result.change[layer].any()
        assert_allclose(
            result.record.stack().weights(layer), record.stack().weights(layer), atol=1e-6
        )
    assert repr(result) == "<LeftOut: no query loses weight>"
    assert not np.concatenate(result.means).any()


def test_positions_and_flags_of_single_layers_agree() -> None:
    model = tiny_model("llama", None, {})
    positions = np.stack([np.flatnonzero(KEPT[0])[:4], np.flatnonzero(KEPT[1])[:4]])
    flags = np.zeros_like(KEPT)
    np.put_along_axis(flags, positions, values=True, axis=1)
    one = av.left_out(model, IDS, keep={-1: positions.tolist()}, after=CONTEXT)
    other = av.left_out(model, IDS, keep={1: torch.from_numpy(flags)})
    assert one.after == other.after == CONTEXT
    assert not one.lost[0].any()
    assert one.lost[1][:, CONTEXT:].any()
    for name in ("lost", "change"):
        assert_array_equal(getattr(one, name)[1], getattr(other, name)[1])


def test_a_context_ends_at_a_token(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    text = "the animal did not cross the street because it was too wide so the"
    result = av.left_out(model, text, keep=[], after="because", tokenizer=tokenizer)
    position = result.complete.tokens.position("because")
    weights = result.complete.stack().weights(layer=1)
    assert_allclose(
        result.lost[1][:, position:], weights[:, position:, :position].sum(-1), atol=1e-5
    )
    assert_array_equal(result.lost[1][:, :position], 0)


def test_a_window_has_no_matrix_of_all_tokens() -> None:
    model = tiny_model("llama", None, {})
    for keep in (av.Window(3), KEPT):
        vectors = av.left_out(model, IDS, keep=keep).record.stack().attention(0).vectors
        assert vectors is not None
        assert vectors.mask is not None
        _, tensors = vectors.mask.to_parts()
        assert sum(tensor.numel() for tensor in tensors.values()) <= (HEADS + 2) * COUNT


def test_a_record_of_a_cut_cache_is_saved(tmp_path: Path) -> None:
    result = av.left_out(tiny_model("gpt_oss", None, {}), IDS, keep=KEPT)
    result.record.save(tmp_path / "record.safetensors")
    loaded = av.load(tmp_path / "record.safetensors").stack()
    assert loaded.chooses_keys
    for layer in loaded.layers:
        for name in ("lost_weight", "weights"):
            one, other = (getattr(stack, name)(layer) for stack in (loaded, result.record.stack()))
            assert_array_equal(one, other)


def test_linear_layers_and_the_inputs_of_layers_are_named_in_the_notes() -> None:
    result = av.left_out(tiny_model("qwen3_next", None, {}), IDS, keep=av.Window(3), layers=[2, 0])
    assert list(result.lost) == [2]
    assert result.record.stacks["linear"] is result.complete.stacks["linear"]
    assert "keeps the first 4 keys and the last 3 keys of each query" in result.record.notes[-2]
    assert "Linear layers" in result.record.notes[-1]


def test_the_decoder_of_an_encoder_decoder_model_is_cut() -> None:
    model = tiny_model("t5", None, {})
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :12]}
    result = av.left_out(model, inputs, keep=av.Window(2, sinks=0))
    assert result.stack == "decoder"
    assert result.lost[0].shape == (HEADS, 12)
    assert not result.record.stacks["cross"].chooses_keys


def test_the_table_has_the_losses_of_the_queries_that_can_lose_keys() -> None:
    result = av.left_out(tiny_model("llama", None, {}), IDS, keep=av.Window(3, sinks=1))
    assert result.after == 4
    table = result.to_pandas().set_index(["layer", "head"])
    assert len(table) == 2 * HEADS
    columns = table[["mean_lost", "max_change"]].to_numpy(np.float64)[HEADS + 2]
    expected = result.lost[1][2, 4:].mean(), result.change[1][2].max()
    assert table.index[HEADS + 2] == (1, 2)
    assert_allclose(columns, expected, rtol=1e-6)
    assert_allclose(result.means[1][2], expected[0], rtol=1e-6)
    assert "head 0." in repr(result) or "head 1." in repr(result)


def test_the_curve_has_the_losses_of_other_windows_for_the_same_queries() -> None:
    model = tiny_model("mistral", None, {})
    curve = av.left_out(model, IDS, keep=av.Window(3, sinks=1)).curve([1, 2, COUNT])
    assert curve.index.tolist() == [2, 3, COUNT + 1]
    assert list(map(int, curve.columns)) == [0, 1]
    assert (curve.index.name, curve.columns.name) == ("kept keys", "layer")
    lost = av.left_out(model, IDS, keep=av.Window(1, sinks=1)).lost[1]
    assert_allclose(curve.to_numpy()[0, 1], lost[:, 4:].mean(), rtol=1e-6)
    assert_array_equal(curve.to_numpy()[-1], 0)
    with pytest.raises(ValueError, match="curve needs keep=Window"):
        av.left_out(model, IDS, keep=KEPT).curve([3])


class SmallKeysPress:
    """Press with the interface of kvpress: it keeps the keys with the smallest norms."""

    def __init__(self, count: int, factor: float = 1.0) -> None:
        self.count = count
        self.factor = factor

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        def cut(module: Any, _: Any, named: Any, output: Any) -> None:
            assert named["cache_position"][-1] + 1 == CONTEXT
            layer = named["past_key_values"].layers[module.layer_idx]
            index = (-layer.keys.norm(dim=-1)).topk(self.count, dim=-1).indices[..., None]
            layer.keys = layer.keys.take_along_dim(index, 2) * self.factor
            layer.values = layer.values.take_along_dim(index, 2)

        handles = [
            layer.self_attn.register_forward_hook(cut, with_kwargs=True) for layer in model.layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def kept_by(result: LeftOut, layer: int) -> NDArray[np.bool_]:
    """Return the keys that the first query after the context keeps, (heads, CONTEXT)."""
    stack = result.record.stack()
    flags = [stack.left_out(layer=layer, head=head)[CONTEXT, :CONTEXT] for head in range(HEADS)]
    return ~np.stack(flags)


def small_keys(result: LeftOut, layer: int, count: int) -> NDArray[np.bool_]:
    """Return the keys of the context with the smallest norms, (heads, CONTEXT)."""
    keys = [result.complete.stack().keys(layer=layer, head=head) for head in range(HEADS)]
    norms = np.linalg.norm(np.stack([one for one in keys if one is not None]), axis=-1)
    flags = np.zeros((HEADS, CONTEXT), np.bool_)
    order = norms[:, :CONTEXT].argsort(axis=1)[:, :count]
    np.put_along_axis(flags, order, values=True, axis=1)
    return flags


def test_a_press_chooses_the_kept_keys() -> None:
    model = tiny_model("llama", None, {})
    before = [dict(module.__dict__) for module in model.modules()]
    result = av.left_out(model, IDS, keep=SmallKeysPress(6), after=CONTEXT)
    for layer in (0, 1):
        assert_array_equal(kept_by(result, layer), small_keys(result, layer, 6))
    assert "6 of the 16 keys before token 16 on average (chosen by SmallKeysPress)" in str(
        result.record.notes
    )
    assert [dict(module.__dict__) for module in model.modules()] == before


def test_a_press_cuts_the_last_keys_of_a_sliding_window() -> None:
    """The cache of a window of 5 tokens has the last 4 keys of the context, of which 3 stay."""
    result = av.left_out(
        tiny_model("mistral", None, {}), IDS, keep=SmallKeysPress(3), after=CONTEXT
    )
    assert (~kept_by(result, 0)).sum(axis=1).tolist() == [1] * HEADS
    assert "keeps 3 of the 16 keys" in result.record.notes[-1]


def test_a_press_that_changes_keys_is_refused() -> None:
    model = tiny_model("llama", None, {})
    with pytest.raises(NotImplementedError, match="changes keys or values"):
        av.left_out(model, IDS, keep=SmallKeysPress(6, factor=2.0), after=CONTEXT)


@pytest.mark.parametrize(
    ("keep", "named", "error", "words"),
    [
        ("window", {"after": 3}, TypeError, "keep='window' must be a Window, a press, or an array"),
        ([[0], [1, 2]], {"after": 3}, TypeError, "must be a Window, a press"),
        ([0.5], {"after": 3}, TypeError, "must be a Window, a press"),
        (
            lambda model: model,
            {"after": 3},
            TypeError,
            "is not a press: it does not",
        ),
        ([0, 3], {}, ValueError, "after is required"),
        (SmallKeysPress(2), {}, ValueError, "after is required"),
        ([0, 3], {"after": 3}, IndexError, "positions 0 to 2, but keep has 0 to 3"),
        ([-1], {"after": 3}, IndexError, "positions 0 to 2"),
        ([0], {"after": COUNT}, IndexError, "after=24"),
        ([0], {"after": 0}, ValueError, "after=0"),
        (np.ones((3, 5), np.bool_), {}, ValueError, "one for each head or each of the 2 key heads"),
        (np.ones(5, np.bool_), {"after": 6}, ValueError, "flags for the 6 tokens of the context"),
        ({7: [0]}, {"after": 3}, IndexError, "stack 'self' has layers 0, 1"),
        (av.Window(3), {"after": 3}, ValueError, "Do not pass it with a Window"),
        (av.Window(3), {"generate": 3}, TypeError, "generate= is not supported"),
    ],
)
def test_bad_input(keep: Any, named: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        av.left_out(tiny_model("llama", None, {}), IDS, keep=keep, **named)


def test_models_without_a_cache_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="is not causal"):
        av.left_out(tiny_model("bert", None, {}), IDS, keep=av.Window(3))
    with pytest.raises(ValueError, match="no key-value cache"):
        av.left_out(tiny_model("mamba", None, {}), IDS, keep=av.Window(3))
    with pytest.raises(ValueError, match="inputs has several examples"):
        av.left_out(tiny_model("llama", None, {}), IDS.repeat(2, 1), keep=av.Window(3))
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :12]}
    with pytest.raises(NotImplementedError, match="decoder-only"):
        av.left_out(tiny_model("t5", None, {}), inputs, keep=SmallKeysPress(2), after=6)
    with pytest.raises(ValueError, match="size=0"):
        av.Window(0)


@pytest.fixture(scope="module")
def kvpress() -> Iterator[Any]:
    """The package kvpress, which wraps the attention functions when it is imported."""
    before = dict(ALL_ATTENTION_FUNCTIONS._local_mapping)
    yield pytest.importorskip(
        "kvpress",
        reason="its requirements exclude new versions of transformers: pip install --no-deps "
        "kvpress fire termcolor",
    )
    ALL_ATTENTION_FUNCTIONS._local_mapping = before


PRESSES = {
    "KnormPress": lambda package: package.KnormPress(0.5),
    "StreamingLLMPress": lambda package: package.StreamingLLMPress(0.5, n_sink=2),
    "SnapKVPress": lambda package: package.SnapKVPress(0.5, window_size=4),
    "ExpectedAttentionPress": lambda package: package.ExpectedAttentionPress(0.5),
    "AdaKVPress": lambda package: package.AdaKVPress(package.KnormPress(0.5)),
}


@pytest.mark.parametrize("name", PRESSES)
def test_the_first_layer_is_that_of_a_cache_that_kvpress_cuts(kvpress: Any, name: str) -> None:
    model: Any = tiny_model("llama", "LlamaForCausalLM", {})
    press, cache, outputs = PRESSES[name](kvpress), DynamicCache(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = av.left_out(model, IDS, keep=press, after=CONTEXT)
        # Since transformers 5.24, models pass the cache as `cache`.
        added = {"cache_position": torch.arange(CONTEXT), "past_key_values": cache}
        handles = [
            layer.self_attn.register_forward_pre_hook(
                lambda _, inputs, named: (inputs, added | named), with_kwargs=True
            )
            for layer in model.model.layers
        ]
        with torch.no_grad(), press(model):
            model(IDS[:, :CONTEXT], past_key_values=cache)
        for handle in handles:
            handle.remove()
    projection = model.model.layers[0].self_attn.o_proj
    handle = projection.register_forward_pre_hook(lambda *call: outputs.append(call[1][0][0]))
    with torch.no_grad():
        model(
            IDS[:, CONTEXT:], past_key_values=cache, position_ids=torch.arange(CONTEXT, COUNT)[None]
        )
        model.model.layers[0].self_attn.masked_key_indices = None
        model(IDS, use_cache=False)
    handle.remove()
    after, before = (one.unflatten(-1, (HEADS, -1)).transpose(0, 1) for one in outputs)
    before = before[:, CONTEXT:]
    change = (after - before).norm(dim=-1) / before.norm(dim=-1)
    assert_allclose(result.change[0][:, CONTEXT:], change, rtol=1e-3, atol=1e-5)
    assert change.max() > 0.1
    per_head = kept_by(result, 0).sum(axis=1)
    assert per_head.mean() == CONTEXT / 2
    if name == "KnormPress":
        assert_array_equal(kept_by(result, 1), small_keys(result, 1, CONTEXT // 2))


def test_the_lost_weight_of_the_record_counts_keys_that_the_model_did_not_choose() -> None:
    model: Any = tiny_model("deepseek_v32", None, {"index_topk": 12})
    result = av.left_out(model, IDS, keep=av.Window(3, sinks=2))
    note = "Keys that the model itself did not choose are shown as not chosen"
    assert note in " ".join(result.record.notes)
    own = own_attention(model)[0][0]
    for layer in model.layers:
        layer.self_attn.indexer.index_topk = COUNT
    # Now all layers choose all keys. Only the first layer has the same inputs as before.
    dense = own_attention(model)[0][0]
    lost = np.where((own == 0) | OUTSIDE, dense, 0).sum(axis=-1)
    shown = result.record.stacks["self"].lost_weight(0)
    assert shown is not None
    assert_allclose(shown, lost, atol=1e-5)
    assert (lost - result.lost[0]).max() > 0.1
    complete = av.left_out(model, IDS, keep=av.Window(3, sinks=2))
    assert note not in " ".join(complete.record.notes)


def test_the_record_of_a_cut_cache_has_the_gates_of_the_heads() -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    result = av.left_out(model, IDS, keep=av.Window(3))
    expected = av.extract(model, IDS).stacks["self"]
    for record in (result.record, result.complete):
        assert_array_equal(record.stacks["self"].gates(-1), expected.gates(-1))
