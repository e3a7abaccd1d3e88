"""Tiles of large matrices, exact and sampled, compared with cells of the complete weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
import attnviz.record.softmax
import attnviz.server.row_normalizers
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
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import Encoded, decode
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.server import RecordServer
from attnviz.server.tiles import _sampling_interval, encode_tile
from attnviz.utils.progress import run_steps
from rounding import relative_error
from unit.long_records import long_record
from unit.records import shares, vectors, words

TILE = 8


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every matrix as large, and compute a few rows at a time."""
    monkeypatch.setattr(attnviz.server.tiles, "MAX_EXACT_PAIRS", 0)
    monkeypatch.setattr(attnviz.server.tiles, "TILE", TILE)
    monkeypatch.setattr(attnviz.server.row_normalizers, "_MAX_RECOMPUTED_KEYS", 0)
    monkeypatch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", 500)
    monkeypatch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", 64)


@pytest.fixture
def _all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.server.tiles, "_MAX_SAMPLED_PAIRS", 1 << 40)
    monkeypatch.setattr(attnviz.server.tiles, "_MAX_QUERIES_PER_ROW", 1 << 20)


def stack_of(attention: QueryKeyAttention) -> AttentionStack:
    return AttentionStack(
        "self",
        {3: attention},
        Tokens.of(words(attention.num_queries)),
        Tokens.of(words(attention.num_keys, "k")),
    )


def tile_of(
    stack: AttentionStack, sums: RowNormalizers, *level_and_position: int, **options: Any
) -> tuple[Encoded, int | None]:
    level, row, column = level_and_position
    request: dict[str, Any] = {"layer": 3, "heads": (0,), "pooled": "mean"}
    return run_steps(
        encode_tile(stack, sums, level=level, position=(row, column), **(request | options))
    )


def all_tiles(
    stack: AttentionStack, level: int, **options: Any
) -> tuple[NDArray[np.float32], set[Any]]:
    """Return all tiles of a level together, and the set of their sampling intervals."""
    sums, span, intervals = RowNormalizers(), TILE << level, set()
    lines = []
    for row in range(-(-len(stack.query_tokens) // span)):
        line = []
        for column in range(-(-len(stack.key_tokens) // span)):
            encoded, interval = tile_of(stack, sums, level, row, column, **options)
            line.append(decode(encoded)[0])
            intervals.add(interval)
        lines.append(line)
    return np.block(lines), intervals


def expected_cells(
    stack: AttentionStack, heads: tuple[int, ...], level: int, pooled: str
) -> NDArray[np.float64]:
    """Compute cells from the complete matrix."""
    matrix = np.mean([stack.weights(layer=3, head=head) for head in heads], axis=0, dtype=float)
    pool: Callable[..., Any] = np.max if pooled == "max" else np.mean
    cell_size = 2**level
    return np.array(
        [
            [
                pool(matrix[y : y + cell_size, x : x + cell_size])
                for x in range(0, matrix.shape[1], cell_size)
            ]
            for y in range(0, matrix.shape[0], cell_size)
        ]
    )


FLAGS = torch.from_numpy(np.random.default_rng(5).random((4, 53, 101)) < 0.3)
FLAGS[1, 7] = False
# Positions of 40 queries and 90 keys of a compared text among inserted tokens.
POSITIONS = (
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
        "mask": InsertedMask(BandMask(None, 0, offset=50), *POSITIONS, 53, 101),
        "bias": InsertedBias(DistanceBias(vectors(4, 129, seed=3), 40), *POSITIONS, 53, 101),
    },
}


def attention_of(kind: str) -> QueryKeyAttention:
    return QueryKeyAttention(
        vectors(4, 53, 8), vectors(2, 101, 8, seed=1), 0.35, **ATTENTIONS[kind]
    )


@pytest.mark.usefixtures("_all_queries")
@pytest.mark.parametrize("heads", [(0,), (1, 3, 2)])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_all_tiles_together_are_the_matrix(kind: str, heads: tuple[int, ...]) -> None:
    attention = attention_of(kind)
    stack = stack_of(attention)
    for level in (0, 1, 3, 7):
        for pooled in ("mean", "max"):
            tiles, intervals = all_tiles(stack, level, heads=heads, pooled=pooled)
            assert intervals == {None}
            expected = expected_cells(stack, heads, level, pooled)
            tolerance = relative_error(attention, len(heads) * min(4**level, 53 * 101))
            np.testing.assert_allclose(tiles, expected, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [1, 5000, 40_000])
@pytest.mark.parametrize("heads", [(0,), (1, 3, 2)])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_cells_pool_sampled_queries_over_all_keys(
    kind: str, heads: tuple[int, ...], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.server.tiles, "_MAX_SAMPLED_PAIRS", pairs)
    monkeypatch.setattr(attnviz.server.tiles, "_MIN_QUERIES_PER_TILE", 4)
    attention = attention_of(kind)
    stack = stack_of(attention)
    weights = np.mean([stack.weights(layer=3, head=head) for head in heads], axis=0, dtype=float)
    for level in (1, 2, 3):
        cell, span = 2**level, TILE << level
        for pooled in ("mean", "max"):
            tiles, intervals = all_tiles(stack, level, heads=heads, pooled=pooled)
            (interval,) = intervals
            if interval is None:
                continue
            # At least four queries of a tile are sampled for any number of heads.
            assert interval <= span // 4
            pool: Callable[..., Any] = np.max if pooled == "max" else np.mean
            sampled = []
            for start in range(0, 53, span):
                count = -(-min(span, 53 - start) // interval)
                sampled += np.minimum(start + sample_queries(count * interval, count), 52).tolist()
            high = max(cell, interval)
            expected = [
                [
                    pool(weights[[n for n in sampled if n // high == top // high]][:, x : x + cell])
                    for x in range(0, 101, cell)
                ]
                for top in range(0, 53, cell)
            ]
            tolerance = relative_error(attention, len(heads) * 4**level)
            np.testing.assert_allclose(tiles, expected, rtol=tolerance)


def test_tiles_with_many_pairs_sample_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attnviz.server.tiles, "MAX_EXACT_PAIRS", 1 << 24)
    monkeypatch.setattr(attnviz.server.tiles, "TILE", 256)

    def of(tokens: int, num_heads: int = 1) -> list[int | None]:
        layer = QueryKeyAttention(vectors(num_heads, tokens, 1), vectors(1, tokens, 1), 1.0)
        stack = AttentionStack("self", {3: layer}, Tokens.of(["a"] * tokens))
        return [
            _sampling_interval(stack, 3, range(num_heads), 2**level) for level in (0, 4, 5, 7, 9)
        ]

    # A whole text of 4,096 tokens is exact for one head, and so is a tile of 4,096 tokens of any
    # text.
    assert of(4096) == [None] * 5
    assert of(8192) == [None, None, 2, 8, 32]
    assert of(131_072) == [None, None, 16, 64, 256]
    # With many heads the number of pairs is the same, but at least 64 queries of each tile are
    # sampled.
    assert of(131_072, 32) == [None, 64, 128, 512, 2048]


def test_given_weights_are_all_pooled() -> None:
    stack = av.AttentionRecord.from_weights([shares(3, 120, 120)], words(120)).stack()
    assert _sampling_interval(stack, 0, (0, 1, 2), 64) is None


def test_a_tile_does_not_depend_on_earlier_requests() -> None:
    stack = stack_of(attention_of("causal"))
    positions = [(level, 0, column) for level in (2, 1, 3) for column in (0, 1)]
    sums = RowNormalizers()
    first = [tile_of(stack, sums, *position)[0].data for position in positions]
    repeated = [tile_of(stack, sums, *position)[0].data for position in reversed(positions)]
    assert first == repeated[::-1]


def test_masked_tiles_take_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = QueryKeyAttention(
        vectors(1, 64, 4), vectors(1, 64, 4, seed=1), 0.5, mask=BandMask(None, 0)
    )

    def fail(*_: Any) -> None:
        raise AssertionError("weights were computed")

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", fail)
    encoded, _ = tile_of(stack_of(attention), RowNormalizers(), 1, 0, 2)
    assert not decode(encoded).any()


@pytest.mark.usefixtures("_all_queries")
@pytest.mark.parametrize("side", ["queries", "keys"])
def test_heads_with_nan_are_named(side: str) -> None:
    attention = attention_of("everything")
    getattr(attention, side)[1, 40, 2] = torch.nan
    stack = stack_of(attention)
    with pytest.raises(ValueError, match=r"layer 3, mean of heads \d, \d: some weights are NaN"):
        tile_of(stack, RowNormalizers(), 5, 0, 0, heads=(2, 3) if side == "keys" else (1, 2))
    # Heads without NaN are drawn.
    tile_of(stack, RowNormalizers(), 5, 0, 0)


def test_the_reply_contains_the_sampling_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.server.tiles, "_MAX_QUERIES_PER_ROW", 2)
    server = RecordServer(long_record(64, heads=2, key_heads=1))
    request: dict[str, Any] = {"stack": "self", "layer": 0, "heads": [0, 1], "row": 0, "column": 0}
    request |= {"pooled": "mean"}
    assert server.reply("tile", request | {"level": 3}).header["sampling_interval"] == 4
    assert "sampling_interval" not in server.reply("tile", request | {"level": 1}).header
