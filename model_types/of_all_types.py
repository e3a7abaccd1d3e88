"""Tests of the results of `make coverage`, and of the page that it writes.

The name of this file does not start with "test_", so pytest runs it only if its path is passed, as
`make coverage` does.
"""

from __future__ import annotations

import json

import pytest

from model_types.checkpoints import CheckpointRow
from model_types.classes import share_of_classes
from model_types.names import NamesRow
from model_types.reasons import READ, REFUSED
from model_types.rows import REFERENCED, Row
from model_types.table import CHECKPOINTS, DOCUMENT, NAMES, RESULTS, share, table, versions


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row.of(row) for row in json.loads(RESULTS.read_text())]


@pytest.fixture(scope="module")
def names() -> list[NamesRow]:
    return [NamesRow(**row) for row in json.loads(NAMES.read_text())]


@pytest.fixture(scope="module")
def checkpoints() -> list[CheckpointRow]:
    return [CheckpointRow(**row) for row in json.loads(CHECKPOINTS.read_text())]


def test_nearly_all_that_return_their_own_weights_are_right(rows: list[Row]) -> None:
    assert sum(row.is_base for row in rows) > 300
    assert share(rows) >= 0.95


def test_nearly_all_classes_with_a_head_are_right(rows: list[Row]) -> None:
    assert sum(bool(row.auto) for row in rows) > 500
    assert share_of_classes(rows) >= 0.95


def test_unusual_settings_are_tried_with_and_without_a_cache(rows: list[Row]) -> None:
    compared = [row for row in rows if row.flag and row.result in REFERENCED]
    assert len(compared) > 700
    assert sum(row.cached for row in compared) > 400


def test_no_weights_are_wrong_in_silence(rows: list[Row]) -> None:
    wrong = {
        (row.model_type, row.kind, row.flag): row.reason for row in rows if row.result == "wrong"
    }
    assert wrong == {}


def test_bad_inputs_give_errors_of_attnviz(rows: list[Row]) -> None:
    ours = ("NotImplementedError: model:", "ValueError:", "TypeError: inputs:")
    refused = [row for row in rows if row.result == "refused"]

    assert [row.reason for row in refused if not row.reason.startswith(ours)] == []


def test_reasons_are_in_words(rows: list[Row]) -> None:
    """A model type that attnviz refuses has a reason in `REFUSED`. Others have none."""
    unread = {
        row.model_type
        for row in rows
        if row.result == "refused" or (row.result == "no own weights" and row.reason != READ)
    }
    refused = {row.model_type for row in rows if row.result == "refused"}

    assert refused - REFUSED.keys() == set()
    assert REFUSED.keys() - unread == set()
    assert "Error:" not in DOCUMENT.read_text()


def test_changes_are_exact(rows: list[Row]) -> None:
    changes = {
        (row.model_type, name): change for row in rows for name, change in row.changes.items()
    }
    assert {
        stack: change.reason for stack, change in changes.items() if change.gate == "wrong"
    } == {}
    assert [stack for stack, change in changes.items() if change.identity is False] == []
    tried = [change for change in changes.values() if change.gate != "refused"]
    assert len(tried) > 800
    assert sum(change.gate == "exact" for change in tried) >= 0.95 * len(tried)
    assert sum(change.projection for change in tried) >= 0.75 * len(tried)


def test_modules_that_cannot_be_changed_are_named(rows: list[Row]) -> None:
    changes = [change for row in rows for change in row.changes.values()]
    reasons = [change.reason for change in changes if change.gate == "refused"]
    reasons += [change.refused_weights for change in changes if change.refused_weights]
    assert [reason for reason in reasons if not reason.startswith("changes: ")] == []


def test_no_place_is_wrong_or_missing_in_silence(rows: list[Row]) -> None:
    wrong = {row.kind: row.place_reason for row in rows if row.place_names == "wrong"}
    assert wrong == {}
    assert sum(row.place_names == "whole" for row in rows) > 200


def test_the_names_of_tokens_are_right(names: list[NamesRow]) -> None:
    assert sum(not row.error for row in names) > 50
    assert {row.kind: row.failed for row in names if row.failed} == {}


def test_all_weights_of_trained_checkpoints_are_right(checkpoints: list[CheckpointRow]) -> None:
    assert {row.package for row in checkpoints if row.error is None} == set()
    assert len({row.package for row in checkpoints}) == 3


def test_the_table_is_of_these_rows_and_these_versions(
    rows: list[Row], names: list[NamesRow], checkpoints: list[CheckpointRow]
) -> None:
    text = DOCUMENT.read_text()

    assert versions() in text
    by_name = sorted(rows, key=lambda row: row.model_type.lower())
    assert text == table(by_name, names, checkpoints)
