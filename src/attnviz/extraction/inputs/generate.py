"""Generation of text by a model: after the prompt, or in the decoder of an encoder-decoder model.

The text is generated without capturing attention. Afterwards the model reads the text in one
forward, whose attention is captured. The captured weights equal the weights during the
generation, because the attention of a token does not depend on later tokens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from attnviz.extraction.capabilities import TooManyTokensError, num_positions
from attnviz.extraction.inputs.batch import Batch, moved_to_model
from attnviz.extraction.models import evaluate
from attnviz.utils.cleanup import Cleanup

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
    quiet : bool
        Whether to suppress warnings about settings. True if `generate` was only a number.
    """

    options: dict[str, Any]
    defaults: GenerationConfig
    quiet: bool

    def for_batch(self, batch: Batch) -> GenerationSettings:
        """Return the settings for a batch, which may have further arguments of the generate method.

        Settings that the argument `generate` names have priority. Raise ValueError if neither these
        settings, nor those of the batch, nor the model limit the number of tokens.
        """
        config = self.options.get("generation_config")
        added = {
            name: value
            for name, value in batch.generation.items()
            if getattr(config, name, None) is None
        }
        settings = replace(self, options=added | self.options)
        if settings.max_new_tokens is None and settings._setting("max_length") is None:
            raise ValueError(f"generate: the number of tokens is missing. {_HOW_TO_GIVE_IT}")
        return settings

    def with_options(self, **options: Any) -> GenerationSettings:
        """Return quiet settings with other options."""
        return replace(self, options=self.options | options, quiet=True)

    def _setting(self, name: str) -> Any:
        configs = (self.options.get("generation_config"), self.defaults)
        values = (self.options.get(name), *(getattr(config, name, None) for config in configs))
        return next((value for value in values if value is not None), None)

    @property
    def max_new_tokens(self) -> int | None:
        """Maximum number of new tokens, or None if only the total length is limited."""
        limit = self._setting("max_new_tokens")
        return None if limit is None else int(limit)

    @property
    def method(self) -> str:
        """Description of how tokens are chosen, such as "greedily"."""
        num_beams = self._setting("num_beams") or 1
        if num_beams > 1:
            return f"by a beam search with {num_beams} beams"
        if self._setting("do_sample"):
            return (
                "by sampling (probabilities are the model's own, before temperature and other "
                "settings)"
            )
        return "greedily"

    def num_initial(self, decoder_ids: torch.Tensor | None) -> int:
        """Return the number of tokens with which the decoder of an encoder-decoder model starts.

        `decoder_ids` are the ids of the caller, (1, tokens, ...), or None. If they do not start
        with the start id, transformers puts it before them. A few models, such as Donut, are an
        exception. For these, the result may be larger by 1.
        """
        if decoder_ids is None:
            return 1
        start = self._setting("decoder_start_token_id")
        start = self._setting("bos_token_id") if start is None else start
        adds_start = isinstance(start, int) and bool((decoder_ids[:, 0] != start).all())
        return decoder_ids.shape[1] + adds_start

    def max_tokens(self, before: int) -> int:
        """Return the maximum number of initial and new tokens, at least ``before + 1``.

        `before` is the number of initial tokens.
        """
        if self.max_new_tokens is not None:
            return before + self.max_new_tokens
        return max(before + 1, self._setting("max_length") or 0)


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
        options, model.generation_config, quiet=isinstance(generate, int | np.integer)
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
    model: PreTrainedModel,
    batch: Batch,
    settings: GenerationSettings,
    *,
    progress: bool,
    watch: Callable[[Cleanup], None] | None = None,
    on_token: Callable[[Generated], bool] | None = None,
) -> Generated:
    """Generate text for one example without padding, with the model in evaluation mode.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    batch : Batch
        Batch of one example.
    settings : GenerationSettings
        Settings of the generation (`GenerationSettings.for_batch` the batch).
    progress : bool
        Whether to show a progress bar if the generation takes longer than a second.
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
    arguments = {name: moved_to_model(model, value) for name, value in batch.arguments.items()}
    encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
    if not encoder_decoder:
        # Always pass a mask. Without a mask, transformers guesses which ids are padding.
        arguments.setdefault("attention_mask", torch.ones_like(arguments["input_ids"]))
    if encoder_decoder:
        before = settings.num_initial(arguments.get("decoder_input_ids"))
    else:
        before = arguments["input_ids"].shape[1]
    _check_positions(model, settings, before, encoder_decoder=encoder_decoder)
    options = dict(settings.options)
    criteria = StoppingCriteriaList(options.pop("stopping_criteria", None) or [])
    # Fast generations need no progress bar, so it appears after a second. If `progress` is False,
    # tqdm is not even called, because an interrupt inside of tqdm may leave its lock acquired.
    progress_bar = (
        tqdm(total=settings.max_new_tokens, desc="generate", unit="token", leave=False, delay=1.0)
        if progress
        else nullcontext()
    )
    with progress_bar as bar, Cleanup() as undo, undo:
        watcher = _Watcher(bar, None if encoder_decoder else before, on_token)
        evaluate(model, undo)
        if settings.quiet:
            # Lower the model's `min_length` if it exceeds the maximum length, because transformers
            # would warn of it.
            max_length = settings.max_tokens(before)
            if (getattr(model.generation_config, "min_length", None) or 0) > max_length:
                options["min_length"] = max_length
            _suppress_warnings(undo)
        if watch is not None:
            # `watch` may observe attention, which it could not do in compiled code.
            options |= {"disable_compile": True}
            watch(undo)
        criteria.append(watcher)
        result: Any = model.generate(**arguments, **options, stopping_criteria=criteria)
    sequences = getattr(result, "sequences", result)
    ids = watcher.ids
    if ids is not None and len(ids) > 1 and isinstance(sequences, torch.Tensor):
        # In beam search, `watcher.ids` has one row per beam. `sequences` has only the best text.
        ids = sequences
    if ids is None or ids.is_floating_point() or ids.shape[:1] != (1,) or watcher.prefix < 1:
        raise NotImplementedError(
            f"generate: {type(model).__name__} produces something other than one text of "
            "tokens. Generate the text yourself and pass it as target=."
        )
    return Generated(ids[0].cpu(), watcher.prefix)


class _Watcher(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Stopping criterion that stores the tokens of a generation and shows its progress in `bar`.

    `before` is the number of initial tokens, or None for an encoder-decoder model, which may add
    initial tokens. Then the number is read from the first call of `__call__`, which comes after the
    first generated token.
    """

    def __init__(
        self, bar: Any, before: int | None, on_token: Callable[[Generated], bool] | None
    ) -> None:
        self.ids: torch.Tensor | None = None
        self.prefix = 0
        self._bar = bar
        self._before = before
        self._on_token = on_token

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_options: Any) -> torch.Tensor:
        """Store all tokens so far, and return for each row of ids whether the generation ends.

        If there is one row, `on_token` is called with the text so far, and decides whether the
        generation ends. Otherwise, or if `on_token` is None, this criterion does not end the
        generation.
        """
        width = input_ids.shape[1]
        if self.ids is None or width <= self.ids.shape[1]:
            # The generation starts, or starts again: Whisper may reject its text and generate
            # another one.
            self.prefix = width - 1 if self._before is None else self._before
        self.ids = input_ids
        if self._bar is not None:
            self._bar.update(width - self.prefix - self._bar.n)
        stop = False
        if self._on_token is not None and input_ids.shape[0] == 1:
            stop = self._on_token(Generated(input_ids[0].cpu(), self.prefix))
        return torch.full((input_ids.shape[0],), stop, dtype=torch.bool, device=input_ids.device)


def _check_positions(
    model: PreTrainedModel, settings: GenerationSettings, before: int, *, encoder_decoder: bool
) -> None:
    bound = num_positions(model, decoder=encoder_decoder)
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
            f"generate: {num_new} tokens are too many. {type(model).__name__} has {bound} "
            f"positions, {before} of them used. {remedy}"
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
