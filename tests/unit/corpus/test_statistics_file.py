"""Files of statistics: reading returns what was written or raises an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import attnviz
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from unit.records import given_record, shares

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    statistics = HeadStatistics(columns=["pos"], frequencies={"t0": 3, 5: 2}, edges=4)
    statistics.remarks = ("Made by hand.",)
    for _ in range(3):
        statistics.add(given_record(), columns={"pos": ["A", "B", None, "A", "B"]})
    cross = AttentionRecord.from_weights(
        cross_attentions=[shares(2, 3, 4)],
        decoder_tokens=["x", "y", "z"],
        encoder_tokens=["a", "b", "c", "d"],
        model="given",
    )
    statistics.add(cross)
    path: Path = tmp_path_factory.mktemp("statistics") / "file.safetensors"
    assert statistics.save(path) == path
    return path


def test_a_loaded_file_equals_the_saved_statistics(file: Path, tmp_path: Path) -> None:
    statistics = HeadStatistics.load(file)
    assert (statistics.model, statistics.texts, statistics.edges, statistics.seed) == (
        "given",
        4,
        4,
        0,
    )
    assert statistics.stack_names == ("self", "cross")
    assert statistics.class_systems == ("kind", "pos")
    assert statistics.notes == ["Made by hand."]
    statistics.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    # More texts can be added after loading.
    statistics.add(given_record(), columns={"pos": "A"})
    assert statistics.texts == 5
    edge = statistics.stack("cross").strongest(0, 1)[0]
    assert edge.query_token in "xyz"
    assert edge.key_token in "abcd"
    assert [token for _, token in edge.query_window] == ["x", "y", "z"]
    assert [token for _, token in edge.window] == ["a", "b", "c", "d"]


def test_records_and_statistics_are_distinguished(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"contains head statistics, not a .*HeadStatistics\.load"):
        attnviz.load(file)
    given_record().save(tmp_path / "record")
    with pytest.raises(ValueError, match="does not contain head statistics"):
        HeadStatistics.load(tmp_path / "record")
    with pytest.raises(FileNotFoundError, match="no file at path="):
        HeadStatistics.load(tmp_path / "nothing")


def test_every_damaged_byte_is_noticed(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    for position in np.linspace(0, len(data) - 1, 40).astype(int).tolist():
        damaged = bytearray(data)
        damaged[position] ^= 4
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            HeadStatistics.load(tmp_path / "damaged")
    (tmp_path / "damaged").write_bytes(data[:-9])
    with pytest.raises(ValueError, match="damaged"):
        HeadStatistics.load(tmp_path / "damaged")


def _set(*path: str | int, value: Any) -> Change:
    def change(header: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        del arrays
        container: Any = header
        for step in path[:-1]:
            container = container[step]
        container[path[-1]] = value

    return change


def _array(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def changed(header: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        del header
        arrays[name] = change(arrays[name].clone())

    return changed


def _first(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(array: torch.Tensor) -> torch.Tensor:
        array.view(-1)[0] = value
        return array

    return change


HOSTILE_FILES: dict[str, Change] = {
    "edges": _set("edges", value=10**12),
    "model": _set("model", value=3),
    "columns": _set("columns", value=["other"]),
    "runs": _set("texts", value=[[0, 3], [2, 4]]),
    "left out": _set("empty", value=9),
    "count": _set("tokens", value=-1),
    "flag": _set("stacks", 0, "causal", value="no"),
    "layers": _set("stacks", 0, "layers", value=[1, 0]),
    "heads": _set("stacks", 0, "heads_per_layer", value=[2, 4]),
    "twice": _set("stacks", 0, "scores", 1, value="entropy"),
    "words": _set("words", value=[]),
    "names": _set("stacks", 0, "tables", 1, 1, value=["A", "A"]),
    "frequencies": _set("frequencies", value=[["a", "b"]]),
    "stacks": _set("stacks", value={}),
    "scores": _array("self/scores/0", lambda array: array[:, :3]),
    "numbers": _array("self/scores/0", lambda array: array.double()),
    "edge's head": _array("self/strongest/head", _first(99)),
    "edge's order": _array("self/strongest/head", lambda array: array.flip(0)),
    "edge's text": _array("self/sampled/text", _first(77)),
    "edge's key": _array("self/sampled/key", _first(-1)),
    "edge's weight": _array("self/sampled/weight", _first(float("nan"))),
    "length": _array("self/sampled/query", lambda array: array[1:]),
    "positions": _array("self/tokens/0/positions", lambda array: array.flip(0)),
    "counts": _array("self/tokens/0/counts", _first(-5)),
    "tokens": _array("self/tokens/0/tokens", _first(10_000)),
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_inconsistent_files_are_refused(name: str, file: Path, tmp_path: Path) -> None:
    header, arrays = read_arrays(file)
    copies = {key: array.clone() for key, array in arrays.items()}
    HOSTILE_FILES[name](header, copies)
    write_arrays(tmp_path / "hostile", header, copies)
    with pytest.raises(ValueError, match="is damaged"):
        HeadStatistics.load(tmp_path / "hostile")


def test_missing_fields_and_a_later_format(file: Path, tmp_path: Path) -> None:
    header, arrays = read_arrays(file)
    for key in header:
        if key in ("arguments", "kind", "format"):
            continue
        fewer = {name: value for name, value in header.items() if name != key}
        write_arrays(tmp_path / "file", fewer, arrays)
        with pytest.raises(ValueError, match="is damaged"):
            HeadStatistics.load(tmp_path / "file")
    write_arrays(tmp_path / "file", {**header, "format": 2}, arrays)
    with pytest.raises(
        ValueError, match="has format 2, but this version of attnviz reads format 1"
    ):
        HeadStatistics.load(tmp_path / "file")


def test_changing_the_file_does_not_change_loaded_statistics(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(file.read_bytes())
    statistics = HeadStatistics.load(path)
    before = [layer.copy() for layer in statistics.stack().mean("entropy")]
    with path.open("r+b") as opened:
        opened.seek(len(file.read_bytes()) // 2)
        opened.write(bytes(4000))
    for before_layer, after_layer in zip(before, statistics.stack().mean("entropy"), strict=True):
        assert_array_equal(before_layer, after_layer)
