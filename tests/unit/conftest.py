"""Settings of all unit tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.server import pending_replies


@pytest.fixture(autouse=True)
def _whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow every reply as much time as it needs. Tests of partial replies set their own limit."""
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 3600.0)


@pytest.fixture
def logit_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of logits whenever a block of logits is computed."""
    sizes: list[int] = []
    compute = QueryKeyAttention.shared_logits

    def counted(*block: Any, **options: Any) -> torch.Tensor:
        logits = compute(*block, **options)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", counted)
    return sizes
