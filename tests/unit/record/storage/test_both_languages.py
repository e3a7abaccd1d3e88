"""Saved records and damaged files that `load` and the page in a browser treat alike.

The TypeScript side reads the same fixture (``js/test/client/record/records.test.ts``).
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.record.record import AttentionRecord, load
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.server.description import describe

FIXTURE: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "records.json").read_text(encoding="utf-8")
)


def written(path: Path, packed: str) -> Path:
    path.write_bytes(zlib.decompress(base64.b64decode(packed)))
    return path


def loaded(folder: Path, packed: str) -> AttentionRecord:
    return load(written(folder / "x.safetensors", packed), verify=True)


@pytest.mark.parametrize("case", FIXTURE["opened"], ids=lambda case: str(case["name"]))
def test_a_record_has_the_weights_of_its_model(case: dict[str, Any], tmp_path: Path) -> None:
    record = loaded(tmp_path, case["file"])
    assert json.loads(json.dumps(describe(record))) == case["description"]
    for stack, layers in case["weights"].items():
        for layer, heads in layers.items():
            for head, wanted in heads.items():
                found = record.stacks[stack].weights(layer=int(layer), head=int(head))
                assert np.abs(found - np.array(wanted)).max() < 1e-4


@pytest.mark.parametrize("case", FIXTURE["refused"], ids=lambda case: str(case["name"]))
def test_a_damaged_file_is_refused(case: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path='.*x\.safetensors'"):
        loaded(tmp_path, case["file"])


@pytest.mark.parametrize(("text", "shown"), FIXTURE["texts"])
def test_a_text_is_made_visible(text: str, shown: str, tmp_path: Path) -> None:
    record = AttentionRecord.from_weights([[[[1.0]]]], ["x"])
    path = record.save(tmp_path / "x.safetensors")
    header, arrays = read_arrays(path)
    header["stacks"][0]["query_tokens"]["text"] = [text]
    write_arrays(path, header, arrays)
    assert load(path).tokens.text == (shown,)
