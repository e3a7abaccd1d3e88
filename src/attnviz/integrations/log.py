"""Logging of views to experiment trackers or to folders.

A run is an object of a tracker that records one experiment. A run or a folder to which something is
logged is called a target.
"""

from __future__ import annotations

import csv
import html
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr, whole_number
from attnviz.utils.filenames import file_stem
from attnviz.utils.files import write_atomic
from attnviz.views.base import View
from attnviz.views.record_view import RecordView

# Height in pixels of the frame that shows a page in the HTML tab of Comet.
_FRAME_HEIGHT = 700


@dataclass(frozen=True)
class Entry:
    """Content that is logged at one training step: a view, or metrics, or both.

    `name` is the name of the view in the run. `max_mb` is the maximum size of its page. `metrics`
    maps names to values.
    """

    name: str
    view: View | None = None
    step: int | None = None
    max_mb: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def page(self) -> str:
        """HTML page of the view. It is made once, even if there are several targets."""
        make: Callable[..., str] = self._shown.to_html
        return make() if self.max_mb is None else make(max_mb=self.max_mb)

    @cached_property
    def picture(self) -> NDArray[np.uint8]:
        """Picture of all heads of the stack that the view shows, uint8, (height, width, 3)."""
        view = self._shown
        if not isinstance(view, RecordView):
            raise TypeError(
                f"to is a tracker that shows only pictures of heads, and {type(view).__name__} has "
                "none. Pass a folder, or a tracker that shows pages."
            )
        return view.heads_picture()

    @property
    def path(self) -> str:
        """Relative path of the page without suffix, such as ``"attention/step-00000100"``."""
        parts = [file_stem(part) for part in self.name.split("/")]
        if self.step is not None:
            parts.append(f"step-{self.step:08d}")
        return "/".join(part for part in parts if part)

    @property
    def _shown(self) -> View:
        if self.view is None:
            raise ValueError("this entry has no view")
        return self.view


def log(
    view: View,
    to: Any = None,
    *,
    name: str | None = None,
    step: int | None = None,
    max_mb: float | None = None,
) -> None:
    """Log a view to an experiment tracker or to a folder.

    Comet, MLflow, Weights & Biases and Trackio receive an interactive page. TensorBoard can only
    show images, so it receives a picture of all heads, which is drawn without a browser. In a
    folder, the page is written to a file.

    Parameters
    ----------
    view : View
        View to log.
    to : run, module, path-like or list of these, optional
        Where to log the view: a run or experiment of a tracker, the module of a tracker with an
        active run, or the path of a folder. By default, all active runs of MLflow, Weights &
        Biases, Trackio and Comet. TensorBoard has no active run, so its writer must be passed.
    name : str, optional
        Name of the view in the run. ``/`` separates folders. By default, the name consists of the
        names of the model and the view.
    step : int, optional
        Training step. For Weights & Biases and Trackio, it is logged as the value
        ``"train/global_step"``, as the Trainer of transformers does, because these trackers count
        their own steps.
    max_mb : float, optional
        Maximum size of the page in megabytes, as in the method `to_html` of the view.

    Raises
    ------
    TypeError
        If `view` is not a view, or `to` has another type.
    ValueError
        If no run is active, if a run has ended, or if the page would be larger than `max_mb`.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> from attnviz.integrations import log
    >>> view = av.show_head_view(model, text)                            # doctest: +SKIP
    >>> log(view)                        # all active runs               # doctest: +SKIP
    >>> log(view, "attention", step=100)  # attention/gpt2-head-view/step-00000100.html
    ...                                                                  # doctest: +SKIP
    """
    if not isinstance(view, View):
        raise TypeError(
            "view must be a view of attnviz, such as show_head_view returns; got "
            f"{short_repr(view)}"
        )
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a string; got {short_repr(name)}")
    if step is not None:
        step = whole_number("step", step, 0)
    targets = resolve_targets(to)
    if not targets:
        raise ValueError(
            "to: no run of MLflow, Weights & Biases, Trackio or Comet is active. Start one, or "
            "pass a run or a folder, such as log(view, 'attention')."
        )
    entry = Entry(view.file_name if name is None else name, view, step, max_mb)
    if not entry.path:
        raise ValueError(f"name={name!r} has no characters for a file name")
    write_entry(entry, targets)


def write_entry(entry: Entry, targets: Sequence[Any]) -> None:
    """Write an entry to each of `targets`, which `resolve_targets` returned."""
    for target in targets:
        if isinstance(target, Path):
            _write_folder(target, entry)
        else:
            _TRACKERS[_package(target)].log(target, entry)


def resolve_targets(to: Any) -> list[Any]:
    """Convert the argument `to` of `log` to a list of runs and folders.

    Folders are returned as `Path`. If `to` is None, return all active runs, possibly none. Raise
    TypeError if an item is neither a run, a module of a tracker nor a path. Raise ValueError if a
    run has ended or a module has no active run.
    """
    if to is None:
        return _active_runs()
    if isinstance(to, list | tuple):
        return [run for target in to for run in resolve_targets(target)]
    if isinstance(to, str | os.PathLike):
        return [_parse_folder(to)]
    tracker = _TRACKERS.get(_package(to))
    if isinstance(to, ModuleType) and tracker is not None:
        return [_run_of_module(to, tracker)]
    if tracker is None or not any(hasattr(to, name) for name in tracker.run_attributes):
        type_name = to.__name__ if isinstance(to, ModuleType) else type(to).__name__
        names = ", ".join(dict.fromkeys(tracker_type.name for tracker_type in _TRACKERS.values()))
        hint = f" ({tracker.start_code} creates a run)" if tracker else ""
        raise TypeError(
            f"to must be a run of {names}, one of their modules, or a folder; got {type_name} of "
            f"the package {_package(to)!r}{hint}"
        )
    if tracker.has_ended(to):
        raise ValueError(
            f"to: this run of {tracker.name} has ended, and would lose the entry. Log before its "
            f"end, start a run with {tracker.start_code}, or pass a folder."
        )
    return [to]


def _parse_folder(to: str | os.PathLike[str]) -> Path:
    named = os.fspath(to)
    if not named.strip():
        raise ValueError(
            f"to={named!r} must be the path of a folder. Pass '.' for the current one."
        )
    return Path(named)


def _run_of_module(module: ModuleType, tracker: _Tracker) -> Any:
    """Return the active run of `tracker`, whose module was passed as `to`. Raise if it has none."""
    label = f"to={module.__name__}"
    if tracker.get_active_run is None:
        raise TypeError(
            f"{label}: {tracker.name} has no active run. Pass the run that "
            f"{tracker.start_code} creates."
        )
    # `module` may be a submodule, but the function `get_active_run` needs the package.
    run = _active_run(tracker, _package(module))
    if run is None:
        raise ValueError(
            f"{label}: no run is active. Start one with {tracker.start_code}, or pass a folder."
        )
    return run


def _package(run: Any) -> str:
    """Return the name of the top-level package of a module, or of the class of a run."""
    name = run.__name__ if isinstance(run, ModuleType) else type(run).__module__
    return name.partition(".")[0]


def _active_runs() -> list[Any]:
    runs = [_active_run(tracker, package) for package, tracker in _TRACKERS.items()]
    return [run for run in runs if run is not None]


def _active_run(tracker: _Tracker, package: str) -> Any:
    """Return the active run of a tracker, or None if it has none or was not imported."""
    if tracker.get_active_run is None or package not in sys.modules:
        return None
    try:
        run = tracker.get_active_run(sys.modules[package])
    # The module may not be the tracker: Python can import a folder named "wandb" as a namespace
    # package, which has no attributes.
    except AttributeError:
        return None
    return None if run is None or tracker.has_ended(run) else run


def _write_folder(folder: Path, entry: Entry) -> None:
    page = None if entry.view is None else entry.page
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if page is not None:
            path = folder / f"{entry.path}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, page.encode())
        if entry.metrics:
            _append_metrics(folder / "metrics.csv", entry)
    except OSError as error:
        message = (
            f"to={str(folder)!r} cannot be written to ({error.strerror}). Pass another folder."
        )
        raise type(error)(error.errno, message, error.filename) from error


def _append_metrics(table: Path, entry: Entry) -> None:
    is_new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        if is_new:
            rows.writerow(["step", "metric", "value"])
        rows.writerows((entry.step, name, value) for name, value in entry.metrics.items())


def _log_to_mlflow(run: Any, entry: Entry) -> None:
    client = sys.modules["mlflow"].MlflowClient()
    run_id = run.info.run_id
    if entry.view is not None:
        client.log_text(run_id, entry.page, f"{entry.path}.html")
    for name, value in entry.metrics.items():
        client.log_metric(run_id, name, value, step=entry.step)


def _logs_dict(package: str, **arguments: Any) -> Callable[[Any, Entry], None]:
    """Return a function that logs an entry with ``run.log(values)``, where `values` is a dict.

    The page is converted to ``Html(page, **arguments)`` of the package. Weights & Biases and
    Trackio have this interface.
    """

    def log_entry(run: Any, entry: Entry) -> None:
        values: dict[str, Any] = dict(entry.metrics)
        if entry.view is not None:
            values[entry.name] = sys.modules[package].Html(entry.page, **arguments)
        if entry.step is not None:
            # Do not pass the argument `step` to `log`: it would advance the tracker's own step
            # counter past the steps of the metrics that the training logs.
            values["train/global_step"] = entry.step
        run.log(values)

    return log_entry


def _log_to_comet(run: Any, entry: Entry) -> None:
    if entry.view is not None:
        run.log_asset_data(entry.page, name=f"{entry.path}.html", step=entry.step)
        # Put each page into a frame, because Comet joins all HTML of a run to one page.
        title = html.escape(
            entry.name if entry.step is None else f"{entry.name}, step {entry.step}"
        )
        frame = (
            f'<h3>{title}</h3><iframe srcdoc="{html.escape(entry.page)}" '
            'sandbox="allow-scripts allow-downloads" loading="lazy" '
            f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0" title="{title}"></iframe>'
        )
        run.log_html(frame)
    if entry.metrics:
        run.log_metrics(dict(entry.metrics), step=entry.step)


def _log_to_tensorboard(run: Any, entry: Entry) -> None:
    if entry.view is not None:
        run.add_image(entry.name, entry.picture, entry.step, dataformats="HWC")
    for name, value in entry.metrics.items():
        run.add_scalar(name, value, entry.step)


@dataclass(frozen=True)
class _Tracker:
    """Experiment tracker, with functions that find its active run and log entries.

    Attributes
    ----------
    name : str
        Name of the tracker in error messages.
    start_code : str
        Python code that creates a run, for error messages.
    run_attributes : tuple of str
        Names of attributes. An object of the package is a run if it has at least one of them.
    log : callable
        Function that logs an entry to a run.
    get_active_run : callable or None
        Function that takes the imported package and returns the active run or None. None if the
        tracker has no active runs.
    has_ended : callable
        Function that returns whether a run has ended.
    """

    name: str
    start_code: str
    run_attributes: tuple[str, ...]
    log: Callable[[Any, Entry], None]
    get_active_run: Callable[[Any], Any] | None = None
    has_ended: Callable[[Any], bool] = lambda _: False


_TENSORBOARD = _Tracker(
    "TensorBoard", "torch.utils.tensorboard.SummaryWriter()", ("add_image",), _log_to_tensorboard
)
# Trackers by the name of the top-level package of a run's class. It is "torch" for TensorBoard runs
# of `torch.utils.tensorboard`.
_TRACKERS: dict[str, _Tracker] = {
    "comet_ml": _Tracker(
        "Comet",
        "comet_ml.start()",
        ("log_asset_data",),
        _log_to_comet,
        lambda comet: comet.get_running_experiment(),
        # `get_running_experiment` may return an ended experiment. Comet ignores entries that are
        # logged to it.
        lambda run: bool(getattr(run, "ended", False)),
    ),
    "mlflow": _Tracker(
        "MLflow",
        "mlflow.start_run()",
        ("info",),
        _log_to_mlflow,
        lambda mlflow: mlflow.active_run(),
    ),
    "wandb": _Tracker(
        "Weights & Biases",
        "wandb.init()",
        ("log",),
        # Pass inject=False, because `inject` would add a style sheet that is loaded from the
        # network.
        _logs_dict("wandb", inject=False),
        lambda wandb: wandb.run,
        lambda run: bool(getattr(run, "_is_finished", False)),
    ),
    "trackio": _Tracker(
        "Trackio",
        "trackio.init()",
        ("log",),
        _logs_dict("trackio", inject=False),
        lambda trackio: trackio.context_vars.current_run.get(),
    ),
    "torch": _TENSORBOARD,
    "tensorboardX": _TENSORBOARD,
}
