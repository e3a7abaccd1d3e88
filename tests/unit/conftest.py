"""Fixtures that give the server time for complete replies and count computed logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.server import pending_replies


@pytest.fixture(autouse=True)
def _whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server complete each reply. Tests of unfinished replies set a shorter time limit."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 3600.0)


@pytest.fixture
def logit_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of logits of each call of `QueryKeyAttention.logits`."""
    sizes: list[int] = []
    compute = QueryKeyAttention.logits

    def counted(*block: Any, **options: Any) -> torch.Tensor:
        logits = compute(*block, **options)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(QueryKeyAttention, "logits", counted)
    return sizes
