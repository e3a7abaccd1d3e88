"""`extract` obeys `layers`, `dtype` and `device`, and checks the free memory before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import AttentionRecord, extract
from attnviz.extraction.capture import memory
from attnviz.extraction.capture.copies import Copier
from attnviz.record.attention import StoredAttention, StoredWeights
from models.make_models import make_model
from models.tiny import IDS, arguments_of, reference


def tensors_of(record: AttentionRecord) -> Iterator[torch.Tensor]:
    """Yield all queries, keys and stored weights of a record."""
    for stack in record.stacks.values():
        for number in stack.layers:
            layer = stack.attention(number)
            if isinstance(layer, StoredAttention):
                yield from (part for name, part in layer.parts.items() if name != "sinks")


def record_bytes(record: AttentionRecord) -> int:
    """Return the sum of the storage sizes of `tensors_of(record)`, in bytes.

    Tensors with the same start address count once.
    """
    storages = {
        tensor.data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors_of(record)
    }
    return sum(storages.values())


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes in bytes of the copies of queries, keys and weights that an extraction makes."""
    sizes: list[int] = []
    copy = Copier.copy

    def counted(self: Copier, attention: Any, written: Any) -> Any:
        copied = copy(self, attention, written)
        parts = copied.parts.items()
        sizes.extend(part.untyped_storage().nbytes() for name, part in parts if name != "sinks")
        return copied

    monkeypatch.setattr(Copier, "copy", counted)
    return sizes


KINDS = "bert albert gpt2 llama mistral gemma2 gpt_oss bart t5 vit bloom roberta".split()


@pytest.mark.parametrize("kind", KINDS)
def test_a_selected_layer_has_the_models_own_weights_and_takes_its_memory(
    kind: str, copied: list[int]
) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    own = reference(model, arguments)
    record = extract(model, arguments, layers=[1])
    num_copied = sum(copied)
    assert list(record.stacks) == list(own)
    for name, stack in record.stacks.items():
        assert stack.layers == (1,)
        assert np.abs(stack.weights(layer=1) - own[name][1][0]).max() < 1e-4
    expected = sum(
        tensor.nbytes
        for stack in extract(model, arguments).stacks.values()
        if (vectors := stack.attention(1).vectors) is not None
        for tensor in (vectors.queries, vectors.keys)
    )
    assert record_bytes(record) == expected
    # All layers of ALBERT are calls of one module. Therefore queries and keys of all three layers
    # are copied, although only layer 1 is kept.
    assert num_copied == (3 * expected if kind == "albert" else expected)
    assert record_bytes(extract(model, arguments, layers=[1], dtype="bfloat16")) == expected // 2


def test_layers_counted_from_the_end_are_the_last_of_each_stack() -> None:
    """Bart's encoder has 2 layers, and its decoder 3."""
    record = extract(make_model("bart"), arguments_of("bart"), layers=-1)
    layers = {name: stack.layers for name, stack in record.stacks.items()}
    assert layers == {"encoder": (1,), "decoder": (2,), "cross": (2,)}


def test_padding_is_removed_from_stored_layers() -> None:
    model = make_model("bert")
    ids = IDS.repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    own = reference(model, batch)["self"]
    records = extract(model, batch, layers=[2])
    for example, (record, length) in enumerate(zip(records, (10, 6), strict=True)):
        weights = record.stack().weights(layer=2, head=1)
        assert weights.shape == (length, length)
        assert np.abs(weights - own[2][example, 1, :length, :length]).max() < 1e-4


@pytest.mark.parametrize("dtype", ["float16", torch.bfloat16, "torch.float16"])
@pytest.mark.parametrize("kind", ["bert", "gemma2", "llama", "t5", "gpt_oss"])
def test_rounded_queries_and_keys_are_noted(kind: str, dtype: Any) -> None:
    record = extract(make_model(kind), arguments_of(kind), dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    assert {tensor.dtype for tensor in tensors_of(record)} == {getattr(torch, name)}
    percent = {"float16": "0.05%", "bfloat16": "0.4%"}[name]
    assert (
        f"Queries and keys were kept in {name}, which rounds each number by up to {percent}: "
        "weights differ from the model's." in record.notes
    )
    exact = extract(make_model(kind), arguments_of(kind))
    assert not any("were kept in" in note for note in exact.notes)


def test_a_model_in_half_precision_keeps_it() -> None:
    model = make_model("llama").to(torch.bfloat16)
    record = extract(model, IDS, dtype="bfloat16")
    assert {tensor.dtype for tensor in tensors_of(record)} == {torch.bfloat16}
    assert not any("were kept in" in note for note in record.notes)
    # The conversion from bfloat16 to float16 rounds numbers, so there is a note.
    record = extract(model, IDS, dtype="float16")
    assert any("were kept in float16" in note for note in record.notes)


def test_numbers_too_large_for_a_dtype_are_refused() -> None:
    model = make_model("gpt2")
    with torch.no_grad():
        projection = model.transformer.h[1].attn.c_attn
        for factor, side in ((1e-6, slice(0, 48)), (1e6, slice(48, 96))):
            # Scale queries down and keys up by the same factor, so their products stay the same.
            projection.weight[:, side] *= factor
            projection.bias[side] *= factor
    with pytest.raises(
        ValueError, match=r"dtype='float16' holds numbers up to 65,504, and keys .* 'bfloat16'"
    ):
        extract(model, IDS, dtype="float16")
    extract(model, IDS, dtype="bfloat16")
    extract(model, IDS, dtype="float16", layers=[0, 2])


class Pooled(transformers.PreTrainedModel):  # type: ignore[misc]
    """Model of `torch.nn.MultiheadAttention` layers, whose records store weights only."""

    config_class = transformers.PretrainedConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embedding = torch.nn.Embedding(300, 48)
        self.layers = torch.nn.ModuleList(
            torch.nn.MultiheadAttention(48, 4, batch_first=True) for _ in range(3)
        )
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden, hidden, hidden, need_weights=False)[0]
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=hidden)


def weights_only(kind: type[Pooled] = Pooled) -> Any:
    torch.manual_seed(0)
    config = transformers.PretrainedConfig(hidden_size=48, num_attention_heads=4)
    model = kind(config).eval()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.MultiheadAttention):
                layer.in_proj_weight[:96] *= 8
    return model


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_without_queries_and_keys_are_rounded(dtype: str) -> None:
    model = weights_only()
    exact, record = extract(model, IDS).stack(), extract(model, IDS, dtype=dtype)
    assert isinstance(exact.attention(0), StoredWeights)
    # There are 3 layers, 4 heads, 10 queries and 10 keys, with 2 bytes per weight.
    assert record_bytes(record) == 3 * 4 * 10 * 10 * 2
    assert any("were kept in" in note for note in record.notes)
    for layer in range(3):
        own, weights = (stack.weights(layer=layer) for stack in (exact, record.stack()))
        np.testing.assert_allclose(weights, own, rtol=2**-8, atol=2**-24)
        # A small weight must not be rounded to 0, because 0 means that the key is masked.
        np.testing.assert_array_equal(weights > 0, own > 0)


class Turns(Pooled):
    """Model with attention in blocks 2 and 5, whose forward runs the blocks 2, 5, 2, 5."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        others = [torch.nn.Identity() for _ in range(6)]
        self.blocks = torch.nn.ModuleList(others)
        for number in (2, 5):
            self.blocks[number] = self.layers[number // 3]
        del self.layers

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        hidden = self.embedding(input_ids)
        for number in (2, 5, 2, 5):
            layer = self.blocks[number]
            hidden = hidden + layer(hidden, hidden, hidden, need_weights=False)[0]
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=hidden)


@pytest.mark.parametrize(("layer", "times"), [(0, 2), (1, 2), (2, 1), (3, 2)])
def test_a_layer_with_a_wrongly_estimated_number_is_kept(layer: int, times: int) -> None:
    """The record of `Turns` has the layers 0 to 3, one for each call of a block.

    In the first forward, `extract` takes all calls of block 2 for layer 2, and those of block 5 for
    layer 5. For layers 0, 1 and 3, it therefore needs a second forward.
    """
    model = weights_only(Turns)
    expected = extract(model, IDS).stack().weights(layer=layer)
    runs: list[Any] = []
    model.embedding.register_forward_pre_hook(lambda *_: runs.append(1))
    stack = extract(model, IDS, layers=[layer]).stack()
    assert stack.layers == (layer,)
    np.testing.assert_allclose(stack.weights(layer=layer), expected, rtol=0, atol=1e-6)
    assert len(runs) == times


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "gpt_oss", "bart", "t5", "bloom"])
@pytest.mark.parametrize(
    "options", [{}, {"layers": [1]}, {"layers": [0, 1], "dtype": "bfloat16"}], ids=str
)
def test_the_estimate_equals_the_memory_of_the_record(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    needed = record_bytes(extract(model, arguments, **options))
    runs: list[Any] = []
    model.get_input_embeddings().register_forward_pre_hook(lambda *_: runs.append(1))
    monkeypatch.setattr(memory, "_MIN_CHECKED", 0)
    monkeypatch.setattr(memory, "free_memory", lambda _: needed - 1)
    with pytest.raises(MemoryError, match="inputs: keeping the queries and keys of"):
        extract(model, arguments, **options)
    assert not runs
    # With enough or unknown (None) free memory, `extract` runs.
    for free in (needed, None):
        monkeypatch.setattr(memory, "free_memory", lambda _, free=free: free)
        extract(model, arguments, **options)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"layers": []}, ValueError, r"layers=\[\] is empty. Pass layers"),
    ({"layers": "01"}, TypeError, r"layers='01' must be a list of whole numbers, such as \[0, 5\]"),
    ({"layers": [-4]}, ValueError, "layer -4 does not exist; stack 'self' has layers 0 to 2"),
    ({"dtype": "int8"}, ValueError, "dtype='int8' cannot hold queries and keys. Pass one of"),
    ({"device": "nowhere"}, ValueError, "device='nowhere' cannot keep queries and keys"),
]


@pytest.mark.parametrize(("options", "error", "words"), BAD, ids=[str(case[0]) for case in BAD])
def test_bad_capture_options_are_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        extract(make_model("gpt2"), IDS, **options)


def test_device_none_keeps_queries_and_keys_on_their_device() -> None:
    model = make_model("gpt2")
    record = extract(model, IDS, device=None)
    assert {tensor.device.type for tensor in tensors_of(record)} == {"cpu"}
    # Slices of the result of `c_attn` would keep the whole result in memory, with the values.
    assert record_bytes(record) == record_bytes(extract(model, IDS))
