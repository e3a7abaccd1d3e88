"""Marks that several test files use."""

from __future__ import annotations

from functools import partial

import pytest

#: Case of `pytest.mark.parametrize` that `make test` omits, because it is slow.
slow = partial(pytest.param, marks=pytest.mark.slow)
