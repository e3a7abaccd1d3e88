"""Compare the input that the user's own call reads with a record, and give a verdict."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import attnviz
from attnviz import AttentionRecord
from model_types.calls.observe import (
    Arguments,
    Observed,
    completed,
    in_words,
    observed,
    rows_of,
    same_input,
    weights_error,
)

# Largest difference of weights that different roundings cause in sharpened models.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_IN_HALF_PRECISION = 3e-2
# Words of a note that says which of several forwards, or which part of an input, is shown.
_WHICH = r"\b(part|window|chunk|candidate|label|forward|call)"
# Errors that are sentences for the user if attnviz raises them.
_SENTENCES = (ValueError, TypeError, NotImplementedError, RuntimeError)

VERDICTS = {
    "same": "the record shows the input that the own call reads",
    "said": "the record differs and a note says how, or an error says why there can be no record",
    "refused": "an error of attnviz where a record was expected",
    "silent": "the record differs without a word",
    "crash": "an error that is no sentence of attnviz",
}
FAILURES = ("silent", "crash")


@dataclass(frozen=True)
class Call:
    """The user's own call, and the call of attnviz that should show it.

    Attributes
    ----------
    model : PreTrainedModel
        The model whose forwards are observed.
    own, shown : callable
        The user's own call, and the call of attnviz. The result of `shown` is a record, a list of
        records, or anything else if `by_ids` is True.
    part : int
        Number of the forward of the own call that the first record must show.
    note : str
        Pattern that a note must contain if the record differs.
    required : str
        Pattern that a note or an error must contain even if the record is right.
    by_ids : bool
        Whether to compare only the ids of the forwards that attnviz runs. It is True for calls
        whose result is not a record, such as statistics.
    batch : bool
        Whether the rows of the first forward of the own call are the examples.
    error : str
        Pattern that an error of attnviz must contain if a record is impossible. If it is set, a
        record is right, too.
    prompt : bool
        Whether the record has only the prompt, although the own call generates a token.
    removes : bool
        Whether `shown` also reads the text without single tokens.
    """

    model: Any
    own: Callable[[], Any]
    shown: Callable[[], Any]
    part: int = 0
    note: str = ""
    required: str = ""
    by_ids: bool = False
    batch: bool = False
    error: str = ""
    prompt: bool = False
    removes: bool = False


@dataclass(frozen=True)
class Case:
    """Call in words, and the function that makes it."""

    kind: str
    words: str
    make: Callable[[], Call]


@dataclass
class Row:
    """Row of the table."""

    kind: str
    words: str
    verdict: str
    own: str
    record: str
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as a dictionary for JSON."""
        return asdict(self)


def judged(case: Case) -> Row:
    """Run both calls of a case and return its row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call = case.make()
        except Exception as error:  # noqa: BLE001 - a case that cannot be made is a row, too
            return Row(case.kind, case.words, "not run", _error(error), "")
        return _judged(case, call)


def _judged(case: Case, call: Call) -> Row:
    row = Row(case.kind, case.words, "", "", "")
    own_error: Exception | None = None
    torch.manual_seed(0)
    with observed(call.model) as own:
        try:
            call.own()
        except Exception as error:  # noqa: BLE001 - some own calls raise on purpose
            own_error = error
    readings = own.readings
    if own_error is not None:
        row.own = f"raises {_error(own_error)}"
        if not call.required:
            row.verdict = "not run"
            return row
    elif not readings:
        row.own = "no forward"
    torch.manual_seed(0)
    before = _state(call.model)
    with completed(call.model) as forwards:
        try:
            result = call.shown()
        except Exception as error:  # noqa: BLE001 - the kind of error is what is judged
            return _judged_error(row, call, own, error)
    if _state(call.model) != before:
        row.verdict, row.reason = "silent", "the model has other hooks or attributes than before"
        return row
    if own_error is not None or not readings:
        row.notes = [note for record in _records(result) for note in record.notes]
        row.record = in_words(forwards[-1]) if forwards else "no forward"
        pattern = call.required or call.note
        row.verdict = "said" if pattern and _matches(row.notes, pattern) else "silent"
        return row
    if call.by_ids:
        row.notes = list(getattr(result, "notes", ()))
        return _judged_ids(row, call, own, forwards)
    return _judged_records(row, call, own, forwards, _records(result))


def _state(model: Any) -> Any:
    """Return what a call of attnviz must leave as it was."""
    return sorted(vars(model)), [
        (name, module.training, len(module._forward_pre_hooks), len(module._forward_hooks))
        for name, module in model.named_modules()
    ]


def _judged_error(row: Row, call: Call, own: Observed, error: Exception) -> Row:
    row.own = row.own or in_words(own.arguments(call.part))
    row.record = f"raises {_error(error)}"
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = Path(files[-1]).is_relative_to(Path(attnviz.__file__).parent)
    pattern = call.required or call.error
    is_sentence = isinstance(error, _SENTENCES) and ours
    if is_sentence and pattern and re.search(pattern, str(error), re.IGNORECASE):
        row.verdict = "said"
    elif is_sentence:
        row.verdict = "refused"
    else:
        row.verdict = "crash"
        row.reason = "" if ours else f"raised in {'/'.join(Path(files[-1]).parts[-3:])}"
    return row


def _records(result: Any) -> list[AttentionRecord]:
    if isinstance(result, AttentionRecord):
        return [result]
    record = getattr(result, "record", None)
    if isinstance(record, AttentionRecord):
        return [record]
    if isinstance(result, list | tuple):
        return list(result)
    raise TypeError(f"{type(result).__name__} is no record")


def _judged_records(
    row: Row, call: Call, own: Observed, forwards: list[Arguments], records: list[AttentionRecord]
) -> Row:
    problems: list[str] = []
    for number, record in enumerate(records):
        reading = call.part if call.batch else call.part + number
        reading = min(reading, len(own.readings) - 1)
        batch_row = number if call.batch else 0
        arguments = own.readings[reading].arguments if call.prompt else own.arguments(reading)
        # An extraction of several examples runs one forward for each of them.
        # The last forward is that of the last record. Other forwards may belong to the own call,
        # which attnviz may run, too. A model that `extract` loads itself has no hooks.
        run = forwards if len(records) > 1 else forwards[-1:]
        forward = next((one for one in run if same_input(arguments, one)), {})
        if not forward and run:
            forward = run[min(number, len(run) - 1)]
        if number == 0:
            row.own = in_words(arguments, batch_row)
            row.record = in_words(forward, batch_row) if forward else _tokens_in_words(record)
        row.notes += [note for note in record.notes if note not in row.notes]
        problem = _problem(call.model, arguments, record, batch_row, forward)
        if problem:
            problems.append(problem if len(records) == 1 else f"record {number}: {problem}")
    row.reason = "; ".join(problems)
    if problems:
        row.verdict = "said" if call.note and _matches(row.notes, call.note) else "silent"
        return row
    row.verdict = "same"
    several = own.num_calls > max(len(records), 1) and not call.batch
    pattern = call.required or (_WHICH if several else "")
    if pattern and not _matches(row.notes, pattern):
        row.verdict = "silent"
        row.reason = f"no note contains {pattern!r}"
        if several:
            row.reason += f"; the own call runs {own.num_calls} forwards"
    return row


def _tokens_in_words(record: AttentionRecord) -> str:
    stack = next(iter(record.stacks.values()))
    return f"tokens {' '.join(stack.query_tokens.text)}"


def _problem(
    model: Any, arguments: Arguments, record: AttentionRecord, row: int, forward: Arguments
) -> str:
    try:
        error, reason = weights_error(model, arguments, record, row)
    except Exception as failure:  # noqa: BLE001 - other shapes raise different errors
        return f"the weights cannot be compared: {_error(failure)}"
    if error is None:
        return reason
    limit = _TOLERANCE.get(next(model.parameters()).dtype, _IN_HALF_PRECISION)
    if error > limit:
        return f"weights differ by {error:.3f}"
    if not same_input(arguments, forward):
        return "the weights are almost equal, but the inputs differ"
    return ""


def _judged_ids(row: Row, call: Call, own: Observed, forwards: list[Arguments]) -> Row:
    """Compare the ids of the own forwards with those of the forwards that attnviz runs."""
    expected = [
        ids
        for part, reading in enumerate(own.readings)
        for ids in rows_of(reading.arguments if call.prompt else own.arguments(part))
    ]
    read = [ids for forward in forwards for ids in rows_of(forward)]
    row.own = "; ".join(_ids_in_words(ids) for ids in expected)
    unique = [ids for number, ids in enumerate(read) if ids not in read[:number]]
    row.record = "; ".join(_ids_in_words(ids) for ids in unique)
    if not expected:
        # Images have no ids. Their pixels must be those of one of the forwards.
        own_input = own.arguments(0)
        row.own = in_words(own_input)
        row.record = in_words(forwards[-1]) if forwards else "no forward"
        row.verdict = "same" if any(same_input(own_input, f) for f in forwards) else "silent"
        return row
    if not read:
        row.verdict, row.reason = "silent", "no ids to compare"
        return row
    missing = [ids for ids in expected if not any(_begins(ids, other) for other in read)]
    allowed = expected
    if call.removes:
        allowed = [*expected, *(part for ids in expected for part in _without_each(ids))]
    foreign = [ids for ids in unique if not any(_begins(other, ids) for other in allowed)]
    row.verdict = "same"
    if missing or foreign:
        # A note may say that only a part of each text is read.
        is_said = not foreign and call.required and _matches(row.notes, call.required)
        row.verdict = "said" if is_said else "silent"
        row.reason = f"{len(missing)} texts are not read, {len(foreign)} others are"
    return row


def _without_each(text: Mapping[str, list[int]]) -> Iterator[dict[str, list[int]]]:
    for name, ids in text.items():
        for index in range(len(ids)):
            yield {**text, name: ids[:index] + ids[index + 1 :]}


def _begins(one: Mapping[str, list[int]], other: Mapping[str, list[int]]) -> bool:
    """Return whether two texts are equal, except that the last token may be missing in one."""
    if one.keys() != other.keys():
        return False
    for name, ids in one.items():
        length = min(len(ids), len(other[name]))
        if abs(len(ids) - len(other[name])) > 1 or ids[:length] != other[name][:length]:
            return False
    return True


def _ids_in_words(ids: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{name} {' '.join(map(str, numbers))}" for name, numbers in ids.items())


def _matches(notes: list[str], pattern: str) -> bool:
    return any(re.search(pattern, note, re.IGNORECASE) for note in notes)


def _error(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
