"""Comparison of the statistics of the same texts, added in different orders."""

from __future__ import annotations

from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal

from attnviz import HeadStatistics

# Tolerance for means of at most 100 numbers below 4: each addition of float64 rounds by 2**-53 of
# the sum.
MEAN = 100 * 4 * 2.0**-53
# Tolerance for a standard error: the root of a mean of squares whose rounding error is below
# 16 * 100 * 2**-53.
ERROR = (16 * 100 * 2.0**-53) ** 0.5


def assert_same_statistics(one: HeadStatistics, other: HeadStatistics) -> None:
    """Compare everything: numbers up to the rounding of sums, all other values exactly."""
    assert (one.text_numbers, one.tokens, one.notes) == (
        other.text_numbers,
        other.tokens,
        other.notes,
    )
    tables = one.to_pandas(), other.to_pandas()
    errors, other_errors = (table.pop("standard_error") for table in tables)
    assert_allclose(errors, other_errors, rtol=0, atol=ERROR)
    assert_frame_equal(*tables, rtol=0, atol=MEAN)
    for first, second in zip(*(map(s.stack, s.stack_names) for s in (one, other)), strict=True):
        for layer in first.layers:
            assert_allclose(first.offsets(layer), second.offsets(layer), rtol=0, atol=MEAN)
            for system in first.class_systems:
                assert first.classes_of(system) == second.classes_of(system)
                weights, others = (s.class_weights(layer, system) for s in (first, second))
                assert_allclose(weights, others, rtol=0, atol=MEAN)
            for head in range(first.num_heads(layer)):
                assert first.strongest(layer, head) == second.strongest(layer, head)
                assert first.sampled(layer, head) == second.sampled(layer, head)
        assert first.words == second.words
        for side, other_side in zip(first.kept_tokens, second.kept_tokens, strict=True):
            assert_array_equal(side.text, other_side.text)
            assert_array_equal(side.position, other_side.position)
            assert_array_equal(side.codes, other_side.codes)
