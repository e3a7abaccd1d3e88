"""What all unit tests share."""

from __future__ import annotations

import pytest

from attnviz.server import pending_replies


@pytest.fixture(autouse=True)
def _whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine not decide how far a reply comes; tests of parts set their own time."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 3600.0)
