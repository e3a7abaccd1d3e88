"""Warnings of attnviz fail a test, those of other packages do not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from attnviz.utils.host import warn_caller


def test_a_warning_of_attnviz_is_an_error() -> None:
    with pytest.raises(UserWarning, match="for the caller"):
        warn_caller("for the caller")
    with pytest.raises(UserWarning, match="inside"):
        warnings.warn_explicit("inside", UserWarning, "stack.py", 1, module="attnviz.record.stack")
    with pytest.raises(RuntimeWarning, match="empty slice"):
        np.ones((0, 3)).mean()


def test_a_warning_in_a_page_of_the_docs_is_an_error() -> None:
    """Code blocks of pages run without a module name."""
    block = "from attnviz.utils.host import warn_caller\nwarn_caller('in a block')"
    with pytest.raises(UserWarning, match="in a block"):
        exec(block, {})  # noqa: S102


@pytest.mark.parametrize("module", ["torch.jit", "transformers.models.bert"])
@pytest.mark.parametrize("category", [UserWarning, FutureWarning, DeprecationWarning])
def test_a_warning_of_another_package_is_no_error(module: str, category: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as warnings_shown:
        warnings.warn_explicit("on this version of Python", category, "a.py", 1, module=module)
    # Other warnings are shown, except deprecations, which do not concern users of attnviz.
    assert len(warnings_shown) == (category is not DeprecationWarning)
