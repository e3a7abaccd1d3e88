"""Tests of `log`, which writes views to folders and refuses trackers without an active run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.integrations import log
from attnviz.integrations.log import Entry, write_entry


def record() -> av.AttentionRecord:
    weights = [[[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [1.0, 0.0]]]]
    return av.AttentionRecord.from_weights(weights, ["a", "b"], model="tiny")


def test_a_folder_holds_the_page_by_name_and_step(tmp_path: Path) -> None:
    view = av.HeadView(record())
    log(view, tmp_path / "new")
    assert (tmp_path / "new" / "tiny-head-view.html").read_text("utf-8") == view.to_html()
    log(view, str(tmp_path), name="text 0/../../x", step=100)
    (path,) = tmp_path.glob("text-0/**/*.html")
    assert path.relative_to(tmp_path).as_posix() == "text-0/x/step-00000100.html"


def test_a_picture_of_a_comparison_shows_the_difference_of_the_chosen_member() -> None:
    first, second, third = ([[[[1.0, 0.0], [1 - x, x]]]] for x in (0.0, 0.5, 1.0))
    members = [
        av.AttentionRecord.from_weights(weights, ["a", "b"]) for weights in (first, second, third)
    ]
    view = av.CompareView(av.compare(members, names=["0", "1", "2"]))
    orange, white, blue = (217, 111, 14), (255, 255, 255), (27, 106, 179)
    for member in (1, 2):
        view.member = member
        inside = Entry("x", view).picture[1:65, 1:65]
        # In the second row, the first key lost weight (orange) and the second gained weight (blue).
        corners = [tuple(inside[corner]) for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1))]
        assert corners == [white, white, orange, blue]


def test_metrics_are_appended_to_a_table(tmp_path: Path) -> None:
    for step in (0, 10):
        write_entry(Entry("x", step=step, metrics={'a,"b"': 0.5}), [tmp_path])
    with (tmp_path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["step", "metric", "value"],
            ["0", 'a,"b"', "0.5"],
            ["10", 'a,"b"', "0.5"],
        ]


@pytest.mark.parametrize(
    ("arguments", "named", "error"),
    [
        ({"view": "a view"}, "view must be a view of attnviz", TypeError),
        ({"to": []}, "to: no run of MLflow", ValueError),
        ({"to": torch}, "to=.*torch.*: no run of TensorBoard is active", ValueError),
        ({"to": np}, "to must be a run of Comet.*of the package 'numpy'", TypeError),
        ({"step": -1}, "step=-1", ValueError),
        ({"max_mb": 0.001}, "max_mb", ValueError),
    ],
)
def test_invalid_arguments_are_named(
    tmp_path: Path, arguments: dict[str, Any], named: str, error: type[Exception]
) -> None:
    values: dict[str, Any] = {"view": av.HeadView(record()), "to": tmp_path} | arguments
    with pytest.raises(error, match=named):
        log(values.pop("view"), values.pop("to"), **values)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_imported_that_is_not_loaded(tmp_path: Path) -> None:
    before = {name.partition(".")[0] for name in sys.modules}
    log(av.HeadView(record()), tmp_path)
    new = {name.partition(".")[0] for name in sys.modules} - before
    assert not new & {"mlflow", "wandb", "trackio", "comet_ml", "tensorboard"}


def test_a_folder_named_like_a_tracker_is_not_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights & Biases creates a folder "wandb", which Python can import as a module."""
    for name in ("mlflow", "wandb", "trackio", "comet_ml"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        with pytest.raises(ValueError, match=r"no run of .* is active"):
            log(av.HeadView(record()), sys.modules[name])
    with pytest.raises(ValueError, match="pass a run or a folder"):
        log(av.HeadView(record()))
    log(av.HeadView(record()), tmp_path)
