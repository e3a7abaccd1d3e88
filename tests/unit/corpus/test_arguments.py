"""Test the arguments `engine` and `part` of `head_statistics`.

The engine "ray" is tested in tests/models/test_ray.py.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.corpus import RayEngine
from attnviz.corpus.on_ray import check_on_cpu
from unit.corpus.same_statistics import assert_same_statistics


def test_ray_refuses_a_model_that_is_not_on_the_cpu() -> None:
    model = torch.nn.Linear(2, 2, device="meta")
    with pytest.raises(ValueError, match="model: its weights are on meta, but Ray actors"):
        check_on_cpu(model)
    check_on_cpu(torch.nn.Linear(2, 2))


def test_missing_ray_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name)
    )
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(ImportError, match=r'pip install "attnviz\[ray\]"'):
        av.head_statistics(model, ["a b"], tokenizer=tokenizer, engine="ray", progress=False)


TEXTS = ["the cat sat", "a b a b", "the dog ran home", "it was the cat", "mary gave john a drink"]


def test_parts_contain_every_text_once() -> None:
    model, tokenizer = av.demos.load("decoder")
    options: Any = {"tokenizer": tokenizer, "progress": False, "batch_size": 1}
    expected = av.head_statistics(model, TEXTS, **options)
    for count in (1, 2, 5):
        parts = [
            av.head_statistics(model, TEXTS, part=(number, count), **options)
            for number in range(count)
        ]
        assert sum(part.texts for part in parts) == len(TEXTS)
        # Begin with the last part: the order of the parts must not change the statistics.
        total = parts[-1]
        for part in parts[:-1]:
            total += part
        assert_same_statistics(total, expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"engine": RayEngine}, ValueError, 'engine=.* must be None, "ray" or a RayEngine'),
        ({"part": (2, 2)}, ValueError, r"part\[0\]=2 must be from 0 to 1, the index of a part"),
        ({"part": (1, 6)}, ValueError, r"part\[1\]=6 must be from 1 to 5, the number of parts"),
        ({"part": (1,)}, TypeError, r"must be a pair \(part, number of parts\), such as"),
    ],
)
def test_invalid_arguments_are_refused(options: Any, error: type[Exception], message: str) -> None:
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(error, match=message):
        av.head_statistics(model, TEXTS, tokenizer=tokenizer, progress=False, **options)


def test_invalid_settings_of_ray_are_refused() -> None:
    with pytest.raises(ValueError, match="num_actors"):
        RayEngine(num_actors=0)
    with pytest.raises(ValueError, match="num_gpus=nan must be a finite number of at least 0"):
        RayEngine(num_gpus=float("nan"))
