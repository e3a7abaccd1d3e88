"""An extraction copies queries and keys to the host once. No GPU is needed to count this."""

from __future__ import annotations

import torch

from attnviz import extract
from models.device_copies import Copies
from models.make_models import make_model


def test_an_extraction_copies_queries_and_keys_no_more_than_once() -> None:
    """Changes of the dtype stand for copies between devices."""
    model = make_model("llama")
    ids = torch.arange(60)[None]

    def copied(dtype: str | None) -> int:
        counted = Copies("cpu", "cpu")
        with counted:
            extract(model, ids, dtype=dtype, progress=False)
        return counted.bytes

    # Four queries and two keys of 12 numbers for each token and layer.
    num_bytes = 3 * 60 * 6 * 12 * 4
    alone = copied(None)
    assert num_bytes <= copied("float64") - alone < 2 * num_bytes
