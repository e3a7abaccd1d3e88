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
from attnviz.record.attention import QueryKeyAttention
from attnviz.server import pending_replies, row_normalizers
from attnviz.server.kernel import KernelChannel, Server
from attnviz.server.server import RECORD_REQUESTS, RecordServer
from attnviz.utils.progress import STEP, Progress, Steps
from marks import slow
from unit.asking import replies
from unit.embedding_fixture import WAY
from unit.long_records import long_record
from unit.made_corpora import corpus

LARGEST_REPLY = 1_100_000
# A step ends after this many weights, but completes what it began.
MOST_WEIGHTS = 4 * STEP
# Bytes of numpy and Python. The number of weights bounds the bytes of tensors.
MOST_BYTES = 100_000_000
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
    **{each: [1, *NUMBERS] for each in ("k", "size", "queries")},
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
    """Return arguments of which most have the right type."""
    made = {}
    for name in request.__dataclass_fields__:  # type: ignore[attr-defined]
        pool = POOLS.get(name, NUMBERS)
        odds = chosen.random()
        if odds < 0.75:
            made[name] = pool[0]
        elif odds < 0.95:
            made[name] = chosen.choice(pool)
        elif odds < 0.99:
            made[name] = chosen.choice(WRONG)
    if chosen.random() < 0.05:
        made["text"] = chosen.choice([*NUMBERS, *WRONG])
    return made


class Counted:
    """Counter of the weights computed since `clear`, and of the most at once."""

    def __init__(self) -> None:
        self.weights = self.at_once = 0

    def clear(self) -> None:
        self.weights = self.at_once = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Set the time limit of replies to zero and count the weights that they compute."""
    found = Counted()
    compute = QueryKeyAttention.shared_logits

    def logits(*given: Any, **more: Any) -> torch.Tensor:
        made = compute(*given, **more)
        found.weights += made.numel()
        found.at_once = max(found.at_once, made.numel())
        return made

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", logits)
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 0.0)
    tracemalloc.start()
    yield found
    tracemalloc.stop()


def page(state: Mapping[str, Any]) -> Steps[tuple[str, str]]:
    yield Progress("page", 1, 2)
    return "x.html", "é" * 10**6 + str(len(state))


def attacked() -> dict[str, Server]:
    """Return servers of large records: a long text, many heads, many texts."""
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


def assert_bounded(server: Server, name: str, given: Any, counted: Counted) -> dict[str, Any]:
    """Send one request through the channel and return its reply or error."""
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    channel = KernelChannel(server, lambda *message: sent.append(message))
    counted.clear()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    channel.receive({"attnviz": "request", "id": "1", "name": name, "arguments": given})
    _, peak = tracemalloc.get_traced_memory()
    [(message, buffers)] = sent
    said = f"{name} {reprlib.repr(given)}"
    size = len(json.dumps(message)) + sum(map(len, buffers))
    assert size <= (LARGEST_REPLY if message["attnviz"] == "reply" else 20_000), said
    assert counted.weights <= MOST_WEIGHTS, said
    assert counted.at_once <= 2 * STEP, said
    assert peak - before <= MOST_BYTES, said
    return message


@pytest.mark.parametrize("name", [*RECORD_REQUESTS.classes])
@pytest.mark.parametrize("record", ["long", "many heads"])
def test_a_reply_about_a_record_is_bounded(
    servers: dict[str, Server], counted: Counted, record: str, name: str
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
        each["attnviz"] for each in answers
    }


@pytest.mark.parametrize("name", [*CORPUS_REQUESTS.classes])
def test_a_reply_about_a_corpus_is_bounded(
    servers: dict[str, Server], counted: Counted, name: str
) -> None:
    server, chosen = servers["corpus"], random.Random(name)  # noqa: S311 - no secret
    for _ in range(TRIES):
        given = arguments(CORPUS_REQUESTS.classes[name], chosen)
        # Other projections run in a separate process.
        given |= {"method": "pca"} if given.get("method") == "tsne" else {}
        assert_bounded(server, name, given, counted)


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


@pytest.mark.parametrize(("record", "name", "given"), LARGE)
def test_what_takes_long_is_made_in_bounded_steps(
    servers: dict[str, Server], counted: Counted, record: str, name: str, given: Any
) -> None:
    shares = []
    whole = servers[record]
    assert isinstance(whole, RecordServer)
    server = RecordServer(whole.record)
    for _ in range(4):
        message = assert_bounded(server, name, given, counted)
        assert message["attnviz"] == "reply", message
        if "pending" not in message["header"]:
            break
        shares.append(message["header"]["pending"]["progress"])
    # Each reply continues the work and reports its progress.
    assert shares
    assert shares == sorted(set(shares))


@pytest.mark.parametrize(
    ("name", "given", "said"),
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
def test_what_makes_no_sense_is_refused_before_any_work(
    servers: dict[str, Server], counted: Counted, name: str, given: dict[str, Any], said: str
) -> None:
    usual = {"strongest": STRONGEST, "tile": TILE, "block": LARGE[0][2]}
    given = usual.get(name, {}) | given
    whole = servers["long"]
    assert isinstance(whole, RecordServer)
    message = assert_bounded(RecordServer(whole.record), name, given, counted)
    assert message["attnviz"] == "error"
    assert said in message["message"]
    assert counted.weights == 0


def test_what_goes_on_gives_what_is_computed_at_once(counted: Counted) -> None:
    """The result of many steps equals the formula, although other requests run in between."""
    record = long_record(900, heads=24, key_heads=24)
    server, stack = RecordServer(record), record.stack()
    place = {"stack": "self", "layer": 0, "heads": [*range(24)]}
    asked: dict[str, Any] = {
        "block": place | {"rows": [0, 900], "columns": [3, 14]},
        "maps": place | {"size": 30},
        "strongest": place | STRONGEST | {"rows": [0, 900], "k": 3},
        "scores": {"stack": "self", "pattern": "first token"},
    }
    weights = stack.weights(layer=0)
    found: dict[str, list[Any]] = {name: [] for name in asked}
    waiting = dict(asked)
    while waiting:
        # In turn, as a view's requests are answered.
        for name, given in list(waiting.items()):
            reply = server.reply(name, given)
            found[name].append(reply)
            if "pending" not in reply.header:
                del waiting[name]
    assert min(len(each) for each in found.values()) > 2
    scores = found["scores"][-1].header["scores"][0]
    torch.testing.assert_close(
        torch.tensor(scores),
        torch.tensor(weights[:, :, 0].mean(axis=1)),
        atol=1e-5,
        rtol=0,
        check_dtype=False,
    )
    strongest = torch.frombuffer(bytearray(found["strongest"][-1].data), dtype=torch.float32)
    best = strongest[900 * 3 : 2 * 900 * 3].view(900, 3)
    mean = torch.from_numpy(weights).mean(dim=0)
    torch.testing.assert_close(best, mean.topk(3, dim=1).values, atol=1e-6, rtol=0)
    largest = found["maps"][-1].header["largest"]
    assert [value for _, value in largest] == pytest.approx(weights.max(axis=(1, 2)).tolist())
    assert found["block"][-1].header["shape"] == (24, 900, 11)


def test_answers_that_nobody_asks_for_make_place(counted: Counted) -> None:
    server = RecordServer(long_record(4000))
    given = {"stack": "self", "layer": 0, "heads": [0], "columns": [0, 9]}
    asked = [given | {"rows": [row, 4000]} for row in range(pending_replies.MAX_PENDING + 1)]
    for each in asked:
        later = server.reply("block", each).header["pending"]
    # The last request has to wait, because the number of pending replies is limited.
    assert (later["progress"], later["doing"]) == (0.0, "waiting for other replies")
    assert len(server.pending_replies) == pending_replies.MAX_PENDING
    # The browser reports cancelled requests.
    server.cancel("block", asked[0])
    assert server.reply("block", asked[-1]).header["pending"]["progress"] > 0
    # A browser that is gone reports nothing.
    server = RecordServer(long_record(4000))
    for each in asked[:-1]:
        server.reply("block", each)
    turns = list(replies(server, "block", asked[-1]))
    assert turns[0].header["pending"]["progress"] == 0.0
    assert turns[-1].header["shape"] == (1, 4000 - pending_replies.MAX_PENDING, 9)
