"""Warnings of attnviz fail a test."""

from __future__ import annotations

import warnings

import pytest

from attnviz.utils.host import warn_caller


def test_a_warning_of_attnviz_is_an_error() -> None:
    with pytest.raises(UserWarning, match="for the caller"):
        warn_caller("for the caller")
    with pytest.raises(UserWarning, match="inside"):
        warnings.warn_explicit("inside", UserWarning, "stack.py", 1, module="attnviz.record.stack")
    # Code blocks of the documentation have no module name, which filters of warnings use.
    block = "from attnviz.utils.host import warn_caller\nwarn_caller('in a block')"
    with pytest.raises(UserWarning, match="in a block"):
        exec(block, {})  # noqa: S102
