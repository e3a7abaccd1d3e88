"""Tests of arguments and trait values that views refuse, and of what the errors say."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

import attnviz as av
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.units import UnitAttention
from unit.corpus.looking_back import statistics_of_looking_back
from unit.records import captured_record, encoder_decoder_record, given_record, shares

MakeView = Callable[..., Any]


def compare_view(**arguments: Any) -> av.CompareView:
    record = given_record((3, 3))
    return av.CompareView(av.compare(record, record, names=("before", "after")), **arguments)


def view_of(kind: Any, record: Callable[[], AttentionRecord]) -> MakeView:
    return lambda **arguments: kind(record(), **arguments)


HEAD = view_of(av.HeadView, encoder_decoder_record)
SMALL_HEAD = view_of(av.HeadView, given_record)
WITH_SCORES = partial(view_of(av.HeadView, partial(given_record, (2,))), scores={"mine": [[1, -2]]})
MODEL = view_of(av.ModelView, given_record)
OTHER_MODEL = view_of(av.ModelView, partial(given_record, (1, 3)))
NEURON = view_of(av.NeuronView, captured_record)

# Each entry is a view, a trait, a value and a pattern of the error message.
VALUES: list[tuple[MakeView, str, Any, str]] = [
    (HEAD, "stack", "self", "stack='self': this record has 'encoder', 'decoder', 'cross'"),
    (HEAD, "heads", [0, -4], r"heads=\[0, -4\]: layer 0 of stack 'encoder' has heads 0 to 2"),
    (HEAD, "heads", "most", "heads='most': pass an integer, a list .* or \"all\""),
    (HEAD, "token", 6, "token=6: stack 'encoder' has queries 0 to 5"),
    (HEAD, "token", "t0", r"token='t0': no token has this text\. .* a number from 0 to 5"),
    (HEAD, "key", 6, "key=6: stack 'encoder' has keys 0 to 5"),
    (HEAD, "combine", "sum", "any of"),
    (HEAD, "top_k", 0, "should not be less than 1"),
    (HEAD, "threshold", 1.5, "must be between 0 and 1"),
    (HEAD, "threshold", math.nan, "threshold=nan must be a finite number"),
    (HEAD, "leave_out", ["last"], r"leave_out='last': no token has this text\. .*\"special\" or"),
    (HEAD, "leave_out", [6], r"leave_out=\[6\]: stack 'encoder' has keys 0"),
    (HEAD, "pair", "b-a", "pair='b-a': the tokens of stack 'encoder'"),
    (HEAD, "query_window", [0, 7], r"query_window=\[0, 7\] must be \[start, stop\] within the 6"),
    (HEAD, "controls", None, 'controls=None must be one of "auto", "full", "compact", "none"'),
    (HEAD, "order", "yours", "order='yours' must be one of 'number', 'pinned', 'previous"),
    (SMALL_HEAD, "order", "induction", "no pair of this measure .weight on what followed"),
    (SMALL_HEAD, "order", "role", "Pass roles=, such as attnviz"),
    (SMALL_HEAD, "scores", [[1.0]], "has 1 layers of 1 heads, but .* has 2 layers of 2, 3 heads"),
    (SMALL_HEAD, "scores", {"mine": {"cross": [[1]]}}, "are for 'cross', but this record has"),
    (SMALL_HEAD, "prediction", 0, r"stack 'self' has no predictions\. .*generate="),
    (WITH_SCORES, "score_errors", {"mine": [[-0.5, 0.0]]}, "negative .* must be at least 0"),
    (WITH_SCORES, "score_notes", {"mine": "x" * 1001}, "1,001 characters. Pass at most 1,000"),
    (WITH_SCORES, "token_scores", {"mine": ["1.5", "2"]}, r"\['mine'\] must be numbers, \(tok"),
    (WITH_SCORES, "token_score", "three", "token_score='three' must be .*: none"),
    (NEURON, "stack", "cross", "stack='cross': .* with queries and keys: 'self'. Other views"),
    (MODEL, "include_heads", [3], r"include_heads=\[3\]: this record has heads 0 to 2"),
    (MODEL, "include_heads", {0: [2]}, r"include_heads=\[2\]: layer 0 has heads 0, 1"),
    (MODEL, "include_heads", {5: [0]}, "include_heads=5: this record has layers 0, 1"),
    (MODEL, "include_heads", {}, "contains no layer. Omit it to offer all"),
    (MODEL, "include_heads", 1.5, "include_heads=1.5 must be a list of whole numbers"),
    (compare_view, "member", 0, r"member=0 must be one of 1 \(after\), .* compared with before"),
    (compare_view, "form", "lines", 'form=\'lines\': expected any of "head", "matrix"'),
    (MODEL, "roles", 3, "roles=3: pass attnviz.HeadStatistics"),
    (MODEL, "roles", {(9, 9): "a"}, r"roles\[\(9, 9\)\]: layer=9: stack 'self' has layers 0, 1"),
    (MODEL, "roles", {(0, 0): 3}, "must be a name of at most 80"),
    (OTHER_MODEL, "roles", statistics_of_looking_back(), "roles come from another model"),
]


@pytest.mark.parametrize(("make", "name", "value", "message"), VALUES)
def test_an_invalid_value_is_refused_and_changes_nothing(
    make: MakeView, name: str, value: Any, message: str
) -> None:
    view = make()
    before = view.state
    with pytest.raises(TraitError, match=message):
        setattr(view, name, value)
    assert view.state == before
    with pytest.raises(TraitError, match=message):
        make(**{name: value})


def merged_record() -> AttentionRecord:
    starts = np.array([0, 1, 3])
    merged = UnitAttention(captured_record().stack().attention(2), starts, starts)
    return AttentionRecord({"self": AttentionStack("self", {2: merged}, Tokens.of(list("abc")))})


def signed_record() -> AttentionRecord:
    numbers = [[[[0.5, -0.5], [0.1, 0.2]]]]
    return AttentionRecord.from_weights(numbers, ["a", "b"], signed=True, measure="difference")


# Each entry is a function, its arguments, the error type and a pattern of the error message.
CALLS: list[tuple[Callable[..., Any], list[Any], type[Exception], str]] = [
    (partial(SMALL_HEAD, head=1), [], TypeError, r"no argument 'head'; did you mean 'heads'\?; it"),
    (partial(compare_view, scores={}), [], TypeError, "CompareView has no argument 'scores'"),
    (setattr, [SMALL_HEAD(), "head", 1], AttributeError, r"no attribute 'head'; did .* 'heads'"),
    (av.HeadView, [[given_record()] * 3], TypeError, "a list of 3 records, but a view shows one"),
    (av.HeadView, [[shares(1, 2, 2)]], TypeError, r"got list\. .*attnviz.extract"),
    (av.CompareView, [given_record()], TypeError, r"got AttentionRecord\. .*compare\(record_a"),
    (
        partial(av.HeadView, include_layers=[4]),
        [captured_record()],
        IndexError,
        r"layers=\[4\]: this record has layers 0, 2, 3",
    ),
    (partial(av.HeadView, order="self"), [signed_record()], TraitError, "need attention weights"),
    *(
        (
            av.NeuronView,
            [record],
            ValueError,
            r"attnviz\.extract.*HeadView, ModelView or MatrixView",
        )
        for record in (given_record(), signed_record(), merged_record())
    ),
]


@pytest.mark.parametrize(("function", "arguments", "error", "message"), CALLS)
def test_an_invalid_call_is_refused(
    function: Callable[..., Any], arguments: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function(*arguments)
