"""Copies between devices, as far as a machine without GPU can count them."""

from __future__ import annotations

import torch

from attnviz import extract
from models.device_copies import Copies
from models.tiny import built


def test_copies_between_devices_are_counted() -> None:
    numbers = torch.arange(12.0).reshape(3, 4)
    with Copies("cpu", "meta") as counted:
        numbers.to("meta")
        numbers[:2].to("meta", torch.float64)
        torch.empty(3, 4, device="meta").copy_(numbers)
        # Not counted: copies on one device, and a single number that is read for a decision.
        numbers.to(torch.float64)
        torch.tensor([1.0]).to("meta")
        numbers.sum().item()
    assert (counted.count, counted.bytes) == (3, 12 * 4 + 8 * 4 + 12 * 4)


def test_an_extraction_copies_queries_and_keys_no_more_than_once() -> None:
    """Copies to the host are counted as changes of the dtype on the CPU."""
    model = built(
        "LlamaForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 64,
        },
        factor=4.0,
    )
    ids = torch.arange(60)[None]

    def copied(dtype: str | None) -> int:
        counted = Copies("cpu", "cpu")
        with counted:
            extract(model, ids, dtype=dtype, progress=False)
        return counted.bytes

    # Six heads' vectors of 8 numbers for each token and layer.
    num_bytes = 3 * 60 * 6 * 8 * 4
    alone = copied(None)
    assert num_bytes <= copied("float64") - alone < 2 * num_bytes
