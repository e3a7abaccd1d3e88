"""Arguments of engines, checked before Ray is loaded. tests/models/test_ray.py runs Ray."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import attnviz as av
from attnviz.corpus import RayEngine
from attnviz.corpus.on_ray import check_model, resolve_engine


def test_engines() -> None:
    assert resolve_engine(None, ["a"]) is None
    assert resolve_engine("ray", ["a"]) == RayEngine()
    settings = RayEngine(num_actors=8, num_gpus=0.5)
    assert resolve_engine(settings, ["a"]) is settings


@pytest.mark.parametrize("engine", ["spark", "", 1, True, ["ray"], RayEngine])
def test_other_engines_are_refused(engine: object) -> None:
    with pytest.raises(ValueError, match=r'engine=.* must be None, "ray" or a RayEngine'):
        resolve_engine(engine, ["a"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_actors": 0}, "num_actors"),
        ({"texts_per_batch": -1}, "texts_per_batch"),
        ({"num_cpus": -1}, "num_cpus=-1 must be a finite number of at least 0"),
        ({"num_gpus": float("nan")}, "num_gpus=nan must be a finite number of at least 0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        RayEngine(**settings)  # type: ignore[arg-type]


def test_a_model_on_a_device_is_loaded_by_the_actors() -> None:
    model = torch.nn.Linear(2, 2, device="meta")
    with pytest.raises(ValueError, match="model: its weights are on meta, but Ray actors"):
        check_model(model)
    check_model(torch.nn.Linear(2, 2))
    check_model("gpt2")


def test_missing_ray_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name)
    )
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(ImportError, match=r'pip install "attnviz\[ray\]"'):
        av.head_statistics(model, ["a b"], tokenizer=tokenizer, engine="ray", progress=False)


def test_records_need_no_engine() -> None:
    record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    with pytest.raises(TypeError, match="engine='ray' has no meaning without texts"):
        av.head_statistics([record], engine="ray")
