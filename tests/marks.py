"""Marks that several test files use."""

from __future__ import annotations

from functools import partial

import pytest

#: Function like `pytest.param` that marks a case as slow, so that `make test` omits it.
slow = partial(pytest.param, marks=pytest.mark.slow)
