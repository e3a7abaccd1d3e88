"""A record can be saved and loaded again, whatever its tokens, names and notes contain."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnviz as av
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.images import PatchGrid
from attnviz.record.record import AttentionRecord, load
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.spool import Spool
from attnviz.record.tokens import Candidate, Prediction, Tokens
from unit.records import assert_same, shares, vectors

HEADS = 2
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
#: Characters that are invisible, change the direction of text, or cannot be encoded in UTF-8.
hostile = st.sampled_from(
    "\ud800\udfff\x00\u202e\u2066\u200d\u200c\u00a0\u3000 \n\t<&\"'\\/\U0010ffff"
)
texts = st.text(st.characters() | st.characters(categories=["Cs"]) | hostile, max_size=6)


def kinds_of_number(number: int) -> st.SearchStrategy[Any]:
    """Draw a number as one of the types that callers pass."""
    converters: list[Any] = [int, np.int64, np.int32, np.array, torch.tensor]
    return st.sampled_from(converters).map(lambda convert: convert(number))


def columns(draw: st.DrawFn, entries: Sequence[Any]) -> Any:
    """Draw a list or tuple of the entries, or an array or tensor unless an entry is None."""
    converters: list[Any] = [list, tuple]
    if None not in entries:
        converters += [np.array, torch.tensor]
    return draw(st.sampled_from(converters))(entries)


@st.composite
def tokens_of(draw: st.DrawFn, count: int) -> tuple[Tokens, dict[str, tuple[Any, ...]]]:
    """Draw tokens, and the values that their columns must have."""

    def drawn(entry: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(entry, min_size=count, max_size=count))

    numbers = st.integers(-(2**31), 2**31 - 1)
    special, ids = drawn(st.booleans()), drawn(numbers)
    sequence, words = drawn(st.none() | st.integers(0, 1)), drawn(st.none() | numbers)
    candidates = draw(
        st.lists(st.builds(Candidate, texts, numbers, st.floats(0, 1).map(np.float64)), max_size=2)
    )
    query = draw(st.integers(0, count - 1))
    prediction = Prediction(
        draw(kinds_of_number(query)),
        Candidate(draw(texts), draw(kinds_of_number(7)), torch.tensor(0.5)),  # type: ignore[arg-type]
        candidates,  # type: ignore[arg-type]
        draw(st.none() | kinds_of_number(query)),
    )
    tokens = Tokens(
        text=drawn(texts | texts.map(np.str_)),  # type: ignore[arg-type]
        special=columns(draw, special),
        sequence=columns(draw, sequence),
        ids=columns(draw, ids),
        words=columns(draw, words),
        grids=[PatchGrid(draw(kinds_of_number(0)), np.int64(0), torch.tensor(1), count)],  # type: ignore[arg-type]
        predictions=[prediction] * draw(st.integers(0, 2)),  # type: ignore[arg-type]
    )
    return tokens, {
        "special": (*special,),
        "ids": (*ids,),
        "sequence": (*sequence,),
        "words": (*words,),
    }


@st.composite
def records(draw: st.DrawFn) -> tuple[AttentionRecord, dict[str, tuple[Any, ...]]]:
    """Draw a record of a layer of any dtype, and the columns of its tokens."""
    count = draw(st.integers(1, 5))
    tokens, expected = draw(tokens_of(count))
    dtype = draw(st.sampled_from(DTYPES))
    attention: Any = StoredWeights(torch.from_numpy(shares(HEADS, count, count)).to(dtype))
    if draw(st.booleans()):
        scale: Any = draw(st.sampled_from([0.5, np.float32(0.5), np.float64(0.5)]))
        softcap: Any = draw(st.sampled_from([None, 2.0, np.float32(2)]))
        attention = QueryKeyAttention(
            vectors(HEADS, count, 4).to(dtype),
            vectors(1, count, 4).to(dtype),
            scale,
            softcap=softcap,
        )
    name = draw(texts.filter(lambda text: not any(map(is_surrogate, text))))
    number: Any = draw(st.sampled_from([3, np.int64(3)]))
    stack = AttentionStack(
        name,
        {number: attention},
        tokens,
        gates={3: torch.rand(HEADS, count).to(draw(st.sampled_from(DTYPES[:4])))},
        normalized=False,
    )
    image = np.broadcast_to(np.uint8(draw(st.integers(0, 255))), (2, 3, 3))
    return AttentionRecord(
        {name: stack}, model=draw(texts), notes=draw(st.lists(texts)), images=[image]
    ), expected


def is_surrogate(character: str) -> bool:
    return unicodedata.category(character) == "Cs"


@settings(max_examples=60, deadline=None)
@given(records())
def test_any_record_comes_back_from_a_file_and_a_folder(
    drawn: tuple[AttentionRecord, dict[str, tuple[Any, ...]]],
) -> None:
    record, expected = drawn
    tokens = record.tokens
    assert {name: getattr(tokens, name) for name in expected} == expected
    kinds = {type(entry) for column in expected for entry in getattr(tokens, column)}
    assert kinds <= {int, bool, type(None)}
    with tempfile.TemporaryDirectory() as folder:
        reloaded = load(record.save(Path(folder, "x.safetensors")))
        spool = Spool(Path(folder, "spool"))
        spool.begin()
        spool.finish(record)
        for again in (reloaded, load(str(spool.folder))):
            assert_same(record, again)
            assert np.array_equal(record.images[0], again.images[0])


def test_names_with_spaces_come_back_from_a_film(tmp_path: Path) -> None:
    """The names of patches of a film have spaces, which are not spaces of a text."""
    tokens = Tokens(("1: 0,0", "2: 0,0"), (False, False), (0, 0))
    record = AttentionRecord.from_weights([shares(1, 2, 2)], tokens)
    assert load(record.save(tmp_path / "x")).tokens.text == ("1: 0,0", "2: 0,0")


def test_merged_words_and_comparisons_of_any_text_come_back(tmp_path: Path) -> None:
    def record(seed: int) -> AttentionRecord:
        tokens = Tokens.of(["\ud800", "\u200d", "\u202e"], words=[0, 0, 1])
        return AttentionRecord.from_weights([shares(1, 3, 3, seed=seed)], tokens)

    comparison = av.compare(record(0), record(1))
    for made in (record(0).merge_words(), comparison.difference):
        assert_same(load(made.save(tmp_path / "x")), made)


def test_two_stacks_of_one_name_are_both_saved(tmp_path: Path) -> None:
    layers = [StoredWeights(torch.from_numpy(shares(1, 2, 2, seed=seed))) for seed in (0, 1)]
    stacks = {
        name: AttentionStack("self", {0: layer}, Tokens.of(["a", "b"]))
        for name, layer in zip("xy", layers, strict=True)
    }
    record = AttentionRecord(stacks)
    assert [stack.name for stack in record.stacks.values()] == ["x", "y"]
    reloaded = load(record.save(tmp_path / "x"))
    for name, layer in zip("xy", layers, strict=True):
        assert np.array_equal(reloaded.stacks[name].weights(layer=0), layer.weights.numpy())


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("sequence", ([0, 1], [1, 1]), r"sequence\[0\]=\[0, 1\] must be a whole number"),
        ("ids", (1.0, 2), r"ids\[0\]=1\.0 must be a whole number"),
        ("ids", torch.ones(2, 3).long(), r"ids\[0\]=\[1, 1, 1\] must be a whole number"),
        ("words", ("a", 0), r"words\[0\]='a' must be a whole number"),
        ("special", ("yes", False), r"special\[0\]='yes' must be True or False"),
        ("text", ("a", 3), r"text\[1\]=3 must be a string"),
        ("text", "ab", r"text='ab' must be a sequence"),
        ("ids", 3, r"ids=3 must be a sequence"),
        ("grids", ((0, 0, 1, 1),), r"grids=.* must be a sequence of PatchGrid"),
        ("predictions", (None,), r"predictions=.* must be a sequence of Prediction"),
    ],
)
def test_other_entries_are_refused_with_the_name_of_the_column(
    column: str, values: Any, message: str
) -> None:
    arguments: dict[str, Any] = {"text": ("a", "b"), "special": (False,) * 2, "sequence": (0, 0)}
    with pytest.raises(TypeError, match=message):
        Tokens(**{**arguments, column: values})


def test_other_notes_and_numbers_are_refused() -> None:
    record = AttentionRecord.from_weights([shares(1, 2, 2)], ["a", "b"])
    with pytest.raises(TypeError, match="notes must be strings"):
        AttentionRecord(record.stacks, notes=[Path("x")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="notes must be a sequence of strings"):
        AttentionRecord(record.stacks, notes="a note")
    with pytest.raises(ValueError, match="words: a number does not fit in 64 bits"):
        Tokens(("a", "b"), (False,) * 2, (0, 0), words=(2**70, 0))
    with pytest.raises(TypeError, match=r"rows=1\.5 must be a whole number"):
        PatchGrid(0, 0, 1.5, 1)  # type: ignore[arg-type]
