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
_HUB_PAUSE = 10.0

# Path, size, modification time and inode of each file.
_Files = frozenset[tuple[str, int, int, int]]


@dataclass
class _Reading:
    """Result of reading a tokenizer or processor.

    Attributes
    ----------
    source : str
        Folder or hub id.
    files : frozenset
        The files in the folder at that time.
    reader : object or None
        The tokenizer or processor, or None if the files contain none.
    failed_at : float or None
        Time of the last failed query of the hub.
    """

    source: str
    files: _Files
    reader: Any
    failed_at: float | None = None


# Tokenizers and processors of each model. Models of the same folder do not share them.
_readings: WeakKeyDictionary[PreTrainedModel, dict[str, _Reading]] = WeakKeyDictionary()
_reading_lock = fork_safe_lock()
_calling_lock = fork_safe_lock()


def find_tokenizer(loaded: Loaded, *, from_hub: bool) -> Any:
    """Return the caller's tokenizer, else the one saved with the model's weights, or None.

    The tokenizer is read once per model, and again after its files have changed. `from_hub` queries
    the hub if no tokenizer is on this machine, which takes time without a network.
    """
    if loaded.tokenizer is not None:
        return loaded.tokenizer
    return _saved_with(loaded.model, "tokenizer", from_hub=from_hub)


def find_processor(
    loaded: Loaded, of: Literal["of both", "of images", "of sounds"] = "of images"
) -> Any:
    """Return the processor of images, sounds, or either with texts ("of both"), or None.

    This is the caller's processor, else the one saved with the model's weights, which is read once
    per model and again after its files have changed.
    """
    if loaded.processor is not None:
        return loaded.processor
    return _saved_with(loaded.model, of, from_hub=True)


def call_reader(reader: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Return the output of a tokenizer or processor (or its chat template).

    A tokenizer stores the truncation and padding of a call until the next call. A second thread
    would change them in between, so only one thread at a time calls.
    """
    with _calling_lock:
        return reader(*inputs, **options)


def _saved_with(model: PreTrainedModel, kind: str, *, from_hub: bool) -> Any:
    source = str(getattr(model, "name_or_path", "") or "")
    if not source:
        return None
    with _reading_lock:
        readings = _readings.setdefault(model, {})
        files = _files_of(source)
        reading = readings.get(kind)
        # A reader is kept if its files are gone: the model may come from a temporary folder.
        if reading is None or reading.source != source or (files and files != reading.files):
            # Try this machine first: it needs no network and no waiting.
            reader = _from_pretrained(kind, source, local_files_only=True)
            reading = readings[kind] = _Reading(source, files, reader)
    if reading.reader is not None or not from_hub or Path(source).is_dir():
        return reading.reader
    if reading.failed_at is not None and time.monotonic() - reading.failed_at < _HUB_PAUSE:
        return None
    reader = _from_pretrained(kind, source)
    if reader is None:
        reading.failed_at = time.monotonic()
    else:
        readings[kind] = _Reading(source, _files_of(source), reader)
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
        result = reader.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
    # For a folder without a tokenizer, transformers 5 creates an empty one of the model's type.
    if kind == "tokenizer" and result.vocab_size <= len(result.all_special_ids):
        return None
    return result


def _files_of(source: str) -> _Files:
    """Return path, size, time of change and inode of the files of a folder or cached hub id.

    The set is empty if the model has none of these files.
    """
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
