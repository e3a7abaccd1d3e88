"""Tests of records whose file is deleted, replaced or truncated after loading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.server.codec import decode
from attnviz.server.server import RecordServer
from unit.long_records import long_record

BLOCK = {"stack": "self", "layer": 0, "heads": [1], "rows": [0, 9], "columns": [0, 9]}


def saved_record(folder: Path) -> tuple[av.AttentionRecord, Path, Any]:
    """Return a loaded record, the path of its file, and the weights that `BLOCK` requests."""
    original = long_record(600)
    path = original.save(folder / "x.safetensors")
    return av.load(path), path, original.stack().weights(layer=0, head=1)[:9, :9]


@pytest.mark.parametrize("replaced", [False, True])
def test_the_file_of_a_record_may_be_deleted_or_replaced(tmp_path: Path, replaced: bool) -> None:
    record, path, weights = saved_record(tmp_path)
    if replaced:
        (tmp_path / "short").write_bytes(b"short")
        (tmp_path / "short").replace(path)
    else:
        path.unlink()
    reply = RecordServer(record).reply("read", BLOCK)
    np.testing.assert_allclose(decode(reply)[0], weights, atol=1e-6)


def loaded(path: Path, kind: str) -> av.AttentionRecord:
    if kind == "words":
        weights = np.full((1, 1, 600, 600), 1 / 600)
        record = av.AttentionRecord.from_weights(weights, ["·w", "ord"] * 300)
        return av.load(record.save(path)).merge_words()
    record = av.load(long_record(600).save(path))
    return record.only(layers=0) if kind == "some layers" else record


@pytest.mark.parametrize("kind", ["whole record", "some layers", "words"])
def test_a_truncated_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.safetensors"
    record = loaded(path, kind)
    view = av.HeadView(record)
    os.truncate(path, 1000)
    message = "was truncated after the record was loaded from it"
    with pytest.raises(OSError, match=message):
        RecordServer(record).reply("read", BLOCK)
    for value in (record, view):
        with pytest.raises(OSError, match=message):
            value.save(tmp_path / "saved.html")
    # A new view can still be created, although the weights cannot be read.
    assert av.HeadView(record).opening is None
    assert list(tmp_path.iterdir()) == [path]
