"""Models that are split across processes: a real group of two on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from attnviz import extract
from models.processes import IDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without processes"),
]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=64,
        vocab_size=100,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(8)
    folder = tmp_path_factory.mktemp("divided") / "llama"
    model.save_pretrained(folder)
    return folder


def start(model_folder: Path) -> None:
    """Run `processes.py` in two processes until both end."""
    script = Path(__file__).parent / "processes.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ran = subprocess.run(
        [*command, str(script), str(model_folder), str(model_folder.parent)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]


@pytest.fixture(scope="module")
def results(model_folder: Path) -> Callable[[str], Any]:
    """Return a function that returns a case's result in each process: an error or weights."""
    out = model_folder.parent
    start(model_folder)
    outcomes = [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]

    def of_case(name: str) -> Any:
        return [
            np.load(out / f"{name}-{rank}.npy") if outcome[name] == "read" else outcome[name]
            for rank, outcome in enumerate(outcomes)
            if name in outcome
        ]

    return of_case


@pytest.fixture(scope="module")
def own(model_folder: Path) -> NDArray[np.float32]:
    """Return the attention weights of the same model in one process."""
    model: Any = transformers.LlamaForCausalLM.from_pretrained(
        model_folder, attn_implementation="eager"
    )
    with torch.no_grad():
        weights = torch.cat(model(IDS, output_attentions=True).attentions).numpy()
    # Rows must have clear maxima, otherwise any formula looks right.
    assert weights.max(-1).mean() > 0.6
    assert np.abs(np.stack(extract(model, IDS).to_numpy()) - weights).max() < 1e-5
    return weights


@pytest.mark.parametrize(
    "case",
    [
        "tensor_parallel",
        "tensor_parallel_by_torch",
        "tensor_parallel_of_plain_tensors",
        "tensor_parallel_and_fsdp",
    ],
)
def test_divided_heads_are_refused(results: Callable[[str], Any], case: str) -> None:
    both = results(case)
    assert len(both) == 2
    for message in both:
        assert isinstance(message, str), message.shape
        assert message.startswith(
            "NotImplementedError: model: its attention heads are split across 2"
        )
        assert "without tp_plan" in message
        assert "device_map='auto'" in message


@pytest.mark.parametrize("case", ["context_parallel", "context_parallel_whole_text"])
def test_divided_tokens_are_refused(results: Callable[[str], Any], case: str) -> None:
    both = results(case)
    assert len(both) == 2
    for message in both:
        assert isinstance(message, str), message.shape
        assert message.startswith("NotImplementedError: model: it runs in context parallel")
        assert "outside of context_parallel" in message


def test_divided_layers_are_refused(results: Callable[[str], Any]) -> None:
    both = results("pipeline_parallel")
    assert len(both) == 2
    for message in both:
        assert message.startswith(
            "NotImplementedError: model: its layers are split across processes"
        )
        assert "without tp_plan" in message


@pytest.mark.parametrize("case", ["after_context_parallel", "fsdp", "ddp", "ddp_alone"])
def test_data_parallel_is_read_as_one_process(
    results: Callable[[str], Any], own: NDArray[np.float32], case: str
) -> None:
    weights = results(case)
    assert len(weights) == (1 if case == "ddp_alone" else 2)
    for computed in weights:
        assert computed.shape == (2, 8, 8, 8)
        assert np.abs(computed - own).max() < 1e-5
