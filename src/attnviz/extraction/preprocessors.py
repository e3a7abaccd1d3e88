"""Functions that find, cache and call the tokenizers and processors of models."""

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

# Minimum number of seconds between two queries of the hub for a missing tokenizer or processor.
_HUB_PAUSE = 10.0

# Path, size, modification time in nanoseconds and inode of each file in a folder.
_Files = frozenset[tuple[str, int, int, int]]


@dataclass
class _Reading:
    """Result of reading a tokenizer or processor.

    Attributes
    ----------
    source : str
        Folder or hub id.
    files : frozenset
        Files of the folder when it was read.
    reader : object or None
        The tokenizer or processor, or None if none could be read.
    failed_at : float or None
        Time of the last failed query of the hub, in seconds (``time.monotonic()``).
    """

    source: str
    files: _Files
    reader: Any
    failed_at: float | None = None


# Cached tokenizers and processors of each model object. Two models from the same folder have
# separate entries.
_readings: WeakKeyDictionary[PreTrainedModel, dict[str, _Reading]] = WeakKeyDictionary()
_reading_lock = fork_safe_lock()
_calling_lock = fork_safe_lock()


def find_tokenizer(loaded: Loaded, *, from_hub: bool) -> Any:
    """Return the tokenizer that the caller passed, or else the one saved with the model's weights.

    A saved tokenizer is read once per model, and again after its files have changed. `from_hub` is
    whether to query the hub for a tokenizer that is not on this machine. Without a network, the
    query takes time. Return None if no tokenizer is found.
    """
    if loaded.tokenizer is not None:
        return loaded.tokenizer
    return _saved_with(loaded.model, "tokenizer", from_hub=from_hub)


def find_processor(
    loaded: Loaded, of: Literal["of both", "of images", "of sounds"] = "of images"
) -> Any:
    """Return the processor that the caller passed, or else the one saved with the model's weights.

    `of` is the kind of processor to look for: for images, for sounds, or for images or sounds with
    texts ("of both"). A saved processor is read once per model, and again after its files have
    changed. Return None if no processor is found.
    """
    if loaded.processor is not None:
        return loaded.processor
    return _saved_with(loaded.model, of, from_hub=True)


def call_reader(reader: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a tokenizer, a processor or a chat template in only one thread at a time.

    A tokenizer stores the settings for truncation and padding during a call. A call in another
    thread would change these settings.
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
        # If the files were deleted, keep the cached object: the folder may have been temporary.
        if reading is None or reading.source != source or (files and files != reading.files):
            # Look on this machine first, which needs no network.
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
    """Load a tokenizer or processor. Return None if it does not exist or cannot be loaded."""
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
    # If the folder has no tokenizer, transformers 5 returns a tokenizer with special tokens only.
    if kind == "tokenizer" and result.vocab_size <= len(result.all_special_ids):
        return None
    return result


def _files_of(source: str) -> _Files:
    """Return path, size, modification time and inode of the files of a folder or cached hub id.

    The set is empty if `source` has no files on this machine.
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
