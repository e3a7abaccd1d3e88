"""An extraction copies queries and keys at most once, counted without a GPU."""

from __future__ import annotations

import torch

from attnviz import extract
from models.device_copies import Copies
from models.make_models import make_model


def test_an_extraction_copies_queries_and_keys_no_more_than_once() -> None:
    """Conversions to float64 are counted in place of copies to the host."""
    model = make_model("llama")
    ids = torch.arange(60)[None]

    def copied(dtype: str | None) -> int:
        counted = Copies("cpu", "cpu")
        with counted:
            extract(model, ids, dtype=dtype, progress=False)
        return counted.bytes

    # 3 layers, 60 tokens, 4 query and 2 key heads of 12 components, 4 bytes each.
    num_bytes = 3 * 60 * 6 * 12 * 4
    alone = copied(None)
    assert num_bytes <= copied("float64") - alone < 2 * num_bytes
