"""Invalid and very large requests: the cost of each reply is bounded.

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

import pytest
import torch

import attnviz as av
from attnviz.embedding.server.server import CORPUS_REQUESTS, CorpusServer
from attnviz.server import pending_replies, row_normalizers
from attnviz.server.kernel import KernelChannel, Server
from attnviz.server.server import RECORD_REQUESTS, RecordServer
from attnviz.utils.progress import STEP, Progress, Steps
from marks import slow
from unit.complete_replies import replies
from unit.embedding_fixture import WAY
from unit.long_records import long_record
from unit.random_corpora import corpus

LARGEST_REPLY = 1_100_000
# Maximum number of weights that a reply computes, because it completes what it began.
MAX_WEIGHTS = 4 * STEP
# Limit for numpy and Python. Tensors are limited by the number of weights.
MAX_BYTES = 100_000_000
TOKENS = 20_000
HEADS = 40_000
# Number of argument sets for each request and server.
TRIES = 12


def nested(depth: int = 1000) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


NUMBERS: list[Any] = [0, 1, -1, 3, 255, TOKENS - 1, TOKENS, 10**9, -(10**9), 2**63, 10**30]
WRONG: list[Any] = [None, "", "x" * 10_000, 1.5, float("nan"), float("inf"), True, {}, "\ud800"]
WRONG += [nested(), nested(999), [[0]], b"0"]
LISTS: list[Any] = [[0], [], [0, 0], [0, 3], [-1], [10**9], [*range(4)], [*range(HEADS)]]
LISTS += [[0] * 10**6, ["0"], [float("nan")], [None], "01", [nested()]]
RANGES: list[Any] = [[0, 1], [0, TOKENS], [0, 8], [5, 5], [9, 3], [-5, 5], [0, 10**12], [0]]
POOLS: dict[str, list[Any]] = {
    "stack": ["self", "cross", ""],
    **{name: [1, *NUMBERS] for name in ("k", "size", "queries")},
    "pattern": ["previous token", "induction", "first token", "entropy"],
    "heads": LISTS,
    "layers": LISTS,
    "rows": [*RANGES, None],
    "columns": [*RANGES, None],
    "keys": RANGES,
    "precision": ["uint8", "float32", "float64"],
    "pooled": ["mean", "max"],
    "combine": ["separate", "mean", "max"],
    "pair": ["all", "a-a", "a-b", "x"],
    "leave_out": [[], ["special"] * 1000, [*range(TOKENS)], ["x"], [10**30], [1.5]],
    "method": ["pca", "tsne", "x"],
    "way": [WAY, {}, WAY | {"scaling": "x"}],
    "dimensions": [2, 3, 10**9],
    "state": [{}, {"a": 1}, {"a": nested()}, {str(number): number for number in range(10_000)}],
    "restart": [True, False],
}


def arguments(request: type, chosen: random.Random) -> dict[str, Any]:
    """Return random arguments. Most of them have the right type."""
    values = {}
    for name in request.__dataclass_fields__:  # type: ignore[attr-defined]
        pool = POOLS.get(name, NUMBERS)
        odds = chosen.random()
        if odds < 0.75:
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
    """Set the time limit of replies to zero and count the weights that they compute."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 0.0)
    tracemalloc.start()
    yield logit_blocks
    tracemalloc.stop()


def page(state: Mapping[str, Any]) -> Steps[tuple[str, str]]:
    yield Progress("page", 1, 2)
    return "x.html", "é" * 10**6 + str(len(state))


def attacked() -> dict[str, Server]:
    """Return servers of a record of a long text, a record with many heads, and a corpus."""
    generator = torch.Generator().manual_seed(0)
    small = torch.randn(HEADS, 8, 4, generator=generator)
    many = av.AttentionRecord.from_qk([small], [small], [f"t{i}" for i in range(8)], causal=True)
    return {
        "long": RecordServer(long_record(TOKENS), page=page),
        "many heads": RecordServer(many, page=page),
        "corpus": CorpusServer(corpus([40, 9, 1]), page=page),
    }


@pytest.fixture(scope="module")
def servers() -> dict[str, Server]:
    return attacked()


def assert_bounded(
    server: Server, name: str, arguments_: Any, counted: list[int]
) -> dict[str, Any]:
    """Send a request, check that the cost is bounded, and return the reply or error."""
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


@pytest.mark.parametrize("name", [*RECORD_REQUESTS.classes])
@pytest.mark.parametrize("record", ["long", "many heads"])
def test_a_reply_about_a_record_is_bounded(
    servers: dict[str, Server], counted: list[int], record: str, name: str
) -> None:
    server, chosen = servers[record], random.Random(name)  # noqa: S311 - no secret
    answers = [
        assert_bounded(server, name, arguments(RECORD_REQUESTS.classes[name], chosen), counted)
        for _ in range(TRIES)
    ]
    assert isinstance(server, RecordServer)
    assert len(server.pending_replies) <= pending_replies.MAX_PENDING
    assert server.row_normalizers.num_bytes <= row_normalizers.CACHE_BYTES
    # At least one request is valid, or nothing would be tested. The records have no image and no
    # model.
    assert name in ("changed", "edge", "image", "intervene") or "reply" in {
        reply["attnviz"] for reply in answers
    }


@pytest.mark.parametrize("name", [*CORPUS_REQUESTS.classes])
def test_a_reply_about_a_corpus_is_bounded(
    servers: dict[str, Server], counted: list[int], name: str
) -> None:
    server, chosen = servers["corpus"], random.Random(name)  # noqa: S311 - no secret
    answers = set()
    for _ in range(TRIES):
        request_arguments = arguments(CORPUS_REQUESTS.classes[name], chosen)
        # Other projections run in a separate process.
        request_arguments |= {"method": "pca"} if request_arguments.get("method") == "tsne" else {}
        answers.add(assert_bounded(server, name, request_arguments, counted)["attnviz"])
    # At least one request is valid, or nothing would be tested.
    assert "reply" in answers


ALL = {"stack": "self", "layer": 0, "rows": [0, TOKENS], "columns": [0, 1]}
STRONGEST = {"stack": "self", "layer": 0, "k": 1, "combine": "mean"}
STRONGEST |= {"leave_out": [], "pair": "all"}
EVERY_HEAD = [*range(HEADS)]
TILE = {"stack": "self", "layer": 0, "heads": EVERY_HEAD, "level": 0, "row": 0, "column": 0}
TILE |= {"pooled": "mean"}
LARGE: list[Any] = [
    ("long", "block", ALL | {"heads": [0, 1, 2, 3]}),
    ("long", "maps", ALL | {"heads": [0], "size": TOKENS}),
    ("long", "strongest", STRONGEST | {"heads": [0, 1, 2, 3], "rows": [0, TOKENS]}),
    ("long", "scores", {"stack": "self", "pattern": "induction"}),
    ("many heads", "block", ALL | {"heads": EVERY_HEAD, "rows": [0, 1]}),
    slow("many heads", "maps", {"stack": "self", "layer": 0, "size": 4}),
    slow("many heads", "strongest", STRONGEST | {"heads": EVERY_HEAD, "rows": [0, 8]}),
    slow("many heads", "tile", TILE),
    slow("many heads", "scores", {"stack": "self", "pattern": "first token"}),
]


@pytest.mark.parametrize(("record", "name", "request_arguments"), LARGE)
def test_long_work_is_divided_into_bounded_steps(
    servers: dict[str, Server], counted: list[int], record: str, name: str, request_arguments: Any
) -> None:
    shares = []
    shared_server = servers[record]
    assert isinstance(shared_server, RecordServer)
    server = RecordServer(shared_server.record)
    for _ in range(4):
        message = assert_bounded(server, name, request_arguments, counted)
        assert message["attnviz"] == "reply", message
        if "pending" not in message["header"]:
            break
        shares.append(message["header"]["pending"]["progress"])
    # Each reply continues the work and reports its progress.
    assert shares
    assert shares == sorted(set(shares))


@pytest.mark.parametrize(
    ("name", "request_arguments", "expected_message"),
    [
        ("block", ALL | {"heads": [0, 0]}, "must not contain duplicates"),
        ("block", ALL | {"heads": [0, -4]}, "must not contain duplicates"),
        (
            "maps",
            {"stack": "self", "layer": 0, "size": 1, "heads": [0] * 100_000},
            "must not contain duplicates",
        ),
        (
            "tile",
            {"heads": [1, 1], "level": 0, "row": 0, "column": 0},
            "must not contain duplicates",
        ),
        ("block", {"heads": [0] * 100_001}, "heads has 100,001 entries, but at most 100,000"),
        ("strongest", {"heads": [0], "rows": [0, TOKENS], "k": TOKENS}, "keys have 3200"),
    ],
)
def test_invalid_requests_are_refused_before_any_work(
    servers: dict[str, Server],
    counted: list[int],
    name: str,
    request_arguments: dict[str, Any],
    expected_message: str,
) -> None:
    usual = {"strongest": STRONGEST, "tile": TILE, "block": LARGE[0][2]}
    request_arguments = usual.get(name, {}) | request_arguments
    long_server = servers["long"]
    assert isinstance(long_server, RecordServer)
    message = assert_bounded(RecordServer(long_server.record), name, request_arguments, counted)
    assert message["attnviz"] == "error"
    assert expected_message in message["message"]
    assert counted == []


def test_work_in_steps_gives_the_same_as_at_once(counted: list[int]) -> None:
    """The result of many steps equals the formula, although other requests run in between."""
    record = long_record(900, heads=24, key_heads=24)
    server, stack = RecordServer(record), record.stack()
    layer_fields = {"stack": "self", "layer": 0, "heads": [*range(24)]}
    requests: dict[str, Any] = {
        "block": layer_fields | {"rows": [0, 900], "columns": [3, 14]},
        "maps": layer_fields | {"size": 30},
        "strongest": layer_fields | STRONGEST | {"rows": [0, 900], "k": 3},
        "scores": {"stack": "self", "pattern": "first token"},
    }
    weights = stack.weights(layer=0)
    replies_by_name: dict[str, list[Any]] = {name: [] for name in requests}
    waiting = dict(requests)
    while waiting:
        # Send the requests in turn, as a view does.
        for name, request_arguments in list(waiting.items()):
            reply = server.reply(name, request_arguments)
            replies_by_name[name].append(reply)
            if "pending" not in reply.header:
                del waiting[name]
    assert min(len(received) for received in replies_by_name.values()) > 2
    scores = replies_by_name["scores"][-1].header["scores"][0]
    torch.testing.assert_close(
        torch.tensor(scores),
        torch.tensor(weights[:, :, 0].mean(axis=1)),
        atol=1e-5,
        rtol=0,
        check_dtype=False,
    )
    strongest = torch.frombuffer(
        bytearray(replies_by_name["strongest"][-1].data), dtype=torch.float32
    )
    best = strongest[900 * 3 : 2 * 900 * 3].view(900, 3)
    mean = torch.from_numpy(weights).mean(dim=0)
    torch.testing.assert_close(best, mean.topk(3, dim=1).values, atol=1e-6, rtol=0)
    largest = replies_by_name["maps"][-1].header["largest"]
    assert [value for _, value in largest] == pytest.approx(weights.max(axis=(1, 2)).tolist())
    assert replies_by_name["block"][-1].header["shape"] == (24, 900, 11)


def test_abandoned_replies_are_dropped(counted: list[int]) -> None:
    server = RecordServer(long_record(4000))
    shared = {"stack": "self", "layer": 0, "heads": [0], "columns": [0, 9]}
    requests = [shared | {"rows": [row, 4000]} for row in range(pending_replies.MAX_PENDING + 1)]
    for request in requests:
        pending = server.reply("block", request).header["pending"]
    # The last request has to wait, because the number of pending replies is limited.
    assert (pending["progress"], pending["doing"]) == (0.0, "waiting for other replies")
    assert len(server.pending_replies) == pending_replies.MAX_PENDING
    # The browser reports cancelled requests.
    server.cancel("block", requests[0])
    assert server.reply("block", requests[-1]).header["pending"]["progress"] > 0
    # A browser that is gone reports nothing.
    server = RecordServer(long_record(4000))
    for request in requests[:-1]:
        server.reply("block", request)
    turns = list(replies(server, "block", requests[-1]))
    assert turns[0].header["pending"]["progress"] == 0.0
    assert turns[-1].header["shape"] == (1, 4000 - pending_replies.MAX_PENDING, 9)
