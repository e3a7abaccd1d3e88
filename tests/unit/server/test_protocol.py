"""Tests that requests are validated, and that replies have the declared types."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest

import protocol
from attnviz.embedding.server.server import CORPUS_REQUESTS, CorpusServer
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.protocol import Range, Requests, parse_dataclass
from attnviz.server.server import RECORD_REQUESTS, RecordServer
from unit.embedding_fixture import PLACING, PROJECTING, fixture_corpus
from unit.records import image_record, vectors


@dataclass(frozen=True)
class Inner:
    scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True)
class Asked:
    name: str
    rows: Range
    heads: tuple[int, ...]
    inner: Inner
    state: Mapping[str, Any]
    leave_out: tuple[str | int, ...] = ()
    size: Literal[2, 3] = 2
    exact: bool = True
    layer: int | None = None


GOOD: dict[str, Any] = {
    "name": "a",
    "rows": [0, 4],
    "heads": [1, 2],
    "inner": {"scale": "log"},
    "state": {"x": 1},
}


def test_arguments_become_the_fields() -> None:
    more = {"leave_out": ["special", 3], "size": 3, "exact": False, "layer": 7, "unknown": 1}
    assert parse_dataclass(Asked, GOOD | more) == Asked(
        "a", (0, 4), (1, 2), Inner("log"), {"x": 1}, ("special", 3), size=3, exact=False, layer=7
    )
    assert parse_dataclass(Asked, GOOD).layer is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "asked: Expected `str`, got `int` - at `name`"),
        ({"rows": [0]}, "Expected `array` of length 2, got 1 - at `rows`"),
        ({"rows": "01"}, "Expected `array`, got `str` - at `rows`"),
        ({"heads": [1, True]}, "Expected `int`, got `bool` - at `heads[1]`"),
        ({"inner": {"scale": "cubic"}}, "Invalid enum value 'cubic' - at `inner.scale`"),
        ({"leave_out": [None]}, "Expected `int | str`, got `null` - at `leave_out[0]`"),
        ({"exact": 1}, "Expected `bool`, got `int` - at `exact`"),
    ],
)
def test_an_error_names_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_dataclass(Asked, GOOD | changes, "asked")


def test_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match="missing required field `rows`"):
        parse_dataclass(Asked, {name: value for name, value in GOOD.items() if name != "rows"})


def test_the_types_of_the_browser_are_up_to_date() -> None:
    written = protocol.FILE.read_text(encoding="utf-8")
    assert written == protocol.protocol(), "run `make protocol`"


HEAD: dict[str, Any] = {"stack": "self", "layer": 0, "head": 0}
ROWS: dict[str, Any] = {"stack": "self", "layer": 0, "heads": [0], "rows": [0, 4]}
RECORD_ASKED: dict[str, dict[str, Any]] = {
    "describe": {},
    "read": ROWS | {"columns": [0, 3]},
    "scores": {"stack": "self", "pattern": "first token"},
    "vectors": HEAD | {"token": 3, "keys": [0, 4]},
    "image": {"index": 0},
    "page": {"part": 0, "state": {}},
}
#: Reductions of a read.
REDUCTIONS: list[dict[str, Any]] = [
    {"kind": "cells", "pooled": "max", "max_cells": 4},
    {"kind": "cells", "pooled": "mean", "length": 2},
    {"kind": "strongest", "k": 2, "exclude": [[0, 1]]},
    {"kind": "lost"},
]
CORPUS_HEAD = HEAD | {"layer": 2}
CORPUS_ASKED: dict[str, dict[str, Any]] = {
    "describe": {},
    "points": {"stack": "self"},
    "plot": CORPUS_HEAD | PROJECTING | {"placing": PLACING},
    "trust": {"stack": "self", "layer": 2} | PROJECTING | {"placing": PLACING},
    "norms": CORPUS_HEAD,
    "lines": CORPUS_HEAD | {"point": 1},
    "page": {"part": 0, "state": {}},
}


def record() -> AttentionRecord:
    """Return a record with queries, keys and an image."""
    images = image_record()
    tokens = images.stack().query_tokens
    layer = QueryKeyAttention(vectors(2, len(tokens), 4), vectors(2, len(tokens), 4, seed=1), 0.5)
    stack = AttentionStack("self", {0: layer}, tokens)
    return AttentionRecord({"self": stack}, images=images.images)


def assert_declared(kinds: Sequence[Any], header: Mapping[str, Any]) -> None:
    """Check that a reply's header has one of the types `kinds`, or is empty without `kinds`."""
    sent = json.loads(json.dumps(dict(header)))
    assert set(sent) <= {field for kind in kinds for field in typing.get_type_hints(kind)}
    faults = []
    for kind in kinds:
        try:
            msgspec.convert(sent, kind)
        except msgspec.ValidationError as fault:
            faults.append(f"{kind.__name__}: {fault}")
    assert not kinds or len(faults) < len(kinds), faults


def no_page(_: Mapping[str, Any]) -> tuple[str, str]:
    return "x.html", ""


@pytest.mark.parametrize(
    ("server", "requests", "arguments_by_name"),
    [
        (RecordServer(record(), page=no_page), RECORD_REQUESTS, RECORD_ASKED),
        (CorpusServer(fixture_corpus(), page=no_page), CORPUS_REQUESTS, CORPUS_ASKED),
    ],
    ids=["record", "corpus"],
)
def test_replies_are_of_the_declared_types(
    server: Any, requests: Requests[Any], arguments_by_name: dict[str, dict[str, Any]]
) -> None:
    # tests/models/test_what_if.py tests the replies that need a model.
    assert set(requests.classes) - set(arguments_by_name) <= {"intervene", "changed", "edge"}
    for name, arguments in arguments_by_name.items():
        assert_declared(requests.headers[name], server.reply(name, arguments).header)
    for reduce in REDUCTIONS if requests is RECORD_REQUESTS else []:
        asked = RECORD_ASKED["read"] | {"reduce": reduce, "combine": "mean"}
        assert_declared(requests.headers["read"], server.reply("read", asked).header)
