"""Function `extract_corpus`, which reads a random sample of many texts with a model.

A record has the attention in one text. The result is a `Corpus` of records, whose queries and keys
are the points of a plot. Texts are read in random order until the records have enough points. A
stack is the attention of one kind, such as "self" or "cross", in all layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from attnviz.corpus.batches import BatchSize
from attnviz.corpus.columns import TextColumns
from attnviz.corpus.corpus import Corpus
from attnviz.corpus.points import ChosenTexts, checked_points
from attnviz.corpus.reading import checked_target, read_records
from attnviz.corpus.texts import Texts, notes_on_left_out
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions, check_options
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import whole_number
from attnviz.utils.progress import report, with_progress


@with_progress
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
    check: Callable[[Corpus], object] | None = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> Corpus:
    """Extract the attention of a model in a random sample of many texts.

    Texts are read in random order, several in one forward pass. Reading stops when the texts that
    were read have about `max_points` queries and keys. For example, only a few hundred of a million
    texts are read.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        Model, as for `attnviz.extract`.
    texts : sequence, datasets.Dataset or DataFrame
        Texts, pairs of texts ``(first, second)``, images, or anything else that `attnviz.extract`
        accepts as one example. In a dataset or table, they are the values of the column `column`.
    column : str, default "text"
        Column of a dataset or table, or key of a dict, that contains the text or image. A dict that
        has the key ``"text_pair"``, too, is a pair of texts.
    max_points : int, default 10,000
        Maximum number of points, which are the queries and keys of the first stack. If the first
        text that is read has more points, only this text is used, and its points are a random
        sample of its tokens.
    seed : int, default 0
        Seed of the random order. Calls with equal arguments choose the same points.
    columns : mapping of str to sequence, or iterable of str, optional
        Values by which points can be coloured. A mapping has a list for each column name, with an
        entry for each text. An entry is one value, or a sequence with one value for each token. A
        sequence of strings selects columns of the dataset or table.
    target : sequence of str, optional
        Output that the model is made to produce for each text, as for `attnviz.extract`.
    batch_size : int or "auto"
        Maximum number of texts in one forward pass. "auto" chooses a number that is fast and fits
        into memory. Texts of similar length are read together, and padding is removed. In some
        batches, the weights of a text are compared with those of the text alone. They may differ by
        at most 1e-4 (2e-2 in half precision). If they differ more in the first comparison, this
        batch and all further texts are read one by one. If they differ more in a later comparison,
        ValueError is raised. Images, sounds and generated texts are always read one by one.
    check : callable, optional
        Function that is called once, with a corpus of only the first text that could be read. An
        error that it raises ends the reading, before the model reads the other texts.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        Further options of `attnviz.extract`: `tokenizer`, `processor`, `name`, `layers`, `dtype`,
        `device`, `generate` and `truncation`. With ``truncation=True``, long texts are cut, so that
        no text is left out because it is too long.

    Returns
    -------
    Corpus
        Corpus of the records, in the order of `texts`. Its `notes` say how many texts were left out
        because they are empty, missing (None, NaN) or too long for the model. A text is also too
        long if no positions are left for the new tokens of `generate`.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If `texts` is empty, or if all texts are empty or too long. If a column does not have one
        entry for each text, or if a sequence in a column does not have one value for each token of
        its text. If `attnviz.extract` raises ValueError for a text. The error names this text
        (``texts[1734]: ...``).
    MemoryError, OSError
        If `attnviz.extract` raises this error for a text.

    Examples
    --------
    >>> corpus = extract_corpus(model, dataset, columns=["label"])          # doctest: +SKIP
    >>> corpus                                                              # doctest: +SKIP
    <Corpus of bert-base-uncased: 212 of 25,000 texts, 9,996 points>
    """
    check_options(options)
    max_points, seed = checked_points(max_points), whole_number("seed", seed, 0)
    all_texts = Texts(texts, column)
    order = np.random.default_rng(seed).permutation(len(all_texts)).tolist()
    text_columns = TextColumns(columns, all_texts)
    checked_target(target, all_texts)
    loaded = load(model, options.get("tokenizer"), options.get("processor"))
    reading = _Reading(ChosenTexts(max_points))
    done = 0.0

    def advance(share: float) -> None:
        nonlocal done
        done = max(done, min(1.0, share))
        report("texts", done, 1, "text")

    read_texts = read_records(
        loaded,
        all_texts,
        order,
        target=target,
        batch_size=batch_size,
        ahead=reading.look_ahead,
        # The number of points of a text is known only when its record is yielded. Until then, count
        # one query and one key for each token of the batch.
        done=lambda count: advance(done + 2 * count / max_points),
        **options,
    )
    for number, text in enumerate(read_texts, 1):
        if text.record is None:
            reading.skipped[text.skip_reason] += 1
            reading.advice = text.reason or reading.advice
            continue
        text_columns.check(text.index, text.record)
        if not reading.records:
            # Make a corpus of the first record alone. If the record has no queries and keys,
            # `Corpus` raises an error now, and not after hours of reading.
            first = Corpus([text.record])
            reading.stack = first.stack_names[0]
            if check is not None:
                check(first)
        reading.take(text.index, text.record)
        # The call ends when all texts are read, or when their points are enough.
        advance(max(number / len(all_texts), reading.chosen.num_points / max_points))
        if reading.chosen.enough:
            break
    indices = sorted(reading.records)
    if not indices:
        raise ValueError(
            f"texts: all {len(all_texts)} are empty or too long for the model. {reading.advice}"
        )
    corpus = Corpus(
        [reading.records[index] for index in indices],
        max_points=max_points,
        seed=seed,
        columns={
            name: [text_columns[index][name] for index in indices] for name in text_columns.names
        },
        total_texts=len(all_texts),
        text_indices=indices,
        num_skipped=reading.skipped.total(),
    )
    corpus.notes += notes_on_left_out(reading.skipped["empty"], reading.skipped["too long"])
    return corpus


@dataclass
class _Reading:
    """Records of a call of `extract_corpus` so far, and counts of texts that were left out.

    Attributes
    ----------
    chosen : ChosenTexts
        Count of the points of `records`: their queries and keys in the stack `stack`.
    expected : ChosenTexts or None
        Copy of `chosen` that also counts the texts of the current window, which are not read yet.
        Their numbers of points are estimates (`look_ahead`). `take` sets it to None, because the
        records that were read have exact numbers.
    records : dict of int to AttentionRecord
        Record of each chosen text, by the index of the text.
    skipped : Counter of str
        Numbers of texts that were left out, by reason (`ReadText.skip_reason`).
    advice : str
        Last sentence of the error that is raised if all texts are left out: what the user can do.
    stack : str
        Name of the stack whose queries and keys are counted: the first stack of the first record.
        "" before the first record.
    """

    chosen: ChosenTexts
    expected: ChosenTexts | None = None
    records: dict[int, AttentionRecord] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    advice: str = "Pass texts that contain words."
    stack: str = ""

    def look_ahead(self, num_tokens: int) -> bool:
        """Add a text to `expected`. Return whether a further text will probably fit.

        In that case, `read_records` adds a further text to the window, the group of texts that it
        reads together. `num_tokens` is the number of input tokens of the text. Each token is
        expected to give a query and a key.
        """
        if self.expected is None:
            self.expected = replace(self.chosen)
        self.expected.add(2 * num_tokens)
        return not self.expected.enough

    def take(self, index: int, record: AttentionRecord) -> None:
        """Keep the record of the text with the index `index` if it fits. Otherwise drop it.

        It fits if all kept records together then have at most `max_points` points. The first record
        always fits.
        """
        self.expected = None
        stack = record.stacks.get(self.stack)
        size = 0 if stack is None else len(stack.query_tokens) + len(stack.key_tokens)
        if self.chosen.add(size):
            self.records[index] = record
