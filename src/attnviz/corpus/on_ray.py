"""Reading of texts on Ray, a framework that runs Python on several machines.

An actor is a process of Ray. Each actor loads the model once, reads batches of texts, and returns
one row for each batch. Ray Data stores rows as Arrow values, so the actors encode statistics as
bytes. Large objects that all batches need are sent to the actors through Ray's object store. Actors
return errors as rows, because Ray repeats a batch if its actor raises an error.

The module `ray` is imported only when it is needed.
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
    "actor_results",
    "check_model",
    "from_bytes",
    "is_dataset",
    "is_loader",
    "loaded_in_actor",
    "merged_results",
    "resolve_engine",
    "running_ray",
    "to_bytes",
    "to_table",
]

# Name of the column of text indices in the input of the actors.
_INDEX = "attnviz_number"
# Number of results that one Ray task merges.
_RESULTS_PER_MERGE = 16
# Column names of the rows that actors return: the result, its number of texts, the type of an error
# and the message of the error.
_DATA, _TEXTS, _ERROR, _WORDS = "data", "texts", "error", "words"
#: Function that an actor calls with the indices of texts, and that returns a result as bytes.
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
    """Settings for reading texts on Ray: the argument ``engine=`` of `head_statistics`.

    ``engine="ray"`` means ``engine=RayEngine()``. If Ray is already running (``ray.init``), it is
    used. If not, Ray is started on the cluster in the environment variable ``RAY_ADDRESS`` or on
    this machine, and stopped at the end.

    Parameters
    ----------
    num_actors : int, default 2
        Maximum number of processes that load the model. If the cluster has not enough CPUs or GPUs
        for all of them, fewer start.
    num_cpus : float, default 1
        Number of CPU cores of each actor. Torch uses as many threads, rounded down, or one thread.
    num_gpus : float, default 0
        Number of GPUs of each actor, which can be a fraction. If it is above 0, the model is moved
        to the GPU.
    texts_per_batch : int, default 64
        Number of texts that an actor receives at a time. If an actor crashes, another actor reads
        these texts again.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a finite number or is too small.

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
        """Raise TypeError or ValueError if a setting is invalid."""
        whole_number("num_actors", self.num_actors, 1)
        whole_number("texts_per_batch", self.texts_per_batch, 1)
        numbers: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        for name, value in numbers.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                raise ValueError(
                    f"{name}={short_repr(value)} must be a finite number of at least 0"
                )


def resolve_engine(engine: Any, texts: Any) -> RayEngine | None:
    """Convert the argument `engine` to a `RayEngine`, or to None for this process.

    If `engine` is None and `texts` is a Ray dataset, return ``RayEngine()``.
    """
    if isinstance(engine, RayEngine):
        return engine
    if engine == "ray" if isinstance(engine, str) else engine is None and is_dataset(texts):
        return RayEngine()
    if engine is None:
        return None
    raise ValueError(f'engine={short_repr(engine)} must be None, "ray" or a RayEngine')


def is_dataset(texts: Any) -> bool:
    """Whether `texts` is a Ray dataset. This function does not import Ray."""
    return type(texts).__module__.startswith("ray.data") and hasattr(texts, "map_batches")


def is_loader(model: Any) -> bool:
    """Whether `model` is a function that loads a model, and not a model or a pipeline."""
    return callable(model) and _module(model) is None


def _module(model: Any) -> nn.Module | None:
    """Return `model` or the model of a pipeline. Return None for a path or a function."""
    inside = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    return inside if isinstance(inside, nn.Module) else None


def check_model(model: Any) -> None:
    """Raise ValueError if `model` is in memory and has weights that are not on the CPU."""
    inside = _module(model)
    if inside is None:
        return
    devices = {parameter.device.type for parameter in inside.parameters()} - {"cpu"}
    if devices:
        raise ValueError(
            f"model: its weights are on {', '.join(sorted(devices))}, but Ray actors need a model "
            "on the CPU. Pass its hub id or folder, a function without arguments that loads it, or "
            "a model on the CPU (num_gpus= moves it to the GPU of each actor)."
        )


def loaded_in_actor(model: Any, engine: RayEngine) -> Any:
    """Prepare the argument `model` in an actor.

    If `model` is a function, call the function. If the actor has a GPU, also load the model from a
    path, and move the model to the GPU.
    """
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


def to_table(dataset: Any) -> Any:
    """Convert a Ray dataset to a DataFrame. The rows have the order of the dataset's files."""
    with running_ray():
        # The dataset copied the global options when it was created, so a change of the global
        # options would have no effect.
        options = dataset.context.execution_options
        before = options.preserve_order
        try:
            options.preserve_order = True
            return dataset.to_pandas()
        finally:
            options.preserve_order = before


def actor_results(
    engine: RayEngine, numbers: list[int], make: Callable[[Any], Work], shared: Any
) -> Generator[tuple[bytes, int], None, None]:
    """Read texts in actors. Yield each result as soon as it is ready, in any order.

    Parameters
    ----------
    engine : RayEngine
        Number and resources of the actors.
    numbers : list of int
        Indices of the texts.
    make : callable
        Function that is called with `shared`, once in each actor. It returns the function (`Work`)
        that the actor calls with the indices of each batch of texts.
    shared : object
        Argument of `make`, which is sent to the actors through Ray's object store.

    Yields
    ------
    result : bytes
        Result of a batch of texts.
    num_texts : int
        Number of texts of the batch.

    Raises
    ------
    Exception
        Error that occurred in an actor.
    """
    with running_ray() as ray:
        # Keep this reference while actors run. Without a reference, Ray may delete the object, and
        # a restarted actor could not read it.
        reference = ray.put((make, shared))
        blocks = math.ceil(len(numbers) / engine.texts_per_batch)
        items = [{_INDEX: number} for number in numbers]
        rows = ray.data.from_items(items, override_num_blocks=blocks).materialize()
        options: dict[str, Any] = {"num_cpus": engine.num_cpus}
        if engine.num_gpus:
            options["num_gpus"] = engine.num_gpus
        # Ray warns if there are more actors than blocks of rows.
        min_actors = max(1, min(_num_fitting_actors(ray, engine), rows.num_blocks()))
        pool = ray.data.ActorPoolStrategy(
            min_size=min_actors, max_size=max(min_actors, engine.num_actors)
        )
        result_rows = rows.map_batches(
            _Actor,
            fn_constructor_args=([reference], engine.num_cpus),
            batch_size=engine.texts_per_batch,
            batch_format="pyarrow",
            compute=pool,
            **options,
        )
        iterator = result_rows.iter_rows()
        try:
            for row in iterator:
                if row[_ERROR]:
                    raise _ERRORS[row[_ERROR]](row[_WORDS])
                yield row[_DATA], int(row[_TEXTS])
        finally:
            with suppress(AttributeError):
                iterator.close()
            del iterator, result_rows


def merged_results(
    batches: Iterator[tuple[bytes, int]],
    merge: Callable[[list[bytes]], bytes],
    report: Callable[[int], object],
) -> Iterator[bytes]:
    """Merge groups of results in Ray tasks. Yield the merged results in any order.

    `batches` yields results with their numbers of texts. `merge` returns one result for a list of
    results. `report` is called with the number of texts of each result when it arrives. The last
    results, which do not fill a group, are yielded unmerged.
    """
    ray: Any = importlib.import_module("ray")
    # Request 0 CPUs for the task, because the actors may have reserved all CPUs.
    task = ray.remote(num_cpus=0)(merge)
    parts: list[bytes] = []
    waiting: list[Any] = []
    for data, num_texts in batches:
        report(num_texts)
        parts.append(data)
        if len(parts) == _RESULTS_PER_MERGE:
            waiting.append(task.remote(parts))
            parts = []
        ready, waiting = ray.wait(waiting, timeout=0) if waiting else ([], [])
        yield from ray.get(ready)
    yield from parts
    while waiting:
        ready, waiting = ray.wait(waiting)
        yield from ray.get(ready)


def _num_fitting_actors(ray: Any, engine: RayEngine) -> int:
    """Return the number of actors, up to `engine.num_actors`, that fit into the cluster.

    Raise ValueError if no actor fits.
    """
    resources = ray.cluster_resources()
    required = {"CPU": engine.num_cpus, "GPU": engine.num_gpus}
    limits = [
        math.floor(resources.get(name, 0) / amount) for name, amount in required.items() if amount
    ]
    fitting: int = min([engine.num_actors, *limits])
    if not fitting:
        has = ", ".join(f"{resources.get(name, 0):g} {name}" for name in required)
        raise ValueError(
            f"engine: an actor with num_cpus={engine.num_cpus:g} and num_gpus={engine.num_gpus:g} "
            f"does not fit into this Ray cluster, which has {has}. Pass smaller numbers, or start "
            "Ray with more resources (ray.init)."
        )
    return fitting


class _Actor:
    """Class of the actors: Ray creates an instance in each process and calls it with batches."""

    def __init__(self, reference: list[Any], num_cpus: float) -> None:
        # Limit the threads, because by default torch uses all cores in each actor.
        torch.set_num_threads(max(1, int(num_cpus)))
        self._reference = reference
        self._work: Work | None = None

    def __call__(self, table: Any) -> dict[str, list[Any]]:
        """Return a row with the result of a batch, or with the error that occurred."""
        data, kind, words = b"", "", ""
        try:
            if self._work is None:
                make, shared = importlib.import_module("ray").get(self._reference[0])
                self._work = make(shared)
            data = self._work(table[_INDEX].to_pylist())
        except tuple(_ERRORS.values()) as error:
            kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
            words = str(error)
        return {_DATA: [data], _TEXTS: [table.num_rows], _ERROR: [kind], _WORDS: [words]}


@contextmanager
def running_ray() -> Iterator[Any]:
    """Return a context manager that provides the module `ray`, with progress bars disabled.

    If Ray is not running, start it, and stop it at the end. Raise ImportError if Ray is not
    installed.
    """
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
    """Call `save` with the path of a temporary file, and return the content of the file."""
    with TemporaryDirectory(prefix="attnviz-") as folder:
        path = Path(folder) / "part.safetensors"
        save(path)
        return path.read_bytes()


def from_bytes(data: bytes, load: Callable[[Path], Any]) -> Any:
    """Write `data` to a temporary file, and return what `load` reads from it."""
    with TemporaryDirectory(prefix="attnviz-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "part.safetensors"
        path.write_bytes(data)
        return load(path)
