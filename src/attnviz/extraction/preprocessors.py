"""Functions that read saved tokenizers and processors of models, and call them.

A processor converts images or sounds, with or without texts, into arguments of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from attnviz.utils.arguments import check_encodable
from attnviz.utils.cleanup import fork_safe_lock

# Cached tokenizers and processors of each model. The key is the kind and the hub id or folder. The
# value is None if no tokenizer or processor was found.
_readers: WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], Any]] = WeakKeyDictionary()
_reading_lock = fork_safe_lock()
#: Lock that is held while a tokenizer or processor is called (see `call_reader`).
calling_lock = fork_safe_lock()


def takes_chats(reader: Any) -> bool:
    """Whether a tokenizer or processor reads chats: by a chat template, or by other code.

    Tokenizers of mistral-common have no template, nor have processors that contain one of them.
    """
    if getattr(reader, "chat_template", None):
        return True
    is_tokenizer = isinstance(reader, PreTrainedTokenizerBase)
    tokenizer = reader if is_tokenizer else getattr(reader, "tokenizer", None)
    own = getattr(type(tokenizer), "apply_chat_template", None)
    return own not in (None, PreTrainedTokenizerBase.apply_chat_template)


def call_reader(reader: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a tokenizer, a processor or a chat template.

    While one thread is in such a call, other threads wait. The reason is that a tokenizer stores
    the settings for truncation and padding during a call. A call in another thread at the same time
    would change these settings.

    Raise ValueError if the call fails and a text in `inputs` or `options` has a lone surrogate,
    which most tokenizers cannot read.
    """
    with calling_lock:
        try:
            return reader(*inputs, **options)
        except Exception:
            for text in _texts_in((inputs, options)):
                check_encodable("text", text)
            raise


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the strings in `value`, and in mappings, lists and tuples inside of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(item)


def saved_with(model: PreTrainedModel, kind: str, *, from_hub: bool) -> Any:
    """Return the tokenizer or processor that is saved with a model, or None if there is none.

    `kind` is ``"tokenizer"``, or a kind of processors (see `Loaded.find_processor`). It is read
    once per model. If it is not on this machine, and `from_hub` is True, the hub is queried.
    """
    source = str(getattr(model, "name_or_path", "") or "")
    if not source:
        return None
    with _reading_lock:
        readers, key = _readers.setdefault(model, {}), (kind, source)
        if key not in readers:
            # Look on this machine first, which needs no network.
            readers[key] = _from_pretrained(kind, source, local_files_only=True)
        if readers[key] is None and from_hub:
            readers[key] = _from_pretrained(kind, source)
        return readers[key]


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
    # If no tokenizer is saved, transformers 5 returns one that has only special tokens.
    if kind == "tokenizer" and result.vocab_size <= len(result.all_special_ids):
        return None
    return result
