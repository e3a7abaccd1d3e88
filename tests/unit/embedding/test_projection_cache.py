"""What is kept of layouts, and what becomes of damaged files, full folders and other people's."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.embedding.projection import Frame, ProjectionSettings
from attnviz.embedding.projection_cache import ProjectionCache

POINTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
TSNE = ProjectionSettings("tsne")
FRAME = Frame(POINTS[:, :2], done=750, of=750, final=True, words="t-SNE. Größe ≥ 5")


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    cache = ProjectionCache(tmp_path / "a" / "b")
    assert cache.find("0" * 64, 6, TSNE) is None
    assert cache.ready()
    key = cache.key(POINTS, TSNE)
    cache.keep(key, FRAME)
    found = ProjectionCache(tmp_path / "a" / "b").find(key, 6, TSNE)
    assert found is not None
    assert np.array_equal(found.coordinates, FRAME.coordinates)
    assert (found.done, found.of, found.final, found.words) == (750, 750, True, FRAME.words)
    assert kept(tmp_path / "a" / "b") == [f"{key}.safetensors"]


@pytest.mark.parametrize(
    "other",
    [
        {"method": "umap"},
        {"dimensions": 3},
        {"perplexity": 49},
        {"seed": 1},
        {"metric": "euclidean"},
    ],
)
def test_other_settings_are_another_layout(other: dict[str, Any]) -> None:
    cache = ProjectionCache(None)
    assert cache.key(POINTS, ProjectionSettings(**{"method": "tsne", **other})) != cache.key(
        POINTS, TSNE
    )


def test_other_points_are_another_layout() -> None:
    cache = ProjectionCache(None)
    nudged = POINTS.copy()
    nudged[2, 1] = np.nextafter(nudged[2, 1], np.float32(9))
    keys = [cache.key(each, TSNE) for each in (POINTS, nudged, POINTS.reshape(3, 6))]
    assert len(set(keys)) == 3
    assert cache.key(np.asfortranarray(POINTS), TSNE) == keys[0]


def test_what_a_method_does_not_read_makes_no_difference() -> None:
    cache = ProjectionCache(None)
    assert cache.key(POINTS, ProjectionSettings("tsne", neighbors=3)) == cache.key(POINTS, TSNE)
    umap = [ProjectionSettings("umap", perplexity=each) for each in (5, 50)]
    assert cache.key(POINTS, umap[0]) == cache.key(POINTS, umap[1])


def test_another_version_of_a_library_is_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ProjectionCache(None)
    before = cache.key(POINTS, TSNE)
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "99")
    assert cache.key(POINTS, TSNE) != before


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: b"",
        lambda data: data[: len(data) // 2],
        lambda _data: b"nonsense" * 40,
        flipped,
    ],
)
def test_a_damaged_file_is_removed(damage: Any, tmp_path: Path) -> None:
    cache = ProjectionCache(tmp_path)
    key = cache.key(POINTS, TSNE)
    cache.keep(key, FRAME)
    path = tmp_path / f"{key}.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.find(key, 6, TSNE) is None
    assert kept(tmp_path) == []
    cache.keep(key, FRAME)
    assert cache.find(key, 6, TSNE) is not None


def test_a_file_of_other_points_is_removed(tmp_path: Path) -> None:
    cache = ProjectionCache(tmp_path)
    for count, how in ((7, TSNE), (6, ProjectionSettings("tsne", dimensions=3))):
        cache.keep("1" * 64, FRAME)
        assert cache.find("1" * 64, count, how) is None
        assert kept(tmp_path) == []
    cache.keep("1" * 64, Frame(POINTS * np.nan, 1, 1, final=True, words=""))
    assert cache.find("1" * 64, 6, ProjectionSettings("tsne", dimensions=3)) is None


def test_those_that_were_not_read_go_first(tmp_path: Path) -> None:
    ProjectionCache(tmp_path).keep("a" * 64, FRAME)
    size = (tmp_path / f"{'a' * 64}.safetensors").stat().st_size
    cache = ProjectionCache(tmp_path, max_bytes=2 * size + size // 2)
    cache.keep("b" * 64, FRAME)
    # Longest ago b, until it is read.
    for age, name in enumerate("ab"):
        os.utime(tmp_path / f"{name * 64}.safetensors", (1000 - age, 1000 - age))
    (tmp_path / "notes.txt").write_text("not ours", encoding="utf-8")
    assert cache.find("b" * 64, 6, TSNE) is not None
    cache.keep("c" * 64, FRAME)
    assert kept(tmp_path) == [f"{'b' * 64}.safetensors", f"{'c' * 64}.safetensors", "notes.txt"]


def test_what_an_interrupt_left_goes_after_a_day(tmp_path: Path) -> None:
    old, new = (tmp_path / f".{'a' * 64}.safetensors.{end}" for end in ("x1", "x2"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    ProjectionCache(tmp_path).keep("b" * 64, FRAME)
    assert kept(tmp_path) == [new.name, f"{'b' * 64}.safetensors"]


def test_a_folder_that_cannot_be_written_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    cache = ProjectionCache(tmp_path / "file" / "projections")
    with pytest.warns(UserWarning, match="not cached.*ATTNVIZ_CACHE"):
        assert not cache.ready()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.ready()
        assert cache.find("a" * 64, 6, TSNE) is None
        cache.keep("a" * 64, FRAME)


def test_nothing_is_kept_without_a_folder() -> None:
    cache = ProjectionCache(None)
    assert not cache.ready()
    cache.keep("a" * 64, FRAME)
    assert cache.find("a" * 64, 6, TSNE) is None


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNVIZ_CACHE", "")
    assert ProjectionCache.of_user().folder is None
    monkeypatch.setenv("ATTNVIZ_CACHE", str(tmp_path))
    assert ProjectionCache.of_user().folder == tmp_path / "projections"
    monkeypatch.delenv("ATTNVIZ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = ProjectionCache.of_user().folder
    assert folder is not None
    assert folder.name == "projections"
    assert tmp_path in folder.parents
    # Nothing is made before there is something to keep.
    assert kept(tmp_path) == []
