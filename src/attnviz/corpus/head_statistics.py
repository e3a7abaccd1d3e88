"""Function `head_statistics`, which measures all heads of a model over many texts.

The function reads texts with the model. For each text this gives a record, which has the attention
in the text. The records are added to an `Accumulator`, which has sums over texts and keeps no
records. Therefore texts can be added in several calls (the argument `part`), or by
actors (processes of the framework Ray) whose sums are merged.
"""

from __future__ import annotations

import functools
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from attnviz.analysis.measures import Measure, own_measures, register_all
from attnviz.corpus.accumulator import Accumulator
from attnviz.corpus.batches import BatchSize, checked_batch_size
from attnviz.corpus.checks import listed_records
from attnviz.corpus.columns import TextColumns
from attnviz.corpus.on_ray import (
    RayEngine,
    actor_results,
    check_on_cpu,
    is_dataset,
    is_loader,
    resolve_engine,
    to_table,
)
from attnviz.corpus.reading import checked_target, read_records
from attnviz.corpus.statistics import HeadStatistics
from attnviz.corpus.texts import Texts
from attnviz.corpus.totals import Settings, Totals
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.models import load, name_of
from attnviz.extraction.modules import plain_numbers
from attnviz.extraction.options import Layers, RecordOptions, read_capture_options
from attnviz.extraction.preprocessors import call_reader
from attnviz.record.record import AttentionRecord, derive_record
from attnviz.utils.arguments import (
    given_arguments,
    refuse_arguments,
    short_repr,
    whole_number,
)
from attnviz.utils.progress import report, with_progress

# Maximum number of texts or records in which tokens are counted to find the rarest token of each
# text.
_MAX_COUNTED_TEXTS = 2_000
# Arguments of `head_statistics` that can be passed, besides `model`, if `model` is a record or a
# list of records.
_ARGUMENTS_OF_RECORDS = {"columns", "parse", "name", "layers", "edges", "seed", "progress"}
# Number of entries of a parameter that `weights_hash` copies to the CPU at once.
_ENTRIES_PER_COPY = 1 << 20


@with_progress
def head_statistics(
    model: Any,
    texts: Any = None,
    *,
    column: str = "text",
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    parse: Sequence[Any] | str | None = None,
    target: Sequence[str] | None = None,
    passages: Any = None,
    truncation: bool | int = False,
    tokenizer: Any = None,
    processor: Any = None,
    name: str | None = None,
    layers: Layers = None,
    batch_size: BatchSize = "auto",
    edges: int = 100,
    seed: int = 0,
    part: tuple[int, int] | None = None,
    engine: Any = None,
    progress: bool = True,
) -> HeadStatistics:
    """Measure the attention of every head of a model over many texts.

    Several texts are read in one forward pass. Their attention is measured and not kept, so the
    result is a small object for any number of texts.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline, callable, or list of AttentionRecord
        Model, as for `attnviz.extract`. On Ray, it can also be a function without arguments that
        loads the model. Alternatively, pass existing records. In that case omit `texts` and all
        arguments except `columns`, `parse`, `name`, `layers`, `edges`, `seed` and `progress`.
    texts : sequence, datasets.Dataset, DataFrame or ray.data.Dataset
        Texts, as for `attnviz.extract_corpus`. All of them are read, unless `part` selects fewer. A
        Ray dataset is first converted to a table in memory.
    column : str, default "text"
        Column of a dataset or table, or key of a dict, that contains the text. A dict that has the
        key ``"text_pair"``, too, is a pair of texts.
    columns : mapping of str to sequence, or iterable of str, optional
        Classes of texts or of their tokens, such as parts of speech. A mapping has a list for each
        column name, with an entry for each text: the class of the text, or a sequence with the
        class of each token. A class is a string or a whole number, or None if it is unknown. A
        sequence of strings selects columns of the dataset.
    parse : sequence or str, optional
        Dependency parse of each text: ``(heads, relations)`` or ``(words, heads, relations)``. Each
        of these lists has one entry for each word. The head of a word is the index of another word,
        or -1 for the root. A parse can also be a mapping with these keys, or None if a text has no
        parse. A string is the name of a column of the dataset. Each relation gets two scores. For
        example, "syntactic: nsubj" is the weight of subjects on their verbs, and "syntactic: nsubj
        (reversed)" the weight of verbs on their subjects.
    target : sequence of str, optional
        Output that the model is made to produce for each text, as for `attnviz.extract`.
    passages : optional
        Passages of all texts, as for `attnviz.extract`, or a list with those of each text. The
        roles "retrieval" and "query-focused retrieval" need the passages ``"needle"`` and
        ``"question"``.
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
        edge is a pair of a query and a key with its weight. The strongest edges have the largest
        weights. The sampled edges are a random sample.
    seed : int, default 0
        Seed of the sampled edges.
    part : (int, int), optional
        Part of the texts to read, for example in one job of a job array. ``(3, 16)`` divides the
        texts into 16 parts, numbered from 0 to 15, and reads part 3. Pass all texts to every job.
        The sum (``+``) of the statistics of all parts is the statistics of all texts.
    engine : {None, "ray"} or RayEngine
        Where the model runs. None runs the model in this process, or on Ray if `texts` is a Ray
        dataset. "ray" or an `attnviz.corpus.RayEngine` runs the model in Ray actors (see
        ``docs/at-scale.md`` for the requirements). The results are the same except for rounding,
        which depends on the batches. Each actor loads the model from a hub id, a folder or a
        function, or receives a copy of a model that is on the CPU.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.

    Returns
    -------
    HeadStatistics
        Statistics of all heads. The attribute `notes` says how many texts were left out because
        they are empty or too long for the model.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or does not fit the others. If a text cannot be
        read, the error names this text. Also if all texts are empty or too long for the model.
    MemoryError, OSError
        If `attnviz.extract` raises this error for a text.
    ImportError
        If the model should run on Ray, but Ray is not installed.

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
    given = given_arguments(head_statistics, locals())
    if texts is None:
        refuse_arguments(
            [argument for argument in given if argument not in _ARGUMENTS_OF_RECORDS],
            "texts is missing, and records need no further arguments",
        )
        records = _checked_records(model)
        read_capture_options(layers)
        inputs = _Inputs.of(records, columns, parse)
        settings = Settings(
            edges, seed, tuple(inputs.columns.names), _count_tokens_of_records(records)
        )
        accumulator = Accumulator(Totals(settings), "records")
        selected = (_selected(record, layers, name) for record in records)
        return _result(accumulator, _add_records(accumulator, inputs, selected), len(records))
    ray_engine = resolve_engine(engine, texts)
    inputs = _Inputs.of(
        to_table(texts) if is_dataset(texts) else texts, columns, parse, column, target
    )
    options: RecordOptions = {
        "tokenizer": tokenizer,
        "processor": processor,
        "truncation": truncation,
        "passages": passages,
        "layers": layers,
        "name": name,
    }
    work = _Work(model, inputs, checked_batch_size(batch_size), options)
    loaded = load(model, tokenizer, processor) if ray_engine is None else _for_ray(work)
    in_memory = isinstance(loaded.model, torch.nn.Module)
    totals = Totals(
        Settings(edges, seed, tuple(inputs.columns.names), _count_tokens(loaded, inputs.texts)),
        name or (None if is_loader(model) else name_of(loaded.model)),
        weights_hash(loaded.model) if in_memory else "",
    )
    count = len(inputs.texts)
    indices = _part_indices(part, count)
    accumulator = Accumulator(totals, "texts")
    if ray_engine is None:
        steps = _add_texts(accumulator, work.with_model(loaded), indices)
    else:
        steps = _add_on_ray(accumulator, work, list(indices), ray_engine)
    statistics = _result(accumulator, steps, len(indices))
    if not statistics.texts:
        raise ValueError(
            f"texts: all {count} are empty or too long for the model. Pass texts that contain "
            "words, or truncation=True."
        )
    return statistics


def weights_hash(model: torch.nn.Module) -> str:
    """Return a hash of the weights of a model as a string of 16 hexadecimal digits.

    The hash depends on the name, the shape and all entries of each parameter, as float32. For a
    parameter whose values cannot be read, such as one on the meta device, it depends only on the
    name and the shape. Computing the hash takes about as long as a forward of a short text.
    """
    code = hashlib.blake2b(digest_size=8)
    for name, parameter in sorted(model.named_parameters()):
        code.update(f"{name} {tuple(parameter.shape)}".encode())
        numbers = plain_numbers(parameter)
        if numbers is None:
            continue
        checksum = 0
        for part in numbers.reshape(-1).split(_ENTRIES_PER_COPY):
            checksum = zlib.crc32(part.cpu().float().numpy(), checksum)
        code.update(checksum.to_bytes(4, "little"))
    return code.hexdigest()


@dataclass(frozen=True)
class _Inputs:
    """Texts or records of a call of `head_statistics`, with the arguments of each text.

    Attributes
    ----------
    texts : Texts
        The texts or records.
    columns : TextColumns
        Classes of texts or of their tokens, from the argument `columns`.
    parses : sequence or None
        Dependency parse of each text. None if the argument `parse` of the call is None.
    target : sequence of str or None
        Output that the model is made to produce for each text. None if the argument `target` of the
        call is None.
    """

    texts: Texts
    columns: TextColumns
    parses: Sequence[Any] | None
    target: Sequence[str] | None

    @classmethod
    def of(
        cls, texts: Any, columns: Any, parse: Any, column: str = "text", target: Any = None
    ) -> _Inputs:
        all_texts = Texts(texts, column)
        checked_target(target, all_texts)
        parses = _read_parses(parse, all_texts)
        return cls(all_texts, TextColumns(columns, all_texts), parses, target)

    def classes_of(self, index: int) -> dict[str, Any]:
        """Return the column values and the parse of a text, as arguments of `Accumulator.add`."""
        parse = None if self.parses is None else self.parses[index]
        return {"columns": self.columns[index], "parse": parse}


@dataclass(frozen=True)
class _Work:
    """A model, the texts to measure with it, and options. On Ray, it is sent to the actors."""

    model: Any
    inputs: _Inputs
    batch_size: BatchSize
    options: RecordOptions

    def with_model(self, loaded: Loaded) -> _Work:
        options: RecordOptions = {
            **self.options,
            "name": self.options["name"] or name_of(loaded.model),
        }
        return replace(self, model=loaded, options=options)


def _result(accumulator: Accumulator, steps: Iterable[None], total: int) -> HeadStatistics:
    """Run `steps`, which add texts to the accumulator, and return the statistics.

    `total` is the number of texts to read.
    """
    for _ in chain([None], steps):
        report("texts", accumulator.totals.num_added, total, "text")
    accumulator.result()
    report("texts", accumulator.totals.num_added, total, "text")
    return HeadStatistics.of_totals(accumulator.totals)


def _add_records(
    accumulator: Accumulator, inputs: _Inputs, records: Iterable[AttentionRecord]
) -> Iterator[None]:
    for index, record in enumerate(records):
        accumulator.add(record, index, **inputs.classes_of(index))
        yield


def _add_texts(accumulator: Accumulator, work: _Work, indices: Iterable[int]) -> Iterator[None]:
    read = read_records(
        work.model,
        work.inputs.texts,
        indices,
        target=work.inputs.target,
        batch_size=work.batch_size,
        ordered=False,
        outputs=True,
        **work.options,
    )
    for text in read:
        if text.record is None:
            accumulator.skip(text.index, text.skip_reason)
        else:
            accumulator.add(text.record, text.index, **work.inputs.classes_of(text.index))
        yield


def _add_on_ray(
    accumulator: Accumulator, work: _Work, indices: list[int], engine: RayEngine
) -> Iterator[None]:
    settings = accumulator.totals.settings
    make = functools.partial(_measure_in_actor, work, settings, engine, own_measures())
    for totals in actor_results(engine, indices, make):
        accumulator.merge(totals)
        yield


def _measure_in_actor(
    work: _Work, settings: Settings, engine: RayEngine, measures: tuple[Measure, ...]
) -> Callable[[list[int]], Totals]:
    """Load the model in a Ray actor, and return a function that measures texts.

    The function takes the indices of texts and returns their totals. `measures` are the measures
    (definitions of scores) that the user registered in the calling process. The actor must register
    them, too, because it is another process.
    """
    register_all(measures)
    model = work.model() if is_loader(work.model) else work.model
    loaded = load(model, work.options["tokenizer"], work.options["processor"])
    if engine.num_gpus:
        loaded.model.to("cuda")
    work = work.with_model(loaded)
    empty = Totals(settings, work.options["name"], weights_hash(loaded.model))

    def measure(indices: list[int]) -> Totals:
        accumulator = Accumulator(empty, "texts")
        for _ in _add_texts(accumulator, work, indices):
            pass
        # Do not send the frequencies of tokens back. They are large, and the caller has them.
        settled = accumulator.result().settled()
        return replace(settled, settings=replace(settings, frequencies={}))

    return measure


@dataclass(frozen=True, eq=False)
class _RemoteModel:
    """Placeholder for a model that only the Ray actors load.

    Like a model of transformers, it has `name_or_path`: the hub id or folder from which the
    tokenizer is loaded, and from which the name of the model is derived. The attribute is "" if a
    function loads the model.
    """

    name_or_path: str


def _for_ray(work: _Work) -> Loaded:
    """Return the model, tokenizer and processor for this process if Ray actors read the texts.

    If `work.model` is a model in memory, return it with its tokenizer and processor. Raise
    ValueError if the model is not on the CPU.

    If `work.model` is a hub id, a folder or a function, only the actors load the model. The result
    has a `_RemoteModel` in place of the model. If the tokenizer was passed as a hub id or folder,
    the result has the loaded tokenizer, or None if the tokenizer is not on this machine. Otherwise
    the tokenizer and the processor are those that were passed.
    """
    tokenizer, processor = work.options["tokenizer"], work.options["processor"]
    if not isinstance(work.model, str | os.PathLike) and not is_loader(work.model):
        loaded = load(work.model, tokenizer, processor)
        check_on_cpu(loaded.model)
        return loaded
    if isinstance(tokenizer, str | os.PathLike):
        saved_there: Any = _RemoteModel(str(tokenizer))
        tokenizer = Loaded(saved_there, None, None).find_tokenizer()
    placeholder: Any = _RemoteModel("" if is_loader(work.model) else str(work.model))
    return Loaded(placeholder, tokenizer, processor)


def _checked_records(records: Any) -> tuple[AttentionRecord, ...]:
    """Return the argument `records`, which is one record or several, as a tuple.

    Raise ValueError if `records` is empty. Raise TypeError if it is not iterable, or if an item is
    not a record.
    """
    if isinstance(records, AttentionRecord):
        return (records,)
    if isinstance(records, str | Mapping) or not isinstance(records, Iterable):
        raise TypeError(
            "texts is missing. Pass a model and texts, head_statistics(model, texts), or a list of "
            f"records, not {type(records).__name__}."
        )
    return listed_records(records)


def _selected(record: AttentionRecord, layers: Layers, name: str | None) -> AttentionRecord:
    """Return a record with only the layers `layers` and with `name` as the name of its model.

    If `layers` is None or "all", all layers are kept. If `name` is None, the name is kept.
    """
    selected = record if layers is None or isinstance(layers, str) else record.only(layers)
    return selected if name is None else derive_record(selected, selected.stacks, model=name)


def _read_parses(parse: Any, texts: Texts) -> Sequence[Any] | None:
    """Return the parse of each text as a list, or None if `parse` is None.

    If `parse` is a string, it is the name of the column of the dataset `texts` that has the parses.
    Otherwise it must be a sequence with an entry for each text. If not, raise TypeError or
    ValueError.
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
    """Return the indices of the texts that the argument `part` selects from `count` texts.

    Raise TypeError or ValueError if `part` is invalid.
    """
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


def _count_tokens(loaded: Loaded, texts: Texts) -> dict[int | str, int]:
    """Count how often each token id occurs in up to `_MAX_COUNTED_TEXTS` evenly spaced texts.

    Items that are not strings, such as images, are not counted. Return an empty dict if no
    tokenizer is found.
    """
    tokenizer = loaded.find_tokenizer()
    if tokenizer is None:
        return {}
    sample = [texts[index] for index in _counted_indices(len(texts))]
    sample = [text for text in sample if isinstance(text, str) and text.strip()]
    counted: Counter[int | str] = Counter()
    for start in range(0, len(sample), 64):
        chunk = sample[start : start + 64]
        encoded = call_reader(tokenizer, chunk, add_special_tokens=False, verbose=False)
        for ids in encoded["input_ids"]:
            counted.update(ids)
    return counted


def _count_tokens_of_records(records: Sequence[AttentionRecord]) -> dict[int | str, int]:
    """Count how often each token occurs in up to `_MAX_COUNTED_TEXTS` evenly spaced records.

    The result maps token ids to counts. If a record has no token ids, it maps the texts of its
    tokens to counts. Only tokens that are attention keys in a stack are counted. In self-attention,
    these are all tokens.
    """
    counted: Counter[int | str] = Counter()
    for index in _counted_indices(len(records)):
        sides = {id(s.key_tokens): s.key_tokens for s in records[index].stacks.values()}
        for tokens in sides.values():
            counted.update(tokens.text if tokens.ids is None else tokens.ids)
    return counted


def _counted_indices(count: int) -> list[int]:
    """Return up to `_MAX_COUNTED_TEXTS` evenly spaced indices from 0 to `count - 1`."""
    spread = np.linspace(0, count - 1, min(count, _MAX_COUNTED_TEXTS)).astype(np.int64)
    indices: list[int] = np.unique(spread).tolist()
    return indices
