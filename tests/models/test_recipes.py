"""The code in docs/recipes runs, and its results equal what the models compute."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz import AttentionRecord
from models.make_models import largest_error
from models.test_docs import parsed, run
from models.tiny import assert_own, own_modules, reference


@pytest.fixture
def read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[dict[str, Any], str]]:
    """Function that runs the code of a recipe, and returns its variables and what it prints."""
    monkeypatch.chdir(tmp_path)
    # Outside of Jupyter, views are written to temporary files.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run_page(name: str) -> tuple[dict[str, Any], str]:
        names = run(parsed(f"docs/recipes/{name}.md"))
        return names, capsys.readouterr().out

    return run_page


def test_vision_language(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("vision-language")
    first, last = names["stack"].query_tokens.predictions
    assert first.token.text == "triangle"
    image = np.asarray(names["image"]).astype(int)
    red = (image[..., 0] > 150) & (image[..., 1:].max(-1) < 120)
    on_red, on_white = (
        pixels.reshape(8, 4, 8, 4).any(axis=(1, 3)).ravel() for pixels in (red, image.min(-1) > 150)
    )
    rows = np.stack(names["record"].to_numpy("self"))[:, :, first.query, :64]
    # The text is about the red shape, to which the head with the largest effect attends.
    assert rows[names["layer"], names["head"], on_red].sum() == pytest.approx(0.98, abs=0.005)
    # The head with the most weight on only eight patches attends to the white shape.
    sharp = np.sort(rows)[..., -8:].sum(-1)
    layer, head = np.unravel_index(sharp.argmax(), sharp.shape)
    assert rows[layer, head, on_white].sum() == pytest.approx(0.99, abs=0.005)
    assert last.token.text == "<end>"
    # Hiding the patches with the most weight changes the prediction. Hiding other patches does not.
    strongest, others = printed.strip().splitlines()[-2:]
    assert "the prediction becomes" in strongest
    assert "the prediction stays “triangle”" in others


def test_hybrid_models(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("hybrid-models")
    assert printed.startswith("(0, 1, 2) (3,)\n")
    assert names["factors"].min() < 0
    assert np.all((names["gates"] > 0) & (names["gates"] < 1))
    decay = names["decay"].numpy()
    assert decay.shape == (4, 24, 16)
    assert 0 < decay.min() < decay.max() < 1
    assert len(list(names["effects"])) == 3
    assert names["view"].record.stacks.keys() == {"self", "indexer"}
    lost = np.array(names["lost"])
    assert np.all((lost > 0) & (lost < 1))


def test_robot_policies(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("robot-policies")
    tokens = names["policy"].stack("self").query_tokens
    assert [grid.name for grid in tokens.grids] == [*names["frames"], "instruction", "action"]
    # 8 x 8 patches of each camera.
    assert tokens.text[64 + 3 * 8 + 5] == "wrist camera 3,5"
    assert tokens.text[tokens.predictions[0].row or 0] == "Δx"
    shares = [float(line.rpartition(" ")[2]) for line in printed.splitlines() if ": 0." in line]
    # Each share is rounded to two digits.
    assert sum(shares) == pytest.approx(1, abs=4 * 0.005)
    saved = av.load("policy.safetensors")
    assert saved.tokens == names["record"].tokens
    assert [int(image.max()) for image in saved.images] == [100, 160]
    assert saved.tokens.text[11:13] == ("left 2,3", "right 0,0")


def test_proteins(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("proteins")
    record, numbered = names["record"], names["numbered"]
    # <cls>, 9 + 5 + 6 residues, <eos>.
    assert len(numbered.tokens) == 22
    own, tokens = record.tokens.text, numbered.tokens.text
    assert [name[0] for name in tokens[1:10]] == list(own[1:10])
    # The fifth and the sixth residue of the chain, of which the latter has an insertion code.
    assert tokens[5:7] == ("V52", "E52A")
    assert "V52 reads most: " in printed
    assert np.array_equal(numbered.to_numpy()[0], record.to_numpy()[0])
    assert av.load("antibody.safetensors").tokens == numbered.tokens


def test_time_series(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("time-series")
    # Patches of 16 steps start every 8 steps: 11 patches of each of three channels.
    assert printed.startswith("x1 0-15 x3 80-95\nx1 0 x1 2024-01-01 – 2024-01-16\nx2 11 ")
    assert names["shares"] == pytest.approx([0, 1, 0])
    assert names["named"].tokens[0] == "temperature 2024-01-01 – 2024-01-16"


def test_only_some_layers(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("large-models")
    assert printed.startswith("<self: layers 5, 11, 8 heads each, 512 tokens>")
    # A record of all layers has the same weights.
    everything = av.extract(names["model"], names["ids"], progress=False).stack()
    assert names["row"].shape == (1, 512)
    assert np.array_equal(names["row"], everything.weights(layer=5, head=3, rows=slice(511, 512)))


@pytest.mark.slow
# The code of peft causes this warning.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_lora(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    pytest.importorskip("peft")
    names, _ = read("lora")
    adapted, text, tokenizer = names["adapted"], names["text"], names["tokenizer"]
    inputs = tokenizer(text, return_tensors="pt")
    # Compare "after" with the merged weights of peft, and "before" with a new demo model.
    merged = copy.deepcopy(adapted).merge_and_unload()
    assert largest_error(names["after"], reference(merged, inputs)) < 1e-4
    base, _ = av.demos.load("decoder")
    assert largest_error(names["before"], reference(base, inputs)) < 1e-4
    assert max(distances.max() for distances in names["comparison"].distance()) > 0.3
    # The recipe warns of this comparison: `model` equals `adapted`, because peft changes `model`.
    trapped = av.compare((names["model"], adapted), text, tokenizer=tokenizer)
    assert max(distances.max() for distances in trapped.distance()) == 0
    assert "disable_adapter" in trapped.notes[0]
    assert av.compare((base, adapted), text, tokenizer=tokenizer).notes == ()


@pytest.mark.slow
def test_training(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("training")
    best = [float(line.rpartition(" ")[2]) for line in printed.splitlines() if "best head" in line]
    assert len(best) == len(names["records"]) == 4
    assert best[0] < 0.3
    assert best[-1] > 0.7
    path = Path("record.safetensors")
    names["records"][60].save(path)
    # The recipe says 16 kB, to which the file adds tokens and checksums.
    assert 16_384 <= path.stat().st_size < 24_000


def test_model_families(
    read: Callable[[str], tuple[dict[str, Any], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[Any, Mapping[str, Any], AttentionRecord]] = []
    extract = av.extract

    def noting(model: Any, inputs: Any, **options: Any) -> Any:
        record = extract(model, inputs, **options)
        cases.append((model, inputs if isinstance(inputs, dict) else {"input_ids": inputs}, record))
        return record

    monkeypatch.setattr(av, "extract", noting)
    names, printed = read("model-families")
    gpt_oss, llama4, whisper, t5 = cases
    for model, inputs, record in (gpt_oss, llama4):
        assert_own(record, own_modules(model, inputs, {"self": ""}))
    features = names["extractor"](names["sound"], sampling_rate=16_000, return_tensors="pt")
    decoder = {"decoder_input_ids": torch.tensor([[1, 50, 60, 70]])}
    for (model, _, record), arguments in (
        (whisper, {"input_features": features["input_features"], **decoder}),
        (t5, t5[1]),
    ):
        assert_own(record, reference(model, arguments), peak=0.0)
    # Check what the recipe says about each model.
    record = gpt_oss[2]
    assert any("sink" in note for note in record.notes)
    for layer, sinks in enumerate(module.self_attn.sinks for module in gpt_oss[0].model.layers):
        weights = record.stack().weights(layer=layer)
        assert (weights.sum(-1) < 1).any()
        # Layers 0, 2, ... have a window of 8 tokens.
        assert ((weights[:, 23] > 0).sum(-1) == (8 if layer % 2 == 0 else 24)).all()
        assert sinks.shape == (4,)
    assert not any("sink" in note for note in llama4[2].notes)
    chunked = llama4[2].stack()
    assert printed.count("(chunked_attention): query 17 reads 2 keys") == 3
    assert "layer 3 (full_attention): query 17 reads 18 keys" in printed
    # A query attends only to keys in the same chunk of 8 tokens.
    chunk = np.arange(24) // 8
    assert not chunked.weights(layer=0)[:, chunk[:, None] != chunk].any()
    assert whisper[2].stacks["cross"].key_tokens.text[:3] == ("0.00s", "0.02s", "0.04s")
    assert any("The sound ends at 1.00s" in note for note in whisper[2].notes)
    assert "['encoder', 'decoder', 'cross']" in printed


def test_mamba(read: Callable[[str], tuple[dict[str, Any], str]]) -> None:
    names, printed = read("mamba")
    assert printed.count("differs from the model's own output by") == 2
    stack = names["record"].stacks["hidden attention"]
    assert stack.signed
    assert stack.measure == "factor"

    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    # Compare with the scan of transformers, which computes one token after the other.
    config = transformers.MambaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4, initializer_range=0.5
    )
    torch.manual_seed(0)
    model = transformers.MambaForCausalLM(config).eval()
    with torch.no_grad():
        for mixer, states in names["run"](model, torch.randint(0, 50, (1, 30))):
            channels = torch.arange(mixer.intermediate_size)
            matrices = names["hidden_attention"](mixer, states, channels)
            u, projected = states["x_proj"]
            step, b, c = projected.split([mixer.time_step_rank, 4, 4], dim=-1)
            expected = mamba_selective_scan(
                u.T[None],
                (step @ mixer.dt_proj.weight.T).T[None],
                -mixer.A_log.exp(),
                b.T[None],
                c.T[None],
                delta_bias=mixer.dt_proj.bias,
                delta_softplus=True,
            )[0]
            assert expected.abs().max() > 0.01
            outputs = (matrices @ u.T[..., None])[..., 0]
            assert (outputs - expected).abs().max() < 1e-4 * expected.abs().max()
            assert (matrices.triu(1) == 0).all()
            # The matrices of two selected channels equal those from the call with all channels.
            subset = names["hidden_attention"](mixer, states, torch.tensor([3, 7]))
            # A number is a sum of products of up to 30 decays. Its terms may cancel, so the error
            # is relative to the largest number, and not to the number itself.
            rounding = 64 * torch.finfo(torch.float32).eps * float(matrices.abs().max())
            assert (subset - matrices[[3, 7]]).abs().max() < rounding
