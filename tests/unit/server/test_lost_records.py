"""Tests of records whose file is deleted or replaced after loading."""

from __future__ import annotations

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
