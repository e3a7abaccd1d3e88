"""The text that a model produces by itself, behind a prompt or in its decoder.

It is generated as usual, and then read in one forward, whose rows equal those of the steps: a step
sees no more than the tokens before it. Nothing of the steps has to be kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from attnviz.extraction.adapters import base_of
from attnviz.extraction.capabilities import num_positions
from attnviz.extraction.inputs.batch import Batch, moved_to_model
from attnviz.extraction.models import evaluate, hook
from attnviz.utils.cleanup import Cleanup

__all__ = [
    "Generated",
    "GenerationSettings",
    "generate_text",
    "read_generation_settings",
]

_HOW_TO_GIVE_IT = (
    "give a number of tokens, as in generate=40, or arguments of the model's own generate method, "
    "as in generate={'max_new_tokens': 40, 'do_sample': True}"
)

# What would change how the method is called or what it gives back.
_RESERVED = {
    "inputs",
    "input_ids",
    "attention_mask",
    "inputs_embeds",
    "decoder_input_ids",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "return_dict_in_generate",
}

# A number alone asks for no sampling and no beams, whatever the model's own configuration says.
# Temperature and its like are left there: Whisper would sample if it were given one.
_GREEDY: dict[str, Any] = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}


@dataclass(frozen=True)
class GenerationSettings:
    """How a model is to generate.

    Attributes
    ----------
    options : dict
        Arguments of the model's own generate method.
    max_new_tokens : int or None
        The most tokens that may come; None where only the whole length is bounded.
    method : str
        How a token is chosen, in words.
    quiet : bool
        Whether only a number was given, so that warnings about settings are kept back.
    max_length : int or None
        The most tokens that there may be in all; None where only those that may come are bounded.
    """

    options: dict[str, Any]
    max_new_tokens: int | None
    method: str
    quiet: bool
    max_length: int | None = None

    def longest(self, before: int) -> int:
        """The most tokens in the end, after so many in the prompt or at the decoder's beginning."""
        if self.max_new_tokens is not None:
            return before + self.max_new_tokens
        return max(before + 1, self.max_length or 0)


@dataclass
class Generated:
    """What a model produced for one example.

    Attributes
    ----------
    ids : Tensor
        (tokens,), int64, on the CPU: what stood before, and what came.
    prefix : int
        How many of them stood before: the prompt, or what the decoder began with.
    likeliest : list of (int, float)
        For each step the likeliest id and its probability; empty where a step did not give one
        row of logits.
    """

    ids: torch.Tensor
    prefix: int
    likeliest: list[tuple[int, float]] = field(default_factory=list)


def read_generation_settings(given: Any, model: PreTrainedModel) -> GenerationSettings:
    """Read what was given as `generate`.

    Raises TypeError or ValueError if it cannot be read, asks for no tokens or for several answers,
    or the model cannot generate.
    """
    options = _options(given)
    _check_model(model)
    refused = sorted(_RESERVED & options.keys())
    if refused:
        raise ValueError(
            f"generate: {', '.join(refused)} cannot be given here; what the model reads is inputs, "
            "and the record holds what it attended to"
        )
    configs = (options.get("generation_config"), getattr(model, "generation_config", None))

    def setting(name: str) -> Any:
        values = (options.get(name), *(getattr(config, name, None) for config in configs))
        return next((value for value in values if value is not None), None)

    count, limit = setting("num_return_sequences"), setting("max_new_tokens")
    if count not in (None, 1):
        raise ValueError(
            f"generate: a record holds one answer, and num_return_sequences asks for {count}; "
            "extract once for each"
        )
    if limit is None and setting("max_length") is None:
        raise ValueError(f"generate: the number of tokens is missing; {_HOW_TO_GIVE_IT}")
    if limit is not None and (not _is_number(limit) or limit < 1):
        raise ValueError(f"generate: max_new_tokens must be at least 1; got {limit!r}")
    method = "greedily"
    if setting("do_sample"):
        method = "by sampling (probabilities are the model's own, before temperature and the like)"
    if (setting("num_beams") or 1) > 1:
        method = f"by a search with {setting('num_beams')} beams"
    return GenerationSettings(
        options,
        None if limit is None else int(limit),
        method,
        quiet=isinstance(given, Integral),
        max_length=setting("max_length"),
    )


def _options(given: Any) -> dict[str, Any]:
    if _is_number(given):
        if given < 1:
            raise ValueError(f"generate must be at least 1 token; got {given}")
        return {"max_new_tokens": int(given)} | _GREEDY
    if isinstance(given, GenerationConfig):
        return {"generation_config": given}
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return dict(given)
    raise TypeError(f"generate: {type(given).__name__} cannot be read; {_HOW_TO_GIVE_IT}")


def _is_number(given: object) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool)


def _check_model(model: PreTrainedModel) -> None:
    name = type(model).__name__
    if not model.can_generate():
        raise ValueError(
            f"generate: {name} produces no text: it has no language head, or its attention looks "
            "both ways. Leave generate out, or load the model with its head "
            "(AutoModelForCausalLM, AutoModelForSeq2SeqLM)"
        )


def generate_text(
    model: PreTrainedModel,
    batch: Batch,
    settings: GenerationSettings,
    *,
    progress: bool,
    watch: Callable[[Cleanup], None] | None = None,
    on_token: Callable[[Generated], bool] | None = None,
) -> Generated:
    """Let a model, held in evaluation mode, produce text for one example without padding.

    A progress bar is shown once it takes longer than a second. `watch` changes the model until the
    block that it is given ends. `on_token` gets the text so far behind each token, where it is one
    row; it may run the model, and ends the generation where it gives True. Raises ValueError if
    that many tokens exceed the model's positions, and NotImplementedError if the model produces
    anything but one row of tokens.
    """
    arguments = {name: moved_to_model(model, value) for name, value in batch.arguments.items()}
    encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
    if not encoder_decoder:
        # Without one transformers guesses from the ids which of them are padding.
        arguments.setdefault("attention_mask", torch.ones_like(arguments["input_ids"]))
    _check_positions(model, batch, settings, encoder_decoder=encoder_decoder)
    options = dict(settings.options)
    criteria = StoppingCriteriaList(options.pop("stopping_criteria", None) or [])
    # An answer that is there at once needs no bar. Where none is wanted tqdm is left alone: an
    # interrupt in it may have left its lock with another thread for good.
    progress_bar = (
        tqdm(total=settings.max_new_tokens, desc="generate", unit="token", leave=False, delay=1.0)
        if progress
        else nullcontext()
    )
    with progress_bar as bar, Cleanup() as undo, undo:
        before = None if encoder_decoder else batch.arguments["input_ids"].shape[1]
        watcher = _Watcher(bar, before, on_token)
        steps = base_of(model).register_forward_hook
        hook((steps(each) for each in [watcher.see_step]), undo)
        evaluate(model, undo)
        if settings.quiet:
            options |= _min_length(model, batch, settings)
            _quieten(undo)
        if watch is not None:
            # Compiled code does not ask the dispatcher.
            options |= {"disable_compile": True}
            watch(undo)
        criteria.append(watcher)
        given: Any = model.generate(**arguments, **options, stopping_criteria=criteria)
    sequences = getattr(given, "sequences", given)
    if watcher.ids is None or not isinstance(sequences, torch.Tensor) or watcher.prefix < 1:
        raise NotImplementedError(
            f"generate: {type(model).__name__} generates in a way that cannot be followed; "
            "generate yourself and give the text as target="
        )
    # A search with beams follows several answers and gives the best at the end.
    ids = watcher.ids[0] if watcher.ids.shape[0] == 1 else sequences[0]
    generated = watcher.generated(ids)
    count = generated.ids.shape[0] - generated.prefix
    if ids.dim() != 1 or ids.is_floating_point() or count < 1 or sequences.shape[0] != 1:
        raise NotImplementedError(
            f"generate: {type(model).__name__} produces something other than one text of tokens; "
            "generate yourself and give the text as target="
        )
    return generated


class _Watcher(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Sees the tokens as they come."""

    def __init__(
        self, bar: Any, before: int | None, on_token: Callable[[Generated], bool] | None
    ) -> None:
        self.ids: torch.Tensor | None = None
        self.prefix = 0
        self.likeliest: list[tuple[int, float]] = []
        self._bar = bar
        self._before = before
        self._on_token = on_token
        self._thread = threading.get_ident()
        self._reads = False

    def see_step(self, _module: Any, _inputs: Any, output: Any) -> None:
        """Note what a step held for the likeliest."""
        # The same model may run in another thread, or read the text so far meanwhile.
        if self._reads or threading.get_ident() != self._thread:
            return
        logits = getattr(output, "logits", None)
        if isinstance(logits, torch.Tensor) and logits.dim() == 3 and logits.shape[0] == 1:
            probability, token = torch.softmax(logits[0, -1].float(), dim=-1).max(dim=-1)
            self.likeliest.append((int(token), float(probability)))

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_options: Any) -> torch.Tensor:
        """See all tokens that are there."""
        width = input_ids.shape[1]
        if self.ids is None or width <= self.ids.shape[1]:
            # Some models begin again when they doubt an answer (Whisper).
            self.prefix = width - 1
            self.likeliest = self.likeliest[-1:]
        self.ids = input_ids
        if self._bar is not None:
            self._bar.update(width - self.prefix - self._bar.n)
        stop = False
        if self._on_token is not None and input_ids.shape[0] == 1:
            self._reads = True
            try:
                stop = self._on_token(self.generated(input_ids[0]))
            finally:
                self._reads = False
        return torch.full((input_ids.shape[0],), stop, dtype=torch.bool, device=input_ids.device)

    def generated(self, ids: torch.Tensor) -> Generated:
        """The text of some ids, (tokens,), with what the steps held for the likeliest."""
        ids = ids.detach().cpu()
        prefix = self.prefix if self._before is None else self._before
        likeliest = self.likeliest if len(self.likeliest) == len(ids) - prefix else []
        return Generated(ids, prefix, list(likeliest))


def _check_positions(
    model: PreTrainedModel, batch: Batch, settings: GenerationSettings, *, encoder_decoder: bool
) -> None:
    bound = num_positions(model, decoder=encoder_decoder)
    if bound is None or settings.max_new_tokens is None:
        return
    name = "decoder_input_ids" if encoder_decoder else "input_ids"
    before = batch.arguments[name].shape[1] if name in batch.arguments else 1
    # The last token of a decoder is predicted and never read.
    free = bound - before + encoder_decoder
    if settings.max_new_tokens > free:
        raise ValueError(
            f"generate: {settings.max_new_tokens} tokens are too many, {type(model).__name__} has "
            f"positions for {bound} and {before} are taken; ask for {max(free, 0)} at most"
        )


def _min_length(
    model: PreTrainedModel, batch: Batch, settings: GenerationSettings
) -> dict[str, int]:
    """Bound the model's own least length by the number that was asked for."""
    own = getattr(getattr(model, "generation_config", None), "min_length", None) or 0
    ids = batch.arguments.get("decoder_input_ids", batch.arguments.get("input_ids"))
    before = 1 if getattr(model.config, "is_encoder_decoder", False) or ids is None else len(ids[0])
    most = before + (settings.max_new_tokens or 0)
    return {"min_length": most} if own > most else {}


def _quieten(undo: Cleanup) -> None:
    """Keep back what transformers says, in this thread, about settings that were not given.

    Until the block of `undo` ends.
    """
    here = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != here or record.levelno >= logging.ERROR

    names = ("utils", "configuration_utils")
    loggers = [logging.getLogger(f"transformers.generation.{name}") for name in names]
    for logger in loggers:
        undo.add(partial(logger.removeFilter, passes))
        logger.addFilter(passes)
