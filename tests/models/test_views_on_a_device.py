"""Views of records, corpora and statistics on a device answer requests as views on the CPU do."""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerControl, TrainerState, TrainingArguments

import attnviz as av
from attnviz.cli import main
from attnviz.extraction import live
from attnviz.extraction.live import extract_live
from attnviz.integrations import AttentionCallback, log
from attnviz.server.base import BaseServer
from attnviz.server.codec import decode
from attnviz.server.protocol import Reply
from attnviz.views.live import LiveGeneration
from model_types.build import tiny_model
from models.accelerator import DEVICE, PRETENDED
from models.make_models import make_model
from models.test_chosen_keys import MODELS as CHOOSING
from models.test_live import until
from models.test_training import TEXT, logged
from models.test_training import model as small_model
from models.test_training import tokenizer as number_tokenizer
from models.tiny import arguments_of
from unit.complete_replies import whole_reply
from unit.page_data import bare_data_of
from unit.server.test_protocol import CORPUS_ASKED, RECORD_ASKED, REDUCTIONS

pytestmark = pytest.mark.gpu

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 40, 12, 7]])
TEXTS = [IDS, IDS.flip(1), IDS[:, 3:10]]
CPU = torch.device("cpu")
#: Largest difference from the CPU. CUDA rounds the inputs of products to fewer bits.
ERROR = 1e-4 if PRETENDED else 2e-3


def extracted(model: Any, device: torch.device, inputs: Any = IDS) -> av.AttentionRecord:
    """Return a record whose vectors stay on the device."""
    record = av.extract(model.to(device), inputs, device=None)
    assert isinstance(record, av.AttentionRecord)
    return record


def devices(stack: av.AttentionStack) -> set[torch.device]:
    """Return the devices of the queries of all layers."""
    vectors: list[Any] = [stack.attention(layer).vectors for layer in stack.layers]
    return {layer.queries.device for layer in vectors}


def head(device: torch.device) -> Any:
    model = make_model("llama")
    return av.HeadView(extracted(model, device), model=model, inputs=IDS)


def dashboard(device: torch.device) -> Any:
    model = make_model("t5")
    inputs = arguments_of("t5")
    return av.Dashboard(extracted(model, device, inputs), model=model, inputs=inputs)


def image(device: torch.device) -> Any:
    model = make_model("vit")
    return av.NeuronView(extracted(model, device, arguments_of("vit")))


def linear(device: torch.device) -> Any:
    return av.HeadView(extracted(tiny_model("qwen3_next", None, {}), device))


def indexer(device: torch.device) -> Any:
    model = tiny_model("deepseek_v32", None, CHOOSING["deepseek_v32"])
    # The second stack has the ranks that the indexer gives to the keys.
    return av.HeadView(extracted(model, device))


def difference(device: torch.device) -> Any:
    model = make_model("bert")
    records = [extracted(model, device, ids) for ids in (IDS, IDS.roll(1))]
    return av.CompareView(av.compare(*records))


def attributed(device: torch.device) -> Any:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    return av.ModelView(av.attribute(model.to(device), IDS, method="value norm"))


def weights(device: torch.device) -> Any:
    layers = extracted(make_model("gpt2"), CPU).to_numpy()
    tensors = [torch.from_numpy(layer).to(device) for layer in layers]
    return av.MatrixView(av.AttentionRecord.from_weights(tensors, [*"abcdefghijkl"]))


VIEWS: dict[str, Callable[[torch.device], Any]] = {
    view.__name__: view
    for view in (head, dashboard, image, linear, indexer, difference, attributed, weights)
}


CHANGES = {"changes": [{"kind": "Ablate", "layers": 1, "heads": 0}]}
#: Requests of the what-if panel, which `RECORD_ASKED` does not have.
CHANGED: dict[str, dict[str, Any]] = {
    "intervene": {**CHANGES, "ranks": True},
    "changed": CHANGES,
    "edge": {"stack": "self", "layer": 0, "head": 0, "query": 3, "key": 2},
}
NOISE = r"the noise [\d.]+(e−\d+)?"
#: Requests that a view refuses on the CPU, too: differences have no scores, and so on.
REFUSED = {
    "head": {"image"},
    "dashboard": {"image"},
    "image": {*CHANGED},
    "linear": {*CHANGED, "image", "vectors"},
    # Ranks are no vectors and have no scores.
    "indexer": {*CHANGED, "image", "vectors", "scores"},
    "difference": {*CHANGED, "image", "vectors", "scores"},
    "attributed": {*CHANGED, "image", "vectors"},
    "weights": {*CHANGED, "image", "vectors"},
}


def asked_of(stack: av.AttentionStack, name: str) -> list[dict[str, Any]]:
    """Return the arguments of a request for the last layer of a stack, one for each form of it."""
    arguments = {**(RECORD_ASKED | CHANGED)[name]}
    own: dict[str, Any] = {"stack": stack.name, "layer": stack.layers[-1]}
    arguments |= {field: own[field] for field in own.keys() & arguments.keys()}
    if "changes" in arguments:
        arguments["changes"] = [change | {"stack": stack.name} for change in arguments["changes"]]
    forms: dict[str, list[dict[str, Any]]] = {
        "read": [
            {"heads": [1, 0]},
            *({"heads": [0, 1], "combine": how} for how in ("mean", "max")),
            *({"heads": [1, 0], "reduce": reduce} for reduce in REDUCTIONS),
            *({"combine": "mean", "reduce": reduce} for reduce in REDUCTIONS),
        ],
    }
    heads = range(stack.num_heads(own["layer"]))
    for form in forms.get(name, []):
        form["heads"] = [head for head in form.get("heads", [0]) if head in heads]
    return [arguments, *(arguments | form for form in forms.get(name, []))]


def numbers(name: str, reply: Reply) -> Any:
    """Return what a reply says, with arrays of numbers in place of bytes."""
    header = {key: value for key, value in reply.header.items() if key != "parts"}
    data = reply.data
    if data is None:
        return header
    if name == "page":
        content = bare_data_of(data.decode())
        # The weights are compressed, and differ in their last bits.
        return header["name"], content["description"], content["state"]
    if "encoding" in header:
        return header, decode(reply)
    if data[:1] == b"\x78":
        return header, json.loads(zlib.decompress(data))
    as_bytes = name in {"image", "plot", "norms"}
    return header, np.frombuffer(data, np.uint8 if as_bytes else "<f4")


def assert_close(one: Any, other: Any, where: str) -> None:
    """Compare two trees of numbers and texts."""
    if isinstance(other, Mapping):
        assert one.keys() == other.keys(), where
        for key in other:
            assert_close(one[key], other[key], f"{where} {key}")
    elif isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for position, item in enumerate(other):
            assert_close(one[position], item, f"{where}[{position}]")
    elif isinstance(other, str) or other is None:
        # The noise is the size of rounding errors, which kernels change. TF32 changes all numbers.
        if PRETENDED and one != other:
            assert other is not None
            assert re.sub(NOISE, "", str(one)) == re.sub(NOISE, "", other), where
    else:
        as_codes = getattr(other, "dtype", None) == np.uint8
        limit = 1 if as_codes else ERROR * max(1.0, float(np.nanmax(np.abs(other), initial=0)))
        one, other = (np.asarray(item, np.float64) for item in (one, other))
        np.testing.assert_allclose(one, other, atol=limit, rtol=0, err_msg=where)


def answer(server: BaseServer, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what a server answers to a request: its reply, or the words of its refusal."""
    try:
        return numbers(name, whole_reply(server, name, arguments))
    except (ValueError, IndexError) as error:
        return f"refused: {error}"


QUICK = {"head", "indexer"}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in VIEWS],
)
def test_each_request_of_a_view_is_answered_as_on_the_cpu(kind: str) -> None:
    own, moved = (VIEWS[kind](device)._served for device in (CPU, DEVICE))
    refused = set()
    for name in own.requests.classes:
        for stack in own.record.stacks.values():
            for arguments in asked_of(stack, name):
                expected = answer(own, name, arguments)
                assert_close(answer(moved, name, arguments), expected, f"{name} {stack.name}")
                if str(expected).startswith("refused"):
                    refused.add(name)
    assert refused == REFUSED[kind]


@pytest.mark.parametrize("kind", ["head", pytest.param("dashboard", marks=pytest.mark.slow)])
def test_weights_of_a_changed_run_are_those_of_the_cpu(kind: str) -> None:
    own, moved = (VIEWS[kind](device)._served for device in (CPU, DEVICE))
    name = next(iter(own.record.stacks))
    changes = asked_of(own.record.stacks[name], "changed")[0]
    for server in (own, moved):
        [changed, *_] = whole_reply(server, "changed", changes).header["stacks"]
    for stack in (own.stack(changed[side]["name"]) for side in ("after", "difference")):
        for request in ("read", "vectors", "scores"):
            for arguments in asked_of(stack, request):
                expected = answer(own, request, arguments)
                assert_close(answer(moved, request, arguments), expected, f"{request} {stack.name}")
    state = {"changes": changes["changes"]}
    result, expected = (answer(each, "page", {"part": 0, "state": state}) for each in (moved, own))
    assert_close(result, expected, "page")


def test_each_request_of_an_embedding_view_is_answered_as_on_the_cpu() -> None:
    model = make_model("llama")
    own, moved = (
        av.EmbeddingView(av.extract_corpus(model.to(device), TEXTS, device=None))
        for device in (CPU, DEVICE)
    )
    asked = {
        name: arguments | ({"layer": 1} if "layer" in arguments else {})
        for name, arguments in CORPUS_ASKED.items()
    }
    server = own._served
    for name in server.requests.classes:
        expected, result = (answer(view._served, name, asked[name]) for view in (own, moved))
        assert not str(expected).startswith("refused"), expected
        assert_close(result, expected, name)


def test_each_request_of_an_atlas_is_answered_as_on_the_cpu() -> None:
    model = make_model("llama")
    own, moved = (
        av.AtlasView(av.head_statistics(model.to(device), TEXTS)) for device in (CPU, DEVICE)
    )
    server = own._served
    fields = {"stack": "self", "layer": 1, "head": 0, "part": 0, "state": {}}
    for name in server.requests.classes:
        expected, result = (answer(view._served, name, fields) for view in (own, moved))
        assert not str(expected).startswith("refused"), expected
        assert_close(result, expected, name)


def test_no_server_is_forgotten() -> None:
    """Tests above send each request of each server."""
    servers = (server for server in BaseServer.__subclasses__() if "attnviz." in server.__module__)
    names = {server.__name__ for server in servers}
    assert names == {"RecordServer", "CorpusServer", "AtlasServer"}


def split_numbers(text: str) -> tuple[list[str], list[float]]:
    """Return the parts of a text between its numbers, and the numbers."""
    parts = re.split(r"(-?\d+\.?\d*)", text)
    return parts[::2], [*map(float, parts[1::2])]


@pytest.mark.slow
def test_a_figure_of_a_live_view_is_that_of_the_cpu(tmp_path: Path) -> None:
    pictures = []
    for device in (CPU, DEVICE):
        view = head(device)
        view.layer, view.heads, view.token = 1, [2], 8
        pictures.append(view.save(tmp_path / f"{device.type}.svg").read_text("utf-8"))
    assert view.save(tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
    (own_texts, own_numbers), (texts, moved_numbers) = map(split_numbers, pictures)
    assert texts == own_texts
    np.testing.assert_allclose(moved_numbers, own_numbers, atol=0.01)


def test_logs_of_a_device_are_those_of_the_cpu(tmp_path: Path) -> None:
    model = small_model()
    for device in (CPU, DEVICE):
        folder = tmp_path / device.type
        callback = AttentionCallback(
            TEXT, every=1, to=folder, tokenizer=number_tokenizer(), device=None
        )
        for step in (1, 2):
            state = TrainerState(global_step=step, max_steps=2)
            # An error of `on_step_end` would be a warning.
            callback.on_train_begin(
                TrainingArguments(), state, TrainerControl(), model=model.to(device)
            )
        log(difference(device), folder, name="difference")
        assert devices(callback.records[2][0].stack()) == {device}
    files = [sorted((tmp_path / device.type).rglob("*.html")) for device in (CPU, DEVICE)]
    assert [len(each) for each in files] == [3, 3]
    rows = [[value for _, _, value in logged(tmp_path / device.type)] for device in (CPU, DEVICE)]
    np.testing.assert_allclose(rows[1], rows[0], atol=ERROR)
    own, moved = (difference(device).heads_picture().astype(int) for device in (CPU, DEVICE))
    np.testing.assert_allclose(moved, own, atol=1 if PRETENDED else 16)


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("bart", marks=pytest.mark.slow)])
def test_a_view_of_a_generation_on_a_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view gets records while the model generates, from another thread."""
    # Make a record after every token.
    monkeypatch.setattr(live, "_MIN_PAUSE", 0.0)
    monkeypatch.setattr(live, "_MAX_SHARE", math.inf)

    async def run(device: torch.device) -> av.AttentionRecord:
        model = make_model(kind).to(device)
        extract = partial(extract_live, model, IDS, generate=5, device=None)
        generation = LiveGeneration(extract, asyncio.get_running_loop())
        view: Any = av.HeadView(generation.first_record())
        generation.show_in(view)
        await until(lambda: view._generating is None or "problem" in view._generating)
        assert view._generating is None
        record: av.AttentionRecord = view.record
        return record

    own, moved = (asyncio.run(run(device)) for device in (CPU, DEVICE))
    for name in own.stacks:
        assert devices(moved.stacks[name]) == {DEVICE}
        for one, other in zip(moved.to_numpy(name), own.to_numpy(name), strict=True):
            np.testing.assert_allclose(one, other, atol=ERROR)


@pytest.mark.slow
def test_a_command_with_a_device(checkpoint_folder: Path, tmp_path: Path) -> None:
    pages = []
    for options in ([], ["--device", str(DEVICE)]):
        path = tmp_path / "x.html"
        command = ["head-view", str(checkpoint_folder), "The cat sat.", *options, "-o", str(path)]
        assert main(command) == 0
        pages.append(numbers("page", Reply({"name": ""}, path.read_bytes())))
    assert_close(pages[1], pages[0], "page")
