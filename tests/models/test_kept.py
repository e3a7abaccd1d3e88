"""Options of `extract` that limit what a record stores: layers, dtype, device, free memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from attnviz import AttentionRecord, extract
from attnviz.extraction.capture import memory
from attnviz.extraction.capture.copies import Copier
from models.make_models import make_model, reference
from models.tiny import IDS, SIZE, arguments_of, built

Own = Callable[..., dict[str, list[NDArray[np.float32]]]]


def tensors_of(record: AttentionRecord) -> Iterator[torch.Tensor]:
    """Yield the tensors of a record whose size depends on the length of the text."""
    for stack in record.stacks.values():
        for number in stack.layers:
            layer = stack.attention(number)
            vectors, weights = layer.vectors, layer.stored_weights
            if vectors is not None:
                yield from (vectors.queries, vectors.keys)
            if weights is not None:
                yield weights


def record_bytes(record: AttentionRecord) -> int:
    """Return the size of the storages of `tensors_of(record)`, including parts outside of views."""
    storages = {
        tensor.data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors_of(record)
    }
    return sum(storages.values())


def plain(
    model: Any, arguments: Any, keeps: Callable[[str, int], bool]
) -> dict[tuple[str, int], NDArray[np.float32]]:
    """Return the weights of the selected layers from a record with all layers."""
    whole = extract(model, arguments)
    return {
        (name, layer): stack.weights(layer=layer)
        for name, stack in whole.stacks.items()
        for layer in stack.layers
        if keeps(name, layer)
    }


def assert_keeps(
    record: AttentionRecord,
    expected: dict[tuple[str, int], NDArray[np.float32]],
    tolerance: float = 1e-6,
) -> None:
    """Check that the record has exactly these layers with these weights."""
    layers = {(name, layer) for name, stack in record.stacks.items() for layer in stack.layers}
    assert layers == set(expected)
    for (name, layer), weights in expected.items():
        own = record.stacks[name].weights(layer=layer)
        np.testing.assert_allclose(own, weights, rtol=0, atol=tolerance)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes in bytes of the tensors that extraction copies."""
    sizes: list[int] = []
    copy = Copier._copies_of

    def counted(self: Copier, parts: Any, written: Any) -> dict[str, torch.Tensor]:
        copies = copy(self, parts, written)
        sizes.extend(tensor.untyped_storage().nbytes() for tensor in copies.values())
        return copies

    monkeypatch.setattr(Copier, "_copies_of", counted)
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
        assert stack.heads_per_layer == (own[name][1].shape[1],)
        assert np.abs(stack.weights(layer=1) - own[name][1][0]).max() < 1e-4
    expected = sum(
        tensor.nbytes
        for stack in extract(model, arguments).stacks.values()
        if (vectors := stack.attention(1).vectors) is not None
        for tensor in (vectors.queries, vectors.keys)
    )
    assert num_copied == record_bytes(record) == expected
    assert record_bytes(extract(model, arguments, layers=[1], dtype="bfloat16")) == expected // 2


def test_each_stack_keeps_the_layers_that_it_has() -> None:
    """Bart's encoder has 2 layers of 4 heads, and its decoder 3 of 6."""
    model, arguments = make_model("bart"), arguments_of("bart")
    for layers, expected in (
        ([2], {"decoder": (2,), "cross": (2,)}),
        (-1, {"encoder": (1,), "decoder": (2,), "cross": (2,)}),
    ):
        record = extract(model, arguments, layers=layers)
        assert {name: stack.layers for name, stack in record.stacks.items()} == expected
    assert record.only(-1).stacks["encoder"].layers == (1,)


def test_layers_of_one_module_that_runs_again_are_counted() -> None:
    model = make_model("albert")
    record = extract(model, IDS, layers=[0, -1])
    assert_keeps(record, plain(model, IDS, lambda _, layer: layer != 1))


def test_differential_attention_keeps_the_chosen_layers() -> None:
    config = transformers.DiffLlamaConfig(**SIZE, vocab_size=300, num_key_value_heads=2)
    for implementation in ("eager", "sdpa"):
        model = built("DiffLlamaForCausalLM", config, implementation=implementation)
        record = extract(model, IDS, layers=[1])
        assert_keeps(record, plain(model, IDS, lambda _, layer: layer == 1))


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
    # ALBERT has one module for all layers, so layers are counted.
    shared = make_model("albert")
    whole = extract(shared, batch)
    for record, full in zip(extract(shared, batch, layers=[1]), whole, strict=True):
        np.testing.assert_allclose(
            record.stack().weights(layer=1), full.stack().weights(layer=1), atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["float16", torch.bfloat16, "torch.float16"])
@pytest.mark.parametrize("kind", ["bert", "gemma2", "llama", "t5", "gpt_oss"])
def test_the_rounding_error_of_weights_is_noted(kind: str, dtype: Any) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    exact, rounded = extract(model, arguments), extract(model, arguments, dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    for tensor in tensors_of(rounded):
        assert tensor.dtype == getattr(torch, name)
    (note,) = [note for note in rounded.notes if "were kept in" in note]
    assert note.startswith(f"Queries and keys were kept in {name}: weights differ by up to ")
    assert note.endswith(", measured on 4 queries of each head.")
    stated = float(note.split("up to ")[1].split(",")[0].replace("−", "-"))
    sampled = 0.0
    for key, stack in exact.stacks.items():
        for layer in stack.layers:
            own, weights = (record.stacks[key].weights(layer=layer) for record in (exact, rounded))
            rows = [len(own[0]) * part // 4 - 1 for part in range(1, 5)]
            sampled = max(sampled, float(np.abs(own - weights)[:, rows].max()))
    assert sampled * 0.999 <= stated <= sampled * 1.11
    # float32 and float64 hold the exact queries and keys.
    for same in (None, "float32", torch.float64):
        record = extract(model, arguments, dtype=same)
        assert not any("were kept in" in note for note in record.notes)


def test_a_model_in_half_precision_keeps_it() -> None:
    model = make_model("llama").to(torch.bfloat16)
    record = extract(model, IDS, dtype="bfloat16")
    assert {tensor.dtype for tensor in tensors_of(record)} == {torch.bfloat16}
    assert not any("were kept in" in note for note in record.notes)
    # float16 and bfloat16 cannot represent each other's numbers.
    record = extract(model, IDS, dtype="float16")
    assert any("were kept in float16" in note for note in record.notes)


def test_numbers_too_large_for_a_dtype_are_refused() -> None:
    model = make_model("gpt2")
    with torch.no_grad():
        projection = model.transformer.h[1].attn.c_attn
        for factor, side in ((1e-6, slice(0, 48)), (1e6, slice(48, 96))):
            # Queries get smaller and keys larger, so their products stay the same.
            projection.weight[:, side] *= factor
            projection.bias[side] *= factor
    with pytest.raises(
        ValueError, match=r"dtype='float16' holds numbers up to 65,504, and keys .* 'bfloat16'"
    ):
        extract(model, IDS, dtype="float16")
    extract(model, IDS, dtype="bfloat16")
    extract(model, IDS, dtype="float16", layers=[0, 2])


class Pooled(transformers.PreTrainedModel):  # type: ignore[misc]
    """A model with torch's attention module. Its records have weights, but no queries or keys."""

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


def test_weights_without_queries_and_keys_are_rounded_within_the_stated_error() -> None:
    model = weights_only()
    exact = extract(model, IDS)
    assert exact.stack().attention(0).stored_weights is not None
    for dtype in ("float16", "bfloat16"):
        record = extract(model, IDS, dtype=dtype)
        assert record_bytes(record) == 3 * 4 * 10 * 10 * 2
        (note,) = [note for note in record.notes if "were kept in" in note]
        assert "Weights without known queries and keys" in note
        stated = float(note.split("up to ")[1].rstrip(".").replace("−", "-"))
        worst = 0.0
        for layer in range(3):
            for head in range(4):
                own, weights = (
                    item.stack().weights(layer=layer, head=head) for item in (exact, record)
                )
                sums = np.abs(weights.sum(axis=1) - own.sum(axis=1)).max()
                worst = max(worst, float(np.abs(weights - own).max()), float(sums))
                # A small weight must not become 0: 0 means that a query cannot attend to a key.
                np.testing.assert_array_equal(weights > 0, own > 0)
        assert worst * 0.999 <= stated <= worst * 1.11
        assert stated < 0.01
        zeros = record.stack().exact_zeros(layer=0, head=1)
        assert zeros is not None
        assert zeros == exact.stack().exact_zeros(layer=0, head=1)


class Turns(Pooled):
    """A model whose blocks 2 and 5 run in turn, twice each. Its other blocks do not run."""

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


@pytest.mark.parametrize(("layer", "times"), [(0, 2), (1, 2), (2, 1), (3, 1)])
def test_a_layer_with_a_wrongly_estimated_number_is_kept(layer: int, times: int) -> None:
    model = weights_only(Turns)
    expected = plain(model, IDS, lambda _, at: at == layer)
    assert len(expected) == 1
    runs: list[Any] = []
    model.embedding.register_forward_pre_hook(lambda *_: runs.append(1))
    # By the names of its two blocks, the model has layers 2 and 5. Each block runs twice. Only when
    # the first block runs again is it clear that the four runs are layers 0 to 3.
    record = extract(model, IDS, layers=[layer])
    assert_keeps(record, expected)
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
    monkeypatch.setattr(memory, "free_memory", lambda _: needed - 1)
    with pytest.raises(MemoryError, match="inputs: keeping the queries and keys of"):
        extract(model, arguments, **options)
    assert not runs
    # None: the free memory is unknown.
    for free in (needed, None):
        monkeypatch.setattr(memory, "free_memory", lambda _, free=free: free)
        extract(model, arguments, **options)


def test_weights_of_torchs_own_module_are_estimated_as_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = 3 * 4 * 10 * 10 * 4
    model = weights_only()
    assert record_bytes(extract(model, IDS)) == needed
    monkeypatch.setattr(memory, "free_memory", lambda _: needed - 1)
    with pytest.raises(MemoryError, match=r"4\.8 kB on cpu"):
        extract(model, IDS)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"layers": []}, ValueError, r"layers=\[\] is empty. Pass layers"),
    ({"layers": "01"}, TypeError, r"layers='01' must be a list of whole numbers, such as \[0, 5\]"),
    ({"layers": 1.0}, TypeError, r"layers=1\.0 must be a list of whole numbers"),
    ({"layers": True}, TypeError, "layers=True must be a list of whole numbers"),
    ({"layers": "first"}, TypeError, "layers='first' must be a list of whole numbers"),
    ({"layers": [True]}, TypeError, r"layers=\[True\] must be .*; True is not one"),
    ({"layers": [0.0]}, TypeError, r"0\.0 is not one"),
    ({"layers": ["0"]}, TypeError, r"layers=\['0'\] must be .*; '0' is not one"),
    ({"layers": [-4]}, ValueError, "layer -4 does not exist; stack 'self' has layers 0 to 2"),
    ({"layers": 7}, ValueError, "layer 7 does not exist; stack 'self' has layers 0 to 2"),
    ({"layers": [0, 0]}, ValueError, "contains 0 twice"),
    ({"layers": [3]}, ValueError, "layer 3 does not exist; stack 'self' has layers 0 to 2"),
    ({"dtype": "int8"}, ValueError, "dtype='int8' cannot hold queries and keys. Pass 'float16'"),
    ({"dtype": torch.int64}, ValueError, "cannot hold queries and keys"),
    ({"dtype": torch.float8_e4m3fn}, ValueError, "cannot hold queries and keys"),
    ({"dtype": torch.complex64}, ValueError, "cannot hold queries and keys"),
    ({"dtype": 16}, TypeError, r"dtype must be .*; got 16"),
    ({"dtype": np.float16}, TypeError, "dtype must be"),
    ({"device": "nowhere"}, ValueError, "device='nowhere' .* does not know this kind of device"),
    ({"device": "meta"}, ValueError, "device='meta' .* stores no numbers"),
    ({"device": 1.5}, TypeError, "device must be a device such as 'cpu' or 'cuda'"),
]


@pytest.mark.parametrize(("options", "error", "words"), BAD, ids=[str(case[0]) for case in BAD])
def test_bad_capture_options_are_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        extract(make_model("gpt2"), IDS, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_raises_before_the_model_runs() -> None:
    model = make_model("gpt2")
    model.transformer.wte.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(ValueError, match="device='cuda' cannot keep queries and keys"):
        extract(model, IDS, device="cuda")


def test_device_none_keeps_queries_and_keys_on_their_device() -> None:
    record = extract(make_model("gpt2"), IDS, device=None)
    assert {tensor.device.type for tensor in tensors_of(record)} == {"cpu"}
    # The tensors are still copies, because the model may overwrite its buffers.
    assert record_bytes(record) == record_bytes(extract(make_model("gpt2"), IDS))


@pytest.mark.gpu
def test_a_device_without_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama").cuda()
    needed = record_bytes(extract(model, IDS, device=None))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (needed - 1, 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    with pytest.raises(MemoryError, match="on cuda:0, "):
        extract(model, IDS, device=None)
    extract(model, IDS)


def test_layers_from_the_end() -> None:
    model = make_model("gpt2")
    whole = extract(model, IDS)
    stack = extract(model, IDS, layers=-1).stack()
    assert stack.layers == (2,)
    assert np.array_equal(stack.weights(layer=-1, head=-2), whole.stack().weights(layer=2, head=2))
    assert extract(model, IDS, layers="all").stack().layers == (0, 1, 2)
