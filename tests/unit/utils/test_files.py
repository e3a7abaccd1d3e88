"""Files that are written whole: what they replace, what they refuse, what they leave behind."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from attnviz.utils.files import read_unchanged, write_whole, writing_whole

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may do that"
)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@posix
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "target").write_bytes(b"before")
    (tmp_path / "link").symlink_to("folder/target")
    (tmp_path / "link of link").symlink_to("link")
    # Relative to where the folder really is.
    (tmp_path / "by").symlink_to(folder)
    (folder / "sideways").symlink_to("../folder/target")
    links = [tmp_path / "link", tmp_path / "link of link", tmp_path / "by" / "sideways"]
    for link in links:
        assert write_whole(link, str(link).encode()) == link
        assert link.is_symlink()
        assert (folder / "target").read_bytes() == str(link).encode()
    assert sorted(path.name for path in folder.iterdir()) == ["sideways", "target"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["by", "folder", "link", "link of link"]
    )


@posix
def test_a_link_that_leads_nowhere_gets_its_target(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/none")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "none").read_bytes() == b"new"
    (tmp_path / "lost").symlink_to("nowhere/none")
    with pytest.raises(FileNotFoundError, match=r"^.*cannot write path='.*lost'"):
        write_whole(tmp_path / "lost", b"new")


@posix
def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link to folder").symlink_to("folder")
    (tmp_path / "link to pipe").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("round")
    (tmp_path / "round").symlink_to("circle")
    said = {
        "pipe": "it is a pipe; give the name of a file",
        "link to pipe": "it is a pipe; give the name of a file",
        "folder": "it is a folder; give the name of a file in it",
        "link to folder": "it is a folder; give the name of a file in it",
        "circle": "its links lead in a circle",
        "folder/": "it names a folder; give the name of a file in it",
        "new/": "it names a folder; give the name of a file in it",
        "folder/.": "it names a folder; give the name of a file in it",
        "folder/..": "it names a folder; give the name of a file in it",
    }
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        said["device"] = "it is a device; give the name of a file"
    with tempfile.TemporaryDirectory() as short, closing(socket.socket(socket.AF_UNIX)) as ours:
        # The names of sockets are short.
        ours.bind(f"{short}/socket")
        (tmp_path / "socket").symlink_to(f"{short}/socket")
        said["socket"] = "it is a socket; give the name of a file"
        before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
        for name, why in said.items():
            path = f"{tmp_path}/{name}"
            with pytest.raises(OSError, match=re.escape(f"cannot write path={path!r}: {why}")):
                write_whole(path, b"")
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before


@posix
def test_a_file_that_may_not_be_written_is_refused() -> None:
    # Root may write to any: try as somebody else, in a folder that they reach.
    with tempfile.TemporaryDirectory() as folder:
        root, path = os.geteuid() == 0, Path(folder, "x")
        path.write_bytes(b"before")
        path.chmod(0o444)
        Path(folder).chmod(0o777)
        if root:
            os.seteuid(65_534)
        try:
            with pytest.raises(PermissionError, match=r"the file there is read-only"):
                write_whole(path, b"after")
        finally:
            if root:
                os.seteuid(0)
        assert path.read_bytes() == b"before"
        assert len(list(Path(folder).iterdir())) == 1


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_mode_of_what_was_there_is_kept(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    path.chmod(mode)
    with umask(0o022), writing_whole(path) as (file, _):
        # Nobody reads it before it has its mode.
        (beside,) = set(tmp_path.iterdir()) - {path}
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        file.write(b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", mode)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o000])
def test_a_new_file_has_the_mode_that_the_umask_leaves(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with umask(mask), monkeypatch.context() as patched:
        # It is the whole process's, threads that create files at that moment included.
        patched.setattr("os.umask", lambda _: pytest.fail("the umask was changed"))
        write_whole(tmp_path / "x", b"new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask


@as_root
def test_the_owner_of_what_was_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    os.chown(path, 1234, 5678)
    path.chmod(0o640)
    write_whole(path, b"after")
    state = path.stat()
    assert (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) == (1234, 5678, 0o640)


@posix
def test_other_names_of_a_file_keep_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    os.link(path, tmp_path / "y")
    write_whole(path, b"after")
    assert (path.read_bytes(), (tmp_path / "y").read_bytes()) == (b"after", b"before")


WRITER = """
import sys
from attnviz.utils.files import writing_whole
with writing_whole(sys.argv[1]) as (file, _):
    file.write(b"from another process")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def writer(path: Path) -> subprocess.Popen[bytes]:
    """A process that has begun to write a file, and ends once its input does."""
    command = [sys.executable, "-c", WRITER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


@posix
def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    killed = writer(path)
    (left,) = tmp_path.iterdir()
    alive = writer(path)
    (beside,) = set(tmp_path.iterdir()) - {left}
    killed.kill()
    killed.communicate()
    others = [tmp_path / name for name in (".x.html", ".x.html.backup", ".y.html.0-0")]
    for other in others:
        other.touch()
    # Locks may not reach a machine that shares the folder.
    host, end = left.name.removeprefix(".x.html.").split("-")
    foreign = left.with_name(f".x.html.{int(host, 16) ^ 1:08x}-{end}")
    foreign.write_bytes(b"")
    write_whole(path, b"ours")
    assert set(tmp_path.iterdir()) == {path, beside, foreign, *others}
    alive.communicate()
    assert alive.returncode == 0
    assert path.read_bytes() == b"from another process"
    os.utime(foreign, (1e9, 1e9))
    write_whole(path, b"ours")
    assert set(tmp_path.iterdir()) == {path, *others}


def test_threads_that_write_to_one_path_replace_each_other(tmp_path: Path) -> None:
    path, faults = tmp_path / "x", []

    def write(letter: bytes) -> None:
        try:
            for _ in range(20):
                write_whole(path, letter * 10_000)
        except BaseException as error:  # noqa: BLE001 - of another thread
            faults.append(error)

    threads = [threading.Thread(target=write, args=(bytes([65 + n]),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert list(tmp_path.iterdir()) == [path]
    assert len(path.read_bytes()) == 10_000
    assert len(set(path.read_bytes())) == 1


@posix
def test_a_disk_without_room_leaves_what_was_there(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "x"
    path.write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write path='.*x': File too large"):
            write_whole(path, bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127 + "x")
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"two"]
    with pytest.raises(OSError, match="cannot write path="):
        write_whole(tmp_path / ("é" * 128), b"one")


def replaced(path: Path, data: bytes) -> None:
    (path.parent / "new").write_bytes(data)
    (path.parent / "new").replace(path)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_file_that_is_replaced_is_read_as_one(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    path, calls = tmp_path / "x", []
    path.write_bytes(b"first")

    def read(opened: Path) -> tuple[bytes, bytes]:
        calls.append(opened)
        first = opened.read_bytes()
        if len(calls) < 3:
            replaced(path, b"%d" % len(calls))
        return first, opened.read_bytes()

    data = read_unchanged(path, read)
    # Where a descriptor has a path, the first reading is whole already.
    by_descriptor = platform == "linux" and Path("/dev/fd/0").exists()
    assert data == ((b"first", b"first") if by_descriptor else (b"2", b"2"))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_file_that_never_stays_the_same_is_refused(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    path, calls = tmp_path / "x", []
    path.write_bytes(b"first")

    def read(opened: Path) -> bytes:
        calls.append(opened)
        # In place, not beside it.
        with path.open("ab") as file:
            file.write(b"more")
        return opened.read_bytes()

    with pytest.raises(ValueError, match=r"path='.*x' is being written to: it changed 5 times"):
        read_unchanged(path, read)
    assert len(calls) == 5


def test_a_fault_of_a_file_that_stays_is_told_at_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "x", []
    path.write_bytes(b"first")

    def read(opened: Path) -> bytes:
        calls.append(opened)
        raise ValueError("it is damaged")

    with pytest.raises(ValueError, match="it is damaged"):
        read_unchanged(path, read)
    assert len(calls) == 1
    with pytest.raises(FileNotFoundError):
        read_unchanged(tmp_path / "none", read)
