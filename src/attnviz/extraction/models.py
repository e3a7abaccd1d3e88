"""Functions that load a model with its tokenizer and processor, and name it."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from attnviz.extraction.adapters import (
    base_of,
    check_adapter,
    virtual_tokens,
)
from attnviz.extraction.hooks import evaluate, first_call
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import modules_of
from attnviz.extraction.parallel import check_parallel
from attnviz.record.notes import Note
from attnviz.utils.arguments import short_repr
from attnviz.utils.cleanup import Cleanup


def load(model: Any, tokenizer: Any = None, processor: Any = None) -> Loaded:
    """Load a model, and the tokenizer and processor that the caller passed or `model` contains.

    `model` is a model, a hub id, a folder, a pipeline, an object that contains a model, a method of
    such an object, or the result of an earlier call, which is returned as it is. A `tokenizer` or
    `processor` is an object, a hub id or a folder. For an encoder-decoder model, `tokenizer` may be
    a tuple of the encoder's and the decoder's. The tokenizer and processor that are saved with the
    model are not loaded here, because they may not be needed (see
    `attnviz.extraction.preprocessors`).

    If a model of sentence-transformers was saved at the hub id or folder, that model is loaded,
    because its settings, such as a prompt, change what the model reads. If the library is not
    installed, or if the caller passed a tokenizer, the transformers model is loaded alone.

    Raise TypeError if `model` is none of these or contains several models, or if `tokenizer` is not
    a tokenizer of transformers or a tuple of two. The type of `processor` is not checked. Raise
    ValueError if `tokenizer` is a tuple, and `model` is not an encoder-decoder model. Raise OSError
    or ValueError if transformers cannot load a hub id or folder. Raise NotImplementedError if the
    model has an unsupported adapter, or if its heads, layers or tokens are split across processes.
    """
    if isinstance(model, Loaded):
        return model
    notes: list[str] = []
    method = model if inspect.ismethod(model) else None
    if method is not None:
        model = method.__self__
    target_tokenizer = None
    if isinstance(tokenizer, tuple):
        if len(tokenizer) != 2 or None in tokenizer:
            raise TypeError(
                "tokenizer: a tuple must be (source, target), the tokenizer of the encoder and the "
                f"tokenizer of the decoder; got {short_repr(tokenizer)}"
            )
        tokenizer, target_tokenizer = tokenizer
    if isinstance(model, str | PathLike):
        if isinstance(model, str) and " " in model and not Path(model).exists():
            raise TypeError(
                f"model={short_repr(model)} is a text. Pass a model first and the text second."
            )
        model = _load_saved(model, notes, alone=tokenizer is not None)
    wrapper, model = model, _unwrapped(model)
    if isinstance(model, transformers.Pipeline):
        model = _unwrapped(model.model)
    if not isinstance(base_of(model), PreTrainedModel):
        model = _model_inside(model, method)
    own_tokenizer, own_processor = (None, None) if model is wrapper else _readers_inside(wrapper)
    prepares = tokenizer in (None, own_tokenizer) and processor in (None, own_processor)
    tokenizer = own_tokenizer if tokenizer is None else tokenizer
    processor = own_processor if processor is None else processor
    check_parallel(model)
    _convert_weights(base_of(model))
    if isinstance(processor, str | PathLike):
        processor = _load_pretrained(transformers.AutoProcessor.from_pretrained, processor)
    tokenizer = _tokenizer(tokenizer)
    if tokenizer is None:
        tokenizer = _tokenizer(getattr(processor, "tokenizer", None))
    loaded = Loaded(
        model,
        tokenizer,
        processor,
        None if wrapper is model else wrapper,
        prepares,
        method,
        tuple(notes),
        _tokenizer(target_tokenizer),
    )
    if target_tokenizer is not None and not loaded.is_encoder_decoder:
        raise ValueError(
            f"tokenizer is a tuple of two tokenizers, but {type(base_of(model)).__name__} is not "
            "an encoder-decoder model. Pass one tokenizer."
        )
    return loaded


def is_pipeline(model: Any) -> bool:
    """Whether an object is a pipeline of diffusers, which is not imported here."""
    return any(
        owner.__name__ == "DiffusionPipeline" and owner.__module__.startswith("diffusers.")
        for owner in type(model).__mro__
    )


def _convert_weights(model: Any) -> None:
    """Convert quantised weights now, as the first forward would do it.

    compressed-tensors decompresses weights, and on some CPUs bitsandbytes changes the order of
    weights of 4 bits. Otherwise, the names and values of parameters would change while a model is
    read.
    """
    compressor = getattr(getattr(model, "hf_quantizer", None), "compressor", None)
    # The walk over all modules is left out for other models, because it would take a part of each
    # extraction.
    modules: list[Any] = modules_of(model) if "bitsandbytes" in sys.modules else []
    # An interrupt in the decorator `torch.no_grad` could leave gradients switched off.
    with Cleanup() as undo, undo:
        undo.add(partial(torch.set_grad_enabled, torch.is_grad_enabled()))
        torch.set_grad_enabled(False)
        if compressor is not None and hasattr(model, "ct_decompress_hook"):
            compressor.decompress_model(model)
        for module in modules:
            if getattr(module, "support_avx512bf16_for_cpu", False):
                state, device = module.weight.quant_state, module.weight.device
                if device.type == "cpu" and not getattr(state, "packing_format_for_cpu", False):
                    # `forward` does not call the user's hooks.
                    undo.add(partial(setattr, module, "training", module.training))
                    module.training = False
                    module.forward(torch.zeros(1, module.in_features, dtype=model.dtype))


def _tokenizer(tokenizer: Any) -> Any:
    """Return the tokenizer that the caller passed, or load it. Raise TypeError if it is none."""
    if isinstance(tokenizer, str | PathLike):
        tokenizer = _load_pretrained(transformers.AutoTokenizer.from_pretrained, tokenizer)
    # A processor has a tokenizer. A tokenizer may have one of another library, such as Mistral's.
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(
            "tokenizer must be a tokenizer of transformers (such as AutoTokenizer returns), a "
            "hub id or a folder, or for an encoder-decoder model a tuple (source, target) of two; "
            f"got {type(tokenizer).__name__}. Wrap a tokenizer of the tokenizers library with "
            "transformers.PreTrainedTokenizerFast(tokenizer_object=...)."
        )
    return tokenizer


def _unwrapped(model: Any) -> Any:
    """Return the model inside of a wrapper for compilation, distribution or an adapter.

    A wrapper that adds virtual tokens (learned vectors before the text) is returned as it is,
    because the model inside would run without these tokens. If `model` is not a wrapper, it is
    returned as it is, too. Raise NotImplementedError if an adapter is not supported.
    """
    while isinstance(model, nn.Module) and not isinstance(model, PreTrainedModel):
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        check_adapter(model)
        if virtual_tokens(model) is not None:
            return model
        # All other adapters put their layers into the base model, which computes the same without
        # the wrapper.
        adapted = getattr(model, "get_base_model", None)
        if inner is None and adapted is not None:
            inner = adapted()
        if inner is None or inner is model:
            return model
        model = inner
    # For a compiled model, `isinstance(model, PreTrainedModel)` may be True. Then the loop ends at
    # the wrapper.
    return getattr(model, "_orig_mod", model)


def _model_inside(wrapper: Any, method: Callable[..., Any] | None) -> PreTrainedModel:
    """Return the single transformers model inside of a wrapper object.

    Examples of wrappers are SentenceTransformer, CrossEncoder, Trainer, LightningModule and
    DeepSpeedEngine. If `wrapper` is a model of timm, put it into a `TimmWrapperModel` of
    transformers and return that. If the wrapper contains several models, such as one for queries
    and one for documents, return the one that `method` calls for a text. Raise TypeError if there
    is no such model.
    """
    if type(wrapper).__module__.partition(".")[0] == "timm" and isinstance(wrapper, nn.Module):
        return _wrapped_timm_model(wrapper)
    if is_pipeline(wrapper):
        raise TypeError(
            f"model: only extract and the show functions read {type(wrapper).__name__}, a pipeline "
            "of diffusers. Pass another model."
        )
    models = {id(inner): inner for inner in _models_inside(wrapper)}
    if len(models) > 1 and method is not None:
        with Cleanup() as undo, undo:
            evaluate(modules_of(wrapper), undo)
            call = first_call(models.values(), lambda: method(["text"]))
        models = {} if call is None else {id(call[0]): call[0]}
    if len(models) == 1:
        (model,) = models.values()
        return model
    contents = ""
    if models:
        contents = (
            f", which contains {len(models)} models. Pass one of them, or a method that calls one"
        )
    raise TypeError(
        "model must be a transformers model (PreTrainedModel), a hub id, a folder, a "
        "pipeline, a model of timm, or an object with one transformers model inside; got "
        f"{type(wrapper).__name__}{contents}. For other attention use "
        "AttentionRecord.from_weights(attentions, tokens) or from_qk(queries, keys, tokens)."
    )


def _models_inside(wrapper: Any) -> Iterator[PreTrainedModel]:
    """Yield the transformers models in a module, or in the attributes of another object.

    Models inside of another transformers model are not yielded. A model that occurs several times
    may be yielded several times.
    """
    modules = isinstance(wrapper, nn.Module)
    parts = wrapper.children() if modules else getattr(wrapper, "__dict__", {}).values()
    for part in parts:
        inner = _unwrapped(part)
        if isinstance(base_of(inner), PreTrainedModel):
            yield inner
        elif isinstance(inner, nn.Module):
            yield from _models_inside(inner)


def _readers_inside(wrapper: Any) -> tuple[Any, Any]:
    """Return the tokenizer and the processor in the attributes of an object. Both may be None."""
    tokenizer_names = ("tokenizer", "processing_class")
    processor_names = ("processor", "image_processor", "feature_extractor", "processing_class")
    tokenizers = [getattr(wrapper, name, None) for name in tokenizer_names]
    processors = [getattr(wrapper, name, None) for name in processor_names]
    return (
        next((one for one in tokenizers if isinstance(one, PreTrainedTokenizerBase)), None),
        next((one for one in processors if _is_processor(one)), None),
    )


def _is_processor(reader: Any) -> bool:
    # Both kinds of image processors, and feature extractors, have a method `to_dict`.
    own = callable(reader) and hasattr(reader, "to_dict")
    return own and not isinstance(reader, PreTrainedTokenizerBase)


def _wrapped_timm_model(model: nn.Module) -> PreTrainedModel:
    """Put a timm model into transformers' wrapper. The wrapper uses the model's own parameters."""
    architecture = getattr(model, "pretrained_cfg", {}).get("architecture")
    if architecture is None:
        raise TypeError(
            f"model: {type(model).__name__} of timm does not contain its architecture. Create "
            "it with timm.create_model, or load it with transformers.AutoModel."
        )
    # The wrapper creates another model, which `model` replaces below. On the meta device, the
    # created model takes no memory.
    with torch.device("meta"):
        wrapper = transformers.TimmWrapperModel(
            transformers.TimmWrapperConfig(architecture=architecture)
        )
    wrapper.timm_model = model
    return wrapper.train(model.training)


def _expanded(source: str | PathLike[str]) -> str:
    # pathlib would change a hub id on Windows.
    return os.fspath(os.path.expanduser(source))  # noqa: PTH111


def _load_pretrained(reader: Callable[..., Any], source: str | PathLike[str]) -> Any:
    """Call `reader` (a method ``from_pretrained``) with a hub id or a folder.

    Code from the hub is not run, and the user is not asked whether to run it. If `reader` raises
    OSError, the name of the source is added to its message.
    """
    path = _expanded(source)
    try:
        return reader(path, trust_remote_code=False)
    except OSError as error:
        raise OSError(f"{path!r} cannot be loaded: {error}") from error


def _load_saved(source: str | PathLike[str], notes: list[str], *, alone: bool) -> Any:
    """Load a model from a hub id or folder.

    If `alone` is False, a model of sentence-transformers is loaded with its settings. Otherwise, or
    if the library is missing, only the transformers model is loaded, and a note is added to
    `notes`.
    """
    kind = _sentence_class(source)
    if kind is not None:
        reason = "tokenizer= was passed"
        if not alone:
            try:
                library = importlib.import_module("sentence_transformers")
            except ImportError:
                reason = "the library cannot be imported"
            else:
                # Like a model of transformers, it is loaded to the CPU.
                return getattr(library, kind)(_expanded(source), device="cpu")
        note = (
            f"The model was saved as a {kind} of sentence-transformers. Its settings, such as "
            f"the maximum length of texts and prompts, were not applied, because {reason}."
        )
        notes.append(Note(note, "part of a text"))
    # A folder of an adapter has no model. transformers reads the model that the adapter names.
    adapter = _saved_json(source, "adapter_config.json")
    base = (adapter or {}).get("base_model_name_or_path") or source
    if "num_virtual_tokens" in (adapter or {}):
        raise ValueError(
            f"model={short_repr(os.fspath(source))} is an adapter with virtual tokens, which "
            "transformers cannot load. Load it with peft.AutoPeftModelForCausalLM.from_pretrained "
            "or a similar class, and pass the model."
        )
    config = _load_pretrained(transformers.AutoConfig.from_pretrained, base)
    architectures = getattr(config, "architectures", None) or []
    auto_class = next(
        (getattr(transformers, name) for name in architectures if hasattr(transformers, name)),
        transformers.AutoModel,
    )
    return _load_pretrained(auto_class.from_pretrained, source)


def _sentence_class(source: str | PathLike[str]) -> str | None:
    """Return the class of sentence-transformers that was saved at a hub id or folder, or None."""
    if _saved_json(source, "modules.json") is not None:
        settings = _saved_json(source, "config_sentence_transformers.json") or {}
        return str(settings.get("model_type") or "SentenceTransformer")
    # Earlier versions of CrossEncoder save only the transformers model and an entry in its
    # configuration.
    config = _saved_json(source, "config.json") or {}
    return "CrossEncoder" if "sentence_transformers" in config else None


def _saved_json(source: str | PathLike[str], name: str) -> Any:
    """Return the content of a JSON file at a hub id or folder, or None if it cannot be read."""
    try:
        path = cached_file(
            _expanded(source),
            name,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# Words of folder names that do not identify a model. A name of many models has only these words and
# numbers, such as "checkpoint-500" and "model_weights".
_WORD_OF_MANY = (
    "(final|best|last|trained|saved|my|model|checkpoint|ckpt|output|weight|epoch|step)s?"
)
_NAME_OF_MANY = re.compile(rf"({_WORD_OF_MANY}|\d+)([-_. ]?({_WORD_OF_MANY}|\d+))*")


def name_of(model: PreTrainedModel) -> str:
    """Return the display name of a model: the last part of its hub id or folder.

    If this part is generic, such as ``checkpoint-500`` or ``model``, the result starts with the
    name of the parent folder. A relative folder, such as ``.``, is resolved if it exists. For a
    folder in the cache of downloads, return the last part of the hub id. If the model has no hub id
    and no folder, return the name of its class.
    """
    source = str(getattr(model, "name_or_path", "") or "")
    if source and not Path(source).is_absolute() and Path(source).is_dir():
        source = str(Path(source).resolve())
    parts = source.replace("\\", "/").rstrip("/").split("/")
    if len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return parts[-3].rpartition("--")[2]
    if len(parts) > 1 and parts[-2] and _NAME_OF_MANY.fullmatch(parts[-1].lower()):
        return "/".join(parts[-2:])
    return parts[-1] or type(model).__name__
