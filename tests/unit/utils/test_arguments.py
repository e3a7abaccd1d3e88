"""Tests of functions that check numbers, slices and paths that callers pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnviz.utils.arguments import (
    as_path,
    format_numbers,
    resolve_slice,
    whole_number,
    whole_numbers,
)


@pytest.mark.parametrize("value", [3, np.int32(3), np.array(3)])
def test_whole_numbers_of_any_library_are_accepted(value: object) -> None:
    number = whole_number("seed", value, 3, 3)
    assert number == 3
    assert type(number) is int
    assert whole_numbers("layers", [value, 0]) == (3, 0)


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, [3]])
def test_values_other_than_whole_numbers_are_refused(value: object) -> None:
    with pytest.raises(TypeError) as raised:
        whole_number("seed", value, 0)
    assert str(raised.value) == f"seed={value!r} must be a whole number"
    with pytest.raises(TypeError) as raised:
        whole_numbers("layers", [1, value])
    assert str(raised.value) == (
        f"layers={[1, value]!r} must be a list of whole numbers, such as [0, 5]; {value!r} is not "
        "one"
    )


def test_numbers_outside_of_their_bounds_and_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^seed=-1 must be at least 0$"):
        whole_number("seed", -1, 0)
    for wrong in (1, 5):
        with pytest.raises(ValueError, match=rf"^k={wrong} must be from 2 to 4, such as 3$"):
            whole_number("k", wrong, 2, 4, hint="such as 3")
    with pytest.raises(TypeError, match=r"^layers='01' must be a list of whole numbers, one each$"):
        whole_numbers("layers", "01", hint="one each")


def test_slices_are_cut_to_the_length() -> None:
    assert resolve_slice("rows", None, 7) == slice(0, 7)
    assert resolve_slice("rows", slice(-3, 99), 7) == slice(4, 7)
    assert resolve_slice("rows", slice(5, 2), 7) == slice(5, 5)


def test_consecutive_numbers_are_written_as_a_range() -> None:
    assert format_numbers([3, 4, 5]) == "3 to 5"
    assert format_numbers([3, 5]) == "3, 5"


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert as_path("spool", "~/long", "folder") == tmp_path / "long"
