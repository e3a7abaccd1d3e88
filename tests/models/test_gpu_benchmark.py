"""The benchmark for a GPU, as far as it runs without one: copies are counted, tables have lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from attnviz import extract
from benchmarks.gpu import IMPLEMENTATIONS, SMALL, Copies, main, section
from models.tiny import built

pytestmark = pytest.mark.models


def test_copies_between_devices_are_counted() -> None:
    numbers = torch.arange(12.0).reshape(3, 4)
    with Copies("cpu", "meta") as counted:
        numbers.to("meta")
        numbers[:2].to("meta", torch.float64)
        torch.empty(3, 4, device="meta").copy_(numbers)
        # On one device, and a single number, which is read for a decision.
        numbers.to(torch.float64)
        torch.tensor([1.0]).to("meta")
        numbers.sum().item()
    assert (counted.count, counted.bytes) == (3, 12 * 4 + 8 * 4 + 12 * 4)


def test_copies_of_another_direction_are_not_counted() -> None:
    with Copies("cuda", "cpu") as counted:
        torch.arange(12.0).to(torch.float64).clone()
    assert (counted.count, counted.bytes) == (0, 0)


def test_an_extraction_copies_queries_and_keys_no_more_than_once() -> None:
    """What would go to the host goes once: seen here as changes of the dtype on the CPU."""
    model = built(
        "LlamaForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 64,
        },
        factor=4.0,
    )
    ids = torch.arange(60)[None]

    def copied(dtype: str | None) -> int:
        counted = Copies("cpu", "cpu")
        with counted:
            extract(model, ids, dtype=dtype, progress=False)
        return counted.bytes

    # Six heads' vectors of 8 numbers for each token and layer.
    held = 3 * 60 * 6 * 8 * 4
    alone = copied(None)
    assert held <= copied("float64") - alone < 2 * held


@pytest.mark.slow
def test_the_script_measures_every_table_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpu.json"
    main(["--device", "cpu", "--small", "--json", str(path)])
    told = json.loads(path.read_text(encoding="utf-8"))
    named = {line["what"]: line for line in told["lines"]}
    for tokens in SMALL.lengths:
        for implementation in IMPLEMENTATIONS:
            line = named[f"extract, {implementation}, n = {tokens}"]
            if implementation == "flash_attention_2":
                assert line["fault"] == "needs a CUDA device"
            else:
                assert len(line["ratio"]) == SMALL.turns
                assert line["goal"].startswith("1.05x")
    assert any("spool=" in what and "fault" not in line for what, line in named.items())
    assert named["a tile of 256 x 256 tokens, of 512"]["goal"] == "5 ms"
    assert any(what.startswith("head_statistics of 16 texts") for what in named)
    text = section(told)
    assert capsys.readouterr().out == text
    assert all(f"| {what} |" in text for what in named)
    assert "the CPU" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda"], "finds no CUDA device"),
        (["--device", "cpu", "--write-docs"], "is for a CUDA device"),
    ],
)
def test_what_the_script_cannot_do_is_said(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available() and "cuda" in arguments:
        pytest.skip("a CUDA device is there")
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err
