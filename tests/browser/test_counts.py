"""Tests of costs that are independent of the machine: bytes, DOM nodes, requests, logits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.counts import BASELINE, HOW_TO_RENEW, counted, differences

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_differences_are_listed() -> None:
    before = {"page: bytes": 1000, "requests": 3, "nodes": 100, "gone": 7}
    now = {"page: bytes": 1031, "requests": 4, "nodes": 97, "fresh": 2000}
    assert differences(before, now) == [
        "fresh: new, 2,000",
        "gone: gone, was 7",
        "page: bytes: 1,000 -> 1,031, +3%",
        "requests: 3 -> 4, +33%",
    ]


@pytest.mark.timeout(240)
def test_costs_equal_the_baseline(chromium: Browser, tmp_path: Path) -> None:
    before = json.loads(BASELINE.read_text(encoding="utf-8"))
    changes = differences(before, counted(chromium, tmp_path))
    assert not changes, "\n".join(["what views cost has changed:", *changes, HOW_TO_RENEW])
