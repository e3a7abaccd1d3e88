"""Views whose record file is gone: the error says so, and the kernel continues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.server.codec import Encoded, decode
from attnviz.server.kernel import KernelChannel
from attnviz.server.server import RecordServer
from unit.long_records import long_record

BLOCK = {"stack": "self", "layer": 0, "heads": [1], "rows": [0, 9], "columns": [0, 9]}


def response(record: av.AttentionRecord) -> tuple[dict[str, Any], list[bytes]]:
    """Return the message that a kernel sends for a request of a block."""
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    channel = KernelChannel(RecordServer(record), lambda *message: sent.append(message))
    channel.receive({"attnviz": "request", "id": "1", "name": "block", "arguments": BLOCK})
    [message] = sent
    return message


def saved_record(folder: Path) -> tuple[av.AttentionRecord, Path, Any]:
    """Return a record loaded from its file, the file's path, and the weights of the block."""
    original = long_record(600)
    path = original.save(folder / "x.safetensors")
    return av.load(path), path, original.stack().weights(layer=0, head=1)[:9, :9]


def test_the_file_of_a_record_may_be_deleted_or_replaced(tmp_path: Path) -> None:
    for change in (Path.unlink, lambda path: made_shorter(tmp_path / "y").replace(path)):
        record, path, weights = saved_record(tmp_path)
        change(path)
        message, [data] = response(record)
        header = message["header"]
        encoded = Encoded(header["shape"], header["encoding"], 1.0, 0.0, data)
        np.testing.assert_allclose(decode(encoded)[0], weights, atol=1e-6)


def made_shorter(path: Path) -> Path:
    path.write_bytes(b"short")
    return path


@pytest.mark.parametrize("derived", ["loaded", "some layers", "words"])
def test_a_truncated_file_is_an_error(tmp_path: Path, derived: str) -> None:
    record, path, _ = saved_record(tmp_path)
    if derived == "some layers":
        record = record.only(layers=0)
    elif derived == "words":
        starts = ["·w", "ord"] * 300
        whole = av.AttentionRecord.from_weights(np.full((1, 1, 600, 600), 1 / 600), starts)
        record = av.load(whole.save(path)).merge_words()
    os.truncate(path, 1000)
    message, buffers = response(record)
    assert (message["attnviz"], buffers) == ("error", [])
    assert "was truncated after the record was loaded from it" in message["message"]


@pytest.mark.parametrize("way", ["page", "page of some layers", "record"])
def test_saving_from_a_truncated_file_is_an_error(tmp_path: Path, way: str) -> None:
    record, path, _ = saved_record(tmp_path)
    view = av.HeadView(record.only(layers=0) if "layers" in way else record)
    os.truncate(path, 1000)
    with pytest.raises(OSError, match="was truncated after the record was loaded from it"):
        (view if "page" in way else record).save(tmp_path / "saved.html")
    assert not (tmp_path / "saved.html").exists()
