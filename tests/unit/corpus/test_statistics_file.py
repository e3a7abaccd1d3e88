"""Reading a file of statistics returns what was written or raises an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

import attnviz
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from unit.records import given_record, shares


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    statistics = HeadStatistics(columns=["pos"], frequencies={"t0": 3, 5: 2}, edges=4)
    for _ in range(3):
        statistics.add(given_record(), columns={"pos": ["A", "B", None, "A", "B"]})
    cross = AttentionRecord.from_weights(
        cross_attentions=[shares(2, 3, 4)],
        decoder_tokens=["x", "y", "z"],
        encoder_tokens=["a", "b", "c", "d"],
        model="given",
    )
    statistics.add(cross)
    statistics.skip(9, "empty")
    path: Path = tmp_path_factory.mktemp("statistics") / "file.safetensors"
    assert statistics.save(path) == path
    return path


def test_a_loaded_file_equals_the_saved_statistics(file: Path, tmp_path: Path) -> None:
    statistics = HeadStatistics.load(file)
    assert (statistics.model, statistics.texts, statistics.edges) == ("given", 4, 4)
    assert statistics.stack_names == ("self", "cross")
    assert statistics.class_systems == ("kind", "pos")
    assert statistics.notes == ["1 text is left out: empty."]
    statistics.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
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


def test_a_file_that_was_cut_is_refused(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    for length in (0, 9, len(data) // 2, len(data) - 1):
        (tmp_path / "damaged").write_bytes(data[:length])
        with pytest.raises(ValueError, match="damaged"):
            HeadStatistics.load(tmp_path / "damaged")


# For each field of the header, a value that contradicts the rest of the file.
HOSTILE_HEADERS: dict[str, Any] = {
    "settings": {"edges": 10**12, "seed": 0, "columns": ["pos"], "frequencies": []},
    "model": 3,
    "texts": [[0, 3], [2, 4]],
    "tokens": -1,
    "remarks": [1],
    "stacks": {},
}
# For each array of the file, a first number that contradicts the rest of the file.
HOSTILE_NUMBERS = {
    "self/strongest/head": 99,
    "self/tokens/0/codes": 10_000,
}


@pytest.mark.parametrize("name", [*HOSTILE_HEADERS, *HOSTILE_NUMBERS])
def test_inconsistent_files_are_refused(name: str, file: Path, tmp_path: Path) -> None:
    header, arrays = read_arrays(file)
    if name in HOSTILE_HEADERS:
        header[name] = HOSTILE_HEADERS[name]
    else:
        arrays[name] = arrays[name].clone()
        arrays[name].view(-1)[0] = HOSTILE_NUMBERS[name]
    write_arrays(tmp_path / "hostile", header, arrays)
    with pytest.raises(ValueError, match="is damaged"):
        HeadStatistics.load(tmp_path / "hostile")


def test_arrays_of_another_length_are_refused(file: Path, tmp_path: Path) -> None:
    header, arrays = read_arrays(file)
    for name, array in arrays.items():
        write_arrays(tmp_path / "file", header, {**arrays, name: array[1:].clone()})
        with pytest.raises(ValueError, match="is damaged"):
            HeadStatistics.load(tmp_path / "file")


def test_missing_fields_and_a_later_format(file: Path, tmp_path: Path) -> None:
    header, arrays = read_arrays(file)
    for key in header:
        if key in ("kind", "format"):
            continue
        fewer = {name: value for name, value in header.items() if name != key}
        write_arrays(tmp_path / "file", fewer, arrays)
        with pytest.raises(ValueError, match="is damaged"):
            HeadStatistics.load(tmp_path / "file")
    write_arrays(tmp_path / "file", {**header, "format": 2}, arrays)
    with pytest.raises(ValueError, match="has the format 2, but this version of attnviz reads 1"):
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
