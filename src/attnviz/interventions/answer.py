"""Definition of an answer: the number that an intervention measures in a model's output.

An example, which is one input of the model, has one answer. If the model returns logits, the answer
is usually the logit of one token minus the logit of another token. Classifiers have classes in
place of tokens. The unchanged run is a run of the model without an intervention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import torch

from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.predictions import class_names
from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.text import token_texts
from attnviz.interventions.example import Example, answering_stack
from attnviz.interventions.rounding import noise_of
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import quote
from attnviz.utils.arguments import function_name, short_repr


class Reading(NamedTuple):
    """Row of the logits from which an answer is read. Each token of the text has one row.

    Attributes
    ----------
    row : int or None
        Index of the row, counted from the end because the model may return only the last rows: -1
        is the last row. None if the logits have no axis of tokens, as in a classifier.
    after : str
        Text of the token to which the row belongs. Empty if `row` is None.
    num_tokens : int
        Number of rows that the model would return for all tokens, including padding, even if it
        returns only the last rows. 1 if `row` is None.
    """

    row: int | None
    after: str
    num_tokens: int

    def logits(self, answer: Any) -> int:
        """Return how many of the last rows of logits the model must return for `answer`.

        An answer that is a function needs all rows. The result is 1 if the logits have no axis of
        tokens.
        """
        if self.row is None:
            return 1
        return self.num_tokens if callable(answer) else -self.row


def reading_of(
    record: AttentionRecord,
    position: int | str | None,
    outputs: Any,
    batch: Batch,
    answer: Any = None,
) -> Reading:
    """Return the row of the logits of `outputs` from which `answer` is read.

    `position` is the token after which the answer is read, by position or text. None is the last
    token. Raise ValueError if `position` is passed although `answer` is a function, or although the
    model does not return a row of logits per token.
    """
    if callable(answer) and position is not None:
        raise ValueError(
            f"position={short_repr(position)}: answer is a function, which chooses the position "
            "itself. Do not pass position."
        )
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 3:
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
        # The logits also have rows for padding, so count the row from the end of the padded text.
        count, row = sequence.length, int(unpadded[token]) - sequence.length
    return Reading(row, tokens.text[token].strip("·"), count)


@dataclass(frozen=True)
class Answer:
    """Definition of a number that is computed from a model's output for one example.

    If `ids` is passed, the number is the difference of two logits. If `function` is passed, it is
    the value of this function. If neither is passed, it is the cosine similarity between the last
    hidden states of the output and those of the unchanged run.

    Attributes
    ----------
    measure : str
        Description of the number, for example "logit of “a” minus logit of “b”".
    unchanged : object
        Output of the unchanged run for the example alone, without other examples in the batch.
    position : int or None
        Row of the logits with the two logits, as `Reading.row`.
    ids : tuple of int or None
        Ids of the two tokens or classes. The second logit is subtracted from the first.
    function : callable or None
        Function that takes the output for one example and returns one number.
    """

    measure: str
    unchanged: Any
    position: int | None = None
    ids: tuple[int, int] | None = None
    function: Callable[[Any], Any] | None = None

    @property
    def of_hidden_states(self) -> bool:
        """Whether the number is a similarity of hidden states."""
        return self.ids is None and self.function is None

    def of(self, outputs: Any, example: int = 0) -> torch.Tensor:
        """Return the number for one example of a batch, on the output's device, not detached.

        Raise TypeError if the output has no hidden states for a similarity, or if `function` does
        not return one number.
        """
        if self.function is not None:
            return _number(self.function, example_of(outputs, self.unchanged, example))
        row = _row(outputs, self.position, example)
        if self.ids is None or row is None:
            one, other = _hidden(self.unchanged), _hidden(outputs, example)
            if one is None or other is None:
                raise TypeError("the output has no logits and no hidden states to compare")
            return torch.nn.functional.cosine_similarity(one, other, dim=0)
        one, other = (row[index].double() for index in self.ids)
        return one - other

    def with_gradient(self, outputs: Any, example: int = 0) -> torch.Tensor:
        """Return the number as `of` does, for use in a backward pass.

        Raise ValueError if `function` returns a number that has no gradient.
        """
        number = self.of(outputs, example)
        if self.function is not None and not number.requires_grad:
            raise ValueError(
                f"answer: {function_name(self.function)} returns a number without a gradient. "
                "Compute it from tensors of the output, without .item(), .detach() and numpy."
            )
        return number

    def value(self, outputs: Any, example: int = 0) -> float:
        """Return the number for one example of a batch as a float."""
        return self.values(outputs, [example])[0]

    def values(self, outputs: Any, examples: Iterable[int]) -> list[float]:
        """Return the numbers for several examples of a batch.

        They are read together, because each time the host waits for the device.
        """
        numbers = [self.of(outputs, example).detach() for example in examples]
        return [float(number) for number in torch.stack(numbers).tolist()]

    def noise(self, perturbed: Sequence[Any]) -> float:
        """Return the noise of an effect on the number. It is 0 if `perturbed` is empty.

        `perturbed` has the outputs of perturbed runs of the unchanged example (see `rounding`).
        """
        before = self.value(self.unchanged)
        changes = [abs(self.value(run) - before) for run in perturbed]
        if self.ids is not None:
            spreads = [self._spread(run) for run in perturbed]
            changes = list(map(max, changes, spreads))
        return noise_of(changes)

    def noise_after(self, perturbed: Sequence[Any], outputs: Any, example: int = 0) -> float:
        """Return the noise that an effect has because of the `outputs` of a changed run.

        The rounding error of a similarity of hidden states depends on both of the compared states.
        Other numbers have no such noise. `example` is the index in the batch of the changed run.
        """
        if not self.of_hidden_states:
            return 0.0
        after = self.value(outputs, example)
        others = [replace(self, unchanged=run).value(outputs, example) for run in perturbed]
        return noise_of([other - after for other in others])

    def _spread(self, perturbed: Any) -> float:
        """Return the typical change of a difference of two logits in a perturbed run.

        Two logits can change equally by chance, so this is a mean over all logits. It is at least
        the distance of two numbers of the dtype, which is at most `eps` times their size.
        """
        row, other = (_row(run, self.position, 0) for run in (self.unchanged, perturbed))
        if row is None or other is None or self.ids is None:
            return 0.0
        row, other = row.detach(), other.detach()
        sizes = torch.stack([row[index].double().abs() for index in self.ids])
        is_finite = torch.isfinite(row)
        squares = (other.double() - row.double()).square().masked_fill(~is_finite, 0.0)
        size, mean = torch.stack([sizes.amax(), squares.sum() / is_finite.sum()]).tolist()
        return float(max(size * torch.finfo(row.dtype).eps, math.sqrt(2 * mean)))


def exact_row(outputs: Any, position: int | None, example: int = 0) -> torch.Tensor | None:
    """Return one row of an example's logits, (vocabulary,), float64 on the CPU, detached.

    `position` is the index of the row, or None for the last row. If the logits have no axis of
    tokens, `position` has no effect. Return None if the output has no logits, or if each row has
    only one logit.
    """
    row = _row(outputs, position, example)
    return None if row is None or len(row) < 2 else row.detach().double().cpu()


def score(output: Any) -> Any:
    """Return the only logit of a model with one logit per input.

    Such models are rerankers, reward models and regressions.
    """
    return output.logits[0, 0]


def _row(outputs: Any, position: int | None, example: int) -> torch.Tensor | None:
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.dim() not in (2, 3):
        return None
    row = logits[example]
    return row if logits.dim() == 2 else row[-1 if position is None else position]


def example_of(value: Any, one: Any, example: int) -> Any:
    """Return the part of a batch's output that belongs to one example.

    `value` is the output for the batch, or an entry of this output. `one` is the output, or the
    same entry, for a single example. An axis of a tensor is the batch axis if its size is 1 in
    `one` and larger in `value`. A tensor becomes None if its first axis has different sizes in
    `one` and `value`, and the size in `one` is not 1. Its rows cannot be assigned to examples.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() and len(value) != len(one) != 1:
            return None
        for axis, (size, alone) in enumerate(zip(value.shape, one.shape, strict=True)):
            if size > alone == 1:
                value = value.narrow(axis, example, 1)
        return value
    if isinstance(value, Mapping):
        parts = {name: example_of(item, one[name], example) for name, item in value.items()}
        return type(value)(**parts)
    if type(value) in (tuple, list):
        pairs = zip(value, one, strict=True)
        return type(value)(example_of(*pair, example) for pair in pairs)
    return value


def _number(function: Callable[[Any], Any], output: Any) -> torch.Tensor:
    value = function(output)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.reshape(()).double()
    if isinstance(value, Real):
        return torch.tensor(float(value), dtype=torch.float64)
    shape = getattr(value, "shape", None)
    result = short_repr(value) if shape is None else f"an array of the shape {tuple(shape)}"
    raise TypeError(
        f"answer: {function_name(function)} must return one number for the output of one example, "
        f"such as output.logits[0, 3, 5]. It returned {result}."
    )


def _hidden(outputs: Any, example: int = 0) -> torch.Tensor | None:
    """Return the last hidden states of all tokens of an example, joined into one vector.

    If the output has no hidden states under their usual names, return its ``logits`` as one vector.
    If it has no logits either, return None.
    """
    for name in ("last_hidden_state", "hidden_states", "image_embeds", "logits"):
        tensor = getattr(outputs, name, None)
        if isinstance(tensor, torch.Tensor):
            return tensor[example].double().flatten().cpu()
    return None


def answer_of(
    example: Example, outputs: Any, requested: Any, reading: Reading, changed: Any = None
) -> Answer:
    """Return the answer that the user requested, or the default answer if `requested` is None.

    `outputs` are the outputs of the unchanged run, and `changed` those of a changed run. The
    default answer is the logit of token A minus the logit of token B. A is the most likely token in
    `outputs`. B is the most likely token in `changed` that is not A, or in `outputs` if `changed`
    is None. So the answer becomes negative if the change makes another token more likely than A. If
    the model has only one logit per input, the default answer is this logit. If it has no logits,
    the default answer is the cosine similarity of the last hidden states to those of the unchanged
    run. Raise TypeError or ValueError if `requested` does not fit the model, or if logits are NaN.
    """
    model, position = example.loaded.model, reading.row
    if requested is None and getattr(getattr(outputs, "logits", None), "shape", ()) == (1, 1):
        requested = score
    if callable(requested):
        measure = f"value of {function_name(requested)}"
        answer = Answer(measure, outputs, position, function=requested)
        value = answer.value(outputs)
        if not math.isfinite(value):
            raise ValueError(
                f"answer: {function_name(requested)} returns {value} for the unchanged model. It "
                "must return a finite number."
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
    tokenizer = example.loaded.find_target_tokenizer()
    if requested is None:
        after = exact_row(changed, position)
        others = best if after is None else after.topk(2).indices.tolist()
        ids = (best[0], next(token for token in others if token != best[0]))
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


#: Advice in the error messages about models without logits.
FUNCTION_INSTEAD = (
    "pass a function of the model's output that returns one number, such as "
    "answer=lambda output: output.start_logits.max()"
)


def _without_logits(model: Any, outputs: Any, requested: Any) -> Answer:
    """Return the answer for a model without logits.

    This answer is the cosine similarity of the last hidden states to those of the unchanged run.
    Raise ValueError if the user requested a token or class, or if the output has no hidden states.
    """
    if requested is None and _hidden(outputs) is not None:
        measure = "cosine similarity of the last hidden states, over all tokens"
        return Answer(measure, outputs)
    raise ValueError(
        f"answer={short_repr(requested)}: {type(model).__name__} has no logits. Load the model "
        f"with its head, or {FUNCTION_INSTEAD}."
    )


def one_for_each(answer: Any, count: int, *, many: bool) -> list[Any]:
    """Return a list with the ``answer`` argument for each of `count` texts.

    If the user passed a list or batch of texts (`many`) and `answer` is a list, each text has its
    own answer. Otherwise all texts have the same answer. Raise ValueError if the list of answers
    does not have `count` entries.
    """
    if not (many and isinstance(answer, list)):
        return [answer] * count
    if len(answer) != count:
        raise ValueError(
            f"answer is a list of {len(answer)}, but inputs has {count} texts. Pass one answer per "
            "text, or one for all."
        )
    return answer


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
    # A tokenizer of two languages reads text for the decoder by this name.
    argument = "text_target" if getattr(model.config, "is_encoder_decoder", False) else "text"
    ids = call_reader(tokenizer, **{argument: token}, add_special_tokens=False)["input_ids"]
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
        return class_names(model, ids)
    return [text.strip("·") or text for text in token_texts(list(ids), tokenizer)]
