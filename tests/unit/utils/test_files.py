"""Tests that atomic writing keeps links and modes, and the old file if writing fails."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnviz.utils.files import open_atomic, write_atomic

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@posix
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "target"
    target.parent.mkdir()
    target.write_bytes(b"before")
    (tmp_path / "link").symlink_to("folder/target")
    (tmp_path / "link of link").symlink_to("link")
    # `by/sideways` must be resolved from `folder`, in which the link is, and not from `by`.
    (tmp_path / "by").symlink_to("folder")
    (target.parent / "sideways").symlink_to("../folder/target")
    before = sorted(tmp_path.rglob("*"))
    for link in (tmp_path / "link", tmp_path / "link of link", tmp_path / "by" / "sideways"):
        assert write_atomic(link, str(link).encode()) == link
        assert link.is_symlink()
        assert target.read_bytes() == str(link).encode()
    assert sorted(tmp_path.rglob("*")) == before


@posix
@pytest.mark.parametrize("name", ["pipe", "folder", "link"])
def test_paths_of_other_things_than_files_are_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    message = f"cannot write path='.*{name}': it exists and is not a file"
    with pytest.raises(FileExistsError, match=message):
        write_atomic(tmp_path / name, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o755])
def test_the_mode_of_a_replaced_file_is_kept(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    path.chmod(mode)
    with umask(0o022), open_atomic(path) as (file, _):
        # The temporary file has this mode before it has contents.
        (temporary,) = set(tmp_path.iterdir()) - {path}
        assert stat.S_IMODE(temporary.stat().st_mode) == mode
        file.write(b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", mode)


@posix
@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_a_new_file_has_the_mode_that_the_umask_leaves(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with umask(mask), monkeypatch.context() as patched:
        # `write_atomic` must not change the umask, which also affects files of other threads.
        patched.setattr("os.umask", lambda _: pytest.fail("the umask was changed"))
        write_atomic(tmp_path / "x", b"new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask


def test_threads_that_write_to_one_path_replace_each_other(tmp_path: Path) -> None:
    path = tmp_path / "x"

    def write(letter: bytes) -> None:
        for _ in range(20):
            write_atomic(path, letter * 10_000)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, [b"a", b"b", b"c", b"d", b"e", b"f"]))
    assert list(tmp_path.iterdir()) == [path]
    assert len(path.read_bytes()) == 10_000
    assert len(set(path.read_bytes())) == 1


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "x"
    path.write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write path='.*x': File too large"):
            write_atomic(path, bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_replacement_leaves_the_old_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> None:
        raise error

    path = tmp_path / "x"
    path.write_bytes(b"before")
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(type(error)):
        write_atomic(path, b"after")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"before"


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127 + "x")
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"two"]
    with pytest.raises(OSError, match="cannot write path="):
        write_atomic(tmp_path / ("é" * 128), b"one")
