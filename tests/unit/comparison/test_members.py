"""Test comparisons of two or more records (members), and the record with all members as stacks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.comparison.alignment import align_tokens, common_tokens, on_common_units
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens
from rounding import UNIT
from unit.comparison.test_comparison import FOUR, THREE, random_record, record

NAMES = ["before", "after"]


def hand_worked() -> av.Comparison:
    return av.compare(
        record(THREE, ["he", " was", " tired"]),
        record(FOUR, ["she", " was", " very", " tired"]),
        names=NAMES,
    )


def test_the_difference_of_three_tokens_and_four_by_hand() -> None:
    difference = hand_worked().difference.stack()
    assert (difference.signed, difference.measure) == (True, "difference")
    expected: list[list[float]] = [
        [0, 0, 0, 0],
        [-0.25, 0.25, 0, 0],
        [0, 0, 0, 0],
        [-0.125, 0.25, 0.125, -0.25],
    ]
    assert np.allclose(difference.weights(layer=0, head=0), expected, atol=1e-7)
    allowed = difference.allowed(layer=0, head=0)
    assert not allowed[2].any()
    # Query 3 of "after" may attend to key 2, which "before" does not have.
    assert allowed[3].all()
    assert difference.maximum == 0.25


def test_members_and_differences_are_stacks_of_one_record() -> None:
    comparison = hand_worked()
    record = comparison.record()
    assert list(record.stacks) == ["self: before", "self: after", "self: after − before"]
    for name, source in (
        ("self: before", comparison.a),
        ("self: after", comparison.b),
        ("self: after − before", comparison.difference),
    ):
        stack, source_stack = record.stack(name), source.stack()
        assert np.array_equal(stack.weights(layer=0, head=0), source_stack.weights(layer=0, head=0))
    # The stack of a member has the member's token texts. Only "after" has the token "+·very".
    assert [stack.query_tokens.text for stack in record.stacks.values()] == [
        ("he", "·was", "+·very", "·tired"),
        ("she", "·was", "·very", "·tired"),
        ("he→she", "·was", "+·very", "·tired"),
    ]
    assert set(comparison.notes) <= set(record.notes)
    described = comparison.describe()
    assert json.loads(json.dumps(described, allow_nan=False)) == {
        "names": NAMES,
        "stacks": {
            "self": {
                "members": ["self: before", "self: after"],
                "differences": [None, "self: after − before"],
                "distances": [None, [[pytest.approx((0 + 0.25 + 0.375) / 3)]]],
                "rounding": [None, [[None]]],
                "sampled": None,
            }
        },
    }


def test_the_difference_of_equal_records_is_zero_and_the_order_sets_the_sign() -> None:
    words = [f" w{number}" for number in range(9)]
    a, b = random_record(0, words), random_record(1, [*words[:4], " more", *words[4:]])
    nothing, forward, backward = av.compare(a, a), av.compare(a, b), av.compare(b, a)
    assert len(nothing.to_pandas()) == 0
    for layer in (0, 1):
        assert not nothing.distance()[layer].any()
        assert np.array_equal(forward.distance()[layer], backward.distance()[layer])
        assert not nothing.difference.stack().weights(layer=layer).any()
        positive, negative = (
            comparison.difference.stack().weights(layer=layer) for comparison in (forward, backward)
        )
        assert np.abs(positive).max() > 0.1
        assert np.array_equal(positive, -negative)
        # Each row of differences sums to 0, up to rounding. Each of the two records contributes
        # `keys` + 4 rounding errors, and the sum of the differences `keys` errors.
        keys = positive.shape[-1]
        assert np.abs(positive.sum(-1)).max() < (3 * keys + 8) * UNIT


def test_long_texts_are_sampled_and_described_so() -> None:
    words = [f" w{number}" for number in range(5000)]
    a, b = (random_record(seed, words).only(0) for seed in (0, 1))
    comparison = av.compare(a, b)
    stack = comparison.describe()["stacks"]["self"]
    assert stack["sampled"] == 64
    assert stack["distances"][1][0] == comparison.distance(max_queries=64)[0].tolist()
    assert all(error > 0 for error in stack["rounding"][1][0])


def test_checkpoints_are_compared_with_the_first() -> None:
    words = [f" w{number}" for number in range(6)]
    # Word n of text n is replaced by " new" and the digit n.
    texts = [[*words[:seed], f" new{seed}", *words[seed + 1 :]] for seed in range(4)]
    members = [random_record(seed, text) for seed, text in enumerate(texts)]
    comparison = av.compare(members)
    described = comparison.describe()["stacks"]["self"]
    record = comparison.record()
    assert list(record.stacks) == [
        *(f"self: {name}" for name in "0123"),
        *(f"self: {name} − 0" for name in "123"),
    ]
    for number in (1, 2, 3):
        two, pair = av.compare(members[0], members[number]), comparison.pair(number)
        assert pair.names == ("0", str(number))
        assert pair.alignment()[0].text == two.alignment()[0].text
        assert np.array_equal(pair.rounding(), two.rounding())
        assert np.array_equal(pair.distance(), two.distance())
        assert np.array_equal(described["distances"][number], two.distance())
        stack = record.stack(f"self: {number}")
        assert stack.query_tokens.text == members[number].tokens.text
        difference = record.stack(f"self: {number} − 0").weights(layer=1)
        assert np.array_equal(difference, two.difference.stack().weights(layer=1))
    # By default, the last member is compared with the first.
    assert np.array_equal(comparison.distance(), comparison.pair("3").distance())


def test_several_texts_on_common_units() -> None:
    """A unit contains aligned tokens of all texts. All alignments have the same units."""
    a = Tokens.of(["[", " he", " sat", " un", "der", " it"])
    others = [
        Tokens.of(["[", " she", " sat", " under", " it"]),
        Tokens.of([" so", "[", " he", " sat", " un", "der", " it", " now"]),
        Tokens.of(["[", " he", " un", "der", " it", " now", " too"]),
    ]
    alignments = on_common_units([align_tokens(a, other) for other in others])
    assert common_tokens(alignments).text == (
        *("+·so", "[", "·he→·she", "−·sat"),
        *("·un→·under", "−der", "·it", "+·now", "+·too"),
    )
    for alignment, other in zip(alignments, others, strict=True):
        assert len(alignment) == 9
        assert alignment.a_ends.tolist() == alignments[0].a_ends.tolist()
        assert alignment.a_lengths.sum() == len(a)
        assert alignment.b_lengths.sum() == len(other)


def test_units_of_several_tokenizers_end_where_tokens_of_all_end() -> None:
    a = Tokens.of([" un", "der", " it"])
    others = [Tokens.of([" under", " it"]), Tokens.of([" un", "der", " i", "t"])]
    alignments = on_common_units([align_tokens(a, other) for other in others])
    assert common_tokens(alignments).text == ("·under", "·it")
    assert [alignment.b_lengths.tolist() for alignment in alignments] == [[1, 1], [2, 2]]


def test_random_texts_keep_all_their_weights() -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        lengths = generator.integers(2, 9, size=4)
        texts = [[*generator.choice([" a", " b", " c", " d"], n).tolist(), " end"] for n in lengths]
        records = [random_record(number, text) for number, text in enumerate(texts)]
        comparison = av.compare(iter(records))
        units = len(comparison.a.tokens)
        for member, original in zip(comparison.members, records, strict=True):
            weights = member.stack().weights(layer=1, head=1)
            assert weights.shape == (units, units)
            present = np.flatnonzero(weights.any(axis=1))
            expected = original.stack().weights(layer=1, head=1)
            assert np.allclose(weights[np.ix_(present, present)], expected, atol=1e-6)


def test_images_of_both_members_are_kept() -> None:
    grids = tuple(PatchGrid(image=image, start=1 + image, rows=1, columns=1) for image in (0, 1))
    tokens = Tokens.of(["[CLS]", "[1]", "[2]"], special=[True, False, False])
    tokens = Tokens(**{**vars(tokens), "grids": grids})
    images = [[np.full((2, 2, 3), first + image, np.uint8) for image in (0, 1)] for first in (0, 9)]
    records = [av.AttentionRecord.from_weights([[THREE]], tokens, images=own) for own in images]
    combined = av.compare(*records).record()
    assert [int(image.max()) for image in combined.images] == [0, 1, 9, 10]
    assert [
        [grid.image for grid in stack.query_tokens.grids] for stack in combined.stacks.values()
    ] == [[0, 1], [2, 3], [0, 1]]
    assert len(av.compare(records[0], records[0]).record().images) == 2


def image_record(words: list[str], rows: int, columns: int) -> av.AttentionRecord:
    """Return a record of a start token, the patches of a black image, and words."""
    grid = PatchGrid(image=0, start=1, rows=rows, columns=columns)
    tokens = Tokens.of(["[CLS]", *grid.names(), *words])
    weights = np.full((1, 1, len(tokens), len(tokens)), 1 / len(tokens), np.float32)
    image = np.zeros((4 * rows, 4 * columns, 3), np.uint8)
    tokens = Tokens(**{**vars(tokens), "grids": (grid,)})
    return av.AttentionRecord.from_weights(weights, tokens, images=[image])


def test_patches_keep_their_places_if_all_members_have_them() -> None:
    question = image_record(["what", "is", "it"], 2, 3)
    other = image_record(["where", "is", "the", "cat"], 2, 3)
    record = av.compare(question, other).record()
    grids = [stack.query_tokens.grids for stack in record.stacks.values()]
    assert grids == [(PatchGrid(image=0, start=1, rows=2, columns=3),)] * 3
    assert not any("image" in note for note in record.notes)
    # Tokens that only the other text has before the image move the places.
    later = image_record([], 2, 3)
    shifted = av.AttentionRecord.from_weights(
        np.full((1, 1, 8, 8), 1 / 8, np.float32),
        Tokens(
            **{
                **vars(Tokens.of(["[CLS]", "now", *later.tokens.text[1:]])),
                "grids": (PatchGrid(image=0, start=2, rows=2, columns=3),),
            }
        ),
        images=list(later.images),
    )
    tokens = av.compare(later, shifted).a.tokens
    assert tokens.text[:3] == ("[CLS]", "+now", "0,0")
    assert tokens.grids == (PatchGrid(image=0, start=2, rows=2, columns=3),)


def test_a_note_says_that_patches_differ() -> None:
    wide, tall = image_record([], 2, 3), image_record([], 3, 2)
    record = av.compare(wide, tall, names=("wide", "tall")).record()
    assert not any(stack.query_tokens.grids for stack in record.stacks.values())
    note = "wide and tall have different patches of images, so no image is drawn."
    assert [said for said in record.notes if "image" in said] == [note]


def test_a_note_says_whose_image_is_behind_differences() -> None:
    dark, bright = image_record([], 2, 3), image_record([], 2, 3)
    bright = av.AttentionRecord(
        dict(bright.stacks), images=[np.full_like(image, 200) for image in bright.images]
    )
    record = av.compare(dark, bright, names=("dark", "bright")).record()
    assert record.notes[-1] == "Differences are drawn over the image of dark."


def test_notes_say_how_records_differ() -> None:
    words = ["a", " b", " c"]
    a = random_record(0, words)
    replaced = av.compare(a, random_record(0, ["x", " y", " z"]))
    assert replaced.notes[1] == "No token of a is in b: tokens are compared by their positions."
    weights_only = av.AttentionRecord.from_weights(a.to_numpy(), words)
    assert "b has weights without queries and keys" in av.compare(a, weights_only).notes[0]


def test_words_are_compared_with_tokens_that_are_merged_to_words() -> None:
    """If one record has words and the other tokens, the tokens are merged to words."""
    text = ["un", "do", " it", " now"]
    a, b = random_record(0, text), random_record(1, text)
    merged = av.compare(a.merge_words(), b)
    both = av.compare(a.merge_words(), b.merge_words())
    assert merged.a.tokens.text == ("undo", "·it", "·now")
    assert any("a has words and b has tokens" in note for note in merged.notes)
    for one, other in zip(merged.distance(), both.distance(), strict=True):
        assert np.allclose(one, other, atol=1e-7)
    # The words "it" and "now" are merged again, because the other record has one word "it now".
    merged_again = av.compare(a.merge_words(), random_record(2, ["undo", " it now"]))
    matrix = a.stack().weights(layer=0, head=0).astype(float)
    expected = [
        [part[:, :2].sum(1).mean(), part[:, 2:].sum(1).mean()] for part in (matrix[:2], matrix[2:])
    ]
    assert np.allclose(merged_again.a.stack().weights(layer=0, head=0), expected, atol=1e-6)


def test_the_aligned_record_of_a_file_can_be_saved(tmp_path: Any) -> None:
    words = ["a", " b", " c"]
    saved = av.load(random_record(0, words).save(tmp_path / "a.safetensors"))
    # `longer.a` is `saved` with one more token, " d", which only the other record has.
    longer = av.compare(saved, random_record(1, [*words, " d"]))
    reloaded = av.load(longer.a.save(tmp_path / "b.safetensors"))
    assert np.array_equal(reloaded.stack().weights(layer=0), longer.a.stack().weights(layer=0))
