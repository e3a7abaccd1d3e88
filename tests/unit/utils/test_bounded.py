"""Tests of errors for endless arguments, and for arguments of unexpected types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

from attnviz.extraction.options import read_capture_options
from attnviz.record.record import AttentionRecord
from attnviz.views.head import HeadView
from attnviz.views.model import ModelView
from unit.records import given_record

ENDLESS: dict[str, Callable[[Any], object]] = {
    "layers": lambda value: read_capture_options(layers=value),
    "include_layers|^layers": lambda value: HeadView(given_record(), include_layers=value),
    " layers|^layers": lambda value: given_record().only(value),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("value", [range(10**12), itertools.count(), itertools.repeat(0)], ids=repr)
def test_endless_numbers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^({name})=.*more than 100,000 numbers"):
        ENDLESS[name](value)


ODD = [
    *(np.array([0, 1]), np.eye(3), np.array([]), np.array(["a", "b"]), torch.tensor([0, 1])),
    *({}, [[0]], [0, 1, 2], object(), 1j, float("nan"), b"x"),
]


@pytest.mark.parametrize("view", [HeadView, ModelView])
def test_odd_values_of_a_state_name_it(view: type[HeadView]) -> None:
    instance = view(given_record())
    for name in view.state_names():
        for invalid in ODD:
            before = getattr(instance, name)
            message: str = name
            try:
                setattr(instance, name, invalid)
                setattr(instance, name, before)
            except traitlets.TraitError as error:
                message = str(error)
            assert name in message, invalid
            assert len(message) < 1500


def test_tensors_of_other_kinds_are_read_or_refused_by_name() -> None:
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    record = AttentionRecord.from_weights(weights.to(torch.float8_e4m3fn), ["a", "b"])
    assert record.stack().weights(layer=0, head=0).tolist() == weights[0, 0].tolist()
    for odd in (weights.to_sparse(), weights.to("meta")):
        with pytest.raises(
            TypeError, match=r"^attentions is not an array of numbers: pass a dense"
        ):
            AttentionRecord.from_weights(odd, ["a", "b"])
