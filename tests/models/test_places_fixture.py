"""The front-end is tested with tokens of tiny models, which are still those of the fixture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.make_places import CASES, case

FIXTURE = Path(__file__).parents[1] / "fixtures" / "places.json"


@pytest.mark.parametrize("expected", json.loads(FIXTURE.read_text("utf-8"))["cases"])
def test_the_fixture_has_the_tokens_of_the_models(expected: dict[str, Any]) -> None:
    """If this test fails, run `fixtures.make_places` and the tests of js."""
    assert json.loads(json.dumps(case(expected["name"]))) == expected


def test_the_fixture_has_all_cases() -> None:
    names = [item["name"] for item in json.loads(FIXTURE.read_text("utf-8"))["cases"]]
    assert names == list(CASES)
