"""`extract` refuses models that are split across processes, except for data parallelism."""

from __future__ import annotations

import json
import re
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
from models.tiny import SIZE, built

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without processes"),
]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divided") / "llama"
    settings = {**SIZE, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4}
    built("LlamaForCausalLM", {**settings, "vocab_size": 100}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def results(model_folder: Path, run_in_two_processes: Callable[..., None]) -> Callable[[str], Any]:
    """Function that returns the weights or error of each process for a case in `processes.py`."""
    out = model_folder.parent
    run_in_two_processes("processes.py", model_folder, out)
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
    """Weights (layers, heads, queries, keys) that the model computes in one process."""
    model: Any = transformers.LlamaForCausalLM.from_pretrained(
        model_folder, attn_implementation="eager"
    )
    with torch.no_grad():
        weights = torch.cat(model(IDS, output_attentions=True).attentions).numpy()
    # Almost uniform rows would hide a wrong formula.
    assert weights.max(-1).mean() > 0.6
    assert np.abs(np.stack(extract(model, IDS).to_numpy()) - weights).max() < 1e-5
    return weights


HEADS = "model: its attention heads are split across processes.*without tp_plan.*device_map='auto'"
TOKENS = "model: it runs in context parallel.*outside of context_parallel"


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("tensor_parallel", HEADS),
        ("tensor_parallel_by_torch", HEADS),
        ("tensor_parallel_of_plain_tensors", HEADS),
        ("tensor_parallel_and_fsdp", HEADS),
        ("context_parallel", TOKENS),
        ("context_parallel_whole_text", TOKENS),
        ("pipeline_parallel", "model: its layers are split across processes.*without tp_plan"),
    ],
)
def test_divided_heads_tokens_and_layers_are_refused(
    results: Callable[[str], Any], case: str, error: str
) -> None:
    messages = results(case)
    assert len(messages) == 2
    for message in messages:
        assert isinstance(message, str), message.shape
        assert re.match(f"NotImplementedError: {error}", message, re.DOTALL)


@pytest.mark.parametrize("case", ["after_context_parallel", "fsdp", "ddp", "ddp_alone"])
def test_data_parallel_is_read_as_one_process(
    results: Callable[[str], Any], own: NDArray[np.float32], case: str
) -> None:
    weights = results(case)
    assert len(weights) == (1 if case == "ddp_alone" else 2)
    for computed in weights:
        assert computed.shape == (2, 8, 8, 8)
        assert np.abs(computed - own).max() < 1e-5
