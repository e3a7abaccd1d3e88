"""Logging of views to experiment trackers or to folders.

A run is an object with which a tracker, such as MLflow, records one experiment. A target is a run
or a folder to which a view or metrics are logged.
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
from typing import Any, NamedTuple

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

    `name` is the name of the view in the run. `step` is the step, or None if the view does not
    belong to a step. `max_mb` is the maximum size of the view's page in megabytes, or None for the
    default of the view. `metrics` maps names to values.
    """

    name: str
    view: Any = None
    step: int | None = None
    max_mb: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def page(self) -> str:
        """HTML page of the view. It is made only once, even if it is logged to several targets."""
        arguments = {} if self.max_mb is None else {"max_mb": self.max_mb}
        page: str = self.view.to_html(**arguments)
        return page

    @cached_property
    def picture(self) -> NDArray[np.uint8]:
        """Picture of all heads that the view shows, uint8, (height, width, 3).

        Raise TypeError if the view does not show a record. For example, an `EmbeddingView` does
        not.
        """
        if not isinstance(self.view, RecordView):
            raise TypeError(
                "to is a tracker that shows only pictures of heads, and "
                f"{type(self.view).__name__} has none. Pass a folder, or a tracker that shows "
                "pages."
            )
        return self.view.heads_picture()

    @property
    def path(self) -> str:
        """Relative path of the page without suffix, such as ``"attention/step-00000100"``."""
        parts = [file_stem(part) for part in self.name.split("/")]
        if self.step is not None:
            parts.append(f"step-{self.step:08d}")
        return "/".join(part for part in parts if part)


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
    folder, the page is written to an HTML file.

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
        If `view` is not a view, if `to` has another type, or if the target is TensorBoard and
        `view` does not show a record (`attnviz.EmbeddingView` and `attnviz.AtlasView`).
    ValueError
        If `step` or `max_mb` is invalid, if no run is active, if a run has ended, or if the page
        would be larger than `max_mb`.
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
    if step is not None:
        step = whole_number("step", step, 0)
    targets = resolve_targets(to)
    if not targets:
        raise ValueError(
            "to: no run of MLflow, Weights & Biases, Trackio or Comet is active. Start one, or "
            "pass a run or a folder, such as log(view, 'attention')."
        )
    entry = Entry(view.file_name if name is None else name, view, step, max_mb)
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

    A folder becomes a `Path`, and a module becomes the active run of its tracker. If `to` is None,
    return all active runs, or an empty list if no run is active. Raise TypeError if an item is not
    a run, a module of a tracker or a path. Raise ValueError if a run has ended, or if a module has
    no active run.
    """
    if to is None:
        return [run for package in _TRACKERS if (run := _active_run(package)) is not None]
    if isinstance(to, list | tuple):
        return [run for target in to for run in resolve_targets(target)]
    if isinstance(to, str | os.PathLike):
        return [Path(to)]
    package = _package(to)
    if package not in _TRACKERS:
        names = ", ".join(dict.fromkeys(tracker.name for tracker in _TRACKERS.values()))
        raise TypeError(
            f"to must be a run of {names}, one of their modules, or a folder; got "
            f"{short_repr(to)} of the package {package!r}"
        )
    tracker = _TRACKERS[package]
    run = _active_run(package) if isinstance(to, ModuleType) else to
    if run is None or _has_ended(run):
        raise ValueError(
            f"to={short_repr(to)}: no run of {tracker.name} is active, or the run has ended. Pass "
            "a run before its end, or a folder."
        )
    return [run]


def _package(run: Any) -> str:
    """Return the name of the top-level package of a run.

    `run` is a run or a module. For a run, the package is that of its class.
    """
    name = run.__name__ if isinstance(run, ModuleType) else type(run).__module__
    return name.partition(".")[0]


def _active_run(package: str) -> Any:
    """Return the active run of the tracker in a package.

    Return None if the tracker has no active run, or if the package was not imported.
    """
    try:
        run = _TRACKERS[package].active_run(sys.modules.get(package))
    # If the package was not imported, `active_run` gets None. If the user has a folder with the
    # name of the package, such as "wandb", `active_run` gets an empty package. None and the empty
    # package lack the attribute that `active_run` reads.
    except AttributeError:
        return None
    return None if run is None or _has_ended(run) else run


def _has_ended(run: Any) -> bool:
    """Whether a run has ended. Everything that is logged to an ended run is lost.

    A run of Comet has the attribute `ended`, and a run of Weights & Biases `_is_finished`. For runs
    of other trackers, the result is False.
    """
    return bool(getattr(run, "ended", False) or getattr(run, "_is_finished", False))


def _write_folder(folder: Path, entry: Entry) -> None:
    if entry.view is not None:
        path = folder / f"{entry.path}.html"
        page = entry.page.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page)
    if entry.metrics:
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / "metrics.csv"
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


def _log_to_wandb_or_trackio(run: Any, entry: Entry) -> None:
    values: dict[str, Any] = dict(entry.metrics)
    if entry.view is not None:
        # Pass inject=False. Otherwise the tracker would add a link to a style sheet on the network,
        # but the page must also work offline.
        values[entry.name] = sys.modules[_package(run)].Html(entry.page, inject=False)
    if entry.step is not None:
        # Do not pass the step as the argument `step` of `run.log`, because this argument sets the
        # tracker's own counter of steps. If the counter exceeds the steps that the training logs
        # next, Weights & Biases drops the values of these steps.
        values["train/global_step"] = entry.step
    run.log(values)


def _log_to_comet(run: Any, entry: Entry) -> None:
    if entry.view is not None:
        run.log_asset_data(entry.page, name=f"{entry.path}.html", step=entry.step)
        # Put each page into a frame, because Comet joins all HTML of a run into one document.
        # Without frames, the styles and scripts of one page would affect the other pages.
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


class _Tracker(NamedTuple):
    """Experiment tracker.

    Attributes
    ----------
    name : str
        Name of the tracker in error messages.
    log : callable
        Function that logs an entry to a run.
    active_run : callable
        Function that takes the imported package and returns the active run, or None if no run is
        active. The default always returns None.
    """

    name: str
    log: Callable[[Any, Entry], None]
    active_run: Callable[[Any], Any] = lambda _: None


_TENSORBOARD = _Tracker("TensorBoard", _log_to_tensorboard)
# Trackers by the name of the top-level package that defines the class of their runs. For
# TensorBoard, this is "torch" (`torch.utils.tensorboard`) or "tensorboardX".
_TRACKERS = {
    "comet_ml": _Tracker("Comet", _log_to_comet, lambda comet: comet.get_running_experiment()),
    "mlflow": _Tracker("MLflow", _log_to_mlflow, lambda mlflow: mlflow.active_run()),
    "wandb": _Tracker("Weights & Biases", _log_to_wandb_or_trackio, lambda wandb: wandb.run),
    "trackio": _Tracker(
        "Trackio",
        _log_to_wandb_or_trackio,
        lambda trackio: trackio.context_vars.current_run.get(),
    ),
    "torch": _TENSORBOARD,
    "tensorboardX": _TENSORBOARD,
}
