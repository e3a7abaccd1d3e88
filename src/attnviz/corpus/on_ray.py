"""Texts that are read on Ray: actors that each load the model once, and give back rows of bytes.

Ray is imported only where it is asked for. Ray Data holds rows of Arrow values, so statistics come
back as bytes. Data that are large and the same for all texts go to every actor through Ray's object
store. An error comes back as a row, so that it ends the work and is not tried again.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from attnviz.utils.arguments import short_repr, whole_number

__all__ = [
    "RayEngine",
    "Work",
    "check_model",
    "engine_of",
    "folded",
    "from_bytes",
    "is_dataset",
    "is_loader",
    "loaded_in_actor",
    "results",
    "running_ray",
    "table_of",
    "to_bytes",
]

# The column that has a text's number.
_NUMBER = "attnviz_number"
# Results that are merged in one step.
_TOGETHER = 16
# Columns of what actors return: a result, the number of its texts, and the error if there was one.
_DATA, _TEXTS, _ERROR, _WORDS = "data", "texts", "error", "words"
#: Makes a result of the texts with some numbers, in an actor.
Work = Callable[[list[int]], bytes]

_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        LookupError,
        MemoryError,
        NotImplementedError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    )
}


@dataclass(frozen=True)
class RayEngine:
    """How Ray reads the texts of a corpus: ``engine=`` of `head_statistics`.

    ``engine="ray"`` is ``engine=RayEngine()``. Ray runs where ``ray.init`` was called for, on the
    cluster that ``RAY_ADDRESS`` names, or else on this machine until the work ends.

    Parameters
    ----------
    num_actors : int, default 2
        How many processes have the model, at most. As many start as there are resources for.
    num_cpus : float, default 1
        CPU cores of each. It computes with as many threads.
    num_gpus : float, default 0
        Devices of each; from 0 on a part of one. The model is moved there.
    texts_per_batch : int, default 64
        How many texts an actor takes at a time. What was read of them is read again where an actor
        is lost.

    Raises
    ------
    TypeError, ValueError
        If a number is not one, or too small.

    Examples
    --------
    >>> import attnviz as av
    >>> from attnviz.corpus import RayEngine
    >>> engine = RayEngine(num_actors=8, num_gpus=1)
    >>> statistics = av.head_statistics("my-model", dataset, engine=engine)  # doctest: +SKIP
    """

    num_actors: int = 2
    num_cpus: float = 1
    num_gpus: float = 0
    texts_per_batch: int = 64

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        whole_number("num_actors", self.num_actors, 1)
        whole_number("texts_per_batch", self.texts_per_batch, 1)
        numbers: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        for name, value in numbers.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                raise ValueError(f"{name}={short_repr(value)} must be a number from 0")


def engine_of(engine: Any, texts: Any) -> RayEngine | None:
    """What was asked for; Ray where the texts are a dataset of Ray's, None for this process."""
    if isinstance(engine, RayEngine):
        return engine
    if engine == "ray" if isinstance(engine, str) else engine is None and is_dataset(texts):
        return RayEngine()
    if engine is None:
        return None
    raise ValueError(
        f'engine={short_repr(engine)} does not exist; give "ray" or a RayEngine, or leave it out'
    )


def is_dataset(texts: Any) -> bool:
    """Whether texts are a dataset of Ray's; without an import of it."""
    return type(texts).__module__.startswith("ray.data") and hasattr(texts, "map_batches")


def is_loader(model: Any) -> bool:
    """Whether a function was given that loads the model."""
    return callable(model) and _module(model) is None


def _module(model: Any) -> nn.Module | None:
    """The model itself, or the one that a pipeline has; None of what says where a model is."""
    inside = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    return inside if isinstance(inside, nn.Module) else None


def check_model(model: Any) -> None:
    """Refuse a model that cannot be given to another process."""
    inside = _module(model)
    if inside is None:
        return
    devices = {parameter.device.type for parameter in inside.parameters()} - {"cpu"}
    if devices:
        raise ValueError(
            f"model: its weights are on {', '.join(sorted(devices))}, and Ray's actors load it "
            "themselves; give its hub id or folder, a function without arguments that loads it, or "
            "a model on the CPU (num_gpus= moves it to each actor's device)"
        )


def loaded_in_actor(model: Any, engine: RayEngine) -> Any:
    """The model in an actor: what was given, or what the function that was given loads."""
    if is_loader(model):
        model = model()
    if engine.num_gpus > 0:
        if isinstance(model, str | Path):
            from attnviz.extraction.models import load

            model = load(model).model
        inside = _module(model)
        if inside is not None:
            inside.to("cuda")
    return model


def table_of(dataset: Any) -> Any:
    """A dataset of Ray's as a DataFrame, its rows in the order of its files."""
    with running_ray():
        # A dataset has had its own options since it was made.
        options = dataset.context.execution_options
        before = options.preserve_order
        try:
            options.preserve_order = True
            return dataset.to_pandas()
        finally:
            options.preserve_order = before


def results(
    engine: RayEngine, numbers: list[int], make: Callable[[Any], Work], shared: Any
) -> Generator[tuple[bytes, int], None, None]:
    """Have actors work on texts, and give their results as they come.

    Parameters
    ----------
    engine : RayEngine
        How many actors, and what each has.
    numbers : list of int
        Those of the texts.
    make : callable
        Given `shared`, makes what works on rows; called once in each actor.
    shared : object
        What it needs; goes through Ray's object store.

    Yields
    ------
    tuple of bytes and int
        A result and the number of its texts. An error of the work is raised here.
    """
    with running_ray() as ray:
        # Held while actors run: one that starts again asks for it again.
        held = ray.put((make, shared))
        blocks = math.ceil(len(numbers) / engine.texts_per_batch)
        items = [{_NUMBER: number} for number in numbers]
        rows = ray.data.from_items(items, override_num_blocks=blocks).materialize()
        options: dict[str, Any] = {"num_cpus": engine.num_cpus}
        if engine.num_gpus:
            options["num_gpus"] = engine.num_gpus
        # One for a block at most: Ray warns of more.
        least = max(1, min(_fitting(ray, engine), rows.num_blocks()))
        pool = ray.data.ActorPoolStrategy(min_size=least, max_size=max(least, engine.num_actors))
        made = rows.map_batches(
            _Actor,
            fn_constructor_args=([held], engine.num_cpus),
            batch_size=engine.texts_per_batch,
            batch_format="pyarrow",
            compute=pool,
            **options,
        )
        found = made.iter_rows()
        try:
            for row in found:
                if row[_ERROR]:
                    raise _ERRORS[row[_ERROR]](row[_WORDS])
                yield row[_DATA], int(row[_TEXTS])
        finally:
            with suppress(AttributeError):
                found.close()
            del found, made


def folded(
    found: Iterator[tuple[bytes, int]],
    merge: Callable[[list[bytes]], bytes],
    did: Callable[[int], object],
) -> Iterator[bytes]:
    """Merge results on Ray, some at a time, and give what they become, in any order.

    `did` is called with the number of texts of each result as it comes.
    """
    ray: Any = importlib.import_module("ray")
    # It waits for no core: actors may hold them all.
    task = ray.remote(num_cpus=0)(merge)
    parts: list[bytes] = []
    waiting: list[Any] = []
    for data, num_texts in found:
        did(num_texts)
        parts.append(data)
        if len(parts) == _TOGETHER:
            waiting.append(task.remote(parts))
            parts = []
        ready, waiting = ray.wait(waiting, timeout=0) if waiting else ([], [])
        yield from ray.get(ready)
    yield from parts
    while waiting:
        ready, waiting = ray.wait(waiting)
        yield from ray.get(ready)


def _fitting(ray: Any, engine: RayEngine) -> int:
    """How many of the actors there are resources for now."""
    there = ray.cluster_resources()
    asked = {"CPU": engine.num_cpus, "GPU": engine.num_gpus}
    most = [math.floor(there.get(name, 0) / each) for name, each in asked.items() if each]
    fitting: int = min([engine.num_actors, *most])
    if not fitting:
        has = ", ".join(f"{there.get(name, 0):g} {name}" for name in asked)
        raise ValueError(
            f"engine: an actor with num_cpus={engine.num_cpus:g} and num_gpus={engine.num_gpus:g} "
            f"does not fit into this Ray cluster, which has {has}; ask for less, or start Ray with "
            "more (ray.init)"
        )
    return fitting


class _Actor:
    """Works on batches of texts; made by Ray in processes of its own."""

    def __init__(self, held: list[Any], num_cpus: float) -> None:
        # Else each takes all cores for itself.
        torch.set_num_threads(max(1, int(num_cpus)))
        self._held = held
        self._work: Work | None = None

    def __call__(self, table: Any) -> dict[str, list[Any]]:
        """The result of some texts, or the error that they raised."""
        data, kind, words = b"", "", ""
        try:
            if self._work is None:
                make, shared = importlib.import_module("ray").get(self._held[0])
                self._work = make(shared)
            data = self._work(table[_NUMBER].to_pylist())
        except tuple(_ERRORS.values()) as error:
            kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS)
            words = str(error)
        return {_DATA: [data], _TEXTS: [table.num_rows], _ERROR: [kind], _WORDS: [words]}


@contextmanager
def running_ray() -> Iterator[Any]:
    """Ray, started here if it does not run, and stopped then; without bars of its own."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError(
            'engine="ray" needs Ray Data, which is not installed: pip install "attnviz[ray]"'
        )
    ray: Any = importlib.import_module("ray")
    importlib.import_module("ray.data")
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars
    try:
        context.enable_progress_bars = False
        yield ray
    finally:
        context.enable_progress_bars = before
        if started:
            ray.shutdown()


def to_bytes(save: Callable[[Path], object]) -> bytes:
    """What `save` writes to a file."""
    with TemporaryDirectory(prefix="attnviz-") as folder:
        path = Path(folder) / "part.safetensors"
        save(path)
        return path.read_bytes()


def from_bytes(data: bytes, load: Callable[[Path], Any]) -> Any:
    """What `load` reads from a file with these bytes, which is removed then."""
    with TemporaryDirectory(prefix="attnviz-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "part.safetensors"
        path.write_bytes(data)
        return load(path)
