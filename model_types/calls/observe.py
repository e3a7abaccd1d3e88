"""Observe what a model reads in a whole call, and compare a record of attnviz with it.

The call runs to its end. The arguments of each forward of the model are copied. Nothing of attnviz
takes part, so an error of attnviz cannot hide in the comparison.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from attnviz import AttentionRecord
from model_types.compare import compare
from model_types.reference import by_pattern, eager_copy, module_calls, own_weights

Arguments = dict[str, Any]

# Arguments of a forward that do not change its attention, or are results of earlier forwards.
_NOT_READ = {
    "past_key_values",
    "cache",
    "cache_params",
    "encoder_outputs",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "cache_position",
    "logits_to_keep",
    "loss_kwargs",
    "return_loss",
}
_CACHES = ("past_key_values", "cache", "cache_params")
# Ids to which a generation adds tokens, and the mask of each.
_IDS = ("decoder_input_ids", "input_ids")
_MASK_OF = {"decoder_input_ids": "decoder_attention_mask", "input_ids": "attention_mask"}
# Features of images, which newer versions of transformers compute before the forward.
_FEATURES = "mm_encoder_outputs"


@dataclass
class Reading:
    """Arguments of one forward, with the tokens of the generation steps that follow it.

    Attributes
    ----------
    arguments : dict
        Copies of the arguments by name. Those of an encoder that ran before are among them.
    generation : int or None
        Number of the call of ``generate`` that ran this forward, or None.
    steps : list of Tensor
        Ids of the forwards that continued this one with a cache.
    """

    arguments: Arguments
    generation: int | None = None
    steps: list[torch.Tensor] = field(default_factory=list)

    def with_steps(self, sequences: torch.Tensor | None) -> Arguments:
        """Return the arguments of one forward that reads the text with all generated tokens.

        `sequences` are the ids that ``generate`` returned, or None if it did not run. A record of a
        decoder-only model also has the last of them. A decoder beside an encoder does not read it.
        """
        name, first = _ids_of(self.arguments)
        if first is None or (not self.steps and sequences is None):
            return self.arguments
        is_decoder = name == "decoder_input_ids"
        ids = torch.cat([first, *self.steps], dim=1)
        arguments = dict(self.arguments)
        # Beams change their rows between steps, so only the returned ids are known.
        if sequences is not None and not (is_decoder and self.steps and len(ids) == 1):
            known = _with_start(sequences[:1], first[:1])
            ids = known[:, :-1] if is_decoder else known
            arguments = {
                key: value[:1] if _has_rows(value, len(first)) else value
                for key, value in arguments.items()
            }
        arguments[name] = ids
        added = ids.shape[1] - first.shape[1]
        of_tokens = {_MASK_OF[name]: 1}
        if not is_decoder:
            of_tokens |= {"token_type_ids": 0, "mm_token_type_ids": 0}
        for key, value in of_tokens.items():
            before = arguments.get(key)
            if isinstance(before, torch.Tensor) and before.dim() == 2:
                more = before.new_full((before.shape[0], added), value)
                arguments[key] = torch.cat([before, more], dim=1)
        positions = arguments.get("position_ids")
        if isinstance(positions, torch.Tensor) and positions.dim() >= 2:
            more = positions[..., -1:] + torch.arange(1, added + 1)
            arguments["position_ids"] = torch.cat([positions, more], dim=-1)
        return arguments


def _ids_of(arguments: Arguments) -> tuple[str, torch.Tensor | None]:
    name = next((name for name in _IDS if arguments.get(name) is not None), "input_ids")
    return name, arguments.get(name)


def _with_start(ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Put the first ids of a decoder before the returned ids, which lack them in some models."""
    begins = ids.shape[1] >= start.shape[1] and torch.equal(ids[:, : start.shape[1]], start)
    return ids if begins else torch.cat([start, ids], dim=1)


def _has_rows(value: Any, count: int) -> bool:
    """Return whether a tensor has the rows of `count` beams."""
    return isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == count


@dataclass
class Observed:
    """Forwards of a model in a call, in their order, and what each ``generate`` returned."""

    readings: list[Reading] = field(default_factory=list)
    sequences: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def num_calls(self) -> int:
        """Number of forwards. Those of one call of ``generate`` count once."""
        alone = sum(reading.generation is None for reading in self.readings)
        return alone + len({reading.generation for reading in self.readings} - {None})

    def arguments(self, part: int) -> Arguments:
        """Return the arguments of a forward with all tokens that were generated after it."""
        if not self.readings:
            return {}
        reading = self.readings[min(part, len(self.readings) - 1)]
        number = reading.generation
        return reading.with_steps(None if number is None else self.sequences.get(number))


def _named(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Arguments:
    """Return the arguments of a call by name."""
    signature = inspect.signature(forward)
    named: Arguments = {}
    for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if is_rest else {name: value}
    return named


def _copied(arguments: Mapping[str, Any]) -> Arguments:
    return {
        name: copy.deepcopy(value)
        for name, value in arguments.items()
        if value is not None and name not in _NOT_READ
    }


def _continues(arguments: Mapping[str, Any]) -> bool:
    """Return whether a forward has a cache with tokens of earlier forwards."""
    past = next((arguments[name] for name in _CACHES if arguments.get(name) is not None), None)
    length = getattr(past, "get_seq_length", None)
    return bool(length()) if length is not None else past is not None


class _Observer:
    """Copies the arguments of the forwards of a model. See `observed`."""

    def __init__(self, model: Any) -> None:
        self.result = Observed()
        self._forward = model.forward
        self._generate = getattr(model, "generate", None)
        self._encoded: list[Arguments] = []
        self._inside = 0
        self._generation: int | None = None
        self._num_generations = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward. Copy its arguments unless it runs inside of another one."""
        if not self._inside:
            self._note(_named(self._forward, args, kwargs))
        self._inside += 1
        try:
            return self._forward(*args, **kwargs)
        finally:
            self._inside -= 1

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's ``generate``. Copy the ids that it returns."""
        assert self._generate is not None
        self._generation = self._num_generations
        self._num_generations += 1
        try:
            output = self._generate(*args, **kwargs)
            sequences = getattr(output, "sequences", output)
            if isinstance(sequences, torch.Tensor):
                self.result.sequences[self._generation] = sequences.detach().clone()
            return output
        finally:
            self._restore_media(kwargs)
            self._generation = None

    def encode(self, module: Any, args: Any, kwargs: Any) -> None:
        """Copy the arguments of an encoder that runs before the forward. It is a forward hook."""
        if not self._inside:
            self._encoded.append(
                _copied(_named(type(module).forward.__get__(module), args, kwargs))
            )

    def _note(self, named: Arguments) -> None:
        readings, arguments = self.result.readings, _copied(named)
        ids = _ids_of(arguments)[1]
        previous = readings[-1] if readings else None
        if previous is not None and ids is not None and _continues(named):
            previous.steps.append(ids)
            return
        if named.get("encoder_outputs") is not None and self._encoded:
            arguments = {**self._encoded[-1], **arguments}
        if previous is not None and self._generation is not None:
            # Without a cache, each step reads the whole text again. Whisper first detects the
            # language, and may reject a text and generate another one.
            again = previous.generation == self._generation and _follows(previous, ids)
            if again and same_input(previous.arguments, arguments, ids=False):
                readings.pop()
        readings.append(Reading(arguments, self._generation))

    def _restore_media(self, given: Mapping[str, Any]) -> None:
        """Replace features of images by the images, which were arguments of ``generate``."""
        accepted = set(inspect.signature(self._forward).parameters)
        for reading in self.result.readings:
            features = reading.arguments.pop(_FEATURES, None)
            if reading.generation == self._generation and features is not None:
                missing = accepted - set(reading.arguments) - {"attention_mask", "use_cache"}
                reading.arguments |= _copied({n: v for n, v in given.items() if n in missing})


def _follows(previous: Reading, ids: torch.Tensor | None) -> bool:
    """Return whether a forward repeats or continues an earlier one without a cache."""
    before = _ids_of(previous.arguments)[1]
    if ids is None or before is None or ids.shape[1] < before.shape[1]:
        return False
    return not previous.steps or torch.equal(ids[:1, : before.shape[1]], before[:1])


@contextmanager
def observed(model: Any) -> Iterator[Observed]:
    """Within the context, copy the arguments of each forward of `model`, and its generated ids.

    Methods of the model are replaced. Hooks would miss SentenceTransformer, which calls the method
    ``forward`` directly.
    """
    observer = _Observer(model)
    with ExitStack() as stack:
        for name in ("forward", "generate"):
            if hasattr(model, name):
                # A function, because the attributes of a method cannot be set.
                replaced = functools.partial(getattr(observer, name))
                setattr(model, name, functools.update_wrapper(replaced, getattr(model, name)))
                stack.callback(vars(model).pop, name, None)
        encoder = _inner_encoder(model)
        if encoder is not None:
            handle = encoder.register_forward_pre_hook(observer.encode, with_kwargs=True)
            stack.callback(handle.remove)
        yield observer.result


def _inner_encoder(model: Any) -> nn.Module | None:
    if not getattr(model.config, "is_encoder_decoder", False):
        return None
    try:
        encoder = model.get_encoder()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return encoder if isinstance(encoder, nn.Module) and encoder is not model else None


@contextmanager
def completed(model: Any) -> Iterator[list[Arguments]]:
    """Within the context, copy the arguments of each forward of `model` that runs to its end."""
    forwards: list[Arguments] = []
    begun: list[Arguments] = []

    def enter(module: Any, args: Any, kwargs: Any) -> None:
        begun.append(_copied(_named(type(module).forward.__get__(module), args, kwargs)))

    def leave(*_: Any) -> None:
        if begun:
            forwards.append(begun.pop())

    first = model.register_forward_pre_hook(enter, with_kwargs=True)
    last = model.register_forward_hook(leave, with_kwargs=True)
    try:
        yield forwards
    finally:
        first.remove()
        last.remove()


def rows_of(arguments: Arguments) -> list[dict[str, list[int]]]:
    """Return the ids of each row of a forward without padding, by the name of the argument."""
    count = max((len(arguments[name]) for name in _IDS if name in arguments), default=0)
    rows: list[dict[str, list[int]]] = [{} for _ in range(count)]
    for name in reversed(_IDS):
        tensor, mask = arguments.get(name), arguments.get(_MASK_OF[name])
        if tensor is None:
            continue
        if not isinstance(mask, torch.Tensor) or mask.shape != tensor.shape:
            mask = torch.ones_like(tensor)
        for row, ids, keep in zip(rows, tensor, mask, strict=False):
            row[name] = ids[keep != 0].tolist()
    return rows


def in_words(arguments: Arguments, row: int = 0) -> str:
    """Return the ids of a row, and the shape and sum of pixels or features."""
    rows = rows_of(arguments)
    parts = []
    if row < len(rows):
        parts += [f"{name} {' '.join(map(str, ids))}" for name, ids in rows[row].items()]
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            shape = "x".join(map(str, value.shape))
            parts.append(f"{name} {shape}, sum {float(value.double().sum()):.4g}")
    return "; ".join(parts) or f"arguments {sorted(arguments)}"


def same_input(own: Arguments, other: Arguments, *, ids: bool = True) -> bool:
    """Return whether pixels, features and (if `ids`) ids of equal shapes have equal values."""
    for name, value in own.items():
        second = other.get(name)
        if not (isinstance(value, torch.Tensor) and isinstance(second, torch.Tensor)):
            continue
        if value.shape != second.shape:
            continue
        if value.is_floating_point():
            scale = float(value.abs().max()) or 1.0
            if not torch.allclose(value.float(), second.float(), atol=1e-3 * scale):
                return False
        elif ids and name in _IDS and not torch.equal(value, second):
            return False
    return True


def _cropped(weights: dict[str, Any], arguments: Arguments, row: int) -> dict[str, Any]:
    """Keep the weights of one row of a batch, between the tokens that are not padding."""
    sizes: dict[str, int] = {}
    kept: dict[str, torch.Tensor] = {}
    for side, name in (("input", "input_ids"), ("decoder", "decoder_input_ids")):
        ids, mask = arguments.get(name), arguments.get(_MASK_OF[name])
        if ids is not None and isinstance(mask, torch.Tensor) and ids.shape == mask.shape:
            sizes[side], kept[side] = ids.shape[1], (mask[row] != 0).nonzero().flatten()
    main = (*reversed(_IDS), "pixel_values", "input_values", "input_features")
    batch = next((len(arguments[name]) for name in main if name in arguments), 1)

    def cropped(tensor: torch.Tensor | None, sides: tuple[str, str]) -> torch.Tensor | None:
        if tensor is None:
            return None
        if batch > 1 and tensor.shape[0] == batch:
            tensor = tensor[row : row + 1]
        for axis, side in zip((-2, -1), sides, strict=True):
            if side in kept and tensor.shape[axis] == sizes[side] > len(kept[side]):
                tensor = tensor.index_select(axis, kept[side])
        return tensor

    result: dict[str, Any] = {}
    for name, tensors in weights.items():
        queries = "decoder" if "cross" in name or "decoder" in name else "input"
        keys = "decoder" if queries == "decoder" and "cross" not in name else "input"
        result[name] = [cropped(tensor, (queries, keys)) for tensor in tensors]
    return result


def weights_error(
    model: Any, arguments: Arguments, record: AttentionRecord, row: int = 0
) -> tuple[float | None, str]:
    """Return the largest difference between a record and the model's own weights.

    The own weights are those of an eager copy of the model that gets `arguments`, the copies of the
    arguments of the whole call. The result is None, and the reason, if they cannot be compared.
    """
    parameters = inspect.signature(type(model).forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    # Weights in half precision do not sum to 1, so the copy computes in float32.
    given = {
        name: value.float() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in arguments.items()
        if takes_any or name in parameters
    }
    # Without a cache, some models take position ids that restart for a border between documents.
    if "use_cache" in parameters and "use_cache" not in given:
        given["use_cache"] = bool(getattr(model.config, "use_cache", False))
    eager = eager_copy(model).float()
    own = _cropped(own_weights(eager, given), arguments, row)
    modules = by_pattern(module_calls(eager, given))
    result = compare(record, own, _cropped(modules, arguments, row))
    if result.unmatched or not result.matches:
        return None, "; ".join(result.unmatched) or "no stack could be compared"
    return result.error, ""
