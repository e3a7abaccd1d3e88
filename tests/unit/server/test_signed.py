"""Signed numbers in replies of the kernel, compared with b - a of torch's softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import attnviz.record.softmax
import attnviz.record.stack
import attnviz.server.row_normalizers
import attnviz.server.tiles
from attnviz import analysis
from attnviz.interventions.attributed import GradientAttribution, NormAttribution
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import BandMask, Mask, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import decode
from attnviz.server.description import describe
from attnviz.server.maps import encode_maps
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.server import RecordServer
from attnviz.server.strongest import find_strongest_keys
from attnviz.server.tiles import encode_tile
from attnviz.utils.progress import run_steps
from models.counting import LiveTensors
from rounding import weights_error
from unit.records import vectors, words

Numbers = NDArray[Any]


def signed_stack(numbers: Any) -> AttentionStack:
    values = np.asarray(numbers, np.float32)
    return AttentionStack(
        "self",
        {0: StoredWeights(torch.from_numpy(values))},
        Tokens.of(words(values.shape[1])),
        Tokens.of(words(values.shape[2], "k")),
        signed=True,
        measure="difference",
    )


def random_numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return numbers of both signs, a third of them 0."""
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=shape) * (generator.random(shape) > 1 / 3)
    return numbers.astype(np.float32)


def cell(numbers: Numbers, pooled: str) -> float:
    """Compute a cell from its numbers."""
    positive = [float(number) for number in numbers.flat if number > 0]
    negative = [-float(number) for number in numbers.flat if number < 0]
    if pooled == "max":
        high, low = max(positive, default=0.0), max(negative, default=0.0)
    else:
        high, low = sum(positive) / numbers.size, sum(negative) / numbers.size
    return -low if low > high * 1.001 else high


def cells_of(numbers: Numbers, cell_size: int, pooled: str) -> Numbers:
    return np.array(
        [
            [
                cell(numbers[y : y + cell_size, x : x + cell_size], pooled)
                for x in range(0, numbers.shape[1], cell_size)
            ]
            for y in range(0, numbers.shape[0], cell_size)
        ]
    )


def tile(stack: AttentionStack, **request: Any) -> Numbers:
    request_fields: dict[str, Any] = {"layer": 0, "heads": [0], "level": 0, "position": (0, 0)}
    request_fields |= {"pooled": "mean"}
    return np.asarray(
        decode(run_steps(encode_tile(stack, RowNormalizers(), **(request_fields | request)))[0])[0]
    )


def test_equal_positive_and_negative_sums_count_as_positive() -> None:
    # The first cell of the difference of two causal attentions has such numbers.
    for less in (0.3, 0.30000001, 0.2999999):
        for pooled in ("mean", "max"):
            actual = tile(signed_stack([[[0.0, 0.0], [0.3, -less]]]), level=1, pooled=pooled)
            assert actual > 0
    assert tile(signed_stack([[[0.0, 0.0], [0.3, -0.301]]]), level=1) < 0


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tiles_of_signed_numbers_equal_a_plain_loop(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 23)), data.draw(st.integers(1, 23))
    level, pooled = data.draw(st.integers(0, 5)), data.draw(st.sampled_from(["mean", "max"]))
    heads = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
    numbers = random_numbers(3, rows, columns, seed=data.draw(st.integers(0, 99)))
    stack = signed_stack(numbers)
    matrix: Numbers = np.asarray(np.mean(numbers[heads], axis=0, dtype=np.float64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", data.draw(st.integers(1, 60)))
        actual = tile(stack, heads=heads, level=level, pooled=pooled)
    expected = cells_of(matrix, 2**level, pooled)
    assert_allclose(np.abs(actual), np.abs(expected), atol=1e-6, rtol=2e-3)
    # If positive and negative values differ by at most a thousandth, rounding can decide the sign.
    clear = np.abs(cells_of(matrix, 2**level, pooled) + cells_of(-matrix, 2**level, pooled)) < 1e-9
    assert_allclose(actual[clear], expected[clear], atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 4, 40])
def test_maps_show_the_largest_size_with_its_sign(size: int) -> None:
    numbers = random_numbers(3, 9, 10)
    numbers[2] = -np.abs(numbers[2])
    actual = run_steps(encode_maps(signed_stack(numbers), 0, size))
    header = actual.encoded.header()
    assert (header["encoding"], header["maximum"]) == ("int8-sqrt", np.abs(numbers).max())
    cells = decode(actual.encoded)
    for head, number in enumerate(numbers):
        r, c = min(9, size), min(10, size)
        expected = [
            [
                cell(number[y * 9 // r : (y + 1) * 9 // r, x * 10 // c : (x + 1) * 10 // c], "max")
                for x in range(c)
            ]
            for y in range(r)
        ]
        assert_allclose(cells[head], expected, atol=header["error"])
        cell_index, largest = actual.largest[head]
        assert cell_index == np.abs(expected).argmax()
        assert largest == pytest.approx(np.array(expected).flat[cell_index])


def strongest_by_loop(matrix: Numbers, row: int, k: int) -> list[tuple[int, float]]:
    order = sorted(range(matrix.shape[1]), key=lambda key: -abs(matrix[row, key]))
    return [(key, matrix[row, key]) for key in order[:k] if matrix[row, key] != 0]


@pytest.mark.parametrize("combine", ["separate", "mean", "max"])
def test_strongest_keys_by_size_with_their_signs(combine: str) -> None:
    numbers = random_numbers(3, 6, 37, seed=4)
    stack = signed_stack(numbers)
    actual = run_steps(
        find_strongest_keys(
            stack,
            layer=0,
            heads=[0, 2],
            rows=slice(1, 6),
            k=30,
            combine=combine,  # type: ignore[arg-type]
            leave_out=[3],
        )
    )
    first, second = numbers[0], numbers[2]
    matrices = {
        "separate": [first, second],
        "mean": [(first + second) / 2],
        "max": [np.where(np.abs(second) > np.abs(first), second, first)],
    }[combine]
    assert len(actual.keys) == len(matrices)
    for index, matrix in enumerate(matrices):
        included = matrix.copy()
        included[:, 3] = 0
        for row in range(5):
            expected = strongest_by_loop(included, row + 1, 30)
            keys = actual.keys[index, row][: len(expected)]
            assert (actual.keys[index, row][len(expected) :] == -1).all()
            assert not actual.weights[index, row][len(expected) :].any()
            assert set(keys.tolist()) == {key for key, _ in expected}
            assert_allclose(
                actual.weights[index, row][: len(expected)], [weight for _, weight in expected]
            )
            assert_array_equal(actual.weights[index, row][: len(expected)], included[row + 1, keys])
        sizes = np.abs(included[1:])
        assert_allclose(actual.sums[index, :, 0], sizes.sum(axis=1), rtol=1e-5)
        assert_allclose(actual.sums[index, :, 1], np.abs(matrix[1:, 3]), rtol=1e-5)


# Differences of softmaxes of long texts in steps.

QUERIES, KEYS = 53, 101
FLAGS = np.random.default_rng(5).random((QUERIES, KEYS)) < 0.3
FLAGS[7] = False
MASKS: dict[str, tuple[Mask | None, Mask | None]] = {
    "everything": (None, None),
    "causal": (BandMask(None, 0, 48), BandMask(None, 0, 48)),
    "a window and all": (BandMask(9, 0, 20), BandMask(None, 0, 48)),
    "a window that begins late": (None, BandMask(9, -4)),
    "any mask": (PackedMask.pack(torch.from_numpy(FLAGS)[None]), BandMask(None, 0, 48)),
}


def sides(masks: str, *, sinks: bool = False) -> tuple[QueryKeyAttention, QueryKeyAttention]:
    a, b = (
        QueryKeyAttention(
            3 * vectors(4, QUERIES, 8, seed=number),
            vectors(2, KEYS, 8, seed=number + 10),
            0.5,
            mask=mask,
            sinks=vectors(4, seed=number + 20) if sinks else None,
        )
        for number, mask in enumerate(MASKS[masks])
    )
    return a, b


def difference_stack(a: LayerAttention, b: LayerAttention) -> AttentionStack:
    return AttentionStack(
        "self",
        {3: DifferenceAttention(a, b)},
        Tokens.of(words(QUERIES)),
        Tokens.of(words(KEYS, "k")),
        signed=True,
        measure="difference",
    )


def whole_difference(a: QueryKeyAttention, b: QueryKeyAttention, head: int) -> Numbers:
    actual = []
    both = np.ones(QUERIES, np.bool_)
    for side in (a, b):
        logits = (side.queries[head].double() @ side.keys[head // 2].double().T) * side.scale
        if side.mask is not None:
            flags = side.mask.allowed(0, slice(0, QUERIES), slice(0, KEYS))
            logits[~flags] = -torch.inf
            both &= flags.any(dim=1).numpy()
        if side.sinks is not None:
            sink = side.sinks[head].double().expand(QUERIES, 1)
            logits = torch.cat([logits, sink], dim=1)
        actual.append(torch.nan_to_num(torch.softmax(logits, dim=1))[:, :KEYS].numpy())
    return np.asarray((actual[1] - actual[0]) * both[:, None])


@pytest.fixture
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in [
        (attnviz.server.tiles, "MAX_EXACT_PAIRS", 0),
        (attnviz.server.tiles, "_MAX_SAMPLED_PAIRS", 1 << 40),
        (attnviz.server.tiles, "_MAX_QUERIES_PER_ROW", 1 << 20),
        (attnviz.server.tiles, "TILE", 8),
        (attnviz.server.row_normalizers, "_MAX_RECOMPUTED_KEYS", 0),
        (attnviz.record.softmax, "_TILE_ENTRIES", 500),
        (attnviz.record.softmax, "_BLOCK_ENTRIES", 64),
    ]:
        monkeypatch.setattr(module, name, value)


def large_tiles(stack: AttentionStack, heads: Sequence[int], level: int, pooled: str) -> Numbers:
    """Return the complete matrix at a level, joined from its tiles."""
    sums, span = RowNormalizers(), 8 << level

    def tile(row: int, column: int) -> Numbers:
        steps = encode_tile(
            stack,
            sums,
            layer=3,
            heads=heads,
            level=level,
            position=(row, column),
            pooled=pooled,  # type: ignore[arg-type]
        )
        encoded, interval = run_steps(steps)
        assert interval is None
        return np.asarray(decode(encoded)[0])

    return np.block(
        [
            [tile(row, column) for column in range(-(-KEYS // span))]
            for row in range(-(-QUERIES // span))
        ]
    )


def attributions(masks: str, kind: str) -> tuple[AttentionStack, Numbers]:
    """Return a stack of attributions, and all its numbers computed by the formulas in float64."""
    side, _ = sides(masks)
    values, gradients = vectors(2, KEYS, 6, seed=30), vectors(4, QUERIES, 6, seed=31)
    norms = vectors(4, KEYS, seed=32).abs()
    logits = (side.queries.double() @ side.keys.double().repeat_interleave(2, 0).mT) * side.scale
    if side.mask is not None:
        flags = side.mask.allowed(0, slice(0, QUERIES), slice(0, KEYS))
        logits[:, ~flags] = -torch.inf
    weights = torch.nan_to_num(torch.softmax(logits, dim=-1))
    values_of_heads = values.double().repeat_interleave(2, 0)
    by_weights = gradients.double() @ values_of_heads.mT
    outputs = weights @ values_of_heads
    if kind == "norms":
        attention: LayerAttention = NormAttribution(side, norms)
        actual = weights * norms.double()[:, None]
    elif kind == "weights":
        attention = GradientAttribution(side, values, outputs.float(), gradients)
        actual = weights * by_weights
    else:
        attention = GradientAttribution(side, values, outputs.float(), gradients, "logits")
        along = (gradients.double() * outputs).sum(dim=-1, keepdim=True)
        actual = weights * torch.nan_to_num((by_weights - along) / (1 - weights))
    stack = AttentionStack(
        "self",
        {3: attention},
        Tokens.of(words(QUERIES)),
        Tokens.of(words(KEYS, "k")),
        signed=kind != "norms",
        normalized=False,
        measure="attribution",
    )
    return stack, actual.numpy()


@pytest.mark.usefixtures("_small_sizes")
@pytest.mark.parametrize("masks", ["everything", "causal", "any mask"])
@pytest.mark.parametrize("kind", ["norms", "weights", "logits"])
def test_large_attributions_step_by_step_equal_all_numbers_at_once(masks: str, kind: str) -> None:
    stack, numbers = attributions(masks, kind)
    # The quotient by 1 - weight loses digits if a key has nearly all weight of a row.
    digits = 1e-2 if kind == "logits" else 2e-3
    for heads, level, pooled in (([2], 3, "mean"), ([0, 3], 2, "max")):
        matrix = np.mean([numbers[head] for head in heads], axis=0)
        actual = large_tiles(stack, heads, level, pooled)
        expected = cells_of(matrix, 2**level, pooled)
        assert_allclose(np.abs(actual), np.abs(expected), atol=2e-5, rtol=digits)
    sums = RowNormalizers()
    for head in (1, 3):
        block = run_steps(
            sums.block(stack, layer=3, head=head, rows=slice(4, 50), columns=slice(3, 30))
        )
        assert_allclose(block, numbers[head, 4:50, 3:30], atol=2e-5, rtol=digits)
        rows = sums.whole_rows(stack, layer=3, head=head, rows=slice(6, 9))
        assert_allclose(rows.numpy(), numbers[head, 6:9], atol=2e-5, rtol=digits)


@pytest.mark.usefixtures("_small_sizes")
@pytest.mark.parametrize(
    ("masks", "level", "pooled"),
    [
        ("everything", 3, "mean"),
        ("causal", 4, "max"),
        ("a window and all", 5, "mean"),
        ("a window that begins late", 4, "max"),
        ("any mask", 1, "mean"),
    ],
)
def test_large_differences_step_by_step_equal_all_numbers_at_once(
    masks: str, level: int, pooled: str
) -> None:
    a, b = sides(masks)
    stack = difference_stack(a, b)
    for heads in ([2], [0, 3]):
        matrix = np.mean([whole_difference(a, b, head) for head in heads], axis=0)
        actual = large_tiles(stack, heads, level, pooled)
        expected = cells_of(matrix, 2**level, pooled)
        # A cell of several heads near zero is a difference of sums, and has the error of these
        # sums.
        tolerance = weights_error(a, b)
        assert_allclose(np.abs(actual), np.abs(expected), atol=tolerance, rtol=2e-3)
        clear = np.abs(expected + cells_of(-matrix, 2**level, pooled)) < 1e-9
        assert_allclose(actual[clear], expected[clear], atol=tolerance)


@pytest.mark.usefixtures("_small_sizes")
def test_sinks_of_both_sides_and_rows_that_one_lacks() -> None:
    a, b = sides("any mask", sinks=True)
    stack = difference_stack(a, b)
    matrix = whole_difference(a, b, 1)
    assert not matrix[7].any()
    actual = large_tiles(stack, [1], 0, "mean")
    assert_allclose(actual, matrix, atol=weights_error(a, b))


@pytest.mark.usefixtures("_small_sizes")
@pytest.mark.parametrize("masks", MASKS)
def test_blocks_and_whole_rows_of_a_difference_use_the_normalizers_of_its_sides(masks: str) -> None:
    a, b = sides(masks)
    stack, sums = difference_stack(a, b), RowNormalizers()
    for head in (0, 3):
        matrix = whole_difference(a, b, head)
        for _ in range(2):
            block = run_steps(
                sums.block(stack, layer=3, head=head, rows=slice(4, 30), columns=slice(20, 60))
            )
            assert_allclose(block, matrix[4:30, 20:60], atol=weights_error(a, b))
        rows = sums.whole_rows(stack, layer=3, head=head, rows=slice(30, 53))
        assert_allclose(rows.numpy(), matrix[30:], atol=weights_error(a, b))
    # Four bytes for each query of two heads on both sides.
    assert sums.num_bytes == 2 * 2 * 4 * QUERIES


def difference_record() -> AttentionRecord:
    a, b = sides("causal")
    tokens = Tokens.of(words(KEYS))
    square = (
        QueryKeyAttention(vectors(4, KEYS, 8, seed=seed), side.keys, 0.5, mask=BandMask(None, 0))
        for seed, side in enumerate((a, b))
    )
    layer = DifferenceAttention(*square)
    stack = AttentionStack("self", {3: layer}, tokens, signed=True, measure="difference")
    return AttentionRecord({"self": stack}, model="difference")


def test_the_description_of_a_signed_stack() -> None:
    (described,) = describe(difference_record())["stacks"]
    largest = max(
        np.abs(difference_record().stack().weights(layer=3, head=head)).max() for head in range(4)
    )
    assert described["signed"] is True
    assert described["measure"] == "difference"
    assert described["normalized"] is False
    assert described["maximum"] == pytest.approx(largest)
    assert (described["patterns"], described["vectors"]) == ([], False)
    assert "sampled" not in described
    (plain,) = describe(AttentionRecord.from_weights([[[[1.0]]]], ["a"]))["stacks"]
    assert plain.keys().isdisjoint({"signed", "measure"})


def test_the_maximum_of_many_differences_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attnviz.record.stack, "_MAX_WEIGHTS_READ", 100)
    assert difference_record().stack().maximum == 1.0
    # The bound of stored numbers is their largest absolute value.
    assert signed_stack(random_numbers(2, 20, 20) * 50).maximum > 50


def test_requests_for_weights_refuse_a_difference() -> None:
    server = RecordServer(difference_record())
    request: dict[str, Any] = {"stack": "self", "layer": 3}
    with pytest.raises(ValueError, match="scores of patterns are defined for attention weights,"):
        server.reply("scores", request | {"pattern": "self"})
    with pytest.raises(ValueError, match="stack 'self', layer 3, has no queries and keys"):
        server.reply("vectors", request | {"head": 0, "token": 3, "keys": [0, 3]})


def test_analyses_of_weights_refuse_signed_numbers() -> None:
    record = difference_record()
    assert analysis.patterns_of(record) == ()
    assert analysis.distinct_head(record) is None
    words_of = "are defined for attention weights, but stack 'self' has signed values"
    for ask in (
        lambda: analysis.head_scores(record, "self"),
        lambda: analysis.all_head_scores(record),
        lambda: analysis.head_entropy(record),
        lambda: analysis.uniform_scores(record, "entropy"),
        lambda: record.sources(5),
    ):
        with pytest.raises(ValueError, match=words_of):
            ask()
    assert record.stack().exact_zeros(layer=3, head=0) is None
    assert signed_stack(np.zeros((1, 2, 2))).exact_zeros(layer=0, head=0) is None


def test_131072_tokens_allocate_nothing_for_all_pairs() -> None:
    count = 131_072
    sides = [
        QueryKeyAttention(
            vectors(1, count, 4, seed=seed), vectors(1, count, 4, seed=9), 0.5, BandMask(None, 0)
        )
        for seed in (0, 1)
    ]
    stack = AttentionStack(
        "self", {0: DifferenceAttention(*sides)}, Tokens.of(words(count)), signed=True
    )
    server = RecordServer(AttentionRecord({"self": stack}))
    request: dict[str, Any] = {"stack": "self", "layer": 0, "heads": [0]}
    last = [count - 4, count]
    with LiveTensors() as tensors:
        estimate = server.reply(
            "tile",
            request | {"level": 9, "row": 0, "column": 0, "pooled": "mean"},
        )
        block = server.reply("block", request | {"rows": last, "columns": last})
        strongest = run_steps(
            find_strongest_keys(stack, layer=0, heads=[0], rows=slice(*last), k=2)
        )
    assert estimate.header["encoding"] == "float32-deflated"
    # Two sides need twice the work of one.
    assert estimate.header["sampling_interval"] == 512
    assert tensors.largest < 40_000_000
    # The last query, computed by hand.
    keys = sides[0].keys[0].double()
    a, b = (torch.softmax(side.queries[0, -1].double() @ keys.T * 0.5, dim=0) for side in sides)
    assert block.data is not None
    actual = np.frombuffer(block.data, "<f4").reshape(4, 4)[3]
    assert_allclose(actual, (b - a)[-4:].numpy(), atol=1e-9)
    largest = (b - a).abs().topk(2)
    assert strongest.keys[0, 3].tolist() == largest.indices.tolist()
    assert_allclose(strongest.weights[0, 3], (b - a)[largest.indices].numpy(), atol=1e-8)
    # The normalizers take a megabyte. No memory grows with the number of pairs.
    assert server.row_normalizers.num_bytes == 2 * 4 * count
