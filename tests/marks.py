"""Marks of tests that several files use."""

from __future__ import annotations

from functools import partial

import pytest

#: A case of `pytest.mark.parametrize` that takes long and rarely breaks: `make test` leaves it out.
slow = partial(pytest.param, marks=pytest.mark.slow)
