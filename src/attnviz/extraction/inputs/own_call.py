"""The calls of a model that the user's own object makes, such as a pipeline or SentenceTransformer.

Such an object prepares an input by its own settings: truncation, prompts, templates, windows. These
settings are not read here. Instead, the object's own entry point runs (``pipe(inputs)``,
``encode([text])``), and is stopped where it would run the model. The arguments that the model would
get are the input of the record.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn

from attnviz.extraction.capture.forward import run_uncompiled
from attnviz.extraction.hooks import (
    ReachedError,
    evaluate,
    named_arguments,
    parameter_names,
    replace_method,
)
from attnviz.extraction.inputs.media import is_sound
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import modules_of
from attnviz.extraction.preprocessors import calling_lock
from attnviz.record.notes import Note
from attnviz.utils.arguments import short_repr
from attnviz.utils.cleanup import Cleanup

# Arguments of a model that set what it returns, and not what it reads.
_OF_OUTPUT = {
    "labels",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "return_loss",
    "use_cache",
}
# Methods with which objects of sentence-transformers read inputs, by class.
_SENTENCE_METHODS = {
    "CrossEncoder": "predict",
    "MultiVectorEncoder": "encode",
    "SentenceTransformer": "encode",
    "SparseEncoder": "encode",
}
# Packages with classes around a model, and with their base classes.
_LIBRARIES = ("abc", "builtins", "sentence_transformers", "torch", "transformers", "typing")
# Methods of these classes that call the model.
_CALLING = {
    *("__call__", "_forward", "encode", "forward", "postprocess", "predict", "preprocess"),
    *("run_single", "tokenize"),
}
# Names of the first argument of the methods that read an input.
_INPUT_NAMES = ("inputs", "sentences", "image", "images", "audio")
# Pipelines whose code calls the model several times for one part of an input.
_REPEATING = {"TableQuestionAnsweringPipeline"}
# Attributes of objects that contain a model, with settings of how they prepare an input.
_SETTINGS = ("max_length", "max_seq_length", "default_prompt_name", "truncation", "prefix")


@dataclass
class OwnCall:
    """A call of a model, observed before the model ran.

    Attributes
    ----------
    arguments : dict
        Inputs of the model by name: tensors, and other arguments that change what it computes.
    generation : dict or None
        Further keyword arguments of the model's ``generate``. None if ``forward`` was called.
    image_options : dict
        Keyword arguments with which the image processor was called before.
    module : Module or None
        The inner model that was called instead of the model, such as a text encoder.
    """

    arguments: dict[str, Any]
    generation: dict[str, Any] | None = None
    image_options: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None


def own_call(loaded: Loaded, example: Any, part: int | None) -> tuple[OwnCall | None, list[str]]:
    """Return the call of the model that the user's own object makes for an example, and notes.

    `example` is None if it is already encoded. `part` is the number of the call, if there are
    several, or None for the first. The result is None if the user passed a model, or if the object
    does not reach the model. The notes then name settings that were not applied. Otherwise, there
    is a note if the call has only a part of the input.

    Raise ValueError if the number `part` is larger than that of the last call.
    """
    name = type(loaded.wrapper).__name__
    run = None if example is None else _entry_point(loaded, example)
    if run is None:
        if part is not None:
            raise ValueError(
                f"part={part} selects a call of an object around a model, such as a pipeline, and "
                "such an object does not prepare this input. Remove part=."
            )
        return None, [] if example is None else notes_on_settings(loaded, "")
    calls, error = observe(loaded, run)
    if not calls:
        problem = "it did not call the model"
        if error is not None:
            problem = f"it raised {type(error).__name__}: {str(error).strip() or 'no message'}"
        return None, notes_on_settings(loaded, problem)
    inner = calls[0].module
    if inner is not None:
        paths = (path for path, module in loaded.model.named_modules() if module is inner)
        raise ValueError(
            f"inputs: {name} does not call {type(loaded.model).__name__} for this input, but its "
            f"part {next(paths)} ({type(inner).__name__}). Pass this part as the model, and the "
            "output of the tokenizer or processor as inputs."
        )
    count, number = len(calls), part or 0
    if number >= count:
        raise ValueError(
            f"part={part}: {name} calls the model {count:,} times for this input. Pass a number "
            f"from 0 to {count - 1}."
        )
    notes: list[str] = []
    if count > 1:
        others = f"part=0 to part={count - 1}" if count > 2 else f"part={1 - number}"
        seconds = " Seconds are counted from the start of this part." if is_sound(example) else ""
        note = (
            f"{name} calls the model {count:,} times for this input. The record shows call "
            f"{number + 1:,} (part={number}). Pass {others} for other calls.{seconds}"
        )
        notes.append(Note(note, "part of a text"))
    return calls[number], notes


def notes_on_settings(loaded: Loaded, reason: str) -> list[str]:
    """Return a note on the settings of the user's own object, which were not applied.

    `reason` says why the object did not prepare an input. It is empty if the class of the object is
    not known. Then there is a note only if the object has settings.
    """
    wrapper, name = loaded.wrapper, type(loaded.wrapper).__name__
    if isinstance(wrapper, transformers.Pipeline):
        values = {**wrapper._preprocess_params, **wrapper._forward_params}
        values.pop("generation_config", None)
    else:
        values = {setting: getattr(wrapper, setting, None) for setting in _SETTINGS}
    if not reason and loaded.prepares and has_own_calls(wrapper) and loaded.tokenizer is not None:
        return [
            f"{name} was not run: the record shows the text as its tokenizer encodes it. Pass a "
            "method to record the input of this method, as in extract(model.encode, text)."
        ]
    settings = ", ".join(
        f"{setting}={value!r}"
        for setting, value in values.items()
        if value is not None and not callable(value)
    )
    if reason:
        without = f", without {settings}" if settings else ""
        note = (
            f"{name} did not prepare this input, because {reason.rstrip('.')}. The record shows "
            f"the input as the tokenizer or processor encodes it{without}."
        )
    elif settings:
        note = f"Settings of {name} were not applied: {settings}."
    else:
        return []
    return [Note(note, "part of a text")]


def _entry_point(loaded: Loaded, example: Any) -> Callable[[], Any] | None:
    """Return the function with which the user's own object reads an example, or None.

    The result is None if the user passed a model and not an object around it, if the user passed
    another tokenizer or processor than that of the object, or if the class is not known.
    """
    wrapper, method = loaded.wrapper, loaded.method
    if not loaded.prepares:
        return None
    if isinstance(wrapper, transformers.Pipeline):
        return partial(_run_pipeline, wrapper, example)
    # If the library is not imported, `wrapper` is not one of its objects.
    library = sys.modules.get("sentence_transformers")
    for name, default in _SENTENCE_METHODS.items():
        if isinstance(wrapper, getattr(library, name, ())):
            return _on_list(wrapper, method or getattr(wrapper, default), example)
    return None if method is None else partial(method, example)


def _on_list(wrapper: Any, method: Callable[..., Any], example: Any) -> Callable[[], Any]:
    """Return a function that calls a method of sentence-transformers with a list of one example."""
    value, options = _by_name(method, example)
    if value is not example and not wrapper.is_singular_input(value):
        raise ValueError(
            f"inputs: {short_repr(value)} are several inputs of {method.__name__}, and each "
            "becomes one record. Pass a list with one mapping for each of them."
        )
    # Methods for queries and documents have their own prompts.
    own = getattr(wrapper, f"encode_{options.get('task')}", None)
    if own is not None:
        method = own
        del options["task"]
    if "show_progress_bar" in parameter_names(method):
        options.setdefault("show_progress_bar", False)
    return partial(method, [value], **options)


def _by_name(method: Callable[..., Any], example: Any) -> tuple[Any, dict[str, Any]]:
    """Return the input in an example of `attnviz.extract`, and further arguments of a method.

    The keys of a mapping may be names of arguments. The first is the input.
    """
    if not isinstance(example, Mapping):
        return example, {}
    options = dict(example)
    names = (*parameter_names(method)[:1], *_INPUT_NAMES)
    name = next((key for key in names if key in options), None)
    return (example, {}) if name is None else (options.pop(name), options)


def _run_pipeline(pipe: transformers.Pipeline, example: Any) -> Any:
    """Call a pipeline with an example of `attnviz.extract`.

    The two parts of a tuple are passed as the task of the pipeline requires.
    """
    call: Any = pipe
    if not isinstance(example, tuple):
        value, options = _by_name(pipe.__call__, example)
        return call(value, **options)
    # The first of two parts is a text, image or sound, and the second is a text.
    are_alike = isinstance(example[0], str) == isinstance(example[1], str)
    swapped = isinstance(example[0], str) and not are_alike
    media, text = example[::-1] if swapped else example
    if pipe.task.startswith("zero-shot"):
        result = call(media, candidate_labels=[text], hypothesis_template="{}")
    elif are_alike:
        is_text = isinstance(media, str)
        result = call({"text": media, "text_pair": text} if is_text else [media, text])
    elif pipe.task == "document-question-answering":
        result = call(image=media, question=text)
    else:
        result = call(**{"audio" if is_sound(media) else "images": media, "text": text})
    return result


def observe(loaded: Loaded, run: Callable[[], Any]) -> tuple[list[OwnCall], Exception | None]:
    """Call `run`, and return the calls of the model that it made, and the error that it raised.

    The model does not run: `run` is ended at the model's ``forward`` or ``generate``, and a
    pipeline continues with the next part of its input. If a user's own class decides how the model
    is called, `run` runs to its end instead, because it may call the model several times. Other
    threads may use the model at the same time.
    """
    observer = _Observer(loaded)
    with calling_lock, Cleanup() as undo, undo:
        observer.watch(undo)
        try:
            run()
        except ReachedError:
            pass
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the caller decides
            return observer.calls, error
    return observer.calls, None


class _Observer:
    """Observer of the calls that the user's own object makes of its model.

    Methods that replace others get the replaced method as their first argument.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.calls: list[OwnCall] = []
        self._loaded = loaded
        self._stops = not has_own_calls(loaded.wrapper)
        self._running = False
        self._image_options: dict[str, Any] = {}

    def watch(self, undo: Cleanup) -> None:
        """Observe the object and its model until the ``with`` block of `undo` ends."""
        model, wrapper, processor = self._loaded.model, self._loaded.wrapper, self._loaded.processor
        for module in modules_of(model):
            if module is model or isinstance(module, transformers.PreTrainedModel):
                replace_method(module, "forward", partial(self._forward, module), undo)
        if hasattr(model, "generate"):
            replace_method(model, "generate", self._generate, undo)
        image_processor = getattr(processor, "image_processor", processor)
        if hasattr(image_processor, "preprocess"):
            replace_method(image_processor, "preprocess", self._preprocess, undo)
        around = (wrapper, getattr(wrapper, "model", None), model)
        inside = next(module for module in around if isinstance(module, nn.Module))
        modules = modules_of(inside)
        # Compiled code does not call replaced methods.
        run_uncompiled(modules, undo)
        # Objects of sentence-transformers set the mode of each module, and do not restore it.
        evaluate(modules, undo)
        replace_method(inside, "eval", lambda _: inside, undo)
        if not self._stops:
            undo.add(partial(torch.set_rng_state, torch.get_rng_state()))
        if isinstance(wrapper, transformers.Pipeline):
            self._watch_pipeline(wrapper, undo)

    def _watch_pipeline(self, pipe: Any, undo: Cleanup) -> None:
        """Let a pipeline prepare all parts of its input, and end it before it uses results."""
        if self._stops:
            replace_method(pipe, "forward", self._part, undo)
            replace_method(pipe, "postprocess", self._end, undo)
        # Prepare all parts in this thread, one by one.
        for name, value in (("_num_workers", 0), ("_batch_size", 1)):
            undo.add(partial(setattr, pipe, name, getattr(pipe, name, None)))
            setattr(pipe, name, value)
        # The call changes this attribute and, if there are parts, this variable.
        undo.add(partial(setattr, pipe, "call_count", pipe.call_count))
        if "TOKENIZERS_PARALLELISM" not in os.environ:
            undo.add(partial(os.environ.pop, "TOKENIZERS_PARALLELISM", None))

    def _forward(
        self, module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        arguments = _inputs(named_arguments(forward, args, kwargs))
        inner = None if module is self._loaded.model else module
        call = OwnCall(arguments, None, self._image_options, inner)
        return self._reached(call, forward, args, kwargs)

    def _generate(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bound = named_arguments(generate, args, kwargs)
        main = bound.pop("inputs", None)
        if main is not None:
            bound[self._loaded.main_names[0]] = main
        arguments = {name: value for name, value in bound.items() if _is_input(name, value)}
        options = {name: value for name, value in bound.items() if name not in arguments}
        call = OwnCall(_inputs(arguments), options, self._image_options)
        return self._reached(call, generate, args, kwargs)

    def _reached(
        self, call: OwnCall, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        if self._running:
            # This is a step of a generation, or a part of the model.
            return method(*args, **kwargs)
        self.calls.append(call)
        if self._stops:
            raise ReachedError
        self._running = True
        try:
            return method(*args, **kwargs)
        finally:
            self._running = False

    def _preprocess(self, preprocess: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._image_options.update(options)
        return preprocess(*args, **options)

    @staticmethod
    def _part(forward: Callable[..., Any], inputs: Any, **params: Any) -> dict[str, Any]:
        part = {"is_last": inputs["is_last"]} if "is_last" in inputs else {}
        try:
            forward(inputs, **params)
        except ReachedError:
            return part
        raise ReachedError

    @staticmethod
    def _end(_postprocess: Callable[..., Any], *_args: Any, **_params: Any) -> None:
        raise ReachedError


def has_own_calls(wrapper: Any) -> bool:
    """Whether a class of the user, and not of a library, has code that calls the model."""
    return type(wrapper).__name__ in _REPEATING or any(
        vars(owner).keys() & _CALLING
        for owner in type(wrapper).__mro__
        if owner.__module__.partition(".")[0] not in _LIBRARIES
    )


def _is_input(name: str, value: Any) -> bool:
    """Whether an argument of ``generate`` is an input of the model, and not a setting."""
    return isinstance(value, torch.Tensor) and not name.startswith(("prompt_ids", "assistant"))


def _inputs(arguments: Mapping[str, Any]) -> dict[str, Any]:
    # Copy tensors, because the caller may change them later. The copies are normal tensors, because
    # those of inference mode cannot be used for gradients.
    with torch.inference_mode(mode=False):
        return {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
            if value is not None and name not in _OF_OUTPUT
        }
