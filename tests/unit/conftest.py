"""Settings of all unit tests."""

from __future__ import annotations

import pytest

from attnviz.server import pending_replies


@pytest.fixture(autouse=True)
def _whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow every reply as much time as it needs. Tests of partial replies set their own limit."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 3600.0)
