"""Marks that several test files use."""

from __future__ import annotations

from functools import partial

import pytest

#: A slow case of `pytest.mark.parametrize` that rarely breaks. `make test` omits it.
slow = partial(pytest.param, marks=pytest.mark.slow)
