"""A column of a corpus has a value for each text or for each token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal

from attnviz import Corpus
from unit.random_corpora import corpus, cross_record

LENGTHS = (3, 1, 2)


def queries(values: Any) -> Any:
    """Make a column from `values`. Return its values for the six queries of a corpus."""
    return corpus(LENGTHS, columns={"it": values}).column("self", "it").queries


def test_tokens_have_the_number_of_their_text() -> None:
    column = corpus(LENGTHS, columns={"it": [2, 0.5, None]}).column("self", "it")
    assert column.categories is None
    assert column.queries.dtype == np.float64
    assert_array_equal(column.queries, [2, 2, 2, 0.5, np.nan, np.nan])
    assert_array_equal(column.keys, column.queries)


def test_texts_are_categories_in_the_order_of_the_alphabet() -> None:
    column = corpus(LENGTHS, columns={"it": ["b", None, "a"]}).column("self", "it")
    assert column.categories == ("a", "b")
    assert column.queries.dtype == np.int32
    assert column.queries.tolist() == [1, 1, 1, -1, 0, 0]
    flags = corpus(LENGTHS, columns={"it": [True, False, True]}).column("self", "it")
    assert flags.categories == ("False", "True")
    assert flags.queries.tolist() == [1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    "values",
    [
        [[0, 1, 2], 3, (4, 5)],
        [np.arange(3), torch.tensor([3]), [4, 5]],
        pd.Series([[0, 1, 2], [3], [4, 5]], index=list("abc")),
    ],
    ids=["lists", "arrays", "series"],
)
def test_values_of_tokens_are_kept(values: Any) -> None:
    assert_array_equal(queries(values), np.arange(6.0))


def test_columns_have_the_values_of_sampled_points() -> None:
    positions = np.arange(100.0).reshape(10, 10)
    example = corpus(
        [10] * 10, max_points=60, columns={"place": positions, "letter": list("abcdefghij")}
    )
    points = example.points("self")
    assert len(points.texts) == 3
    column = example.column("self", "place")
    assert_array_equal(column.queries, 10 * points.query_text + points.query_position)
    letter = example.column(None, "letter")
    assert letter.categories is not None
    assert [letter.categories[code] for code in letter.keys] == [
        "abcdefghij"[number] for number in points.key_text
    ]
    part = corpus([50], max_points=12, columns={"position in text": [range(50)]})
    assert not part.points().whole
    assert_array_equal(part.column(None, "position in text").queries, part.points().query_position)


def test_values_of_one_side_are_unknown_on_the_other() -> None:
    example = Corpus(
        [cross_record(2, 3), cross_record(1, 3)],
        columns={"query": [[0, 1], [2]], "key": [["x", "y", "x"]] * 2, "year": [7, 8]},
    )
    query, key, year = (example.column("cross", name) for name in ("query", "key", "year"))
    assert_array_equal(query.queries, [0, 1, 2])
    assert np.isnan(query.keys).all()
    assert key.queries.tolist() == [-1, -1, -1]
    assert key.keys.tolist() == [0, 1, 0] * 2
    assert_array_equal(year.keys, [7, 7, 7, 8, 8, 8])


def test_missing_values_of_tables_are_unknown() -> None:
    assert_array_equal(queries([1.0, pd.NA, np.float32("nan")]), [1, 1, 1, *[np.nan] * 3])
    assert_array_equal(queries(pd.Series([7, None, 8], dtype="Int64")), [7, 7, 7, np.nan, 8, 8])
    assert queries(["a", pd.NaT, pd.NA]).tolist() == [0, 0, 0, -1, -1, -1]
    assert_array_equal(queries([1.0, float("inf"), float("nan")]), [1, 1, 1, *[np.nan] * 3])


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"it": [1, 2]}, ValueError, r"columns\['it'\] has 2 values, but there are 3 texts"),
        ({"it": [[1, 2], 3, 4]}, ValueError, r"columns\['it'\]\[0\] has 2 values but text 0 has 3"),
        ({"it": "abc"}, TypeError, r"columns\['it'\] must be a sequence .* not str"),
        ({"it": pd.date_range("2021", periods=3)}, TypeError, r"not Timestamp\. Pass str\(value\)"),
        ({"position": [1, 2, 3]}, ValueError, "'position' is the name of a built-in colouring"),
        ([1, 2, 3], TypeError, "columns must be a mapping of names to values"),
    ],
)
def test_invalid_columns_are_refused(columns: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        corpus(LENGTHS, columns=columns)


def test_an_unknown_column_is_named() -> None:
    example = corpus(LENGTHS, columns={"label": [1, 2, 3]})
    with pytest.raises(KeyError, match="column='lable': this corpus has the columns 'label'"):
        example.column("self", "lable")
