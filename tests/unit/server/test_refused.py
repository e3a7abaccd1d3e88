"""Invalid requests to a server are refused, and the error names the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.protocol import check_heads
from attnviz.server.server import RecordServer
from unit.records import vectors, words
from unit.selected import cells, strongest

TOKENS = 5


def record() -> AttentionRecord:
    """Return a record of two layers of three heads. In layer 1, query 3 of head 2 contains NaN."""
    broken = vectors(3, TOKENS, 4)
    broken[2, 3, 0] = torch.nan
    layers = {
        layer: QueryKeyAttention(queries, vectors(3, TOKENS, 4, seed=9), 0.5)
        for layer, queries in enumerate((vectors(3, TOKENS, 4), broken))
    }
    return AttentionRecord({"self": AttentionStack("self", layers, Tokens.of(words(TOKENS)))})


VALID: dict[str, dict[str, Any]] = {
    "read": {"layer": 0, "heads": [0], "rows": [0, 5], "columns": [0, 5]},
    "vectors": {"layer": 0, "head": 0, "token": 0, "keys": [0, 5]},
    "page": {"part": 0, "state": {}},
}


BROKEN: dict[str, Any] = {"layer": 1, "heads": [0, 2]}
MEAN = {"combine": "mean"}


def of_length(length: int, **more: int) -> dict[str, Any]:
    return {"reduce": {"kind": "cells", "pooled": "mean", "length": length, **more}}


@pytest.mark.parametrize(
    ("name", "changes", "kind", "message"),
    [
        ("rollout", {}, ValueError, "request 'rollout' is unknown"),
        ("read", {"stack": "decoder"}, KeyError, "stack='decoder': this record has 'self'"),
        ("read", {"layer": 9}, IndexError, "layer=9: stack 'self' has layers 0, 1"),
        ("read", {"heads": [0, 3]}, IndexError, "head=3: layer 0 of .* has heads 0 to 2"),
        ("read", {"heads": []}, ValueError, "heads is empty. Pass at least one head"),
        ("read", {"heads": [0, -3]}, ValueError, "must not contain duplicates"),
        ("read", {"rows": [0, 6]}, ValueError, r"rows=\[0, 6\] must .* 0 <= start < stop <= 5"),
        ("read", {"rows": [-1, 2]}, ValueError, r"rows=\[-1, 2\] must satisfy"),
        ("read", {"columns": [3, 3]}, ValueError, r"columns=\[3, 3\] must satisfy"),
        ("read", {"combine": "sum"}, ValueError, "Invalid enum value 'sum' - at `combine`"),
        ("read", {"reduce": {"kind": "sum"}}, ValueError, "Invalid value 'sum' - at `reduce.kind`"),
        ("read", cells(0), ValueError, "max_cells=0 must be at least 1"),
        ("read", cells(4) | BROKEN, ValueError, "some weights are NaN or infinite"),
        ("read", strongest(2) | BROKEN, ValueError, "NaN or infinite"),
        ("read", strongest(0), ValueError, "k=0 must be at least 1"),
        ("read", strongest(2, exclude=[[0, 6]]), ValueError, r"exclude=\[0, 6\] must satisfy"),
        ("read", strongest(2, exclude=["last"]), ValueError, "Expected `array`, got `str`"),
        ("read", MEAN | BROKEN, ValueError, "mean of heads 0, 2: some .* NaN"),
        ("read", MEAN | BROKEN | cells(2), ValueError, "mean of heads 0, 2: some .* NaN"),
        ("read", of_length(2**25), ValueError, "length=33554432 must be from 1 to 16777216"),
        ("read", of_length(1, max_cells=2), ValueError, "pass length or max_cells, and not both"),
        ("vectors", {"head": 3}, IndexError, "head=3: .* has heads 0 to 2"),
        ("vectors", {"token": 5}, IndexError, "token=5.* 0 to 4"),
        ("vectors", {"keys": [0, 6]}, ValueError, "stop <= 5"),
        ("vectors", {"layer": 1, "head": 2, "token": 3}, ValueError, r"head 2, query 3.*NaN"),
        ("scores", {"pattern": "sideways"}, ValueError, "'sideways' does not exist. Pass one of"),
        ("image", {"index": 0}, IndexError, "index=0: the record has 0 images"),
        ("page", {"part": 1}, ValueError, "part=1 of a PageRequest must be from 0 to 0"),
        ("page", {"part": -1}, ValueError, "part=-1 of a PageRequest must not be negative"),
    ],
)
def test_missing_parts_are_refused(
    name: str, changes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    server = RecordServer(record(), page=lambda _: ("x.html", "é"))
    with pytest.raises(kind, match=message):
        server.reply(name, {"stack": "self"} | VALID.get(name, {}) | changes)


def test_a_head_that_is_repeated_a_million_times_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[int] = []
    original = AttentionStack.head_number

    def head_number(self: AttentionStack, layer: int, head: int) -> int:
        looked_up.append(head)
        return original(self, layer, head)

    monkeypatch.setattr(AttentionStack, "head_number", head_number)
    with pytest.raises(ValueError, match="must not contain duplicates"):
        check_heads(record().stack(), 0, [1] * 10**6)
    assert looked_up == [1]


def test_a_head_of_nan_is_named_and_others_are_sent() -> None:
    server = RecordServer(record())
    request = {"stack": "self"} | VALID["read"] | {"layer": 1}
    server.reply("read", request)
    message = r"stack 'self', layer 1, heads 1, 2: some weights are NaN .*include_layers"
    with pytest.raises(ValueError, match=message):
        server.reply("read", request | {"heads": [1, 2]})
