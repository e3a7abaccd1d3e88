"""Layouts that were computed before, in the user's cache folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.embedding.projection import Frame, ProjectionSettings
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.utils.host import warn_caller

__all__ = ["ProjectionCache"]

# What is written into a file; another number is another file.
_FORM = 1
_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.safetensors\..+")
_DAY = 86_400
# What decides a result beside the points.
_LIBRARIES = {
    "tsne": ("attnviz", "numpy", "opentsne", "scikit-learn"),
    "umap": ("attnviz", "numba", "numpy", "scikit-learn", "umap-learn"),
}
_WARNED: set[str] = set()


class ProjectionCache:
    """Keeps layouts in a folder, by what they were made of.

    The folder is made when it is first needed; without one nothing is kept. Where all files
    together take more than `max_bytes`, those that were not read for the longest time are removed.
    Several processes may use it at once: a file is there as a whole or not at all.
    """

    def __init__(self, folder: Path | None, *, max_bytes: int = 500_000_000) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    @classmethod
    def of_user(cls) -> ProjectionCache:
        """The cache of the user: ``projections`` in a folder.

        The folder is the one that the environment variable ``ATTNVIZ_CACHE`` names, none if that is
        empty; without it attnviz's own among the user's caches.
        """
        named = os.environ.get("ATTNVIZ_CACHE")
        if named is not None:
            return cls(Path(named).expanduser().absolute() / "projections" if named else None)
        try:
            from platformdirs import user_cache_path
        except ImportError:
            _warn_once("platformdirs", "pip install 'attnviz[embedding]'")
            return cls(None)
        folder = user_cache_path("attnviz", appauthor=False) / "projections"
        if not folder.is_absolute():
            _warn_once("home", "the home folder is unknown; name a folder in ATTNVIZ_CACHE")
            return cls(None)
        return cls(folder)

    def key(self, points: NDArray[np.float32], settings: ProjectionSettings) -> str:
        """What a layout is kept under: 64 hexadecimal digits.

        The SHA-256 of the points, of the settings that the method reads, and of the versions of the
        libraries.
        """
        read = asdict(settings)
        unread = {"tsne": ["neighbors"], "umap": ["perplexity"], "pca": ["neighbors", "perplexity"]}
        for name in unread[settings.method]:
            del read[name]
        versions = {name: _version(name) for name in _LIBRARIES.get(settings.method, ())}
        made_of = {"form": _FORM, "shape": points.shape, "settings": read, "versions": versions}
        digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(points, dtype="<f4").data)
        return digest.hexdigest()

    def ready(self) -> bool:
        """Whether anything can be kept; if not, a warning says so, once."""
        if self.folder is None:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                return True
        except OSError as error:
            _warn_once(
                str(self.folder),
                f"{error.strerror or error}: {str(self.folder)!r}. Name another folder in "
                "ATTNVIZ_CACHE, or set it to nothing",
            )
        return False

    def find(self, key: str, points: int, settings: ProjectionSettings) -> Frame | None:
        """The layout that was kept of so many points; None where there is none.

        A file that is damaged, or of other points, is removed.
        """
        if self.folder is None:
            return None
        path = self.folder / f"{key}.safetensors"
        try:
            frame = _read(path, (points, settings.dimensions))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return frame

    def keep(self, key: str, frame: Frame) -> None:
        """Keep a layout, where it can be written, and remove the oldest above the limit."""
        if self.folder is None:
            return
        header = {"form": _FORM, "words": frame.words, "steps": frame.of}
        coordinates = torch.from_numpy(np.ascontiguousarray(frame.coordinates))
        # A full disk must not lose what was computed.
        with suppress(OSError):
            write_arrays(self.folder / f"{key}.safetensors", header, {"coordinates": coordinates})
        with suppress(OSError):
            _remove_oldest(self.folder, self.max_bytes)


def _read(path: Path, shape: tuple[int, int]) -> Frame:
    header, arrays = read_arrays(path, verify=True)
    # Not the mapped file: it may be removed while this is in use.
    coordinates = arrays["coordinates"].numpy().copy()
    whole = coordinates.dtype == np.float32 and np.isfinite(coordinates).all()
    if coordinates.shape != shape or not whole:
        raise ValueError(f"path={str(path)!r} holds no coordinates of these points")
    steps = int(header["steps"])
    return Frame(coordinates, done=steps, of=steps, final=True, words=str(header["words"]))


def _remove_oldest(folder: Path, max_bytes: int) -> None:
    files = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            state = path.stat()
            if _NAME.fullmatch(path.name):
                files.append((state.st_mtime, state.st_size, path))
            elif _UNFINISHED.fullmatch(path.name) and time.time() - state.st_mtime > _DAY:
                path.unlink()
    over = sum(size for _, size, _ in files) - max_bytes
    for _, size, path in sorted(files):
        if over <= 0:
            return
        path.unlink(missing_ok=True)
        over -= size


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _warn_once(about: str, way_out: str) -> None:
    if about not in _WARNED:
        _WARNED.add(about)
        warn_caller(f"results of t-SNE and UMAP are not cached: {way_out}")
