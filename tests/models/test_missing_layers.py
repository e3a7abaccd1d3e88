"""Test whether notes name exactly the modules that mix tokens without attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attnviz import extract
from attnviz.extraction.capture.missing_layers import _mixers
from model_types.build import tiny_model
from model_types.cases import cases_of, override_of
from model_types.inputs import find_inputs
from model_types.reference import run


class TinyOssMLP(nn.Module):
    """A module with "ssm" in its name that reads each position alone."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, states: torch.Tensor) -> Any:
        return torch.relu(self.up(states))


class Convolution(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Conv1d(8, 8, size, padding=size // 2)

    def forward(self, states: torch.Tensor) -> Any:
        return self.inner(states.transpose(1, 2)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(8, 8, batch_first=True)

    def forward(self, states: torch.Tensor) -> Any:
        return self.inner(states)[0]


class MeanOfEarlier(TinyOssMLP):
    def forward(self, states: torch.Tensor) -> Any:
        return self.up(torch.cumsum(states, dim=1))


class Shifted(TinyOssMLP):
    def forward(self, states: torch.Tensor) -> Any:
        return self.up(states) + torch.roll(states, 1, dims=1)


class Spectrum(TinyOssMLP):
    def forward(self, states: torch.Tensor) -> Any:
        return self.up(torch.fft.fft(states, dim=1).real)


class Pooled(TinyOssMLP):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool1d(3, stride=1, padding=1)

    def forward(self, states: torch.Tensor) -> Any:
        return self.up(self.pool(states.transpose(1, 2)).transpose(1, 2))


class Experts(TinyOssMLP):
    """Counts the tokens of each expert, as routers do, without a limit that depends on them."""

    def forward(self, states: torch.Tensor) -> Any:
        expert = nn.functional.one_hot(states[..., :2].argmax(dim=-1), 2)
        counts = torch.cumsum(expert, dim=1)
        return self.up(states) * (counts >= 0).all(dim=-1, keepdim=True)


@pytest.mark.parametrize(
    "make",
    [
        *(TinyOssMLP, lambda: Convolution(1), lambda: Convolution(3), Recurrent, MeanOfEarlier),
        *(Shifted, Spectrum, Pooled, Experts),
    ],
)
def test_a_module_mixes_if_another_position_changes_its_output(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = make().eval()
    states = torch.randn(1, 6, 8)
    changed = states.clone()
    changed[0, 2] += 1
    with torch.no_grad():
        difference = (module(changed) - module(states)).abs().amax(dim=-1)[0]
    mixes = bool(difference[[0, 1, 3, 4, 5]].max() > 1e-6)
    layer = nn.ModuleDict({"part": module})
    assert list(_mixers(layer, set())) == [type(module).__name__] * mixes


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        *(("gpt_oss", []), ("seed_oss", []), ("cohere_compass_text", []), ("jamba", [])),
        ("parakeet_encoder", ["ParakeetEncoderConvolutionModule"]),
    ],
)
def test_notes_name_the_mixers_of_a_model(model_type: str, names: list[str]) -> None:
    override = override_of(next(iter(cases_of(model_type))))
    model = tiny_model(model_type, None, override["config"])
    inputs = find_inputs(model, lambda inputs: run(model, inputs), override["inputs"])
    notes = [note for note in extract(model, inputs).notes if "beside the attention" in note]
    assert len(notes) == len(names)
    for note, name in zip(notes, names, strict=True):
        assert f": {name} (mixes tokens beside the attention)" in note
