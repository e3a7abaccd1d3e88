"""Extraction of a corpus of points from a model and many texts.

A point is a query or a key of one token. Texts are read in random order until enough points have
been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
from tqdm.auto import tqdm

from attnviz.corpus.corpus import Corpus
from attnviz.corpus.points import checked_points
from attnviz.corpus.reading import BatchSize, ReadText, checked_target, read_records
from attnviz.corpus.texts import TextColumns, Texts
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import whole_number

__all__ = ["extract_corpus", "read_corpus"]

# Reading stops after this many successive texts that would exceed the maximum number of points.
_MAX_MISFITS = 3


def extract_corpus(
    model: Any,
    texts: Any,
    *,
    column: str = "text",
    max_points: int = 10_000,
    seed: int = 0,
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    target: Sequence[str] | None = None,
    batch_size: BatchSize = "auto",
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> Corpus:
    """Extract the attention of a model in a random sample of many texts.

    Texts are read in random order, several in one forward pass. Reading stops when the texts have
    about `max_points` queries and keys. For example, a few hundred of a million texts are read.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        Model, as for `attnviz.extract`.
    texts : sequence, datasets.Dataset or DataFrame
        Texts, pairs of texts ``(first, second)``, images, or anything else that `attnviz.extract`
        accepts as one example. In a dataset or table, they are the values of the column `column`.
    column : str, default "text"
        Column of a dataset or table, or key of a dict, that contains the text or image.
    max_points : int, default 10,000
        Maximum number of points, which are the queries and keys of the first stack. If the first
        text alone has more, a random sample of its tokens is used.
    seed : int, default 0
        Seed of the random order. Calls with equal arguments choose the same points.
    columns : mapping of str to sequence, or iterable of str, optional
        Values by which points can be coloured. A mapping has a list for each column name, with an
        entry for each text. An entry is one value, or a sequence with one value for each token. A
        sequence of strings selects columns of the dataset or table. Unlike `attnviz.Corpus`, this
        function does not accept a flat list with a value for each token of all texts, because the
        numbers of tokens are not known before the texts are read.
    target : sequence of str, optional
        Output that the model is made to produce for each text, as for `attnviz.extract`.
    batch_size : int or "auto"
        Maximum number of texts in one forward pass. "auto" chooses a number that is fast and fits
        into memory. Texts of similar length are read together, and padding is removed. The weights
        differ by at most 1e-4 (float32) from those of each text alone. Some batches are checked
        while they are read. If the weights of a model differ more, its texts are read one by one.
        Images, sounds and generated texts are always read one by one.
    progress : bool
        Whether to show a progress bar, which counts points.
    **options
        Further options of `attnviz.extract`: `tokenizer`, `processor`, `name`, `layers`, `dtype`,
        `device`, `generate` and `truncation`. With `truncation`, no text is too long.

    Returns
    -------
    Corpus
        Corpus of the records, in the order of `texts`. Its `notes` say how many texts were left out
        because they are empty, missing (None, NaN) or too long for the model.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If `texts` is empty, or if all texts are empty or too long. If a column does not have one
        value for each text, or one for each token of a text. If `attnviz.extract` raises ValueError
        for a text. The error names this text (``texts[1734]: ...``).
    MemoryError, OSError
        If `attnviz.extract` raises this error for a text.

    Examples
    --------
    >>> corpus = extract_corpus(model, dataset, columns=["label"])          # doctest: +SKIP
    >>> corpus                                                              # doctest: +SKIP
    <Corpus of bert-base-uncased: 212 of 25,000 texts, 9,996 points>
    """
    return read_corpus(
        model,
        texts,
        column=column,
        max_points=max_points,
        seed=seed,
        columns=columns,
        target=target,
        batch_size=batch_size,
        progress=progress,
        **options,
    )


def read_corpus(
    model: Any,
    texts: Any,
    *,
    check: Callable[[Corpus], None] | None = None,
    column: str = "text",
    max_points: int = 10_000,
    seed: int = 0,
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    target: Sequence[str] | None = None,
    batch_size: BatchSize = "auto",
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> Corpus:
    """Read a corpus as `extract_corpus` does, and call `check` after the first text.

    Parameters
    ----------
    model, texts, column, max_points, seed, columns, target, batch_size, progress, **options
        As for `extract_corpus`.
    check : callable, optional
        Function that receives a corpus of only the first text that could be read. If the function
        raises an error, `read_corpus` raises this error.

    Returns
    -------
    Corpus
    """
    _check_options(options)
    reading = _Reading(checked_points(max_points), whole_number("seed", seed, 0))
    all_texts = Texts(texts, column)
    order = np.random.default_rng(reading.seed).permutation(len(all_texts)).tolist()
    text_columns = TextColumns(columns, all_texts)
    checked_target(target, all_texts)
    loaded = load(model, options.get("tokenizer"), options.get("processor"))
    options |= {"tokenizer": loaded.tokenizer, "processor": loaded.processor}
    bar = tqdm(total=reading.max_points, desc="extract_corpus", unit="point", disable=not progress)
    with bar:
        read_texts = read_records(
            loaded.model,
            all_texts,
            order,
            target=target,
            batch_size=batch_size,
            ahead=_ReadAhead(reading).add,
            # Until the records arrive, estimate one query and one key for each token.
            done=lambda count: _advance_bar(bar, bar.n + 2 * count, reading),
            **options,
        )
        return _corpus_of(read_texts, all_texts, reading, text_columns, check=check, bar=bar)


def _corpus_of(
    read_texts: Iterator[ReadText],
    texts: Texts,
    reading: _Reading,
    columns: TextColumns,
    *,
    check: Callable[[Corpus], None] | None,
    bar: Any,
) -> Corpus:
    """Collect records until they have enough points, and return a corpus of them."""
    for text in _with_advice(read_texts, reading):
        if text.record is None:
            reading.leave_out(text)
            continue
        index, record = text.index, text.record
        columns.check(index, record)
        if not reading.records:
            # `Corpus` raises if the record has no queries and keys. Raise this error now, and not
            # after hours of reading.
            first = Corpus([record])
            reading.stack = first.stack_names[0]
            if check is not None:
                check(first)
        reading.take(index, record)
        _advance_bar(bar, reading.num_points, reading)
        if reading.enough:
            break
    bar.n = bar.total = min(reading.num_points, reading.max_points)
    indices = sorted(reading.records)
    if not indices:
        raise ValueError(
            f"texts: all {len(texts)} are empty or too long for the model. {reading.advice}"
        )
    corpus = Corpus(
        [reading.records[index] for index in indices],
        max_points=reading.max_points,
        seed=reading.seed,
        columns=columns.values_at(indices),
        total_texts=len(texts),
        text_indices=indices,
        num_skipped=reading.empty + reading.too_long,
    )
    corpus.notes += reading.notes()
    return corpus


@dataclass
class _Reading:
    """Records that were read so far, and counts of points and of texts that were left out.

    Points are counted in the stack `stack`. `num_points` is the number of points of `records`.
    `smallest` is the number of points of the text with the fewest points. `misfits` is the number
    of texts that did not fit into `max_points` since the last text that did. `advice` is a sentence
    for the error if all texts are left out.
    """

    max_points: int
    seed: int
    records: dict[int, AttentionRecord] = field(default_factory=dict)
    num_points: int = 0
    smallest: int = 0
    misfits: int = 0
    empty: int = 0
    too_long: int = 0
    advice: str = "Pass texts that contain words."
    stack: str = ""

    def take(self, index: int, record: AttentionRecord) -> int:
        """Keep the record if it is the first or fits. Return the number of points that it adds."""
        stack = record.stacks.get(self.stack)
        size = 0 if stack is None else len(stack.query_tokens) + len(stack.key_tokens)
        self.smallest = min(self.smallest or size, size)
        if self.records and self.num_points + size > self.max_points:
            self.misfits += 1
            return 0
        self.records[index] = record
        self.num_points += size
        self.misfits = 0
        return size

    def leave_out(self, text: ReadText) -> None:
        """Count a text that is empty or too long."""
        if text.skip_reason == "empty":
            self.empty += 1
        else:
            self.too_long += 1
            self.advice = text.reason

    @property
    def enough(self) -> bool:
        """Whether reading should stop, because another text would probably not fit."""
        return self.num_points + self.smallest > self.max_points or self.misfits == _MAX_MISFITS

    def notes(self) -> list[str]:
        """Return sentences on the texts that were left out."""
        notes = []
        if self.empty:
            notes.append(f"{_texts(self.empty)} left out: empty.")
        if self.too_long:
            notes.append(f"{_texts(self.too_long)} left out: too long for the model.")
        return notes


def _advance_bar(bar: Any, points: float, reading: _Reading) -> None:
    """Advance the progress bar to `points`, but at most to `max_points`, and never move it back."""
    bar.update(max(0, min(points, reading.max_points) - bar.n))


class _ReadAhead:
    """Estimate of whether the texts that are being read will have enough points.

    Each token is expected to give a query and a key. When a record has been read, the estimate
    starts again from the counts in `reading`.
    """

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self._progress = (-1, -1)
        self._expected = reading

    def add(self, num_tokens: int) -> bool:
        """Add a text of `num_tokens` tokens. Return whether further texts should be read."""
        progress = (self._reading.num_points, self._reading.misfits)
        if progress != self._progress:
            self._progress, self._expected = progress, replace(self._reading)
        expected, size = self._expected, 2 * num_tokens
        expected.smallest = min(expected.smallest or size, size)
        if expected.num_points + size > expected.max_points:
            expected.misfits += 1
        else:
            expected.num_points, expected.misfits = expected.num_points + size, 0
        return not expected.enough


def _with_advice(read_texts: Iterator[ReadText], reading: _Reading) -> Iterator[ReadText]:
    """Yield from `read_texts`. Add the progress and advice to the message of a MemoryError."""
    try:
        yield from read_texts
    except MemoryError as error:
        raise MemoryError(
            f"{error}. {len(reading.records)} texts with {reading.num_points:,} of "
            f"max_points={reading.max_points:,} were read before. Pass a smaller max_points to "
            "need less memory."
        ) from error


def _texts(count: int) -> str:
    return "1 text is" if count == 1 else f"{count:,} texts are"


def _check_options(options: Mapping[str, Any]) -> None:
    names = RecordOptions.__annotations__
    for name in options:
        if name not in names:
            raise TypeError(
                f"extract_corpus has no argument {name}. Options that it passes to extract are "
                f"{', '.join(sorted(names))}."
            )
