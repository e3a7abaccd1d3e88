"""Texts that are read on Ray: each actor loads the model once and returns rows of bytes.

Ray is imported only when it is used. Ray Data has rows of Arrow values, so the actors return
statistics as bytes. Large data that all texts share reach every actor through Ray's object store.
An actor returns an error as a row, so that Ray does not try the same texts again.
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

# Column with the index of a text.
_INDEX = "attnviz_number"
# Number of results that are merged in one task.
_RESULTS_PER_MERGE = 16
# Columns of the rows that actors return: result, number of texts, type and text of an error.
_DATA, _TEXTS, _ERROR, _WORDS = "data", "texts", "error", "words"
#: Function that computes a result from the indices of texts. It runs in an actor.
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

    ``engine="ray"`` means ``engine=RayEngine()``. A running Ray (``ray.init``) is used. Otherwise
    one is started, on the cluster in ``RAY_ADDRESS`` or on this machine, and stopped at the end.

    Parameters
    ----------
    num_actors : int, default 2
        Maximum number of processes that load the model. As many start as the resources allow.
    num_cpus : float, default 1
        CPU cores of each actor, and number of its threads.
    num_gpus : float, default 0
        GPUs of each actor, or a fraction of one. The model is moved to it.
    texts_per_batch : int, default 64
        Number of texts that an actor receives at a time. If an actor is lost, they are read again.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number or is too small.

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
        """Raise if a number is invalid."""
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
    """Return the engine, or None for this process. The default for a Ray dataset is Ray."""
    if isinstance(engine, RayEngine):
        return engine
    if engine == "ray" if isinstance(engine, str) else engine is None and is_dataset(texts):
        return RayEngine()
    if engine is None:
        return None
    raise ValueError(f'engine={short_repr(engine)} must be None, "ray" or a RayEngine')


def is_dataset(texts: Any) -> bool:
    """Whether `texts` is a Ray dataset. Ray is not imported."""
    return type(texts).__module__.startswith("ray.data") and hasattr(texts, "map_batches")


def is_loader(model: Any) -> bool:
    """Whether `model` is a function that loads the model."""
    return callable(model) and _module(model) is None


def _module(model: Any) -> nn.Module | None:
    """Return the model, or the model of a pipeline. Return None for a path or a loader."""
    inside = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    return inside if isinstance(inside, nn.Module) else None


def check_model(model: Any) -> None:
    """Raise ValueError if `model` is a loaded model with weights on another device than the CPU."""
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
    """Return the model in an actor: call a loader, and move the model to the GPU if it has one."""
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
    """Return a Ray dataset as a DataFrame, its rows in the order of its files."""
    with running_ray():
        # A dataset copies the options when it is created, so they are set on the dataset.
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
    """Run texts in actors, and yield the results in the order in which they are ready.

    Parameters
    ----------
    engine : RayEngine
        Number and resources of the actors.
    numbers : list of int
        Indices of the texts.
    make : callable
        Function that returns the `Work` of an actor, given `shared`. Called once in each actor.
    shared : object
        Argument of `make`. It reaches the actors through Ray's object store.

    Yields
    ------
    tuple of bytes and int
        A result and its number of texts. An error in an actor is raised here.
    """
    with running_ray() as ray:
        # The reference is kept while actors run: a restarted actor reads the object again.
        reference = ray.put((make, shared))
        blocks = math.ceil(len(numbers) / engine.texts_per_batch)
        items = [{_INDEX: number} for number in numbers]
        rows = ray.data.from_items(items, override_num_blocks=blocks).materialize()
        options: dict[str, Any] = {"num_cpus": engine.num_cpus}
        if engine.num_gpus:
            options["num_gpus"] = engine.num_gpus
        # At most one actor for each block: Ray warns if there are more.
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
    """Merge groups of results in Ray tasks, and yield the merged results in any order.

    `report` is called with the number of texts of each result as soon as it is there.
    """
    ray: Any = importlib.import_module("ray")
    # Without CPUs the task can start even if the actors use all cores.
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
    """Return the number of actors for which the cluster has resources."""
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
    """Callable that Ray creates in a separate process, to measure batches of texts."""

    def __init__(self, reference: list[Any], num_cpus: float) -> None:
        # By default torch uses all cores in each actor.
        torch.set_num_threads(max(1, int(num_cpus)))
        self._reference = reference
        self._work: Work | None = None

    def __call__(self, table: Any) -> dict[str, list[Any]]:
        """Return the result of a batch of texts, or the error that they raised."""
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
    """Provide Ray without progress bars. If it does not run, start it, and stop it at the end."""
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
    """Return the content of the file that `save` writes."""
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
