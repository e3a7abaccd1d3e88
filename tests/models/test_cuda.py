"""Extractions on a device give correct weights with few copies and little memory.

The device is CUDA, or a pretended one (`test_rehearsal.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import AttentionRecord, AttentionStack, extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.server.cells import Cells
from attnviz.server.codec import decode
from models.accelerator import DEVICE, PRETENDED, bytes_to_host, peak
from models.make_models import make_model
from models.tiny import reference
from unit.long_records import long_record
from unit.selected import selected

pytestmark = pytest.mark.gpu

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 40, 12]])


def largest_difference(record: AttentionRecord, own: Sequence[np.ndarray[Any, Any]]) -> float:
    weights = record.to_numpy("self")
    return max(float(np.abs(a - b).max()) for a, b in zip(weights, own, strict=True))


def record_bytes(record: AttentionRecord) -> int:
    """Return the size in bytes of the queries and keys of all layers."""
    attentions: list[Any] = [*map(record.stack().attention, record.stack().layers)]
    return sum(attention.queries.nbytes + attention.keys.nbytes for attention in attentions)


@pytest.mark.parametrize("kind", ["bert", "llama", "mistral", "gemma2", "bloom"])
@pytest.mark.parametrize("device", ["cpu", None])
def test_weights_on_a_device_equal_those_on_the_cpu(kind: str, device: str | None) -> None:
    model = make_model(kind)
    own = [layer[0] for layer in reference(model, {"input_ids": IDS})["self"]]
    model.to(DEVICE)
    with torch.no_grad():
        before = model(input_ids=IDS.to(DEVICE))[0]
        record = extract(model, IDS, device=device)
        after = model(input_ids=IDS.to(DEVICE))[0]
    # Allow large errors: on a GPU, matrix products may round their inputs to fewer bits (TF32).
    assert largest_difference(record, own) < 1e-3
    assert torch.equal(before, after)
    attention = record.stacks["self"].attention(0)
    assert isinstance(attention, QueryKeyAttention)
    assert attention.queries.device.type == (DEVICE.type if device is None else "cpu")


def test_queries_and_keys_leave_the_device_layer_by_layer() -> None:
    """If vectors go to the CPU, an extraction needs one layer's more memory than a forward."""
    settings = {"hidden_size": 192, "num_hidden_layers": 6, "max_position_embeddings": 2048}
    model = make_model("llama", **settings).to(DEVICE)
    ids = torch.randint(3, 400, (1, 1024), device=DEVICE)

    def plain() -> None:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False, logits_to_keep=1)

    plain()
    alone = peak(plain)
    moved = peak(lambda: extract(model, ids))
    records: list[AttentionRecord] = []
    stays = peak(lambda: records.append(extract(model, ids, device=None)))
    num_bytes = record_bytes(records[0])
    assert stays - alone > 0.7 * num_bytes
    # The check of the weights computes 32 rows of each head at once, in float32.
    rows = 2 * 4 * 32 * 1024 * 4
    assert moved - alone < num_bytes / 6 + rows


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_nothing_is_copied_to_the_host_unless_asked(implementation: str) -> None:
    model = make_model("llama").to(DEVICE)
    model.set_attn_implementation(implementation)
    ids = torch.randint(3, 400, (1, 512), device=DEVICE)
    # Do not count the first run, which copies more because it fills caches.
    extract(model, ids, device=None)
    records: list[AttentionRecord] = []

    def capture(device: str | None) -> None:
        records.append(extract(model, ids, device=device))

    copied = {device: bytes_to_host(partial(capture, device)) for device in (None, "cpu")}
    num_bytes = record_bytes(records[0])
    # Even with `device=None`, `extract` copies a few numbers of each layer to the CPU, to check the
    # weights.
    assert copied[None] < 0.02 * num_bytes
    assert num_bytes <= copied["cpu"] < 1.02 * num_bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("implementation", ["sdpa", "flash_attention_2", "flex_attention"])
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_implementations_agree_in_half_precision(
    kind: str, implementation: str, dtype: torch.dtype
) -> None:
    if implementation == "flash_attention_2":
        pytest.importorskip("flash_attn", reason="pip install flash-attn")
    if implementation != "sdpa" and PRETENDED:
        pytest.skip("needs kernels of CUDA")
    model = make_model(kind).to(dtype).to(DEVICE)
    with torch.no_grad():
        model.set_attn_implementation("eager")
        expected = extract(model, IDS)
        model.set_attn_implementation(implementation)
        record = extract(model, IDS)
    # In the first layer, both implementations have the same inputs, so the tolerance is small.
    first, again = (item.stacks["self"].weights(layer=0) for item in (expected, record))
    assert np.abs(first - again).max() < 1e-4
    tolerance = {torch.float16: 0.02, torch.bfloat16: 0.15}[dtype]
    assert largest_difference(record, expected.to_numpy("self")) < tolerance


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_few_bits_give_the_models_own_attention(tmp_path: Path, bits: int) -> None:
    if PRETENDED:
        pytest.skip("needs kernels of CUDA")
    pytest.importorskip("bitsandbytes", reason="pip install bitsandbytes")
    make_model("llama").save_pretrained(tmp_path)
    settings = transformers.BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8)
    model = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, quantization_config=settings, device_map={"": 0}
    )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(input_ids=IDS.to(DEVICE), output_attentions=True).attentions
    computed = extract(model, IDS).to_numpy("self")
    for layer, weights in zip(own, computed, strict=True):
        assert np.abs(layer[0].float().cpu().numpy() - weights).max() < 2e-2


@pytest.mark.parametrize("level", [0, 6])
def test_tiles_of_a_long_text_are_computed_on_the_device(level: int) -> None:
    record = long_record(8192, heads=2, key_heads=1)
    own = record.stack().attention(0)
    assert isinstance(own, QueryKeyAttention)
    moved = QueryKeyAttention(own.queries.to(DEVICE), own.keys.to(DEVICE), own.scale, own.mask)
    stack = AttentionStack("self", {0: moved}, record.stack().query_tokens)

    def last_tile(source: AttentionStack) -> np.ndarray[Any, Any]:
        """Return the heat map tile of the last queries and first keys at zoom level `level`."""
        length = 1 << level
        rows, columns = slice(8192 - 256 * length, 8192), slice(0, 256 * length)
        if rows.start < 0:
            rows, columns = slice(0, 8192), slice(0, 8192)
        weights = selected(source, 0, [0, 1], rows, columns, combine="mean")
        return decode(Cells(pooled="mean", length=length).reply(weights))

    np.testing.assert_allclose(last_tile(stack), last_tile(record.stack()), rtol=1e-4, atol=1e-7)
