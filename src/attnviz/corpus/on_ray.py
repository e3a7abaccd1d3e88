"""Work on Ray, a framework that runs Python in processes on one or several machines.

These processes are called actors. Each actor prepares the work once, for example loads a model, and
then processes batches of texts. The module `ray` is imported only when it is needed, because it is
an optional dependency.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from attnviz.utils.arguments import short_repr, whole_number

# Maximum number of times that a batch is processed again after its actor has crashed.
_MAX_TRIES_AGAIN = 3

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RayEngine:
    """Settings for reading texts on Ray: the argument ``engine=`` of `head_statistics`.

    ``engine="ray"`` means ``engine=RayEngine()``. If ``ray.init`` was called before, its connection
    is used. If not, `head_statistics` calls ``ray.init`` at the beginning and ``ray.shutdown`` at
    the end. ``ray.init`` connects to the cluster in the environment variable ``RAY_ADDRESS``, or
    starts Ray on this machine.

    Parameters
    ----------
    num_actors : int, default 2
        Maximum number of processes (actors) that load the model. If the cluster has too few CPUs or
        GPUs for all of them, fewer actors start.
    num_cpus : float, default 1
        Number of CPU cores of each actor. Torch uses this number of threads, rounded down, but at
        least one.
    num_gpus : float, default 0
        Number of GPUs of each actor. A fraction such as 0.5 shares a GPU between actors. If the
        number is above 0, the model is moved to the GPU.
    texts_per_batch : int, default 64
        Number of texts that an actor receives at a time. If an actor crashes, it is started again,
        and these texts are read again, at most three times.

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
        whole_number("num_actors", self.num_actors, 1)
        whole_number("texts_per_batch", self.texts_per_batch, 1)
        for name, value in (("num_cpus", self.num_cpus), ("num_gpus", self.num_gpus)):
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"{name}={short_repr(value)} must be a finite number of at least 0"
                )


def resolve_engine(engine: Any, texts: Any) -> RayEngine | None:
    """Convert the argument `engine` to a `RayEngine`, or to None if this process does the work.

    If `engine` is "ray", or if it is None and `texts` is a Ray dataset, return ``RayEngine()``. If
    `engine` is None and `texts` is anything else, return None. A `RayEngine` is returned unchanged.
    Raise ValueError for any other value.
    """
    if engine is None:
        return RayEngine() if is_dataset(texts) else None
    if isinstance(engine, RayEngine):
        return engine
    if isinstance(engine, str) and engine == "ray":
        return RayEngine()
    raise ValueError(f'engine={short_repr(engine)} must be None, "ray" or a RayEngine')


def is_dataset(texts: Any) -> bool:
    """Whether `texts` is a Ray dataset. The check does not import Ray."""
    return type(texts).__module__.startswith("ray.data") and hasattr(texts, "map_batches")


def is_loader(model: Any) -> bool:
    """Whether `model` is a function that loads a model.

    Models and pipelines are callable, too, but the result for them is False.
    """
    inside = getattr(model, "model", None)
    return callable(model) and not any(isinstance(item, nn.Module) for item in (model, inside))


def check_on_cpu(model: nn.Module) -> None:
    """Raise ValueError if `model` has weights that are not on the CPU."""
    devices = {parameter.device.type for parameter in model.parameters()} - {"cpu"}
    if devices:
        raise ValueError(
            f"model: its weights are on {', '.join(sorted(devices))}, but Ray actors need a model "
            "on the CPU. Pass its hub id or folder, a function without arguments that loads it, or "
            "a model on the CPU (num_gpus= moves it to the GPU of each actor)."
        )


def to_table(dataset: Any) -> Any:
    """Convert a Ray dataset to a DataFrame. The rows keep the order of the dataset."""
    with running_ray():
        data: Any = importlib.import_module("ray.data")
        context = data.DataContext.get_current()
        # Set `preserve_order` in the options of this dataset. Setting it in the global options
        # would have no effect, because the dataset copied them when it was created.
        options = dataset.context.execution_options
        before = context.enable_progress_bars, options.preserve_order
        try:
            context.enable_progress_bars, options.preserve_order = False, True
            return dataset.to_pandas()
        finally:
            context.enable_progress_bars, options.preserve_order = before


def actor_results(
    engine: RayEngine, items: list[int], make: Callable[[], Callable[[list[int]], _Result]]
) -> Iterator[_Result]:
    """Process batches of items in actors. Yield each result as soon as it is ready.

    The results can have another order than the batches.

    Parameters
    ----------
    engine : RayEngine
        Number and resources of the actors, and the size of the batches.
    items : list of int
        Indices of texts, or other whole numbers.
    make : callable
        Function that is called once in each actor, for example to load a model. It returns the
        function that the actor calls with each of its batches. `make` is sent to the actors through
        Ray's object store.

    Yields
    ------
    object
        Result of a batch.

    Raises
    ------
    Exception
        Any error that occurs in an actor. Ray raises it as a subclass of the class of the original
        error.
    ImportError
        If Ray is not installed.
    ValueError
        If the cluster has too few CPUs or GPUs for one actor.
    """
    size = engine.texts_per_batch
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    with running_ray() as ray:
        reference = ray.put(make)
        remote = ray.remote(
            num_cpus=engine.num_cpus,
            num_gpus=engine.num_gpus,
            max_restarts=-1,
            max_task_retries=_MAX_TRIES_AGAIN,
        )(_Actor)
        count = min(_num_fitting_actors(ray, engine), len(batches))
        actors = [remote.remote([reference], engine.num_cpus) for _ in range(count)]
        pool = importlib.import_module("ray.util").ActorPool(actors)
        try:
            yield from pool.map_unordered(lambda actor, batch: actor.run.remote(batch), batches)
        finally:
            for actor in actors:
                ray.kill(actor)


def _num_fitting_actors(ray: Any, engine: RayEngine) -> int:
    """Return how many actors the cluster can run, up to `engine.num_actors`.

    The limit is the number of CPUs and GPUs of the whole cluster, including those that are in use.
    Raise ValueError if the cluster is too small for one actor.
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
    """Class of the actors. Ray creates an instance in each process and calls `run` with batches.

    `reference` is a list with one item: a reference to the function `make` of `actor_results`,
    which is in Ray's object store. The reference is in a list, because Ray would otherwise load
    `make` before `__init__`. An error would then not reach the process that waits for the results.
    """

    def __init__(self, reference: list[Any], num_cpus: float) -> None:
        # Limit the threads, because by default torch uses all cores in each actor.
        torch.set_num_threads(max(1, int(num_cpus)))
        self._reference = reference
        self._process: Callable[[list[int]], Any] | None = None

    def run(self, batch: list[int]) -> Any:
        # Load and call `make` here and not in `__init__`: only an error in `run` reaches the
        # process that waits for the results.
        if self._process is None:
            make = importlib.import_module("ray").get(self._reference[0])
            self._process = make()
        return self._process(batch)


@contextmanager
def running_ray() -> Iterator[Any]:
    """Context manager that provides the module `ray` with a connection to Ray.

    If this process has no connection yet, call ``ray.init`` first and ``ray.shutdown`` at the end.
    Raise ImportError if Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ImportError(
            'engine="ray" needs Ray Data, which is not installed: pip install "attnviz[ray]"'
        )
    ray: Any = importlib.import_module("ray")
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()
