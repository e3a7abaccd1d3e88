"""Tests that the cost of each reply is bounded, also for invalid and very large requests.

Costs are counted and not timed: computed weights, sent bytes and allocated memory. With a time
limit of zero a reply runs one step, so each step is measured.
"""

from __future__ import annotations

import json
import random
import reprlib
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.embedding.server.server import CORPUS_REQUESTS, CorpusServer
from attnviz.server import pending_replies, row_normalizers
from attnviz.server.base import BaseServer
from attnviz.server.codec import decode
from attnviz.server.kernel import KernelChannel
from attnviz.server.protocol import Reply
from attnviz.server.server import RECORD_REQUESTS, RecordServer
from attnviz.utils.progress import STEP, report
from unit.complete_replies import replies
from unit.embedding_fixture import PLACING
from unit.formulas import weights_of
from unit.long_records import long_record
from unit.random_corpora import corpus
from unit.records import vectors, words
from unit.selected import cells, strongest

LARGEST_REPLY = 1_100_000
# Maximum number of weights that one step of a reply may compute.
MAX_WEIGHTS = 4 * STEP
# Maximum number of bytes that numpy and Python allocate. Tensors of torch do not count.
MAX_BYTES = 100_000_000
TOKENS = 20_000
HEADS = 40_000
# Number of random requests of each kind that each server receives.
TRIES = 12


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


NUMBERS: list[Any] = [0, 1, -1, 255, TOKENS - 1, TOKENS, 2**63, 10**30]
WRONG: list[Any] = [None, "x" * 10_000, 1.5, float("nan"), True, {}, "\ud800"]
WRONG += [nested(1000), nested(999), [[0]], b"0"]
LISTS: list[Any] = [[0], [], [0, 0], [-1], [10**9], [*range(4)], [*range(HEADS)]]
LISTS += [[0] * 10**6, [float("nan")], "01", [nested(1000)]]
RANGES: list[Any] = [[0, 1], [0, TOKENS], [5, 5], [9, 3], [-5, 5], [0, 10**12], [0]]
REDUCTIONS: list[Any] = [
    *({"kind": "strongest", "k": k} for k in [1, *NUMBERS]),
    *({"kind": "cells", "pooled": "max", "max_cells": size} for size in [1, *NUMBERS]),
    *({"kind": "cells", "pooled": "mean", "length": length} for length in [1, 256, *NUMBERS]),
    *(
        {"kind": "strongest", "k": 1, "exclude": exclude}
        for exclude in ([[0, 1]] * TOKENS, [[0, TOKENS]], ["x"], [[0, 10**30]], [[1.5, 2]])
    ),
    *({"kind": kind} for kind in ("lost", "x", 1, *NUMBERS)),
]
# Values of each argument. The first value is valid and is used most often.
POOLS: dict[str, list[Any]] = {
    "stack": ["self", "cross", ""],
    "queries": [1, *NUMBERS],
    "size": [1, *NUMBERS],
    "reduce": [None, *REDUCTIONS],
    "pattern": ["previous token", "induction", "entropy"],
    "heads": LISTS,
    "layers": LISTS,
    "rows": RANGES,
    "columns": RANGES,
    "keys": RANGES,
    "precision": ["uint8", "float32", "float64"],
    "combine": ["separate", "mean", "max"],
    # Other methods run in a separate process, and are not tested here.
    "method": ["pca", "x"],
    "placing": [PLACING, {}, PLACING | {"scaling": "x"}],
    "dimensions": [2, 3, 10**9],
    "state": [{}, {"a": nested(1000)}, {str(number): number for number in range(10_000)}],
    "action": ["show", "cancel", "x"],
}


def arguments(request: type, chosen: random.Random) -> dict[str, Any]:
    """Return random arguments of a request. At least 85 % of the values are valid on average."""
    values = {}
    for name in request.__dataclass_fields__:  # type: ignore[attr-defined]
        pool = POOLS.get(name, NUMBERS)
        odds = chosen.random()
        if odds < 0.85:
            values[name] = pool[0]
        elif odds < 0.95:
            values[name] = chosen.choice(pool)
        elif odds < 0.99:
            values[name] = chosen.choice(WRONG)
    if chosen.random() < 0.05:
        values["text"] = chosen.choice([*NUMBERS, *WRONG])
    return values


@pytest.fixture
def counted(logit_blocks: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Limit each reply to one step, and yield a list of the sizes of computed blocks of logits."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 0.0)
    tracemalloc.start()
    yield logit_blocks
    tracemalloc.stop()


def page(state: Mapping[str, Any]) -> tuple[str, str]:
    report("page", 1, 2)
    return "x.html", "é" * 10**6 + str(len(state))


@pytest.fixture(scope="module")
def servers() -> dict[str, BaseServer]:
    """Return servers of a record of a long text, a record with many heads, and a corpus."""
    small = vectors(HEADS, 8, 4)
    many = av.AttentionRecord.from_qk([small], [small], words(8), causal=True)
    return {
        "long": RecordServer(long_record(TOKENS), page=page),
        "many heads": RecordServer(many, page=page),
        "corpus": CorpusServer(corpus([40, 9, 1]), page=page),
    }


def assert_bounded(
    server: BaseServer, name: str, arguments_: Any, counted: list[int]
) -> dict[str, Any]:
    """Send a request, assert that the cost is bounded, and return the reply or error message."""
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    channel = KernelChannel(server, lambda *message: sent.append(message))
    counted.clear()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    channel.receive({"attnviz": "request", "id": "1", "name": name, "arguments": arguments_})
    _, peak = tracemalloc.get_traced_memory()
    [(message, buffers)] = sent
    description = f"{name} {reprlib.repr(arguments_)}"
    size = len(json.dumps(message)) + sum(map(len, buffers))
    assert size <= (LARGEST_REPLY if message["attnviz"] == "reply" else 20_000), description
    assert sum(counted) <= MAX_WEIGHTS, description
    assert max(counted, default=0) <= 2 * STEP, description
    assert peak - before <= MAX_BYTES, description
    return message


REQUESTS = [(name, kind) for name in ("long", "many heads") for kind in RECORD_REQUESTS.classes]
REQUESTS += [("corpus", kind) for kind in CORPUS_REQUESTS.classes]


@pytest.mark.parametrize(("server_name", "name"), REQUESTS)
def test_the_cost_of_a_reply_is_bounded(
    servers: dict[str, BaseServer], counted: list[int], server_name: str, name: str
) -> None:
    server, chosen = servers[server_name], random.Random(name)  # noqa: S311 - no secret
    request = (CORPUS_REQUESTS if server_name == "corpus" else RECORD_REQUESTS).classes[name]
    kinds = {
        assert_bounded(server, name, arguments(request, chosen), counted)["attnviz"]
        for _ in range(TRIES)
    }
    if isinstance(server, RecordServer):
        assert len(server.pending_replies) <= pending_replies.MAX_PENDING
        assert server.row_normalizers.num_bytes <= row_normalizers.CACHE_BYTES
    # At least one try gets a reply, unless the request needs an image or a model.
    assert name in ("changed", "edge", "image", "intervene") or "reply" in kinds


LAYER = {"stack": "self", "layer": 0}
BLOCK = LAYER | {"heads": [0, 1, 2, 3], "rows": [0, TOKENS], "columns": [0, 1]}
WHOLE = BLOCK | {"columns": [0, TOKENS]}


@pytest.mark.parametrize(
    ("server_name", "name", "request_arguments"),
    [
        ("long", "read", BLOCK),
        ("long", "read", BLOCK | {"heads": [0], **cells(TOKENS)}),
        ("long", "read", WHOLE | {"combine": "mean", **strongest(1)}),
        ("long", "scores", {"stack": "self", "pattern": "induction"}),
    ],
)
def test_long_work_is_divided_into_bounded_steps(
    servers: dict[str, BaseServer],
    counted: list[int],
    server_name: str,
    name: str,
    request_arguments: Any,
) -> None:
    record_server = servers[server_name]
    assert isinstance(record_server, RecordServer)
    server, shares = RecordServer(record_server.record), []
    for _ in range(4):
        message = assert_bounded(server, name, request_arguments, counted)
        assert message["attnviz"] == "reply", message
        if "pending" not in message["header"]:
            break
        shares.append(message["header"]["pending"]["progress"])
    # Repeating the request continues the work, so the reported progress increases.
    assert shares
    assert shares == sorted(set(shares))


@pytest.mark.usefixtures("counted")
def test_work_in_steps_gives_the_same_as_at_once() -> None:
    """The result of many steps equals the formula, although other requests run in between."""
    record = long_record(900, heads=24, key_heads=24)
    server, weights = RecordServer(record), weights_of(record.stack().attention(0))
    whole = LAYER | {"heads": [*range(24)], "rows": [0, 900], "columns": [0, 900]}
    requests: dict[str, Any] = {
        "block": whole | {"columns": [3, 14]},
        "maps": whole | cells(30),
        "strongest": whole | {"combine": "mean"} | strongest(3),
        "scores": {"stack": "self", "pattern": "first token"},
    }
    kinds = {"scores": "scores"}
    received: dict[str, list[Reply]] = {name: [] for name in requests}
    waiting = dict(requests)
    while waiting:
        # Repeat the unfinished requests in turn, as a view does.
        for name, request_arguments in list(waiting.items()):
            received[name].append(server.reply(kinds.get(name, "read"), request_arguments))
            if "pending" not in received[name][-1].header:
                del waiting[name]
    assert min(map(len, received.values())) > 2
    last = {name: replies_of_name[-1] for name, replies_of_name in received.items()}
    assert last["block"].header["shape"] == (24, 900, 11)
    largest = [value for _, value in last["maps"].header["largest"]]
    assert_allclose(largest, weights.max(axis=(1, 2)), atol=1e-6)
    assert_allclose(last["scores"].header["scores"][0], weights[:, :, 0].mean(axis=1), atol=1e-5)
    # A row has three keys, their weights, and three sums.
    top = decode(last["strongest"])[0, :, 3:6]
    assert_allclose(top, -np.sort(-weights.mean(axis=0))[:, :3], atol=1e-6)


@pytest.mark.usefixtures("counted")
def test_replies_that_nobody_awaits_are_dropped() -> None:
    record, last_row = long_record(4000), pending_replies.MAX_PENDING
    requests = [
        LAYER | {"heads": [0], "columns": [0, 9], "rows": [row, 4000]}
        for row in range(last_row + 1)
    ]
    server = RecordServer(record)
    for request in requests:
        pending = server.reply("read", request).header["pending"]
    # One request more than `MAX_PENDING` was sent, so the last one has to wait.
    assert (pending["progress"], pending["doing"]) == (0.0, "waiting for other replies")
    assert len(server.pending_replies) == pending_replies.MAX_PENDING
    # After another request is cancelled, work on the last request starts.
    server.cancel("read", requests[0])
    assert server.reply("read", requests[-1]).header["pending"]["progress"] > 0
    # A closed browser does not cancel its requests. If they are not repeated, they are dropped, and
    # the last request gets its reply.
    server = RecordServer(record)
    for request in requests[:-1]:
        server.reply("read", request)
    turns = list(replies(server, "read", requests[-1]))
    assert turns[0].header["pending"]["progress"] == 0.0
    assert turns[-1].header["shape"] == (1, 4000 - last_row, 9)
