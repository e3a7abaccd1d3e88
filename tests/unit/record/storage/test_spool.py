"""Tests of `Spool`, which writes layers one by one to a folder that loads as a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord, load
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.record.storage.spool import INDEX, Spool, SpoolFolders
from attnviz.record.tokens import Tokens
from attnviz.utils.cleanup import Cleanup
from unit.records import assert_same, vectors, words


def long_layers(tokens: int = 300) -> dict[int, QueryKeyAttention]:
    return {
        number: QueryKeyAttention(
            vectors(4, tokens, 8, seed=number), vectors(2, tokens, 8, seed=9 + number), 0.3
        )
        for number in (0, 1, 5)
    }


def record_of(layers: dict[int, QueryKeyAttention]) -> AttentionRecord:
    count = next(iter(layers.values())).num_queries
    stack = AttentionStack("self", layers, Tokens.of(words(count)))
    return AttentionRecord({"self": stack}, model="tiny", notes=["noted"])


def write(spool: Spool, number: int, layer: QueryKeyAttention) -> QueryKeyAttention:
    """Write a layer to the spool, and return a layer that reads the written file."""
    written = spool.write(f"layers.{number}", {"queries": layer.queries, "keys": layer.keys})
    assert torch.equal(written["queries"], layer.queries)
    return QueryKeyAttention(written["queries"], written["keys"], layer.scale)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_layers_are_not_written_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x")
    spool.begin()
    layers = {number: write(spool, number, layer) for number, layer in long_layers().items()}
    assert INDEX not in names_in(tmp_path / "x")
    # Change the written layers: reverse the tokens of layer 1, and remove layer 5.
    second = layers[1]
    layers[1] = QueryKeyAttention(second.queries.flip(1), second.keys.flip(1), second.scale)
    del layers[5]
    expected = record_of(layers)
    spool.finish(expected)
    assert_same(expected, load(spool.folder))
    # Layer 0 stays in the file to which it was written. The reversed layer 1 is stored in the
    # file `INDEX`.
    assert names_in(tmp_path / "x") == ["0000-layers.0.safetensors", INDEX]


def test_only_one_spool_writes_to_a_folder(tmp_path: Path) -> None:
    first, second, third = (Spool(tmp_path / "x") for _ in range(3))
    first.begin()
    second.begin()
    first.write("layer", {"queries": vectors(2, 3, 4)})
    with pytest.raises(FileExistsError, match=r"spool='.*x' cannot be written: the folder is not"):
        third.begin()
    with pytest.raises(FileExistsError, match=r"spool='.*x' cannot be written: File exists"):
        second.write("layer", {"queries": vectors(2, 3, 4)})
    for loser in (second, third):
        loser.discard()
    record = record_of(long_layers())
    first.finish(record)
    assert_same(record, load(first.folder))


def test_several_records_have_a_folder_each(tmp_path: Path) -> None:
    folders = SpoolFolders(tmp_path / "x", several=True)
    record = record_of(long_layers())
    with Cleanup() as undo:
        for spool in folders.take(2, undo):
            spool.finish(record)
            assert_same(record, load(spool.folder))
        # The third spool is not finished, so its folder is removed at the end of the block.
        folders.take(1, undo)
    assert names_in(tmp_path / "x") == ["0", "1"]
    with pytest.raises(FileNotFoundError, match=r"no index.safetensors.* subfolders 0, 1"):
        load(tmp_path / "x")
    with pytest.raises(FileExistsError, match=r"spool='.*x' cannot be written: .* not empty"):
        SpoolFolders(tmp_path / "x", several=True).check()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three layers, two in separate files and one in the file `INDEX`."""
    layers, spool = long_layers(), Spool(tmp_path / "x")
    spool.begin()
    spool.finish(record_of(layers | {n: write(spool, n, layers[n]) for n in (0, 1)}))
    return tmp_path / "x"


LAYER = "0001-layers.1.safetensors"


def test_missing_and_truncated_files_are_noticed(folder: Path) -> None:
    path = folder / LAYER
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(ValueError, match=rf"path='.*x' is damaged \(.*No such file.*{LAYER}"):
        load(folder)
    for damaged in (data[:-1], data + b"\0", b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"path='.*x' is damaged \(.*{LAYER}' is damaged"):
            load(folder)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("is not a file name", lambda h: h["layers"].update({f"../x/{LAYER}": {}})),
        ("No such file", lambda h: h["layers"].update({"none": {}})),
        ("nothing", lambda h: h["layers"][LAYER].update({"self/1/keys": "nothing"})),
        ("not iterable", lambda h: h.update(layers=7)),
        ("self/1/queries", lambda h: h["layers"].pop(LAYER)),
        ("self/9", lambda h: h["stacks"][0]["layers"][0].update(number=9)),
    ],
)
def test_a_changed_index_is_compared_with_the_files(
    message: str, change: Callable[[dict[str, Any]], object], folder: Path
) -> None:
    header, arrays = read_arrays(folder / INDEX)
    change(header)
    # Copy the arrays, because they are mapped from the file that is overwritten.
    write_arrays(folder / INDEX, header, {name: array.clone() for name, array in arrays.items()})
    with pytest.raises(ValueError, match=rf"path='.*x' is damaged.*({message})"):
        load(folder)


def test_the_path_of_an_index_means_its_folder(folder: Path) -> None:
    record = record_of(long_layers())
    assert_same(record, load(folder / INDEX))
    # A record that `save` wrote may also have the name `INDEX`.
    folder.with_name("y").mkdir()
    assert_same(record, load(record.save(folder.with_name("y") / INDEX)))
