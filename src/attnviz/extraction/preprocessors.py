"""Functions that find, cache and call the tokenizers and processors of models.

A processor converts images or sounds, with or without texts, into arguments of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from weakref import WeakKeyDictionary

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from attnviz.extraction.loaded import Loaded
from attnviz.utils.arguments import check_encodable
from attnviz.utils.cleanup import fork_safe_lock

# Cached tokenizers and processors of each model. The key is the kind and the hub id or folder. The
# value is None if no tokenizer or processor was found.
_readers: WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], Any]] = WeakKeyDictionary()
_reading_lock = fork_safe_lock()
#: Lock that is held while a tokenizer or processor is called (see `call_reader`).
calling_lock = fork_safe_lock()


def find_tokenizer(loaded: Loaded, *, required: bool) -> Any:
    """Return the tokenizer that the caller passed, or else the one saved with the model's weights.

    A saved tokenizer is read once per model object. Return None if no tokenizer is found. If
    `required` is True, query the hub for a tokenizer that is not on this machine, which takes time
    without a network, and raise ValueError instead of returning None.
    """
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        tokenizer = _saved_with(loaded.model, "tokenizer", from_hub=required)
    if tokenizer is None and required:
        source = getattr(loaded.model, "name_or_path", "")
        reason = f"none was found in {source!r}" if source else "the model has no name_or_path"
        raise ValueError(
            f"tokenizer: inputs contain text, and no tokenizer was found ({reason}). Pass "
            "tokenizer=, or pass ids as inputs."
        )
    return tokenizer


def find_target_tokenizer(loaded: Loaded, *, required: bool = False) -> Any:
    """Return the tokenizer of the text that the model produces, or None if there is none.

    It is the tokenizer of the decoder if the caller passed two tokenizers. It is None if the model
    consists of two models with different vocabularies, and the caller passed one tokenizer. In this
    case, raise ValueError if `required` is True.
    """
    if loaded.target_tokenizer is not None:
        return loaded.target_tokenizer
    tokenizer = find_tokenizer(loaded, required=required)
    sizes = [
        getattr(getattr(loaded.model.config, part, None), "vocab_size", None)
        for part in ("encoder", "decoder")
    ]
    if tokenizer is None or not all(sizes) or sizes[0] == sizes[1]:
        return tokenizer
    if required:
        raise ValueError(
            f"target: the decoder of {type(loaded.model).__name__} has another vocabulary than its "
            f"encoder ({sizes[1]:,} and {sizes[0]:,} tokens). Pass both tokenizers as "
            "tokenizer=(source, target)."
        )
    return None


def find_processor(
    loaded: Loaded, of: Literal["of both", "of images", "of sounds"] = "of images"
) -> Any:
    """Return the processor that the caller passed, or else the one saved with the model's weights.

    `of` selects the kind of saved processor: ``"of images"``, ``"of sounds"``, or ``"of both"`` for
    texts with images or sounds. A saved processor is read once per model object. If it is not on
    this machine, the hub is queried. Return None if no processor is found.
    """
    if loaded.processor is not None:
        return loaded.processor
    return _saved_with(loaded.model, of, from_hub=True)


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


def _saved_with(model: PreTrainedModel, kind: str, *, from_hub: bool) -> Any:
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
