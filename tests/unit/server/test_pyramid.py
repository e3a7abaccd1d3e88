"""Tiles of large matrices: with every size made small, against the whole matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
import attnviz.record.softmax
import attnviz.server.pyramid
import attnviz.server.row_sums
import attnviz.server.tiles
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    DenseBias,
    DistanceBias,
    InsertedBias,
    InsertedMask,
    PackedMask,
)
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import Encoded, decode
from attnviz.server.pyramid import Budget, Pyramids, is_large
from attnviz.server.row_sums import RowSums
from attnviz.server.server import RecordServer
from attnviz.server.tiles import answered_tile
from attnviz.utils.progress import completed
from rounding import UNIT, relative_error, weights_error
from unit.long_records import NEEDLE, long_record
from unit.records import shares, vectors, words

TILE = 8


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen cells a side are kept, and everything is done a few rows and keys at a time."""
    monkeypatch.setattr(attnviz.server.pyramid, "MOST_CELLS", 16)
    monkeypatch.setattr(attnviz.server.pyramid, "LARGE", 0)
    monkeypatch.setattr(attnviz.server.tiles, "TILE", TILE)
    monkeypatch.setattr(attnviz.server.pyramid, "_ROWS_AT_ONCE", 8)
    monkeypatch.setattr(attnviz.server.row_sums, "_ROWS_A_STEP", 4)
    monkeypatch.setattr(attnviz.server.pyramid, "_SAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(attnviz.server.pyramid, "_FEWEST_SAMPLES", 2)
    monkeypatch.setattr(attnviz.server.pyramid, "_SAMPLED_FROM", 0)
    monkeypatch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", 64)


def stack_of(attention: QueryKeyAttention) -> AttentionStack:
    return AttentionStack(
        "self",
        {3: attention},
        Tokens.of(words(attention.num_queries)),
        Tokens.of(words(attention.num_keys, "k")),
    )


def in_no_time() -> Budget:
    """A step and no more."""
    return Budget(0.0, clock=lambda: 0.0)


def for_steps(count: int) -> Budget:
    """So many steps, by a clock that ticks whenever it is looked at."""
    ticks = iter(range(10**9))
    return Budget(count, clock=lambda: float(next(ticks)))


class Asked:
    """Tiles of a stack, asked for as a browser does."""

    def __init__(self, stack: AttentionStack, heads: tuple[int, ...] = (0,), **limits: int) -> None:
        self.stack, self.heads = stack, heads
        self.pyramids = Pyramids(RowSums(limits.get("sums", 10**6)), limits.get("cells", 10**6))

    def once(
        self, level: int, row: int, column: int, pooled: str = "mean", **options: Any
    ) -> tuple[dict[str, Any], NDArray[np.float32]]:
        options.setdefault("budget", in_no_time())
        options.setdefault("layer", 3)
        options.setdefault("heads", self.heads)
        header, data = completed(
            answered_tile(
                self.stack,
                self.pyramids,
                level=level,
                place=(row, column),
                pooled=pooled,  # type: ignore[arg-type]
                precision=options.pop("precision", "float32"),
                **options,
            )
        )
        shape = tuple(header["shape"])
        encoded = Encoded(shape, header["encoding"], header["maximum"], header["error"], data)
        return dict(header), decode(encoded)[0]

    def until_done(self, *where: Any, **options: Any) -> tuple[list[dict[str, Any]], Any]:
        headers = []
        steps = options.pop("steps", 1)
        while True:
            header, cells = self.once(*where, budget=for_steps(steps), **options)
            headers.append(header)
            if not header["waiting"]:
                return headers, cells
            assert len(headers) < 5000

    def whole(self, level: int, pooled: str) -> NDArray[np.float32]:
        span = TILE << level
        rows, columns = (
            range(-(-len(tokens) // span))
            for tokens in (self.stack.query_tokens, self.stack.key_tokens)
        )
        return np.block(
            [
                [self.until_done(level, row, column, pooled, steps=500)[1] for column in columns]
                for row in rows
            ]
        )


def in_one_go(
    stack: AttentionStack, heads: tuple[int, ...], level: int, pooled: str
) -> NDArray[np.float64]:
    """Cells of the whole matrix, weight by weight."""
    whole = np.mean([stack.weights(layer=3, head=head) for head in heads], axis=0, dtype=float)
    pool: Callable[..., Any] = np.max if pooled == "max" else np.mean
    each = 2**level
    return np.array(
        [
            [pool(whole[y : y + each, x : x + each]) for x in range(0, whole.shape[1], each)]
            for y in range(0, whole.shape[0], each)
        ]
    )


FLAGS = torch.from_numpy(np.random.default_rng(5).random((4, 53, 101)) < 0.3)
FLAGS[1, 7] = False
# Where texts are compared: 40 of the queries and 90 of the keys, and what hides the others.
THERE = (
    torch.cat([torch.arange(5, 30), torch.arange(38, 53)]),
    torch.cat([torch.arange(0, 20), torch.arange(31, 101)]),
)
ATTENTIONS: dict[str, dict[str, Any]] = {
    "everything": {},
    "causal": {"mask": BandMask(None, 0, offset=48)},
    "a window": {"mask": BandMask(9, 0, offset=20)},
    "both ways": {"mask": BandMask(12, 5, offset=10)},
    "a window that begins late": {"mask": BandMask(9, -4)},
    "any mask": {"mask": PackedMask.pack(FLAGS)},
    "biases": {"bias": DistanceBias(vectors(4, 153, seed=3), 53)},
    "biases of keys": {"bias": DenseBias(vectors(1, 1, 101, seed=3)), "softcap": 4.0},
    "sinks": {"sinks": vectors(4, seed=3), "mask": BandMask(None, 0)},
    "tokens inserted": {
        "mask": InsertedMask(BandMask(None, 0, offset=50), *THERE, 53, 101),
        "bias": InsertedBias(DistanceBias(vectors(4, 129, seed=3), 40), *THERE, 53, 101),
    },
}


def attention_of(kind: str) -> QueryKeyAttention:
    return QueryKeyAttention(
        vectors(4, 53, 8), vectors(2, 101, 8, seed=1), 0.35, **ATTENTIONS[kind]
    )


@pytest.mark.parametrize("heads", [(0,), (1, 3, 2)])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_all_tiles_together_are_the_matrix(kind: str, heads: tuple[int, ...]) -> None:
    attention = attention_of(kind)
    stack = stack_of(attention)
    asked = Asked(stack, heads)
    # 53 by 101: level 3 is the one that is kept, 0 to 2 lie below it.
    for level in (4, 0, 3, 1, 5, 2, 7):
        for pooled in ("mean", "max"):
            expected = in_one_go(stack, heads, level, pooled)
            off = relative_error(attention, len(heads) * min(4**level, 53 * 101))
            np.testing.assert_allclose(asked.whole(level, pooled), expected, rtol=off)


@pytest.mark.parametrize("tokens", [1, 16, 17, 64, 127])
def test_squares_of_any_size(tokens: int) -> None:
    attention = QueryKeyAttention(
        vectors(1, tokens, 8), vectors(1, tokens, 8, seed=1), 0.4, mask=BandMask(None, 0)
    )
    stack = stack_of(attention)
    for level in range(5):
        for pooled in ("max", "mean"):
            found = Asked(stack).whole(level, pooled)
            expected = in_one_go(stack, (0,), level, pooled)
            np.testing.assert_allclose(found, expected, rtol=relative_error(attention, 4**level))


def test_cells_of_more_rows_than_are_gone_through_at_once() -> None:
    attention = QueryKeyAttention(vectors(1, 300, 8), vectors(1, 300, 8, seed=1), 0.4)
    stack = stack_of(attention)
    asked = Asked(stack)
    # Kept are cells of 32 queries; eight rows are gone through at once.
    for pooled in ("mean", "max"):
        expected = in_one_go(stack, (0,), 5, pooled)
        off = relative_error(attention, 32 * 32)
        np.testing.assert_allclose(asked.whole(5, pooled), expected, rtol=off)


@pytest.mark.parametrize("level", [2, 4, 6])
def test_estimates_come_first_and_say_so(level: int) -> None:
    stack = stack_of(attention_of("causal"))
    headers, _ = Asked(stack, (0, 1)).until_done(level, 0, 0)
    done = [header["progress"] for header in headers]
    known = [header["queries"][0] for header in headers]
    queries = min(53, TILE << level)
    assert done == sorted(done)
    assert known == sorted(known)
    assert done[0] == 0
    assert done[-1] == 1
    # The last row of cells of a tile may be that of fewer queries.
    assert {header["queries"][1] for header in headers} == {queries}
    assert known[-1] == queries
    assert [header["waiting"] for header in headers] == [True] * (len(headers) - 1) + [False]
    # Before anything is exact, something is to be seen.
    assert any(header["queries"][0] > 0 and header["progress"] == 0 for header in headers)


def test_an_estimate_is_one_query_a_row_of_cells_over_all_keys() -> None:
    attention = attention_of("biases")
    stack, off = stack_of(attention), weights_error(attention)
    asked = Asked(stack)
    headers, cells = asked.until_done(3, 0, 0, exact=False)
    assert headers[-1]["progress"] == 0
    assert headers[-1]["queries"] == (7, 53)
    weights = stack.weights(layer=3, head=0)
    # Eight queries a cell, of the last only five; the middle one speaks for them.
    middles = [4, 12, 20, 28, 36, 44, 50]
    expected = [[weights[row, x : x + 8].mean() for x in range(0, 64, 8)] for row in middles]
    # In one byte each, whatever was asked for: it is no more than an estimate.
    assert headers[-1]["encoding"] == "uint8-sqrt"
    np.testing.assert_allclose(cells, expected, atol=headers[-1]["error"] + off)
    headers, most = asked.until_done(3, 0, 0, "max", exact=False)
    expected = [[weights[row, x : x + 8].max() for x in range(0, 64, 8)] for row in middles]
    np.testing.assert_allclose(most, expected, atol=headers[-1]["error"] + off)
    # Asked for nothing more, nothing more is done.
    assert not asked.once(3, 0, 0, exact=False, budget=for_steps(1000))[0]["waiting"]
    assert asked.once(3, 0, 0, exact=False)[0]["progress"] == 0


def test_an_estimate_has_one_texture_however_much_of_it_is_exact() -> None:
    attention = attention_of("biases")
    stack, off = stack_of(attention), weights_error(attention)
    weights = stack.weights(layer=3, head=0)
    middles = [4, 12, 20, 28, 36, 44, 50]
    single = [[weights[row, x : x + 8].mean() for x in range(0, 64, 8)] for row in middles]
    asked = Asked(stack)
    between = 0
    while True:
        header, cells = asked.once(3, 0, 0)
        if header["progress"] == 1:
            break
        if header["progress"] == 0:
            continue
        # Rows that were gone through are shown with the others, once all were.
        np.testing.assert_allclose(cells, single, atol=header["error"] + off)
        assert header["queries"] == (7, 53)
        between += 1
    assert between > 3
    expected = in_one_go(stack, (0,), 3, "mean")[:, :8]
    np.testing.assert_allclose(cells, expected, rtol=relative_error(attention, 64))


def test_rows_without_a_sample_look_like_the_nearest_that_has_one() -> None:
    stack = stack_of(attention_of("causal"))
    asked = Asked(stack)
    seen = [asked.once(3, 0, 0, exact=False) for _ in range(40)]
    partial = [cells for header, cells in seen if 0 < header["queries"][0] < 7]
    assert partial
    for cells in partial:
        assert (cells.sum(axis=1) > 0).all()
        # Query 7 sees keys up to 55, seven cells; what lies ahead stays empty.
        assert cells[0, 7] == 0


def test_mean_and_maximum_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(stack_of(attention_of("causal")), (0, 1))
    asked.until_done(5, 0, 0)
    products = count_products(monkeypatch)
    # Nor do other levels of the whole need anything more.
    for level in (3, 4, 5, 6):
        for pooled in ("mean", "max"):
            header, _ = asked.once(level, 0, 0, pooled)
            assert header["progress"] == 1
    assert products == []


def test_a_finer_tile_needs_its_rows_sums_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(stack_of(attention_of("everything")))
    products = count_products(monkeypatch)
    asked.until_done(0, 2, 3)
    assert sum(products) == 8 * 101 + 8 * 8
    products.clear()
    asked.until_done(0, 2, 4)
    assert sum(products) == 8 * 8


def count_products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    logits = QueryKeyAttention.shared_logits

    def count(self: QueryKeyAttention, heads: Any, rows: Any, columns: Any = None) -> torch.Tensor:
        found = logits(self, heads, rows, columns)
        counted.append(found.numel())
        return found

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", count)
    return counted


def test_a_reply_does_a_step_and_then_what_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = count_products(monkeypatch)
    asked = Asked(stack_of(attention_of("everything")), (0, 1))
    steps = []
    for _ in range(30):
        asked.once(5, 0, 0)
        steps.append(sum(products))
        products.clear()
    # Four queries and all keys of a head, or eight queries and a block of keys of both.
    assert max(steps) <= max(4 * 101, 2 * 64)
    assert np.count_nonzero(steps) > 20
    asked.once(5, 0, 0, budget=for_steps(20))
    assert sum(products) > 3 * max(steps)
    assert max(products) <= 64


def test_a_causal_mask_halves_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    products = count_products(monkeypatch)
    work = {}
    for causal in (False, True):
        record = long_record(256, heads=1, key_heads=1, head_dim=16, causal=causal)
        asked = Asked(record.stack())
        products.clear()
        asked.until_done(5, 0, 0, layer=0, steps=500)
        work[causal] = sum(products)
    assert work[True] < 0.6 * work[False]


def test_tiles_that_no_query_reaches_are_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    products = count_products(monkeypatch)
    record = long_record(256, heads=1, key_heads=1, head_dim=16)
    asked = Asked(record.stack())
    for level in (0, 4):
        header, cells = asked.once(level, 0, 1, layer=0)
        assert (header["progress"], header["waiting"]) == (1, False)
        assert not cells.any()
    assert products == []


def test_the_needle_is_seen_from_farthest_away() -> None:
    tokens = 512
    asked = Asked(long_record(tokens, heads=1, key_heads=1).stack())
    query, key = (int(share * tokens) for share in NEEDLE)
    for level in (9, 7, 6):
        _, whole = asked.until_done(level, 0, 0, "max", layer=0, steps=500)
        cell = whole[query >> level, key >> level]
        assert cell > 0.9
        mean = asked.once(level, 0, 0, layer=0)[1][query >> level, key >> level]
        assert mean < 0.02


@pytest.mark.parametrize("level", [1, 5])
def test_an_interrupt_leaves_all_that_was_done(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = stack_of(attention_of("causal"))
    undisturbed = Asked(stack, (0, 1)).until_done(level, 0, 0, "max")[1]
    asked = Asked(stack, (0, 1))
    logits = QueryKeyAttention.shared_logits
    calls = 0

    def interrupted(self: Any, *where: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls % 7 == 0 and calls < 200:
            raise KeyboardInterrupt
        return logits(self, *where)

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", interrupted)
    interrupts, done = 0, 0.0
    while True:
        try:
            header, cells = asked.once(level, 0, 0, "max")
        except KeyboardInterrupt:
            interrupts += 1
            continue
        assert header["progress"] >= done
        done = header["progress"]
        if not header["waiting"]:
            break
    assert interrupts > 3
    np.testing.assert_array_equal(cells, undisturbed)


def test_two_who_ask_by_turns_both_come_to_an_end() -> None:
    asked = Asked(long_record(128, heads=4, key_heads=2, head_dim=16).stack(), (0, 1, 2, 3))
    # Sixteen rows of cells, each of which takes many steps.
    for _ in range(3000):
        done = [asked.once(3, row, 0, layer=0)[0]["progress"] for row in (0, 1)]
        if min(done) == 1:
            return
    pytest.fail(f"after 3000 turns: {done}")


def test_what_is_kept_is_bounded_and_what_is_dropped_is_made_again() -> None:
    attention = attention_of("causal")
    stack = stack_of(attention)
    # A tile takes 512 bytes, the whole 7 by 13 cells; the sums of a head 212.
    asked = Asked(stack, (0, 1), cells=1500, sums=250)
    for pooled in ("mean", "max"):
        for level in (0, 1, 5):
            expected = in_one_go(stack, (0, 1), level, pooled)
            off = relative_error(attention, 2 * 4**level)
            np.testing.assert_allclose(asked.whole(level, pooled), expected, rtol=off)
            assert asked.pyramids.num_bytes <= 1500


def test_cells_of_a_long_text_keep_their_weights_in_one_byte() -> None:
    asked = Asked(long_record(1024, heads=1, key_heads=1).stack())
    cells = asked.until_done(7, 0, 0, layer=0, steps=5000)[1]
    header, coarse = asked.once(7, 0, 0, layer=0, precision="uint8")
    # Relative to 1 the error would be larger than most of these means.
    assert np.median(cells[cells > 0]) < 0.0039
    assert header["maximum"] == pytest.approx(cells.max())
    assert header["error"] <= 0.004 * cells.max()
    np.testing.assert_allclose(coarse, cells, atol=header["error"])
    assert (coarse[cells > cells.max() / 1e4] > 0).all()


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_what_is_nan_is_named(side: str) -> None:
    attention = attention_of("everything")
    getattr(attention, side)[1, 40, 2] = torch.nan
    asked = Asked(stack_of(attention), (1, 2))
    with pytest.raises(ValueError, match=r"layer 3, mean of heads 1, 2: some weights are NaN"):
        asked.until_done(5, 0, 0)
    # Heads that nothing is wrong with are drawn.
    assert asked.until_done(5, 0, 0, heads=(0,))[0][-1]["progress"] == 1


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"heads": ()}, ValueError, "heads is empty"),
        ({"heads": (9,)}, IndexError, "head=9: layer 3 of stack 'self' has heads 0 to 3"),
        ({"heads": (0, 9)}, IndexError, "head=9"),
        ({"layer": 7}, IndexError, "layer=7"),
        ({"level": 25}, ValueError, "level=25 must lie between 0 and 24"),
        ({"level": -1}, ValueError, "level=-1"),
        ({"row": 1}, ValueError, "row=1: at level 3 there are 1 tiles"),
        ({"column": 2}, ValueError, "column=2: at level 3 there are 2 tiles"),
        ({"pooled": "median"}, ValueError, "pooled='median'"),
        ({"precision": "uint4"}, ValueError, "precision='uint4'"),
    ],
)
def test_what_is_not_there_is_refused(
    asked: dict[str, Any], error: type[Exception], message: str
) -> None:
    where = [
        asked.pop(name, default) for name, default in (("level", 3), ("row", 0), ("column", 0))
    ]
    with pytest.raises(error, match=message):
        Asked(stack_of(attention_of("causal"))).once(*where, **asked)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_is_missing_is_told_in_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(stack_of(attention_of("causal")))

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(QueryKeyAttention, "shared_logits", fail)
        with pytest.raises(MemoryError, match=r"layer 3, mean of heads 0: there is not enough mem"):
            asked.until_done(5, 0, 0)
    assert asked.until_done(5, 0, 0)[0][-1]["progress"] == 1


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_half_the_threads_are_left_to_others(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fail(*_: Any) -> None:
        seen.append(torch.get_num_threads())
        raise RuntimeError("a fault")

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", fail)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with pytest.raises(RuntimeError, match="a fault"):
            Asked(stack_of(attention_of("causal"))).once(5, 0, 0)
        assert seen == [max(1, threads // 2)]
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_other_faults_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("another fault")

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", fail)
    with pytest.raises(RuntimeError, match="another fault"):
        Asked(stack_of(attention_of("causal"))).once(5, 0, 0)


def test_only_large_matrices_of_vectors_take_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.server.pyramid, "LARGE", 53 * 101 * 2)
    stack = stack_of(attention_of("causal"))
    assert not is_large(stack, 3, (0, 1))
    assert is_large(stack, 3, (0, 1, 2))
    given = av.AttentionRecord.from_weights([shares(3, 120, 120)], words(120)).stack()
    assert not is_large(given, 0, (0, 1, 2))
    header, _ = Asked(stack).once(0, 0, 0)
    assert "progress" not in header


def test_heads_that_were_kept_have_their_own_numbers() -> None:
    from attnviz.record.attention import HeadSubset

    attention = attention_of("causal")
    kept = HeadSubset(attention, heads=(1, 4, 6, 7), model_heads=8, model_key_heads=4)
    stack = AttentionStack("self", {3: kept}, Tokens.of(words(53)), Tokens.of(words(101, "k")))
    found = Asked(stack, (6,)).whole(4, "mean")
    off = relative_error(attention, 4**4)
    np.testing.assert_allclose(found, in_one_go(stack, (6,), 4, "mean"), rtol=off)
    with pytest.raises(IndexError, match="only heads"):
        Asked(stack, (0,)).once(4, 0, 0)


def test_a_server_answers_with_how_far_it_is() -> None:
    record = long_record(64, heads=2, key_heads=1)
    server = RecordServer(record)
    arguments = {
        "stack": "self",
        "layer": 0,
        "heads": [0, 1],
        "level": 3,
        "row": 0,
        "column": 0,
        "pooled": "mean",
        "precision": "uint8",
    }
    for _ in range(1000):
        reply = server.reply("tile", arguments)
        if not reply.header["waiting"]:
            break
    assert reply.header["progress"] == 1
    assert reply.header["queries"] == (64, 64)
    assert reply.header["shape"] == (1, 8, 8)
    assert server.reply("tile", arguments | {"exact": False}).header["progress"] == 1


def test_layers_and_groups_of_heads_have_cells_of_their_own() -> None:
    layers = {
        layer: QueryKeyAttention(
            4 * vectors(3, 40, 4, seed=layer), vectors(3, 40, 4, seed=layer + 1), 0.5
        )
        for layer in (3, 6)
    }
    stack = AttentionStack("self", layers, Tokens.of(words(40)))
    pyramids = Pyramids(RowSums())
    whole = slice(0, 40)
    for layer in (3, 6):
        for heads in ([0], [1], [0, 2]):
            found = pyramids.tile(
                stack,
                layer=layer,
                heads=heads,
                level=0,
                rows=whole,
                columns=whole,
                pooled="mean",
                budget=for_steps(10**6),
            )
            assert found.progress == 1
            expected = np.mean([stack.weights(layer=layer, head=head) for head in heads], axis=0)
            # The mean of two heads has another three roundings.
            off = weights_error(layers[layer]) + 3 * UNIT
            np.testing.assert_allclose(found.cells, expected, atol=off)
