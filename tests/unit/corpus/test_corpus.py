"""Test what a corpus gathers from records (vectors, names, notes) and which records it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from numpy.testing import assert_array_equal

from attnviz import AttentionRecord, AttentionStack, Corpus, Tokens
from unit.random_corpora import attention, corpus, cross_record, record
from unit.records import given_record, words


def assert_vectors_are_the_records(example: Corpus, stack: str) -> None:
    """Assert that the vectors of all points and heads equal those in the records of their texts."""
    points = example.points(stack)
    for layer in example.stack(stack).layers:
        gathered_layer = example.vectors(stack, layer)
        assert gathered_layer.heads == tuple(range(example.stack(stack).num_heads(layer)))
        assert gathered_layer.queries.dtype == gathered_layer.keys.dtype == torch.float32
        for head in gathered_layer.heads:
            for side, texts, positions in (
                ("queries", points.query_text, points.query_position),
                ("keys", points.key_text, points.key_position),
            ):
                gathered = getattr(gathered_layer, side)[head]
                for vector, text, position in zip(gathered, texts, positions, strict=True):
                    vectors_of = getattr(example.records[text].stacks[stack], side)
                    assert_array_equal(vector, vectors_of(layer=layer, head=head)[position])


def merged_record() -> AttentionRecord:
    tokens = Tokens.of(["un", "do", " it"], words=[0, 0, 1])
    return AttentionRecord(
        {"self": AttentionStack("self", {0: attention(3)}, tokens)}
    ).merge_words()


def test_vectors_are_those_of_the_records() -> None:
    assert_vectors_are_the_records(corpus([4, 1, 3]), "self")
    assert_vectors_are_the_records(corpus([3, 2], heads=6, key_heads=2), "self")
    cross = Corpus([cross_record(2, 5), cross_record(4, 1, seed=3)])
    assert_vectors_are_the_records(cross, "cross")
    assert not cross.same_tokens("cross")
    sampled = corpus([30], max_points=14)
    assert not sampled.points().whole
    assert_vectors_are_the_records(sampled, "self")


def test_only_requested_heads_are_gathered() -> None:
    example = corpus([4, 4], heads=4)
    [keys] = example.vectors("self", 1, heads=[2]).keys
    assert torch.equal(keys, example.vectors("self", 1).keys[2])


def test_texts_are_named_by_their_first_words() -> None:
    def named(tokens: list[str], **options: Any) -> str:
        layer = attention(len(tokens))
        stack = AttentionStack("self", {0: layer}, Tokens.of(tokens, **options))
        return Corpus([AttentionRecord({"self": stack})]).names[0]

    bert = named(["[CLS]", "the", "un", "##do", ".", "[SEP]"], special=[True, *[False] * 4, True])
    assert bert == "the undo ."
    assert named(["The", " cat", " s", "at", "\n", "x"]) == "The cat sat x"
    assert named(["[CLS]"], special=[True]) == "text 0"
    long = named([" word"] * 100)
    assert long == f"{'word ' * 7}word…"


def test_a_stack_of_some_texts_or_of_weights_alone_is_omitted_with_a_note() -> None:
    self_stack, given_stack = record(3).stack(), given_record((1,), 3).stack()
    vision_stack = AttentionStack("vision", {0: attention(2)}, Tokens.of(words(2)))
    with_vision = AttentionRecord(
        {"self": self_stack, "vision": vision_stack, "cross": given_stack}, model="m"
    )
    without_vision = AttentionRecord({"self": self_stack, "cross": given_stack}, model="m")
    example = Corpus([with_vision, without_vision])
    assert example.stack_names == ("self",)
    assert example.notes == [
        "Stack “vision” is left out: 1 of 2 texts do not have it.",
        "Stack “cross” is left out: it has weights but no queries and keys.",
    ]


@pytest.mark.parametrize(
    ("records", "error", "say"),
    [
        ([], ValueError, "records is empty"),
        (
            "texts",
            TypeError,
            r"records\[0\] must be an AttentionRecord, not 't'",
        ),
        ([given_record()], ValueError, "it has weights but no queries and keys"),
        (
            [AttentionRecord({"self": record(2).stack()}, model="a"), record(2)],
            ValueError,
            r"records\[1\] belongs to 'made' and records\[0\] to 'a'\. Make one corpus",
        ),
        (
            [record(2, layers=2), record(2, layers=3)],
            ValueError,
            r"records\[1\] and records\[0\] differ in the layers, heads or head_dim",
        ),
        (
            [record(2), record(2, heads=4)],
            ValueError,
            "differ in the layers, heads or head_dim of stack 'self'",
        ),
        ([record(3), cross_record(2, 3)], ValueError, "no stack with queries and keys in common"),
        ([merged_record()], ValueError, r"merge_words\(\) merged have no queries"),
    ],
)
def test_invalid_records_are_refused(records: Any, error: type[Exception], say: str) -> None:
    with pytest.raises(error, match=say):
        Corpus(records)
    with pytest.raises(ValueError, match="text_indices has 1 entries but there are 2 records"):
        Corpus([record(2), record(3)], text_indices=[5])


def test_unknown_stacks_texts_and_layers_are_named() -> None:
    example = corpus([2, 3])
    with pytest.raises(KeyError, match="stack='cross': this corpus has the stacks 'self'"):
        example.points("cross")
    with pytest.raises(IndexError, match="text=2: this corpus has texts 0 to 1"):
        example.attention("self", 0, 2)
    with pytest.raises(IndexError, match="layer=9"):
        example.vectors("self", 9)


def test_a_corpus_can_be_limited_to_some_layers() -> None:
    example = corpus([2, 3], layers=3, columns={"n": [1, 2]})
    selected = example.only([2])
    assert selected.stack().layers == (2,)
    assert torch.equal(selected.vectors(None, 2).keys, example.vectors(None, 2).keys)
    assert selected.column(None, "n").queries.tolist() == [1, 1, 2, 2, 2]
    assert example.stack().layers == (0, 1, 2)
    with pytest.raises(IndexError, match=r"layers=\[7\]"):
        example.only([7])
