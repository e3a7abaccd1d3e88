"""Pages of a comparison do not hold what they compute, and nothing is lost by that."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
from attnviz.pages import encoding
from attnviz.pages.encoding import embedded_weights
from attnviz.pages.likeness import Codes, expected_codes
from attnviz.server.codec import encode
from attnviz.utils.progress import completed
from unit.page_data import data_of
from unit.records import words

FIXTURE = Path(__file__).parents[2] / "fixtures" / "likeness.json"


def steps(
    count: int, layers: int, heads: int, tokens: int, *, causal: bool = False
) -> list[av.AttentionRecord]:
    """Checkpoints: queries and keys go a part of the way from one model to another."""
    generator = torch.Generator().manual_seed(0)
    first, last = 1.5 * torch.randn((2, 2, layers, heads, tokens, 8), generator=generator)
    records = []
    for way in torch.linspace(0, 0.6, count):
        queries, keys = (1 - way) * first + way * last
        made = av.AttentionRecord.from_qk(list(queries), list(keys), words(tokens), causal=causal)
        records.append(made)
    return records


def compared(records: list[av.AttentionRecord]) -> av.Comparison:
    return av.compare(records, names=list("abcdefgh"[: len(records)]))


def page_of(records: list[av.AttentionRecord], **options: Any) -> tuple[int, dict[str, Any]]:
    page = av.CompareView(compared(records)).to_html(**options)
    return len(page.encode()), data_of(page)


def codes_of(data: dict[str, Any]) -> dict[tuple[str, int], NDArray[np.uint8]]:
    """All codes of a page's blocks, (heads, rows, keys), by the formula written out here."""
    found: dict[tuple[str, int], NDArray[np.uint8]] = {}
    for block in data["blocks"]:
        heads, rows, keys = block["shape"]
        held = np.tri(rows, keys, block["reach"], dtype=np.bool_)
        codes = np.zeros((heads, rows, keys), np.uint8)
        packed = zlib.decompress(base64.b64decode(block["data"]))
        codes[:, held] = np.frombuffer(packed, np.uint8).reshape(heads, -1)
        like = [found[name, block["layer"]] for name in block.get("like", [])]
        if len(like) == 1:
            codes[:, held] += like[0][:, held]
        if len(like) == 2:
            weights = [(each / 255.0) ** 2 for each in like]
            roots = 127 * np.sqrt(np.abs(weights[1] - weights[0]) / block["maximum"])
            nearest = np.floor(np.minimum(roots, 127) + 0.5) * np.sign(weights[1] - weights[0])
            codes[:, held] += nearest.astype(np.int8).view(np.uint8)[:, held]
        found[block["stack"], block["layer"]] = codes
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_a_page_has_the_codes_of_every_weight_and_of_every_difference(causal: bool) -> None:
    records = steps(4, 2, 3, 12, causal=causal)
    _, data = page_of(records)
    like = {block["stack"]: block.get("like") for block in data["blocks"]}
    assert like["self: a"] is None
    assert like["self: c"] == ["self: b"]
    assert like["self: c − a"] == ["self: a", "self: c"]
    codes = codes_of(data)
    record = compared(records).record()
    assert len(codes) == 2 * len(record.stacks)
    for (name, layer), found in codes.items():
        stack = record.stack(name)
        weights = stack.weights(layer=layer)
        whole = encode(weights, "uint8", stack.maximum, signed=stack.signed)
        assert found.tobytes() == whole.data, f"{name}, layer {layer}"


# Weights that change as much as these take 27 kB; of trained models a step takes 14 to 25 kB.
@pytest.mark.parametrize(("layers", "heads", "most"), [(2, 4, 4_500), (6, 12, 27_000)])
def test_a_step_adds_little_to_a_page(layers: int, heads: int, most: int) -> None:
    records = steps(7, layers, heads, 16)
    sizes = [page_of(records[:count])[0] for count in (2, 3, 4)]
    assert max(np.diff(sizes)) <= most
    # A byte for each weight and each difference, in base64, would be more than that.
    assert most < 2 * layers * heads * 16 * 16 * 4 / 3


def test_what_is_packed_is_counted_and_limited() -> None:
    records = steps(3, 2, 3, 20)
    record = compared(records).record()
    found = completed(embedded_weights(record, precision="auto", max_bytes=None, rest=0))
    assert any("like" in block for block in found.blocks)
    empty: dict[str, Any] = {"blocks": [], "maps": []}
    whole = {"blocks": found.blocks, "maps": found.maps, "embedded": found.summary()}
    texts = [len(json.dumps(each, ensure_ascii=False).encode()) for each in (empty, whole)]
    assert found.size == texts[1] - texts[0]
    assert found.error == max(block["error"] for block in found.blocks)
    # With a short text all weights are as small as the strongest: a limit is met, or refused.
    size, _ = page_of(records)
    limited, data = page_of(records, max_mb=size / 1e6)
    assert (limited, data["embedded"]["form"]) == (size, "all")
    with pytest.raises(ValueError, match="no room for this record"):
        page_of(records, max_mb=(size - 1) / 1e6)


def test_equal_members_and_pages_that_renormalise() -> None:
    one, other = steps(2, 1, 4, 8)
    _, same = page_of([one, one, other])
    assert codes_of(same)["self: b", 0].tobytes() == codes_of(same)["self: a", 0].tobytes()
    fine = completed(
        embedded_weights(
            av.compare(one, other).record(), precision="auto", max_bytes=None, rest=0, fine=True
        )
    )
    assert all("like" not in block for block in fine.blocks)


def test_a_page_of_a_comparison_has_no_scores_that_it_does_not_show() -> None:
    _, data = page_of(steps(3, 1, 2, 6))
    assert data["scores"] == []
    assert all(stack["patterns"] == [] for stack in data["description"]["stacks"])


def test_a_short_text_has_no_maps_that_are_its_weights_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    assert page_of(steps(2, 1, 2, 32))[1]["maps"] == []
    assert len(page_of(steps(2, 1, 2, 33))[1]["maps"]) == 3


def test_both_sides_compute_the_same_codes() -> None:
    fixture = json.loads(FIXTURE.read_text(encoding="utf-8"))
    codes = np.arange(0, 256, fixture["step"], dtype=np.uint8)
    before, after = (each[None] for each in np.meshgrid(codes, codes, indexing="ij"))
    for case in fixture["cases"]:
        first, second, most = case["maxima"]
        found = expected_codes([Codes(before, first), Codes(after, second)], most)
        assert base64.b64encode(found.tobytes()).decode() == case["codes"]
