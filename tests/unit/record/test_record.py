"""Tests of the methods of `AttentionRecord` and `AttentionStack`, and of copies of records."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.images import PatchGrid
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord, load
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from unit.records import (
    assert_same,
    captioned_record,
    captured_record,
    encoder_decoder_record,
    given_record,
    shares,
    vectors,
    words,
)


def test_weights_by_head_rows_and_columns() -> None:
    weights = shares(3, 4, 6)
    stack = AttentionRecord.from_weights([weights], words(4), key_tokens=words(6)).stack()
    assert_array_equal(stack.weights(layer=0), weights)
    assert_array_equal(stack.weights(layer=0, rows=slice(1, 3)), weights[:, 1:3])
    for columns in (slice(2, 5), slice(-2, None), slice(None, 99), slice(4, 1)):
        block = stack.weights(layer=0, head=1, columns=columns)
        assert_array_equal(block, weights[1][:, columns])


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"layer": 4}, IndexError, "layer=4: stack 'self' has layers 2, 3, 5, 7, 11, 12"),
        ({"layer": 2, "head": 4}, IndexError, "head=4: layer 2 of stack 'self' has heads 0 to 3"),
        ({"layer": 2, "rows": 3}, TypeError, r"rows must be a slice such as slice\(0, 64\); got 3"),
        ({"layer": 2, "rows": slice(0, 6, 2)}, ValueError, r"rows=slice\(0, 6, 2\) has a step"),
    ],
)
def test_unknown_layers_and_heads_are_named(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        captured_record().stacks["self"].weights(**arguments)


def test_a_head_returns_copies_of_its_queries_and_keys() -> None:
    stack = captured_record().stack()
    queries, keys = stack.queries(layer=2, head=3), stack.keys(layer=2, head=3)
    assert queries is not None
    assert_array_equal(queries, vectors(4, 6, 8, seed=8)[3].numpy())
    # Four query heads share two key heads.
    assert_array_equal(keys, vectors(2, 6, 8, seed=9)[1].numpy())
    queries[:] = 0
    assert_array_equal(stack.queries(layer=2, head=3), vectors(4, 6, 8, seed=8)[3].numpy())


def test_given_weights_have_no_vectors() -> None:
    stack = given_record().stack()
    assert stack.queries(layer=0, head=0) is stack.keys(layer=0, head=0) is None
    with pytest.raises(IndexError, match="head=2"):
        stack.queries(layer=0, head=2)


def test_a_stack_is_causal_if_all_masks_are() -> None:
    def stack(*masks: Any) -> AttentionStack:
        queries = vectors(1, 3, 4)
        layers = {
            number: QueryKeyAttention(queries, queries, 0.5, mask=mask)
            for number, mask in enumerate(masks)
        }
        return AttentionStack("self", layers, Tokens.of(words(3)))

    assert stack(BandMask(None, 0), BandMask(2, 0)).causal
    assert not stack(BandMask(None, 0), None).causal


def test_a_stack_fits_its_tokens() -> None:
    layers = {3: StoredWeights(torch.from_numpy(shares(1, 2, 3)))}
    with pytest.raises(ValueError, match=r"stack 'x', layer 3: the attention has 2 .* 3 keys,"):
        AttentionStack("x", layers, Tokens.of(["a", "b"]))
    with pytest.raises(ValueError, match="stack 'x' has no layers"):
        AttentionStack("x", {}, Tokens.of(["a", "b"]))
    with pytest.raises(ValueError, match=r"name='x\\ud800' has a lone surrogate"):
        AttentionStack("x\ud800", layers, Tokens.of(["a", "b"]), Tokens.of(["a", "b", "c"]))
    for name in ("name", "changed"):
        options: dict[str, Any] = {"name": "x", name: 3}
        with pytest.raises(TypeError, match=f"{name}=3 must be a string"):
            AttentionStack(
                layers=layers, query_tokens=Tokens.of(["a", "b"]), key_tokens=None, **options
            )
    with pytest.raises(ValueError, match="stacks is empty"):
        AttentionRecord({})


def test_a_record_returns_its_stacks_by_name() -> None:
    record = encoder_decoder_record()
    assert record.stack() is record.stacks["encoder"]
    assert record.stack("cross") is record.stacks["cross"]
    with pytest.raises(KeyError, match="stack='self': this record has 'encoder', 'decoder', 'cro"):
        record.stack("self")
    with pytest.raises(TypeError):
        record.stacks["self"] = record.stack()  # type: ignore[index]


def test_a_record_has_tokens_unless_it_has_several_lists() -> None:
    # Queries and keys have equal lists of tokens, which count as one list.
    tokens = words(2)
    assert AttentionRecord.from_weights([shares(1, 2, 2)], tokens, key_tokens=tokens).tokens
    message = (
        r'several token lists: record.stacks\["encoder"\].query_tokens and '
        r'record.stacks\["decoder"\].query_tokens$'
    )
    with pytest.raises(ValueError, match=message):
        _ = encoder_decoder_record().tokens


def test_a_record_has_names_and_places_of_the_user() -> None:
    record = given_record(num_tokens=5)
    own = record.tokens.text
    frame = np.zeros((4, 4, 3), np.uint8)
    named = record.with_tokens(
        special=[True, False, False, False, False],
        groups=["state", None, "ignored", None, "action"],
        grids=[PatchGrid(0, start=2, rows=1, columns=2, name="left")],
        images=[frame],
    )
    tokens = named.tokens
    assert tokens.text == (*own[:2], "left 0,0", "left 0,1", own[4])
    assert [(grid.name, grid.positions) for grid in tokens.grids] == [
        ("state", (0,)),
        ("left", (2, 3)),
        ("action", (4,)),
    ]
    assert (tokens.special[0], tokens.sequence[0], tokens.sequence[1]) == (True, None, 0)
    assert_array_equal(named.to_numpy()[0], record.to_numpy()[0])
    assert named.stack().key_tokens is named.stack().query_tokens
    # Names that look like parts of a word stay separate.
    dates = record.with_tokens(["2024", "-01", "-02", "##a", "##b"])
    assert dates.merge_words().tokens.text == dates.tokens.text


def test_one_side_of_a_stack_has_names_of_the_user() -> None:
    weights = torch.full((1, 2, 3), 1 / 3)
    record = AttentionRecord.from_weights([weights], ["a", "b"], key_tokens=["c", "d", "e"])
    named = record.with_tokens(["x", "y", "z"], side="keys")
    assert named.stack().query_tokens.text == ("a", "b")
    assert named.stack().key_tokens.text == ("x", "y", "z")
    with pytest.raises(ValueError, match=r"2 queries and 3 keys\. Pass side='queries'"):
        record.with_tokens(["x", "y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": ["x"]}, "tokens has 1 entries, but the tokens of stack 'self' are 2. Pass one"),
        ({"tokens": ["x", "y"], "side": "keys", "groups": ["a"]}, "groups has 1 .* keys of stack"),
        ({"special": [True]}, "special has 1 entries"),
        ({"grids": [PatchGrid(None, 1, 2, 2)]}, r"grids: PatchGrid.* tokens 1 to 4, but .* 2"),
        ({"grids": [PatchGrid(0, 0, 1, 2)]}, "patches of image 0, but images has 0"),
        ({"side": "rows"}, "side='rows': valid names are 'both'"),
        ({"groups": 5}, "groups"),
        ({"tokens": "xy"}, "tokens must be a sequence of strings"),
    ],
)
def test_names_and_places_that_do_not_fit_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError), match=message):
        given_record(num_tokens=2).with_tokens(**arguments)


def test_a_record_can_keep_some_layers() -> None:
    record = captured_record()
    part = record.only([5, 2, 0, 5])
    assert {name: stack.layers for name, stack in part.stacks.items()} == {
        "self": (2, 5),
        "cross": (0,),
    }
    assert part.stack().attention(5) is record.stack().attention(5)
    assert (part.model, part.notes) == (record.model, record.notes)
    # The stack "cross" has no layer 7.
    assert list(record.only([7]).stacks) == ["self"]


@pytest.mark.parametrize("layers", [[4], [2, 4], []])
def test_unknown_layers_are_named(layers: list[int]) -> None:
    with pytest.raises(IndexError, match=r"layers=\[.*\]: this record has layers 0, 2, 3, 5, 7"):
        captured_record().only(layers)


def test_a_head_becomes_a_table_of_queries_and_keys() -> None:
    table = encoder_decoder_record().to_pandas(layer=1, head=4, stack="cross")
    assert_array_equal(table.to_numpy(), shares(5, 4, 6, seed=5)[4])
    assert (list(table.index), list(table.columns)) == (words(4, "d"), words(6, "e"))
    assert (table.index.name, table.columns.name) == ("query", "key")


def test_a_table_without_pandas_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # With this entry, `import pandas` raises an error.
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="a table needs pandas: pip install pandas"):
        given_record().to_pandas(layer=0, head=0)


def pickled(record: AttentionRecord) -> AttentionRecord:
    unpickled: AttentionRecord = pickle.loads(pickle.dumps(record))  # noqa: S301 - of our own
    return unpickled


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("make", [captured_record, encoder_decoder_record, captioned_record])
def test_records_can_be_copied_and_pickled(
    make: Callable[[], AttentionRecord],
    copied: Callable[[AttentionRecord], AttentionRecord],
    tmp_path: Path,
) -> None:
    record = make()
    for original in (record, load(record.save(tmp_path / "x.safetensors"))):
        copy_of_record = copied(original)
        assert_same(original, copy_of_record)
        # Queries and keys of a copy share one `Tokens` object if those of the original do.
        for name, stack in copy_of_record.stacks.items():
            shared = record.stacks[name].key_tokens is record.stacks[name].query_tokens
            assert (stack.key_tokens is stack.query_tokens) == shared


def test_a_deep_copy_copies_the_numbers() -> None:
    record = AttentionRecord.from_weights([shares(2, 3, 3)], words(3))
    copied: Any = copy.deepcopy(record).stack().attention(0)
    copied.weights.zero_()
    assert_array_equal(record.stack().weights(layer=0), shares(2, 3, 3))


def test_the_repr_of_a_record_lists_its_stacks() -> None:
    assert repr(encoder_decoder_record()) == (
        "<AttentionRecord of encoder-decoder: <encoder: layers 0, 1, 3 heads each, 6 tokens>, "
        "<decoder: layers 0 to 2, 2 heads each, 4 tokens>, "
        "<cross: layers 0, 1, 1 to 5 heads each, 4 x 6>>"
    )
