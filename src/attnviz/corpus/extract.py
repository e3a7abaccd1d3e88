"""Extraction of a corpus: texts are read in random order until there are enough points."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from tqdm.auto import tqdm

from attnviz.corpus.columns import is_missing
from attnviz.corpus.corpus import Corpus
from attnviz.corpus.points import checked_points
from attnviz.corpus.texts import TextColumns, Texts
from attnviz.extraction import extract
from attnviz.extraction.capabilities import TooManyTokensError
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import as_path, whole_number
from attnviz.utils.restoring import Restoring

__all__ = ["extract_corpus", "read_corpus"]

# Arguments that are the same for all texts.
_OF_ALL_TEXTS = {*RecordOptions.__annotations__, "model", "progress", "spool", "target"}
# Texts in a row that may turn out not to fit into what is left, each a forward in vain.
_MISFITS = 3


def extract_corpus(
    model: Any,
    texts: Any,
    *,
    column: str = "text",
    points: int = 10_000,
    seed: int = 0,
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    target: Sequence[str] | None = None,
    spool: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> Corpus:
    """Record how a model attends in many texts, until there are enough queries and keys.

    Texts are read in random order, each in a forward of its own, and only as many as are needed:
    of a dataset of a million texts a few hundred.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    texts : sequence, datasets.Dataset or DataFrame
        Texts, pairs of texts ``(first, second)``, images, or whatever else `attnviz.extract` takes
        as one example. Of a dataset or table its column `column`.
    column : str, default "text"
        Where in a row of a dataset or table, or in a dict, the text or image is.
    points : int, default 10,000
        How many queries and keys to look at together, of the first stack. Only the first text may
        have more: of it a random part is looked at.
    seed : int, default 0
        Of the random order. The same texts, points and seed give the same points.
    columns : mapping of str to sequence, or iterable of str, optional
        What is known of the texts, to colour points by: for each name one value a text, or one
        sequence a text with a value for each of its tokens. Or names of columns of the dataset or
        table. (How many tokens all texts have is not known before: a flat list of one a token is
        for `attnviz.Corpus` alone.)
    target : sequence of str, optional
        For each text what the model is made to produce, as for `attnviz.extract`.
    spool : path-like, optional
        A folder to which queries and keys are written, a folder in it for each text, as for
        `attnviz.extract`; one that is not there yet, or is empty.
    progress : bool
        Whether to show a progress bar, which counts points.
    **options
        Further ones of `attnviz.extract`: tokenizer, processor, name, layers, heads, dtype, device,
        generate, and truncation, with which no text is too long.

    Returns
    -------
    Corpus
        In the order of `texts`. Its notes say how many texts are empty or missing (None, NaN), or
        too long for the model, and were left out.

    Raises
    ------
    TypeError
        If an argument is of a kind that cannot be read.
    ValueError
        If there are no texts, or all are empty or too long; if a column has another number of
        values than there are texts; and as `attnviz.extract`, with the number of the text where
        that is what it cannot read.
    MemoryError
        As `attnviz.extract`, with the number of the text.
    OSError
        As `attnviz.extract`. What was written is removed, also when it is interrupted.

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
        points=points,
        seed=seed,
        columns=columns,
        target=target,
        spool=spool,
        progress=progress,
        **options,
    )


def read_corpus(
    model: Any,
    texts: Any,
    *,
    check: Callable[[Corpus], None] | None = None,
    column: str = "text",
    points: int = 10_000,
    seed: int = 0,
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    target: Sequence[str] | None = None,
    spool: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> Corpus:
    """Do what `extract_corpus` does, and have the first text looked at.

    Parameters
    ----------
    model, texts, column, points, seed, columns, target, spool, progress, **options
        As for `extract_corpus`.
    check : callable, optional
        Given a corpus of the first text alone; what it raises ends the reading.

    Returns
    -------
    Corpus
    """
    _check_options(options)
    reading = _Reading(checked_points(points), whole_number("seed", seed, 0))
    given = Texts(texts, column)
    known = TextColumns(columns, given)
    if target is not None and (isinstance(target, str) or len(target) != len(given)):
        found = "one text" if isinstance(target, str) else f"{len(target)} entries"
        raise ValueError(
            f"target must be a list with an entry for each of the {len(given)} texts; got {found}"
        )
    loaded = load(model, options.get("tokenizer"), options.get("processor"))
    options |= {"tokenizer": loaded.tokenizer, "processor": loaded.processor}
    order = np.random.default_rng(reading.seed).permutation(len(given)).tolist()
    progress_bar = tqdm(
        total=reading.points, desc="extract_corpus", unit="point", disable=not progress
    )
    with progress_bar as bar, Restoring() as undo, undo, undo:
        folder = _spool_folder(spool, reading, undo)
        for place in order:
            text = given[place]
            if _is_empty(text):
                reading.empty += 1
                continue
            inside = folder / str(place) if folder is not None else None
            wanted = None if target is None else target[place]
            record = _extracted(
                loaded.model, text, place, reading, target=wanted, spool=inside, **options
            )
            if record is None:
                continue
            known.check(place, record)
            if not reading.records:
                # Before hours of reading: also whether there are queries and keys at all.
                first = Corpus([record])
                reading.stack = first.stack_names[0]
                if check is not None:
                    check(first)
            size = reading.take(place, record)
            bar.update(min(size, reading.points - bar.n))
            if not size and inside is not None:
                shutil.rmtree(inside)
            if reading.enough:
                break
        bar.total = bar.n
        places = sorted(reading.records)
        if not places:
            raise ValueError(
                f"texts: all {len(given)} are empty or too long for the model; {reading.last_words}"
            )
        corpus = Corpus(
            [reading.records[place] for place in places],
            points=reading.points,
            seed=reading.seed,
            columns=known.of(places),
            texts_in_all=len(given),
            places=places,
            left_out=reading.empty + reading.too_long,
        )
        reading.complete = True
    corpus.notes += reading.notes()
    return corpus


@dataclass
class _Reading:
    """What was read so far."""

    points: int
    seed: int
    records: dict[int, AttentionRecord] = field(default_factory=dict)
    in_all: int = 0
    smallest: int = 0
    misfits: int = 0
    empty: int = 0
    too_long: int = 0
    last_words: str = "give texts with words in them"
    stack: str = ""
    complete: bool = False

    def take(self, place: int, record: AttentionRecord) -> int:
        """Keep a record where it fits, and say how many points it brings."""
        stack = record.stacks.get(self.stack)
        size = 0 if stack is None else len(stack.query_tokens) + len(stack.key_tokens)
        self.smallest = min(self.smallest or size, size)
        if self.records and self.in_all + size > self.points:
            self.misfits += 1
            return 0
        self.records[place] = record
        self.in_all += size
        self.misfits = 0
        return size

    @property
    def enough(self) -> bool:
        """Whether another text would be read in vain, as far as one can tell."""
        return self.in_all + self.smallest > self.points or self.misfits == _MISFITS

    def notes(self) -> list[str]:
        """What was left out."""
        found = []
        if self.empty:
            found.append(f"{_texts(self.empty)} empty, and left out.")
        if self.too_long:
            found.append(
                f"{_texts(self.too_long)} left out: longer than the model has positions for."
            )
        return found


def _texts(count: int) -> str:
    return "1 text is" if count == 1 else f"{count:,} texts are"


def _extracted(
    model: Any, text: Any, place: int, reading: _Reading, **options: Any
) -> AttentionRecord | None:
    """The record of one text, None where it is too long for the model."""
    try:
        record = extract(model, text, progress=False, **options)
    except TooManyTokensError as error:
        reading.too_long += 1
        reading.last_words = f"texts[{place}]: {error}"
        return None
    except MemoryError as error:
        raise MemoryError(
            f"texts[{place}]: {error}. Before it {len(reading.records)} texts were read, with "
            f"{reading.in_all:,} of points={reading.points:,}: fewer points need less"
        ) from error
    except (TypeError, ValueError) as error:
        # Some of these make their words of several arguments.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{_whose(place, str(error), options)}{error}") from error
    if not isinstance(record, AttentionRecord):
        raise TypeError(
            f"texts[{place}] holds {len(record)} examples; give each one as a separate text"
        )
    return record


def _whose(place: int, words: str, options: Mapping[str, Any]) -> str:
    """The text's number, unless the words are of an argument that is the same for all texts."""
    argument = re.split(r"\W", words, maxsplit=1)[0]
    # What is to be produced is each text's own, where it is given.
    of_all = argument in _OF_ALL_TEXTS and (argument != "target" or options["target"] is None)
    return "" if of_all else f"texts[{place}]: "


def _is_empty(text: Any) -> bool:
    """Whether there is nothing in it to read."""
    if isinstance(text, tuple | list):
        return all(map(_is_empty, text))
    return is_missing(text) or (isinstance(text, str) and not text.strip())


def _check_options(options: Mapping[str, Any]) -> None:
    known = RecordOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(
                f"extract_corpus takes no {name}=; beside its own arguments there are "
                f"{', '.join(sorted(known))}"
            )


def _spool_folder(spool: Any, reading: _Reading, undo: Restoring) -> Path | None:
    """The folder to write to.

    What was written is removed when the block of `undo` ends and the reading is not complete.
    """
    if spool is None:
        return None
    folder = as_path("spool", spool, "folder")
    made = not folder.exists()
    if not made and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            errno.EEXIST,
            f"spool={str(spool)!r} is there already and not an empty folder; give another",
            str(folder),
        )
    undo.add(partial(_clear, folder, reading, made=made))
    folder.mkdir(exist_ok=True)
    return folder


def _clear(folder: Path, reading: _Reading, *, made: bool) -> None:
    if reading.complete or not folder.exists():
        return
    for each in folder.iterdir():
        shutil.rmtree(each, ignore_errors=True)
    if made:
        with suppress(OSError):
            folder.rmdir()
