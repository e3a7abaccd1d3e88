"""Generation of text by a model: after the prompt, or in the decoder of an encoder-decoder model.

The text is generated without capturing attention. Afterwards the model reads the text in one
forward, whose attention is captured. The captured weights equal the weights during the
generation, because the attention of a token does not depend on later tokens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from attnviz.extraction.hooks import evaluate, parameter_names
from attnviz.extraction.inputs.batch import Batch, check_can_append, moved_to_model
from attnviz.extraction.loaded import Loaded, TooManyTokensError
from attnviz.extraction.modules import modules_of
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import report

_HOW_TO_GIVE_IT = (
    "Pass a number of tokens, as in generate=40, or arguments of the model's generate method, "
    "as in generate={'max_new_tokens': 40, 'do_sample': True}."
)

# Settings for greedy generation. They override the model's configuration if the argument `generate`
# is only a number. The temperature is not among them, because Whisper samples if it gets one.
_GREEDY: dict[str, Any] = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of a generation.

    Attributes
    ----------
    options : dict
        Arguments of the model's generate method.
    defaults : GenerationConfig
        Generation configuration of the model. It applies to settings that `options` omit.
    parameters : collection of str
        Names of the parameters of the model's generate method.
    quiet : bool
        Whether to suppress warnings about settings. True if `generate` was only a number.
    """

    options: dict[str, Any]
    defaults: GenerationConfig
    parameters: Collection[str]
    quiet: bool

    def for_batch(self, batch: Batch) -> GenerationSettings:
        """Return the settings for a batch, which may have further arguments of the generate method.

        Settings that the argument `generate` names have priority. Raise ValueError if neither these
        settings, nor those of the batch, nor the model limit the number of tokens, or if
        several texts would be returned.
        """
        config = self.options.get("generation_config")
        added = {
            name: value
            for name, value in batch.generation.items()
            if getattr(config, name, None) is None
        }
        settings = replace(self, options=added | self.options)
        if settings.max_new_tokens is None and settings.setting("max_length") is None:
            raise ValueError(f"generate: the number of tokens is missing. {_HOW_TO_GIVE_IT}")
        count = settings.setting("num_return_sequences") or 1
        if count > 1:
            raise ValueError(
                f"generate: num_return_sequences={count} is not supported, because a record shows "
                "one text. Pass num_return_sequences=1, or generate the texts yourself and pass "
                "each as target=."
            )
        return settings

    def with_options(self, **options: Any) -> GenerationSettings:
        """Return quiet settings with other options."""
        return replace(self, options=self.options | options, quiet=True)

    def setting(self, name: str) -> Any:
        """Return the value of a setting, or None if it is not set."""
        configs = (self.options.get("generation_config"), self.defaults)
        values = (self.options.get(name), *(getattr(config, name, None) for config in configs))
        return next((value for value in values if value is not None), None)

    @property
    def max_new_tokens(self) -> int | None:
        """Maximum number of new tokens, or None if only the total length is limited."""
        limit = self.setting("max_new_tokens")
        return None if limit is None else int(limit)

    @property
    def method(self) -> str:
        """Description of how tokens are chosen, such as "greedily"."""
        num_beams = self.setting("num_beams") or 1
        method = f"by a beam search with {num_beams} beams" if num_beams > 1 else "greedily"
        sampling = (
            "sampling (probabilities are the model's own, before temperature and other settings)"
        )
        samples, falls_back = bool(self.setting("do_sample")), False
        if "temperature" in self.parameters:
            # Whisper has this parameter, and ignores `do_sample`. If it rejects its text, it
            # generates another one with the next temperature.
            temperatures = np.atleast_1d(self.options.get("temperature") or 0)
            samples, falls_back = bool(temperatures.all()), bool(temperatures.any())
        if samples:
            return f"{method} and {sampling}" if num_beams > 1 else f"by {sampling}"
        return (
            f"{method}, or by {sampling} if the model rejected that text" if falls_back else method
        )

    def max_tokens(self, before: int) -> int:
        """Return the maximum number of initial and new tokens, at least ``before + 1``.

        `before` is the number of initial tokens.
        """
        if self.max_new_tokens is not None:
            return before + self.max_new_tokens
        return max(before + 1, self.setting("max_length") or 0)


@dataclass
class Generated:
    """Text that a model generated for one example.

    Attributes
    ----------
    ids : Tensor
        Initial ids, followed by the generated ids: (tokens,), int64, on the CPU.
    prefix : int
        Number of initial ids: the ids of the prompt, or those with which the decoder starts.
    """

    ids: torch.Tensor
    prefix: int


def read_generation_settings(generate: Any, model: PreTrainedModel) -> GenerationSettings:
    """Convert the argument `generate` into settings.

    Raise TypeError if `generate` has an invalid type. Raise ValueError if `generate` is a number
    less than 1, or if the model cannot generate text.
    """
    options = _options(generate)
    if not model.can_generate():
        raise ValueError(
            f"generate: {type(model).__name__} cannot generate text: it has no language head, or "
            "its attention is bidirectional. Remove generate, or load the model with its head "
            "(AutoModelForCausalLM, AutoModelForSeq2SeqLM)."
        )
    return GenerationSettings(
        options,
        model.generation_config,
        parameter_names(model.generate),
        quiet=isinstance(generate, int | np.integer),
    )


def _options(value: Any) -> dict[str, Any]:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"generate must be at least 1 token; got {value}")
        return {"max_new_tokens": int(value)} | _GREEDY
    if isinstance(value, GenerationConfig):
        return {"generation_config": value}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return dict(value)
    raise TypeError(f"generate: {type(value).__name__} cannot be read. {_HOW_TO_GIVE_IT}")


def generate_text(
    loaded: Loaded,
    batch: Batch,
    settings: GenerationSettings,
    *,
    watch: Callable[[Cleanup], None] | None = None,
    on_token: Callable[[Generated], bool] | None = None,
) -> Generated:
    """Generate text for one example without padding, with the model in evaluation mode.

    Parameters
    ----------
    loaded : Loaded
        The model.
    batch : Batch
        Batch of one example.
    settings : GenerationSettings
        Settings of the generation (`GenerationSettings.for_batch` of the batch).
    watch : callable, optional
        Function that changes or observes the model. It is called before the generation with a
        `Cleanup`, to which it adds functions that are called after the generation.
    on_token : callable, optional
        Function that is called after each token with the text so far. The generation ends if the
        function returns True. The function may run the model. In beam search, it is never called.

    Raises
    ------
    ValueError
        If the maximum number of new tokens would need more positions than the model has
        (TooManyTokensError).
    NotImplementedError
        If the model generates something other than one text of tokens.
    """
    model: Any = loaded.model
    arguments, prompt = _model_inputs(loaded, batch)
    options = dict(settings.options)
    if settings.setting("stop_strings") or settings.setting("token_healing"):
        options.setdefault("tokenizer", loaded.find_target_tokenizer())
    if "force_unique_generate_call" in settings.parameters:
        # Whisper returns a text without its start and its end token, and continues it with the
        # texts of further windows of the sound. With this option, it returns all tokens of the
        # first window.
        options["force_unique_generate_call"] = True
    criteria = StoppingCriteriaList(options.pop("stopping_criteria", None) or [])
    processors = LogitsProcessorList(options.pop("logits_processor", None) or [])
    with Cleanup() as undo, undo:
        watcher = _Watcher(loaded, settings, prompt, on_token)
        evaluate(modules_of(model), undo)
        if settings.quiet:
            # Lower the model's `min_length` if it exceeds the maximum length, because transformers
            # would warn of it.
            max_length = settings.max_tokens(1 if prompt is None else prompt.shape[1])
            if (getattr(model.generation_config, "min_length", None) or 0) > max_length:
                options |= {"min_length": None, "min_new_tokens": settings.max_new_tokens}
            _suppress_warnings(undo)
        if watch is not None:
            # `watch` may observe attention, which it could not do in compiled code.
            options |= {"disable_compile": True}
            watch(undo)
        if settings.setting("return_token_timestamps"):
            # Whisper switches to eager attention, and does not switch back.
            name = "_attn_implementation"
            undo.add(partial(setattr, model.config, name, getattr(model.config, name)))
        criteria.append(watcher)
        processors.append(watcher.before_choice)
        try:
            result = model.generate(
                **arguments, **options, stopping_criteria=criteria, logits_processor=processors
            )
        except IndexError as error:
            threshold = settings.setting("no_speech_threshold")
            if threshold is None:
                raise
            # Whisper skips a sound that it takes for silence, and then has no text to return.
            raise ValueError(
                f"generate: no_speech_threshold={threshold} lets {type(model).__name__} take this "
                "sound for silence, so it generates no text. Pass a larger no_speech_threshold."
            ) from error
    sequences = result["sequences"] if isinstance(result, Mapping) else result
    is_text = isinstance(sequences, torch.Tensor) and sequences.dim() == 2 and len(sequences) == 1
    generated = watcher.generated(sequences[0]) if is_text else None
    if generated is None or generated.ids.is_floating_point():
        raise NotImplementedError(
            f"generate: {type(model).__name__} produces something other than one text of "
            "tokens. Generate the text yourself and pass it as target=."
        )
    return generated


def _model_inputs(loaded: Loaded, batch: Batch) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Return the inputs of a generation, and the ids of the prompt, (1, tokens), or None.

    An encoder-decoder model, or a model that gets only an image, has no prompt.
    """
    arguments = {
        name: moved_to_model(loaded.model, value) for name, value in batch.arguments.items()
    }
    if loaded.is_encoder_decoder:
        return arguments, None
    if "input_ids" not in arguments:
        if "inputs_embeds" in arguments:
            raise ValueError("generate: inputs_embeds have no ids to show. Pass input_ids.")
        return arguments, None
    check_can_append(arguments, "generate")
    # BLIP writes into the ids that it gets.
    arguments["input_ids"] = arguments["input_ids"].clone()
    # Always pass a mask. Without a mask, transformers guesses which ids are padding.
    arguments.setdefault("attention_mask", torch.ones_like(arguments["input_ids"]))
    return arguments, batch.arguments["input_ids"].cpu()


class _Watcher(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Stopping criterion that observes a generation and reports its progress.

    `prompt` are the ids of the prompt, (1, tokens), on the CPU. It is None if only the model knows
    the ids with which it starts. In an encoder-decoder model these are a start token, the tokens of
    a language or task, or ids of the caller.
    """

    def __init__(
        self,
        loaded: Loaded,
        settings: GenerationSettings,
        prompt: torch.Tensor | None,
        on_token: Callable[[Generated], bool] | None,
    ) -> None:
        self._loaded = loaded
        self._settings = settings
        self._on_token = on_token
        # Ids with which the model starts, (tokens,), on the CPU.
        self._start: torch.Tensor | None = None
        # Whether the model reads the prompt as embeddings, or None before the first step. Then
        # `generate` knows only the ids of the text after the prompt.
        self._embedded: bool | None = None
        if prompt is not None:
            self._begin(prompt[0])

    def _begin(self, start: torch.Tensor) -> None:
        self._start = start.cpu()
        _check_positions(self._loaded, self._settings, len(start))

    def before_choice(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Observe the ids with which the model starts. Return `scores`.

        `scores` are (rows, vocabulary). Raise NotImplementedError if they have another axis. The
        method is called as a logits processor, with the ids that the model has read. Whisper may
        reject its text and start again.
        """
        if scores.dim() != 2:
            raise NotImplementedError(
                f"generate: {type(self._loaded.model).__name__} chooses several tokens at once, so "
                "no single forward has the attention of the generation. Generate the text yourself "
                "and pass its ids as inputs."
            )
        ids, start = input_ids[0], self._start
        if self._embedded is None:
            self._embedded = not len(ids)
        if not self._embedded and (
            start is None or len(ids) <= len(start) or not _starts(ids, start)
        ):
            self._begin(ids)
        return scores

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_options: Any) -> torch.Tensor:
        """Return for each row of ids whether the generation ends.

        If there is one row, `on_token` is called with the text so far, and decides whether the
        generation ends. Otherwise, or if `on_token` is None, this criterion does not end the
        generation.
        """
        if self._start is not None:
            num_initial = 0 if self._embedded else len(self._start)
            longest = self._settings.max_tokens(len(self._start)) - len(self._start)
            # No job generates text, so no job pauses here while the model is changed.
            report("tokens", input_ids.shape[1] - num_initial, longest, "token")
        stop = False
        if self._on_token is not None and input_ids.shape[0] == 1:
            generated = self.generated(input_ids[0])
            stop = generated is not None and self._on_token(generated)
        return torch.full((input_ids.shape[0],), stop, dtype=torch.bool, device=input_ids.device)

    def generated(self, ids: torch.Tensor) -> Generated | None:
        """Return the text whose ids `generate` returned, (tokens,), or None if it is empty.

        The ids of the start are put before `ids` if the model left them out.
        """
        start, ids = self._start, ids.cpu()
        if start is None:
            return None
        if not _starts(ids, start):
            ids = torch.cat([start, ids])
        return Generated(ids, len(start)) if len(ids) > len(start) else None


def _starts(ids: torch.Tensor, start: torch.Tensor) -> bool:
    return torch.equal(ids[: len(start)].cpu(), start)


def _check_positions(loaded: Loaded, settings: GenerationSettings, before: int) -> None:
    encoder_decoder = loaded.is_encoder_decoder
    bound = loaded.num_positions["decoder" if encoder_decoder else "input"]
    if bound is None:
        return
    # In an encoder-decoder model, the decoder does not read the last token, so that token needs no
    # position.
    free = max(bound - before + encoder_decoder, 0)
    num_new = settings.max_tokens(before) - before
    if num_new > free:
        remedy = "Shorten the text."
        if free:
            is_total = settings.max_new_tokens is None
            remedy = f"Pass at most {f'max_length={before + free}' if is_total else free}."
        raise TooManyTokensError(
            f"generate: {num_new} tokens are too many. {type(loaded.model).__name__} has {bound} "
            f"positions, {before} of them used. {remedy}"
        )


def note_padding(loaded: Loaded, batch: Batch, settings: GenerationSettings) -> None:
    """Add notes to examples whose text may differ from that of `generate` for the whole batch.

    Each example is generated alone, without padding.
    """
    if "input" not in batch.sequences:
        return
    sequence = batch.sequences["input"]
    # Other models get positions that do not count padding.
    counted = "position_ids" not in loaded.accepted
    sampled = batch.size > 1 and "sampling" in settings.method
    batch.example_notes = batch.example_notes or [[] for _ in range(batch.size)]
    for notes, unpadded in zip(batch.example_notes, sequence.unpadded, strict=True):
        before = unpadded is not None and int(unpadded[0]) > 0
        after = unpadded is not None and int(unpadded[-1]) < sequence.length - 1
        if sampled or (before and counted) or (after and not loaded.is_encoder_decoder):
            notes.append(
                "The text was generated alone, without padding. From the whole batch, the model "
                "may generate another text."
            )


def keep_first_window(model: PreTrainedModel, batch: Batch) -> None:
    """Keep the part of a sound that Whisper read first, with a note if the sound is longer.

    Whisper produces the text of a sound window by window. A forward reads one window.
    """
    config: Any = model.config
    features = batch.arguments.get("input_features")
    # The encoder has one position for two frames. A frame has 10 ms.
    if config.model_type != "whisper" or features is None:
        return
    window = 2 * config.max_source_positions
    if features.shape[-1] > window:
        batch.arguments["input_features"] = features[..., :window]
        batch.arguments.pop("attention_mask", None)
        batch.notes.append(
            f"The record shows the first window of the sound ({window / 100:g} s), and the text "
            "that the model generates before it reads the next window."
        )


def _suppress_warnings(undo: Cleanup) -> None:
    """Suppress warnings and other log messages of transformers on generations, but not errors.

    Only messages of this thread are suppressed, until the ``with`` block of `undo` ends.
    """
    current_thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != current_thread or record.levelno >= logging.ERROR

    names = ("utils", "configuration_utils")
    loggers = [logging.getLogger(f"transformers.generation.{name}") for name in names]
    for logger in loggers:
        undo.add(partial(logger.removeFilter, passes))
        logger.addFilter(passes)
