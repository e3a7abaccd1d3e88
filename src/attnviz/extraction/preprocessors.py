"""Tokenizers and processors, which are read once per model and used by one thread at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import transformers
from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedModel

from attnviz.extraction.models import Loaded
from attnviz.utils.cleanup import fork_safe_lock

__all__ = ["call_reader", "find_processor", "find_tokenizer"]

# Seconds until the hub is queried again for a missing tokenizer or processor.
_ASK_AGAIN = 10.0

# Path, size, modification time and inode of each file.
_Files = frozenset[tuple[str, int, int, int]]


@dataclass
class _Read:
    """Result of reading a tokenizer or processor.

    Attributes
    ----------
    source : str
        Folder or hub id.
    files : frozenset
        The files in the folder at that time.
    reader : object or None
        The tokenizer or processor, or None if the files contain none.
    asked : float or None
        Time of the last failed query of the hub.
    """

    source: str
    files: _Files
    reader: Any
    asked: float | None = None


# Tokenizers and processors of each model. Models of the same folder do not share them.
_read: WeakKeyDictionary[PreTrainedModel, dict[str, _Read]] = WeakKeyDictionary()
_reading = fork_safe_lock()
_calling = fork_safe_lock()


def find_tokenizer(loaded: Loaded, *, from_hub: bool) -> Any:
    """Return the caller's tokenizer, else the one saved with the model's weights, or None.

    The tokenizer is read once per model, and again after its files have changed. `from_hub` queries
    the hub if no tokenizer is on this machine, which takes time without a network.
    """
    if loaded.tokenizer is not None:
        return loaded.tokenizer
    return _beside(loaded.model, "tokenizer", from_hub=from_hub)


def find_processor(
    loaded: Loaded, of: Literal["of both", "of images", "of sounds"] = "of images"
) -> Any:
    """Return the processor of images, sounds, or either with texts ("of both"), or None.

    This is the caller's processor, else the one saved with the model's weights, which is read once
    per model and again after its files have changed.
    """
    if loaded.processor is not None:
        return loaded.processor
    return _beside(loaded.model, of, from_hub=True)


def call_reader(reader: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Return the output of a tokenizer or processor (or its chat template).

    A tokenizer stores the truncation and padding of a call until the next call. A second thread
    would change them in between, so only one thread at a time calls.
    """
    with _calling:
        return reader(*inputs, **options)


def _beside(model: PreTrainedModel, kind: str, *, from_hub: bool) -> Any:
    source = str(getattr(model, "name_or_path", "") or "")
    if not source:
        return None
    with _reading:
        found = _read.setdefault(model, {})
        files = _files_of(source)
        read = found.get(kind)
        # A reader is kept if its files are gone: the model may come from a temporary folder.
        if read is None or read.source != source or (files and files != read.files):
            # Try this machine first: it needs no network and no waiting.
            reader = _from_pretrained(kind, source, local_files_only=True)
            read = found[kind] = _Read(source, files, reader)
    if read.reader is not None or not from_hub or Path(source).is_dir():
        return read.reader
    if read.asked is not None and time.monotonic() - read.asked < _ASK_AGAIN:
        return None
    reader = _from_pretrained(kind, source)
    if reader is None:
        read.asked = time.monotonic()
    else:
        found[kind] = _Read(source, _files_of(source), reader)
    return reader


def _from_pretrained(kind: str, source: str, **options: Any) -> Any:
    """Return a tokenizer or processor, or None if there is none."""
    reader: Any = {
        "tokenizer": transformers.AutoTokenizer,
        "of both": transformers.AutoProcessor,
        "of images": transformers.AutoImageProcessor,
        "of sounds": transformers.AutoFeatureExtractor,
    }[kind]
    try:
        found = reader.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
    # For a folder without a tokenizer, transformers 5 creates an empty one of the model's type.
    if kind == "tokenizer" and found.vocab_size <= len(found.all_special_ids):
        return None
    return found


def _files_of(source: str) -> _Files:
    """Describe the files in a folder, or those of a hub id on this machine."""
    folder = Path(source)
    if not folder.is_dir():
        try:
            config = try_to_load_from_cache(source, "config.json")
        except ValueError:
            # The source is not a hub id, for example the path of a deleted folder.
            return frozenset()
        if not isinstance(config, str):
            return frozenset()
        folder = Path(config).parent
    files = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                state = entry.stat()
                files.add((entry.path, state.st_size, state.st_mtime_ns, state.st_ino))
    return frozenset(files)
