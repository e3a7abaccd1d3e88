"""Definition of an answer: the number per example that is measured in a model's output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import torch

from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.text import token_texts
from attnviz.interventions.runs import ExampleRunner, answering_stack
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import quote
from attnviz.utils.arguments import function_name, short_repr

__all__ = [
    "Answer",
    "Reading",
    "answer_of",
    "exact_row",
    "function_instead",
    "one_for_each",
    "reading_of",
    "texts_of",
]


class Reading(NamedTuple):
    """Position in the logits at which an answer is read.

    Attributes
    ----------
    row : int or None
        Row of the logits, from the end. None if the model has one answer for the whole input.
    after : str
        Token in this row, after which the answer is read.
    num_tokens : int
        Number of rows of logits that the model can return.
    """

    row: int | None
    after: str
    num_tokens: int

    def logits(self, answer: Any) -> int:
        """Return the number of rows of logits, from the last, that an answer needs.

        A function may read all rows.
        """
        if self.row is None:
            return 1
        return self.num_tokens if callable(answer) else -self.row

    def lacks(self, outputs: Any, answer: Any) -> bool:
        """Return whether an output has fewer rows of logits than an answer needs."""
        return self.row is not None and outputs.logits.shape[1] < self.logits(answer)


def reading_of(
    record: AttentionRecord,
    position: int | str | None,
    outputs: Any,
    batch: Batch,
    answer: Any = None,
) -> Reading:
    """Return the position in the logits of `outputs` at which `answer` is read."""
    if callable(answer) and position is not None:
        raise ValueError(
            f"position={short_repr(position)}: answer is a function, which chooses the position "
            "itself. Do not pass position."
        )
    logits = getattr(outputs, "logits", None)
    if getattr(logits, "dim", lambda: 0)() != 3:
        if position is not None:
            raise ValueError(
                f"position={short_repr(position)}: the model has one answer for the whole input. "
                "Do not pass position."
            )
        return Reading(None, "", 1)
    tokens = answering_stack(record).query_tokens
    token = len(tokens) - 1 if position is None else tokens.position(position, "position")
    sequence = batch.sequences.get("decoder" if "decoder" in record.stacks else "input")
    unpadded = None if sequence is None else sequence.unpadded[0]
    count, row = len(tokens), token - len(tokens)
    if sequence is not None and unpadded is not None:
        # The text may be padded at its end.
        count, row = sequence.length, int(unpadded[token]) - sequence.length
    return Reading(row, tokens.text[token].strip("·"), count)


@dataclass(frozen=True)
class Answer:
    """One number of a model's output that is measured.

    It is the difference of two logits, or the value of a function of the output. Otherwise it is
    the cosine similarity of the last hidden states with those of the unchanged run.

    Attributes
    ----------
    measure : str
        Description of the answer.
    unchanged : object
        Output of the unchanged run for one example.
    position : int or None
        Row of the logits, from the end. None if there is one row.
    ids : tuple of int or None
        Token or class of the answer and of the other.
    function : callable or None
        Function of the output for one example that returns one number.
    """

    measure: str
    unchanged: Any
    position: int | None = None
    ids: tuple[int, int] | None = None
    function: Callable[[Any], Any] | None = None

    @property
    def of_hidden_states(self) -> bool:
        """Whether the answer compares hidden states. Then no token or class is the answer."""
        return self.ids is None and self.function is None

    def of(self, outputs: Any, example: int = 0) -> torch.Tensor:
        """Return the number of one example of a batch, float64 on the CPU, with its gradient."""
        if self.function is not None:
            return _number(self.function, _example(outputs, self.unchanged, example))
        row = _row(outputs, self.position, example)
        if self.ids is None or row is None:
            one, other = _hidden(self.unchanged), _hidden(outputs, example)
            if one is None or other is None:
                raise TypeError("the output has no logits and no hidden states to compare")
            return torch.nn.functional.cosine_similarity(one, other, dim=0)
        logits = row[list(self.ids)].double().cpu()
        return logits[0] - logits[1]

    def with_slope(self, outputs: Any, example: int = 0) -> torch.Tensor:
        """Return the number of one example. Raise ValueError if a function returns no gradient."""
        number = self.of(outputs, example)
        if self.function is not None and not number.requires_grad:
            raise ValueError(
                f"answer: {function_name(self.function)} returns a number without a gradient. "
                "Compute it from tensors of the output, without .item(), .detach() and numpy."
            )
        return number

    def value(self, outputs: Any, example: int = 0) -> float:
        """Return the number of one example of a batch as a float."""
        return float(self.of(outputs, example).detach())


def exact_row(outputs: Any, position: int | None, example: int = 0) -> torch.Tensor | None:
    """Return the logits at a position, float64 on the CPU, or None if there are fewer than two."""
    row = _row(outputs, position, example)
    return None if row is None or len(row) < 2 else row.detach().double().cpu()


def score(output: Any) -> Any:
    """Return the only logit of a reranker, a reward model or a regression."""
    return output.logits[0, 0]


def _row(outputs: Any, position: int | None, example: int) -> torch.Tensor | None:
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.dim() not in (2, 3):
        return None
    row = logits[example]
    return row if logits.dim() == 2 else row[-1 if position is None else position]


def _example(value: Any, one: Any, example: int) -> Any:
    """Return the output for one example of a batch. `one` is the output for a single example.

    An axis is a batch axis if its size in `one` is 1. A tensor becomes None if its examples cannot
    be separated.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() and len(value) != len(one) != 1:
            return None
        for axis, (size, alone) in enumerate(zip(value.shape, one.shape, strict=True)):
            if size > alone == 1:
                value = value.narrow(axis, example, 1)
        return value
    if isinstance(value, Mapping):
        parts = {name: _example(item, one[name], example) for name, item in value.items()}
        return type(value)(**parts)
    if type(value) in (tuple, list):
        pairs = zip(value, one, strict=True)
        return type(value)(_example(*pair, example) for pair in pairs)
    return value


def _number(function: Callable[[Any], Any], output: Any) -> torch.Tensor:
    value = function(output)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.reshape(()).double().cpu()
    if isinstance(value, Real):
        return torch.tensor(float(value), dtype=torch.float64)
    shape = getattr(value, "shape", None)
    result = short_repr(value) if shape is None else f"an array of the shape {tuple(shape)}"
    raise TypeError(
        f"answer: {function_name(function)} must return one number for the output of one example, "
        f"such as output.logits[0, 3, 5]. It returned {result}."
    )


def _hidden(outputs: Any, example: int = 0) -> torch.Tensor | None:
    """Return the hidden states of an example, flattened, or None if the output has none."""
    for name in ("last_hidden_state", "hidden_states", "image_embeds", "logits"):
        tensor = getattr(outputs, name, None)
        if isinstance(tensor, torch.Tensor):
            return tensor[example].double().flatten().cpu()
    return None


def answer_of(
    runner: ExampleRunner, outputs: Any, requested: Any, reading: Reading, changed: Any = None
) -> Answer:
    """Return the answer `requested`, or the default answer if it is None.

    The default is the logit of the most likely token of `outputs` minus that of the most likely
    other token of `changed`, the outputs of the changed run. It is below 0 exactly if the change
    makes another token the most likely one. Without `changed`, as for effects of many changes, the
    second most likely token of `outputs` is the other one. If a model has one logit for the whole
    input, it is the answer.
    """
    model, position = runner.loaded.model, reading.row
    if requested is None and getattr(getattr(outputs, "logits", None), "shape", ()) == (1, 1):
        requested = score
    if callable(requested):
        measure = f"value of {function_name(requested)}"
        answer = Answer(measure, outputs, position, function=requested)
        value = answer.value(outputs)
        if not math.isfinite(value):
            raise ValueError(
                f"answer: {function_name(requested)} returns {value} for the unchanged model. It "
                "must "
                "return a finite number."
            )
        return answer
    row = exact_row(outputs, position)
    if row is None:
        return _without_logits(model, outputs, requested)
    if not bool(torch.isfinite(row).any()) or bool(torch.isnan(row).any()):
        raise ValueError(
            "the model's logits are NaN. Check its weights, or run it in a higher precision."
        )
    best = row.topk(2).indices.tolist()
    classes = position is None
    tokenizer = runner.encoder.tokenizer(required=False)
    if requested is None:
        ids = (best[0], _likeliest_other(exact_row(changed, position), best))
    else:
        pair = requested if isinstance(requested, tuple | list) else [requested]
        if len(pair) not in (1, 2):
            raise ValueError(
                f"answer={short_repr(requested)} must be one token, or a pair (answer, other)"
            )
        read = [_id_of(token, model, tokenizer, len(row), classes=classes) for token in pair]
        other = read[1] if len(read) == 2 else next(token for token in best if token != read[0])
        ids = (read[0], other)
        if ids[0] == ids[1]:
            raise ValueError(
                f"answer={short_repr(requested)}: the two tokens are equal. Pass different ones."
            )
    names = texts_of(ids, model, tokenizer, classes=classes)
    suffix = "" if classes else f" after {quote(reading.after)}"
    measure = f"logit of {quote(names[0])} minus logit of {quote(names[1])}{suffix}"
    return Answer(measure, outputs, position, ids)


def _without_logits(model: Any, outputs: Any, requested: Any) -> Answer:
    """Return the answer of a model without logits: the similarity of its hidden states.

    Raise ValueError if an answer is requested, or if the output lacks hidden states.
    """
    has_hidden = _hidden(outputs) is not None
    if requested is None and has_hidden:
        measure = "cosine similarity of the last hidden states, over all tokens"
        return Answer(measure, outputs)
    argument = "" if requested is None else f"={short_repr(requested)}"
    function = function_instead(outputs)
    if has_hidden:
        advice = f"Do not pass answer, load the model with its head, or {function}"
    else:
        advice = f"{function[0].upper()}{function[1:]}"
    raise ValueError(f"answer{argument}: {type(model).__name__} has no logits. {advice}.")


def function_instead(outputs: Any) -> str:
    """Return a sentence that recommends a function as answer, with an example."""
    tensors = outputs.items() if isinstance(outputs, Mapping) else ()
    name = next((name for name, value in tensors if isinstance(value, torch.Tensor)), "logits")
    return (
        "pass a function of the model's output that returns one number, such as "
        f"answer=lambda output: output.{name}.max()"
    )


def one_for_each(answer: Any, count: int, *, many: bool) -> list[Any]:
    """Return the answer of each text, from one for all or from a list with one per text."""
    if not (many and isinstance(answer, list)):
        return [answer] * count
    if len(answer) != count:
        raise ValueError(
            f"answer is a list of {len(answer)}, but inputs has {count} texts. Pass one answer per "
            "text, or one for all."
        )
    return answer


def _likeliest_other(row: torch.Tensor | None, best: list[int]) -> int:
    """Return the most likely token of a row except ``best[0]``, or ``best[1]`` without a row."""
    if row is None:
        return best[1]
    first, second = row.topk(2).indices.tolist()
    return int(second if first == best[0] else first)


def _id_of(token: Any, model: Any, tokenizer: Any, count: int, *, classes: bool) -> int:
    if isinstance(token, bool) or not isinstance(token, int | str):
        raise TypeError(f"answer={short_repr(token)} must be a token or class, by text or number")
    if isinstance(token, int):
        if not 0 <= token < count:
            kind = "classes" if classes else "tokens of the vocabulary"
            raise ValueError(
                f"answer={token} is out of range. Pass one of the {kind} 0 to {count - 1}."
            )
        return token
    if classes:
        class_ids = getattr(model.config, "label2id", None) or {}
        if token not in class_ids:
            raise ValueError(
                f"answer={token!r} is not a class of the model. Pass one of "
                f"{', '.join(map(repr, class_ids))}."
            )
        return int(class_ids[token])
    if tokenizer is None:
        raise ValueError(f"answer={token!r} needs tokenizer=. Pass it, or the id of the token.")
    ids = call_reader(tokenizer, token, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(
            f"answer={token!r} has {len(ids)} tokens ({token_texts(ids, tokenizer)}). Pass one "
            "token, often with a space before it, or its id."
        )
    if ids[0] == getattr(tokenizer, "unk_token_id", None) and token != tokenizer.unk_token:
        raise ValueError(
            f"answer={token!r} is not in the vocabulary: the tokenizer reads it as "
            f"{tokenizer.unk_token!r}. Pass a token of the vocabulary, or its id."
        )
    return int(ids[0])


def texts_of(ids: Any, model: Any, tokenizer: Any, *, classes: bool) -> list[str]:
    if classes:
        labels = getattr(model.config, "id2label", None) or {}
        return [str(labels.get(class_id, f"class {class_id}")) for class_id in ids]
    return [text.strip("·") or text for text in token_texts(list(ids), tokenizer)]
