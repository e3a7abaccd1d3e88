"""Warnings of attnviz fail a test, those of other packages do not."""

from __future__ import annotations

import warnings

import pytest

from attnviz.utils.host import warn_caller


def test_a_warning_of_attnviz_is_an_error() -> None:
    with pytest.raises(UserWarning, match="for the caller"):
        warn_caller("for the caller")
    with pytest.raises(UserWarning, match="inside"):
        warnings.warn_explicit("inside", UserWarning, "stack.py", 1, module="attnviz.record.stack")
    # Code blocks of pages run without a module name.
    block = "from attnviz.utils.host import warn_caller\nwarn_caller('in a block')"
    with pytest.raises(UserWarning, match="in a block"):
        exec(block, {})  # noqa: S102


@pytest.mark.parametrize("category", [UserWarning, FutureWarning, DeprecationWarning])
def test_a_warning_of_another_package_is_no_error(category: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as warnings_shown:
        warnings.warn_explicit("on this version", category, "a.py", 1, module="torch.jit")
    # Other warnings are shown, except deprecations, which do not concern users of attnviz.
    assert len(warnings_shown) == (category is not DeprecationWarning)
