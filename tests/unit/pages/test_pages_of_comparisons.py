"""Exported pages of comparisons: quantized weights and differences, and the size of a page."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.pages import encoding
from attnviz.server.codec import encode
from unit.page_data import data_of
from unit.records import words


def steps(
    count: int, layers: int, heads: int, tokens: int, *, causal: bool = False
) -> list[av.AttentionRecord]:
    """Return checkpoints whose queries and keys move from one random model towards another."""
    generator = torch.Generator().manual_seed(0)
    first, last = 1.5 * torch.randn((2, 2, layers, heads, tokens, 8), generator=generator)
    records = []
    for fraction in torch.linspace(0, 0.6, count):
        queries, keys = (1 - fraction) * first + fraction * last
        record = av.AttentionRecord.from_qk(list(queries), list(keys), words(tokens), causal=causal)
        records.append(record)
    return records


def compared(records: list[av.AttentionRecord]) -> av.Comparison:
    return av.compare(records, names=list("abcdefgh"[: len(records)]))


def page_of(records: list[av.AttentionRecord], **options: Any) -> tuple[int, dict[str, Any]]:
    page = av.CompareView(compared(records)).to_html(**options)
    return len(page.encode()), data_of(page)


@pytest.mark.parametrize("causal", [False, True])
def test_a_page_has_the_codes_of_every_weight_and_of_every_difference(causal: bool) -> None:
    records = steps(4, 2, 3, 12, causal=causal)
    _, data = page_of(records)
    record = compared(records).record()
    assert len(data["blocks"]) == 2 * len(record.stacks)
    for block in data["blocks"]:
        stack = record.stack(block["stack"])
        heads, rows, keys = block["shape"]
        visible = np.tri(rows, keys, block["reach"], dtype=np.bool_)
        codes = np.zeros((heads, rows, keys), np.uint8)
        packed = zlib.decompress(base64.b64decode(block["data"]))
        codes[:, visible] = np.frombuffer(packed, np.uint8).reshape(heads, -1)
        weights = stack.weights(layer=block["layer"])
        whole = encode(weights, "uint8", stack.maximum, signed=stack.signed)
        assert codes.tobytes() == whole.data, f"{block['stack']}, layer {block['layer']}"


def test_a_page_of_a_comparison_omits_scores_that_it_does_not_show() -> None:
    _, data = page_of(steps(3, 1, 2, 6))
    assert data["scores"] == []
    assert all(stack["patterns"] == [] for stack in data["description"]["stacks"])


def test_a_short_text_has_no_maps_beside_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    assert page_of(steps(2, 1, 2, 32))[1]["maps"] == []
    assert len(page_of(steps(2, 1, 2, 33))[1]["maps"]) == 3
