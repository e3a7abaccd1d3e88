"""Function `head_statistics`, which measures all heads of a model over many texts."""

from __future__ import annotations

import functools
import operator
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from attnviz.corpus.checkpoint import check_same, fingerprint, weights_hash
from attnviz.corpus.columns import TextColumns
from attnviz.corpus.on_ray import (
    RayEngine,
    Work,
    actor_results,
    check_model,
    from_bytes,
    is_dataset,
    is_loader,
    loaded_in_actor,
    merged_results,
    resolve_engine,
    running_ray,
    to_bytes,
    to_table,
)
from attnviz.corpus.reading import (
    BatchSize,
    ReadText,
    checked_batch_size,
    checked_target,
    read_records,
)
from attnviz.corpus.statistics import HeadStatistics
from attnviz.corpus.statistics_file import statistics_state, write_statistics
from attnviz.corpus.texts import Texts
from attnviz.extraction.models import Loaded, load, name_of
from attnviz.extraction.options import (
    CaptureOptions,
    Layers,
    read_capture_options,
)
from attnviz.extraction.preprocessors import call_reader, find_tokenizer
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.safetensors_file import add_suffix
from attnviz.utils.arguments import (
    as_path,
    format_numbers,
    given_arguments,
    refuse_arguments,
    resolve_negative,
    short_repr,
    whole_number,
)

__all__ = ["head_statistics"]

# Maximum number of texts whose tokens are counted, to find the rarest token of a text.
_MAX_COUNTED_TEXTS = 2_000
# Minimum time in seconds between two writes of the checkpoint file.
_SECONDS_BETWEEN_WRITES = 30.0
# Maximum number of texts whose fingerprints a checkpoint stores, for calls with resume=True.
_NUM_FINGERPRINTS = 64


def head_statistics(
    model: Any,
    texts: Any = None,
    *,
    column: str = "text",
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    parse: Sequence[Any] | str | None = None,
    target: Sequence[str] | None = None,
    truncation: bool | int = False,
    tokenizer: Any = None,
    processor: Any = None,
    name: str | None = None,
    layers: Layers = None,
    batch_size: BatchSize = "auto",
    edges: int = 100,
    seed: int = 0,
    part: tuple[int, int] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    engine: Any = None,
    progress: bool = True,
) -> HeadStatistics:
    """Measure the attention of every head of a model over many texts.

    Several texts are read in one forward pass. Their records are not kept. Therefore the result is
    a small object for any number of texts.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline, or list of AttentionRecord
        Model, as for `attnviz.extract`. Or a list of existing records. In that case omit `texts`
        and all arguments except `columns`, `parse`, `name`, `layers`, `edges`, `seed` and
        `progress`.
    texts : sequence, datasets.Dataset, DataFrame or ray.data.Dataset
        Texts, as for `attnviz.extract_corpus`. All texts are read. A Ray dataset is first converted
        to a table in memory.
    column : str, default "text"
        Column of a dataset or table, or key of a dict, that contains the text.
    columns : mapping of str to sequence, or iterable of str, optional
        Classes of texts or of their tokens, such as parts of speech. A mapping has a list for each
        column name, with an entry for each text: the class of the text, or a sequence with the
        class of each token. A sequence of strings selects columns of the dataset.
    parse : sequence or str, optional
        Dependency parse of each text: ``(heads, relations)`` or ``(words, heads, relations)``. Each
        of these lists has one entry for each word. The head of a word is the index of another word,
        or -1 for the root. A parse can also be a mapping with these keys, or None if a text has no
        parse. A string is the name of a column of the dataset. Each relation gets a score.
    target : sequence of str, optional
        Output that the model is made to produce for each text, as for `attnviz.extract`.
    truncation : bool or int, default False
        Whether to cut long texts, or their maximum number of tokens, as for `attnviz.extract`. If
        False, texts that are too long for the model are left out.
    tokenizer, processor : object, optional
        Tokenizer or processor of the model, as for `attnviz.extract`.
    name : str, optional
        Name of the model. By default the last part of its hub id or folder.
    layers : optional
        Layers to measure, as for `attnviz.extract`. By default all layers.
    batch_size : int or "auto"
        Maximum number of texts in one forward pass, as for `attnviz.extract_corpus`.
    edges : int, default 100
        Maximum number of strongest edges, and of sampled edges, that are kept for each head. An
        edge is a pair of a query and a key with its weight.
    seed : int, default 0
        Seed of the sampled edges.
    part : (int, int), optional
        Part of the texts to read, for example in one job of a job array. ``(3, 16)`` divides the
        texts into 16 parts, numbered from 0 to 15, and reads part 3. Pass all texts to every job.
        The sum (``+``) of the statistics of all parts is the statistics of all texts.
    checkpoint : path-like, optional
        File to which the statistics are saved about every 30 seconds, after the last text, and
        after an error or interrupt. Without this file, an error or interrupt loses all statistics.
    resume : bool, default False
        Whether to continue from the file `checkpoint` if it exists. If False, an existing file
        raises FileExistsError.
    engine : {None, "ray"} or RayEngine
        Where the model runs. None runs the model in this process, or on Ray if `texts` is a Ray
        dataset. "ray" or an `attnviz.corpus.RayEngine` runs the model in Ray actors (see
        ``docs/at-scale.md`` for the requirements). The results are the same except for rounding,
        which depends on the batches. Each actor loads the model from a hub id, a folder or a
        function, or receives a copy of a model that is on the CPU.
    progress : bool
        Whether to show a progress bar, which counts texts.

    Returns
    -------
    HeadStatistics
        Statistics of all heads. The attribute `notes` says how many texts were left out because
        they are empty or too long for the model.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or does not fit the others. If a text cannot be read, the
        error names this text. If `checkpoint` belongs to another model, other texts or other
        arguments, the error says which of them differs.
    FileExistsError
        If the file `checkpoint` exists and `resume` is False.
    MemoryError, OSError
        If `attnviz.extract` raises this error for a text.

    See Also
    --------
    StackStatistics.roles : Roles of heads, such as "induction", with their statistical tests.

    Notes
    -----
    ``docs/heads.md`` has the formula and the source of every score. A mean score is a mean over
    texts: long and short texts count equally.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")
    >>> texts = ["the cat and the dog met the cat and the", "a b c a b c a b"] * 4
    >>> statistics = av.head_statistics(model, texts, tokenizer=tokenizer, progress=False)
    >>> statistics
    <HeadStatistics of decoder: 12 heads over 8 texts, 72 tokens>
    >>> statistics.stack().roles().names[0][0]
    'previous token'
    """
    on_ray = resolve_engine(engine, texts)
    if texts is None:
        given = given_arguments(
            head_statistics,
            {
                "column": column,
                "target": target,
                "truncation": truncation,
                "tokenizer": tokenizer,
                "processor": processor,
                "batch_size": batch_size,
                "part": part,
                "checkpoint": checkpoint,
                "resume": resume,
                "engine": engine,
            },
        )
        refuse_arguments(given, "texts is missing, and records need no further arguments")
        return _statistics_of_records(
            model,
            columns,
            parse,
            name=name,
            layers=layers,
            edges=edges,
            seed=seed,
            progress=progress,
        )
    batch_size = checked_batch_size(batch_size)
    all_texts = Texts(to_table(texts) if is_dataset(texts) else texts, column)
    checked_target(target, all_texts)
    text_columns = TextColumns(columns, all_texts)
    parses = _read_parses(parse, all_texts)
    loaded = (load if on_ray is None else _unloaded_model)(model, tokenizer, processor)
    if resume and checkpoint is None:
        raise ValueError("resume=True continues from a file. Pass its path as checkpoint.")
    statistics = HeadStatistics(
        name or (None if is_loader(model) else name_of(loaded.model)),
        weights=weights_hash(loaded.model) if isinstance(loaded.model, torch.nn.Module) else "",
        edges=edges,
        seed=seed,
        columns=text_columns.names,
        frequencies=_frequencies(loaded, all_texts),
    )
    # A checkpoint stores all `arguments`, and fingerprints of some of the values in `by_text`.
    by_text = {
        "texts": all_texts,
        "parse": parses,
        "target": target,
        "columns": text_columns,
    }
    arguments = {
        "column": column,
        "truncation": str(truncation),
        "layers": short_repr(layers),
        "part": None if part is None else str(part),
    }
    saver = _Checkpoint.open(checkpoint, arguments, by_text, len(all_texts), resume=resume)
    if saver is not None:
        statistics = saver.load_or_create(statistics)
    read_ranges = statistics.text_numbers
    part_texts = _part_indices(part, len(all_texts))
    indices = [
        index for index in _unread_indices(read_ranges, len(all_texts)) if index in part_texts
    ]
    bar = tqdm(
        total=len(part_texts),
        initial=len(part_texts) - len(indices),
        desc="head_statistics",
        unit="text",
        disable=not progress,
    )
    if on_ray is not None:
        shared = _Shared(
            model=model,
            texts=all_texts,
            columns=text_columns,
            parses=parses,
            target=target,
            tokenizer=tokenizer if isinstance(tokenizer, str | Path) else loaded.tokenizer,
            processor=processor if isinstance(processor, str | Path) else loaded.processor,
            truncation=truncation,
            layers=layers,
            name=name,
            batch_size=batch_size,
            empty=statistics,
            engine=on_ray,
        )
        return _read_on_ray(shared, statistics, indices, bar=bar, saver=saver)
    reading = read_records(
        loaded.model,
        all_texts,
        indices,
        target=target,
        batch_size=batch_size,
        ordered=False,
        tokenizer=loaded.tokenizer,
        processor=loaded.processor,
        truncation=truncation,
        layers=layers,
        name=statistics.model,
    )
    try:
        with bar:
            for text in reading:
                _add_text(statistics, text, text_columns, parses)
                bar.update()
                if saver is not None:
                    saver.write_if_due(statistics)
    finally:
        if saver is not None:
            saver.write(statistics)
    return _check_not_empty(statistics, len(all_texts))


def _check_not_empty(statistics: HeadStatistics, count: int) -> HeadStatistics:
    if not statistics.texts:
        raise ValueError(
            f"texts: all {count} are empty or too long for the model. Pass texts that contain "
            "words, or truncation=True."
        )
    return statistics


@dataclass(frozen=True, eq=False)
class _RemoteModel:
    """Placeholder for a model that only the Ray actors load.

    `name_or_path` is the hub id or folder from which a tokenizer can be loaded, or "".
    """

    name_or_path: str


def _unloaded_model(model: Any, tokenizer: Any, processor: Any) -> Loaded:
    """Return `Loaded` with a `_RemoteModel`, or with the model if it is already in memory.

    Raise ValueError if a model in memory is not on the CPU.
    """
    check_model(model)
    if not isinstance(model, str | os.PathLike) and not is_loader(model):
        return load(model, tokenizer, processor)
    source: Any = _RemoteModel("" if is_loader(model) else str(model))
    if isinstance(tokenizer, str | Path):
        source, tokenizer = _RemoteModel(str(tokenizer)), None
    return Loaded(source, tokenizer, processor)


@dataclass(frozen=True)
class _Shared:
    """Arguments of `head_statistics` that every Ray actor receives.

    Actors use only the settings and the token frequencies of `empty`.
    """

    model: Any
    texts: Texts
    columns: TextColumns
    parses: Sequence[Any] | None
    target: Any
    tokenizer: Any
    processor: Any
    truncation: Any
    layers: Any
    name: str | None
    batch_size: BatchSize
    empty: HeadStatistics
    engine: RayEngine


def _make_work(shared: _Shared) -> Work:
    """Load the model in a Ray actor, and return the function that measures texts.

    The returned function takes the indices of texts, and returns their statistics as bytes.
    """
    loaded = load(loaded_in_actor(shared.model, shared.engine), shared.tokenizer, shared.processor)
    frequencies, weights = shared.empty._frequencies, weights_hash(loaded.model)

    def measure(indices: list[int]) -> bytes:
        statistics = HeadStatistics(
            shared.name or name_of(loaded.model),
            weights=weights,
            edges=shared.empty.edges,
            seed=shared.empty.seed,
            columns=shared.empty.class_systems[1:],
            frequencies=frequencies,
        )
        for text in read_records(
            loaded.model,
            shared.texts,
            indices,
            target=shared.target,
            batch_size=shared.batch_size,
            ordered=False,
            tokenizer=loaded.tokenizer,
            processor=loaded.processor,
            truncation=shared.truncation,
            layers=shared.layers,
            name=statistics.model,
        ):
            _add_text(statistics, text, shared.columns, shared.parses)
        # Do not send the frequencies back: they are the same in all results.
        statistics._frequencies = {}
        return to_bytes(lambda path: write_statistics(path, statistics))

    return measure


def _merge(parts: list[bytes]) -> bytes:
    """Add statistics that are encoded as bytes. Return the sum as bytes."""
    statistics = [from_bytes(part, HeadStatistics.load) for part in parts]
    total = functools.reduce(operator.add, statistics)
    return to_bytes(lambda path: write_statistics(path, total))


def _read_on_ray(
    shared: _Shared,
    statistics: HeadStatistics,
    indices: list[int],
    *,
    bar: Any,
    saver: _Checkpoint | None,
) -> HeadStatistics:
    with bar, running_ray():
        batches = actor_results(shared.engine, indices, _make_work, shared) if indices else iter(())
        try:
            for data in merged_results(batches, _merge, bar.update):
                part = from_bytes(data, HeadStatistics.load)
                part._frequencies = statistics._frequencies
                statistics = statistics + part
                if saver is not None:
                    saver.write_if_due(statistics)
        finally:
            if saver is not None:
                saver.write(statistics)
    return _check_not_empty(statistics, len(shared.texts))


def _add_text(
    statistics: HeadStatistics,
    text: ReadText,
    text_columns: TextColumns,
    parses: Sequence[Any] | None,
) -> None:
    if text.record is None:
        statistics.skip(text.index, text.skip_reason)
        return
    try:
        statistics.add(
            text.record,
            text.index,
            columns=text_columns[text.index],
            parse=None if parses is None else parses[text.index],
        )
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"texts[{text.index}]: {error}") from error


def _statistics_of_records(
    records: Any,
    columns: Mapping[str, Any] | Iterable[str] | None,
    parse: Any,
    *,
    edges: int,
    seed: int,
    name: str | None,
    layers: Layers,
    progress: bool,
) -> HeadStatistics:
    if isinstance(records, AttentionRecord):
        records = [records]
    if isinstance(records, str | Mapping) or not isinstance(records, Iterable):
        raise TypeError(
            "texts is missing. Pass a model and texts, head_statistics(model, texts), or a list of "
            f"records, not {type(records).__name__}."
        )
    listed = list(records)
    if not listed:
        raise ValueError("records is empty. Pass at least one record.")
    for number, record in enumerate(listed):
        if not isinstance(record, AttentionRecord):
            raise TypeError(
                f"records[{number}] must be an AttentionRecord, not {type(record).__name__}"
            )
    capture = read_capture_options(layers)
    text_columns = TextColumns(columns, Texts(listed))
    parses = _read_parses(parse, Texts(listed))
    counted: Counter[int | str] = Counter()
    for index in _counted_indices(len(listed)):
        sides = {id(s.key_tokens): s.key_tokens for s in listed[index].stacks.values()}
        for tokens in sides.values():
            counted.update(tokens.text if tokens.ids is None else tokens.ids)
    statistics = HeadStatistics(
        edges=edges, seed=seed, columns=text_columns.names, frequencies=counted
    )
    for number, record in enumerate(
        tqdm(listed, desc="head_statistics", unit="text", disable=not progress)
    ):
        try:
            statistics.add(
                _with_layers(record, capture, name),
                number,
                columns=text_columns[number],
                parse=None if parses is None else parses[number],
            )
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"records[{number}]: {error}") from error
    return statistics


def _with_layers(
    record: AttentionRecord, capture: CaptureOptions, name: str | None
) -> AttentionRecord:
    """Return a record with only the layers in `capture`, and with `name` as the model's name.

    If `name` is None, the model's name is not changed. Raise ValueError if a layer of `capture`
    exists in no stack.
    """
    if capture.layers is None and name is None:
        return record
    stacks: dict[str, AttentionStack] = {}
    for stack in record.stacks.values():
        selected = capture.of_stack(stack.layers).layers
        layers = [number for number in stack.layers if selected is None or number in selected]
        if layers:
            stacks[stack.name] = AttentionStack(
                stack.name,
                {layer: stack.attention(layer) for layer in layers},
                stack.query_tokens,
                None if stack.key_tokens is stack.query_tokens else stack.key_tokens,
                normalized=stack.normalized,
                signed=stack.signed,
                measure=stack.measure,
            )
    missing = [
        layer
        for layer in capture.layers or ()
        if not any(
            resolve_negative(layer, stack.layers) in stack.layers
            for stack in record.stacks.values()
        )
    ]
    if missing:
        layers_of_stacks = "; ".join(
            f"{number.name!r} {format_numbers(number.layers)}" for number in record.stacks.values()
        )
        raise ValueError(
            f"layers: layer {missing[0]} does not exist. The records have layers "
            f"{layers_of_stacks}."
        )
    return AttentionRecord(stacks, model=record.model if name is None else name)


def _read_parses(parse: Any, texts: Texts) -> Sequence[Any] | None:
    """Return a list with the parse of each text, or None if `parse` is None.

    If `parse` is a string, return the values of this column of the dataset.
    """
    if parse is None:
        return None
    if isinstance(parse, str):
        values, _ = texts.values(parse)
        return list(values)
    if isinstance(parse, Mapping) or not hasattr(parse, "__len__"):
        raise TypeError(
            "parse must be a sequence with an entry for each text, (heads, relations) or (words, "
            f"heads, relations), not {type(parse).__name__}"
        )
    if len(parse) != len(texts):
        raise ValueError(
            f"parse has {len(parse)} entries, but there are {len(texts)} texts. Pass one for each "
            "text, or None for a text without a parse."
        )
    return list(parse)


def _part_indices(part: Any, count: int) -> range:
    """Return the indices of the texts that the argument `part` selects from `count` texts."""
    if part is None:
        return range(count)
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise TypeError(
            f"part={short_repr(part)} must be a pair (part, number of parts), such as (3, 16)"
        )
    parts = whole_number(
        "part[1]", part[1], 1, count, hint="the number of parts, each with at least one text"
    )
    number = whole_number("part[0]", part[0], 0, parts - 1, hint="the index of a part")
    return range(number * count // parts, (number + 1) * count // parts)


def _unread_indices(ranges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Return the indices below `count` that are in none of the half-open `ranges`."""
    unread = np.ones(count, np.bool_)
    for start, stop in ranges:
        unread[start:stop] = False
    indices: list[int] = np.flatnonzero(unread).tolist()
    return indices


def _frequencies(loaded: Loaded, texts: Texts) -> dict[int | str, int]:
    """Count each token id in a sample of up to `_MAX_COUNTED_TEXTS` evenly spaced texts.

    Return an empty dict if the model has no tokenizer.
    """
    count = len(texts)
    tokenizer = find_tokenizer(loaded, from_hub=False)
    if tokenizer is None:
        return {}
    sample = [texts[index] for index in _counted_indices(count)]
    sample = [text for text in sample if isinstance(text, str) and text.strip()]
    counted: Counter[int | str] = Counter()
    for start in range(0, len(sample), 64):
        chunk = sample[start : start + 64]
        encoded = call_reader(tokenizer, chunk, add_special_tokens=False, verbose=False)
        for ids in encoded["input_ids"]:
            counted.update(ids)
    return dict(counted)


def _fingerprints(values: Any, indices: Iterable[int]) -> dict[str, int]:
    """Map each of `indices`, as a string, to the fingerprint of the value at this index."""
    return {str(index): fingerprint(values[index]) for index in indices}


def _counted_indices(count: int) -> list[int]:
    """Return up to `_MAX_COUNTED_TEXTS` evenly spaced indices of `count` texts."""
    spread = np.linspace(0, count - 1, min(count, _MAX_COUNTED_TEXTS)).astype(np.int64)
    indices: list[int] = np.unique(spread).tolist()
    return indices


@dataclass
class _Checkpoint:
    """File to which the statistics are saved while texts are read.

    `arguments` and `by_text` describe the call. `count` is the number of texts. `written` is the
    monotonic time of the last write, or of the start of the call.
    """

    path: Path
    arguments: Mapping[str, Any]
    by_text: Mapping[str, Any]
    count: int
    written: float = 0.0

    @classmethod
    def open(
        cls,
        path: Any,
        arguments: Mapping[str, Any],
        by_text: Mapping[str, Any],
        count: int,
        *,
        resume: bool,
    ) -> _Checkpoint | None:
        """Return the checkpoint at `path`, or None if `path` is None.

        Raise FileExistsError if the file exists and `resume` is False.
        """
        if path is None:
            return None
        file = add_suffix(as_path("checkpoint", path, "file"))
        if file.exists() and not resume:
            raise FileExistsError(
                f"checkpoint={str(path)!r} already exists. Pass resume=True to continue it, or "
                "another path."
            )
        return cls(file, arguments, by_text, count, time.monotonic())

    def load_or_create(self, new: HeadStatistics) -> HeadStatistics:
        """Load and return the statistics in the file, after checking that they fit this call.

        If the file does not exist, write `new` to the file and return `new`.
        """
        if not self.path.exists():
            self.write(new)
            return new
        saved, saved_arguments = statistics_state(self.path, HeadStatistics)
        if saved_arguments is None:
            raise ValueError(
                f"checkpoint={str(self.path)!r} contains statistics that are not a checkpoint. "
                "Load them with HeadStatistics.load, and add the statistics of new texts."
            )
        saved_values = {
            **saved_arguments,
            "model": saved.model,
            "model's weights": saved.weights,
            "edges": saved.edges,
            "seed": saved.seed,
        }
        values = {
            **self.arguments,
            "model": new.model,
            "model's weights": new.weights,
            "edges": new.edges,
            "seed": new.seed,
        }
        if not new.weights:
            # The Ray actors have not loaded the model yet. `HeadStatistics.__add__` compares the
            # name and the weights later.
            values = {name: values[name] for name in values if not name.startswith("model")}
        check_same(self.path, saved_values, values)
        self._check_texts(saved, saved_arguments)
        return saved

    def _check_texts(self, saved: HeadStatistics, saved_arguments: Mapping[str, Any]) -> None:
        """Raise ValueError if a stored fingerprint of a text that was read has changed.

        Also raise ValueError if this call has an argument of `by_text` that the file lacks, or the
        reverse. Texts that were not read yet may change.
        """
        for argument, values in self.by_text.items():
            before = saved_arguments.get(argument) or {}
            if bool(before) != (values is not None):
                raise ValueError(
                    f"checkpoint={str(self.path)!r} was made with{'' if before else 'out'} "
                    f"{argument}. Pass the same {argument} or another file."
                )
            read = [
                index
                for index in map(int, before)
                if any(start <= index < stop for start, stop in saved.text_numbers)
            ]
            if any(index >= self.count for index in read) or _fingerprints(values, read) != {
                str(index): before[str(index)] for index in read
            }:
                raise ValueError(
                    f"checkpoint={str(self.path)!r} was made with different {argument}. Pass the "
                    f"same {argument} or another file."
                )

    def write_if_due(self, statistics: HeadStatistics) -> None:
        """Write the file if the last write was more than `_SECONDS_BETWEEN_WRITES` seconds ago."""
        if time.monotonic() - self.written > _SECONDS_BETWEEN_WRITES:
            self.write(statistics)

    def write(self, statistics: HeadStatistics) -> None:
        """Write `statistics` to the file, with the arguments and fingerprints of some texts."""
        indices = sorted(
            {round(index) for index in np.linspace(0, self.count - 1, _NUM_FINGERPRINTS)}
        )
        fingerprints = {
            argument: None if values is None else _fingerprints(values, indices)
            for argument, values in self.by_text.items()
        }
        write_statistics(self.path, statistics, arguments={**self.arguments, **fingerprints})
        self.written = time.monotonic()
