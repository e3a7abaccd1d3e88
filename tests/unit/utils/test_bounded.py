"""Tests of errors for arguments of unexpected types."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.views.head import HeadView
from attnviz.views.model import ModelView
from unit.records import given_record

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
