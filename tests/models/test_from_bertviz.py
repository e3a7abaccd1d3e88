"""docs/from-bertviz.md: both columns run, on the same weights, and must draw the same."""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import json
import re
import sys
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from attnviz import AttentionRecord, HeadView, ModelView, NeuronView
from attnviz.record.tokens import visible
from attnviz.views.record_view import RecordView
from models.kinds import make_model
from unit.page_data import data_of

pytestmark = [
    # BertViz leaves the files that it reads open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

DOCUMENT = Path(__file__).parents[2] / "docs" / "from-bertviz.md"
VIEWS: dict[str, type[RecordView]] = {
    "head_view": HeadView,
    "model_view": ModelView,
    "neuron_view.show": NeuronView,
}
STACKS = {"Encoder": "encoder", "Decoder": "decoder", "Cross": "cross"}


@dataclass(frozen=True)
class Row:
    """A row of a table: BertViz's function, its arguments, and the code of both."""

    function: str
    arguments: tuple[str, ...]
    bertviz: str
    attnviz: str


def rows() -> list[Row]:
    """The tables' rows, as the document has them."""
    found, function = [], ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"## `bertviz\.(.+)`", line)
        function = heading[1] if heading else function
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            arguments = tuple(re.findall(r"`(\w+)`", cells[0]))
            found.append(Row(function, arguments, cells[1].strip("`"), cells[2].strip("`")))
    return found


def function_of_bertviz(name: str) -> Callable[..., Any]:
    # `bertviz.head_view` names a module as well as the function in it.
    if name == "neuron_view.show":
        function: Callable[..., Any] = importlib.import_module("bertviz.neuron_view").show
        return function
    module: Callable[..., Any] = getattr(importlib.import_module("bertviz"), name)
    return module


@pytest.fixture(scope="module", autouse=True)
def downloads_of_bertviz() -> None:
    """BertViz imports its means of downloading before anything else; nothing is downloaded."""
    # Looks whether boto3 is there, and stumbles over what has its name and nothing else.
    importlib.import_module("accelerate")
    for name in ("boto3", "botocore", "botocore.exceptions"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["botocore.exceptions"].__dict__.setdefault("ClientError", OSError)


@pytest.fixture(scope="module")
def given_weights(byte_tokenizer: Any) -> dict[str, Any]:
    """What the weights' tables call attention, tokens and so on."""
    text = "The animal didn't cross the street because it was too tired."
    decoder, both = make_model("gpt2"), make_model("t5", num_decoder_layers=2)
    for model in (decoder, both):
        # Any other gives no weights, and BertViz has nothing to draw.
        model.set_attn_implementation("eager")
    inputs = byte_tokenizer(text, return_tensors="pt")
    target = byte_tokenizer("the dog", return_tensors="pt").input_ids
    with torch.no_grad():
        attention = decoder(**inputs, output_attentions=True).attentions
        outputs = both(**inputs, decoder_input_ids=target, output_attentions=True)
    tokens = byte_tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    assert any(token.startswith("Ġ") for token in tokens)
    return {
        "attention": attention,
        "tokens": tokens,
        "encoder_attention": outputs.encoder_attentions,
        "decoder_attention": outputs.decoder_attentions,
        "cross_attention": outputs.cross_attentions,
        "encoder_tokens": tokens,
        "decoder_tokens": byte_tokenizer.convert_ids_to_tokens(target[0]),
    }


@pytest.fixture(scope="module")
def models_for_neurons(checkpoint_folder: Path) -> dict[str, dict[str, Any]]:
    """The same checkpoint in BertViz's own class of 2019 and in transformers'."""
    ours = transformers.AutoModel.from_pretrained(checkpoint_folder)
    bundled = importlib.import_module("bertviz.transformers_neuron_view")
    config = bundled.BertConfig(
        str(checkpoint_folder / "config.json"), output_attentions=True, torchscript=False
    )
    theirs = bundled.BertModel(config)
    loaded = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not loaded.missing_keys
    sentences = {"sentence_a": "The cat sat on the mat.", "sentence_b": "It was tired."}
    return {
        "bertviz": {
            "model": theirs,
            "tokenizer": bundled.BertTokenizer(str(checkpoint_folder / "vocab.txt")),
            **sentences,
        },
        "attnviz": {
            "model": ours,
            "tokenizer": transformers.AutoTokenizer.from_pretrained(checkpoint_folder),
            **sentences,
        },
    }


@pytest.fixture
def names(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Row], dict[str, dict[str, Any]]]:
    """The names that each column of a row may use."""
    # In a script a view is written to a file there.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    imported: dict[str, Any] = {}
    block = re.search(r"```python\n(.+?)\n\n", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    exec(block[1], imported)  # noqa: S102 - the document's own imports

    def make(row: Row) -> dict[str, dict[str, Any]]:
        function = function_of_bertviz(row.function)

        def returning(*arguments: Any, **named: Any) -> Any:
            # Its default displays, and hands nothing back.
            return function(*arguments, **{"html_action": "return", **named})

        theirs = {row.function.rpartition(".")[2]: returning}
        if row.function == "neuron_view.show":
            models = request.getfixturevalue("models_for_neurons")
            return {"bertviz": theirs | models["bertviz"], "attnviz": imported | models["attnviz"]}
        weights = request.getfixturevalue("given_weights")
        return {"bertviz": theirs | weights, "attnviz": imported | weights}

    return make


@pytest.mark.parametrize("function", ["head_view", "model_view", "neuron_view.show"])
def test_no_argument_of_bertviz_is_missing(function: str) -> None:
    named = [name for row in rows() if row.function == function for name in row.arguments]
    assert set(named) == set(inspect.signature(function_of_bertviz(function)).parameters)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.function}-{row.arguments[-1]}")
def test_both_columns_draw_the_same(
    row: Row, names: Callable[[Row], dict[str, dict[str, Any]]]
) -> None:
    # The code of a row uses what the row is about.
    call = ast.parse(row.bertviz, mode="eval").body
    assert isinstance(call, ast.Call)
    signature = inspect.signature(function_of_bertviz(row.function))
    bound = signature.bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    assert set(row.arguments) <= set(bound.arguments)

    available = names(row)
    drawn = parameters_of(eval(row.bertviz, available["bertviz"]).data)  # noqa: S307 - the document's
    ours = eval(row.attnviz, available["attnviz"])  # noqa: S307
    if isinstance(ours, str):
        compare_page(drawn, ours)
    else:
        assert isinstance(ours, VIEWS[row.function])
        compare_view(drawn, ours)


def parameters_of(html: str) -> dict[str, Any]:
    """What BertViz hands to its script: weights, tokens and settings."""
    start = re.search(r"(?:const params = |window\.bertviz_params = )(?=\{)", html)
    assert start is not None
    parameters, _ = json.JSONDecoder().raw_decode(html, start.end())
    if isinstance(parameters["attention"], Mapping):
        # The neuron view's form of the same.
        titles = {"all": "All", "aa": "A -> A", "ab": "A -> B", "ba": "B -> A", "bb": "B -> B"}
        parameters["attention"] = [
            {"name": titles[name], **entry} for name, entry in parameters["attention"].items()
        ]
    return dict(parameters)


def compare_view(drawn: Mapping[str, Any], view: RecordView) -> None:
    first = view.record.stack()
    assert drawn.get("include_layers", list(first.layers)) == list(first.layers)
    assert (drawn.get("layer") or first.layers[0]) == view.layer
    heads = drawn.get("heads") or ([drawn["head"]] if drawn.get("head") is not None else None)
    if heads is not None:
        assert heads == view.heads
    if drawn.get("display_mode") == "light":
        assert view.theme == "light"
    shown = {STACKS.get(str(entry["name"]), "self") for entry in drawn["attention"]}
    assert shown == set(view.record.stacks)
    kept = getattr(view, "include_heads", None)
    assert drawn.get("include_heads") in (None, kept, list(range(first.heads_per_layer[0])))
    for entry in drawn["attention"]:
        compare_weights(entry, view.record, kept)


def compare_weights(
    entry: Mapping[str, Any], record: AttentionRecord, heads: list[int] | None
) -> None:
    """One choice of BertViz's attention menu against the same part of a record."""
    stack = record.stack(STACKS.get(str(entry["name"]), "self"))
    queries: NDArray[Any] = np.arange(len(stack.query_tokens))
    keys: NDArray[Any] = np.arange(len(stack.key_tokens))
    pair = re.search(r"([AB]) -> (?:Sentence )?([AB])", str(entry["name"]))
    if pair is not None:
        queries = positions_of(pair[1], stack.query_tokens.sequence)
        keys = positions_of(pair[2], stack.key_tokens.sequence)
    assert tuple(visible(text) for text in texts(entry, "left_text", queries)) == tuple(
        stack.query_tokens[place] for place in queries
    )
    assert tuple(visible(text) for text in texts(entry, "right_text", keys)) == tuple(
        stack.key_tokens[place] for place in keys
    )
    for number, theirs in zip(stack.layers, entry["attn"], strict=True):
        ours = stack.weights(layer=number)[:, queries[:, None], keys]
        if heads is not None and len(theirs) < len(ours):
            # BertViz cuts away the heads that it does not show.
            ours = ours[heads]
        expected = np.asarray(theirs, dtype=np.float32)
        if pair is not None and None in stack.query_tokens.sequence:
            # BertViz counts special tokens to the texts; attnviz to neither.
            expected = expected[:, own(entry, "left_text")][:, :, own(entry, "right_text")]
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def positions_of(text: str, sequence: tuple[int | None, ...]) -> NDArray[np.int64]:
    return np.flatnonzero([number == "AB".index(text) for number in sequence])


def texts(entry: Mapping[str, Any], side: str, positions: NDArray[Any]) -> list[str]:
    found = [str(text) for text in entry[side]]
    if len(found) == len(positions):
        return found
    return [found[place] for place in own(entry, side)]


def own(entry: Mapping[str, Any], side: str) -> list[int]:
    return [place for place, text in enumerate(entry[side]) if text not in ("[CLS]", "[SEP]")]


def compare_page(drawn: Mapping[str, Any], page: str) -> None:
    (entry,) = drawn["attention"]
    assert "https://cdnjs" not in page
    data = data_of(page)
    (stack,) = data["description"]["stacks"]
    assert stack["query_tokens"]["text"] == [visible(text) for text in entry["left_text"]]
    if data["view"] == "neuron":
        compare_vectors(entry, data["vectors"])
        return
    assert len(data["blocks"]) == len(entry["attn"])
    for block, theirs in zip(data["blocks"], entry["attn"], strict=True):
        codes = np.frombuffer(zlib.decompress(base64.b64decode(block["data"])), dtype=np.uint8)
        weights = np.zeros(block["shape"])
        heads, rows, columns = block["shape"]
        # Row by row only as far as a query may look.
        embedded = np.tri(rows, columns, block["reach"], dtype=bool)
        weights[:, embedded] = (codes.reshape(heads, -1).astype(np.float64) / 255) ** 2
        np.testing.assert_allclose(weights, theirs, atol=0.004)


def compare_vectors(entry: Mapping[str, Any], vectors: Mapping[str, Any]) -> None:
    """The queries and keys that both neuron views contain."""
    for layer in vectors["layers"]:
        assert layer["encoding"] == "float32"
        for side in ("queries", "keys"):
            data = zlib.decompress(base64.b64decode(vectors["arrays"][layer[side]]))
            theirs = np.asarray(entry[side][layer["layer"]])
            ours = np.frombuffer(data, dtype="<f4").reshape(theirs.shape)
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_what_the_neuron_view_draws_is_in_the_record(
    names: Callable[[Row], dict[str, dict[str, Any]]],
) -> None:
    available = names(next(row for row in rows() if row.function == "neuron_view.show"))
    code = re.search(r"`(extract\(.+?\)\.stack\(\)\.queries\(.+?\))`", document_on_one_line())
    assert code is not None
    queries = eval(code[1], available["attnviz"])  # noqa: S307 - the document's
    keys = eval(code[1].replace("queries", "keys"), available["attnviz"])  # noqa: S307
    html = eval('show(model, "bert", tokenizer, sentence_a)', available["bertviz"])  # noqa: S307
    (entry,) = parameters_of(html.data)["attention"]
    np.testing.assert_allclose(queries, entry["queries"][2][5], atol=1e-4)
    np.testing.assert_allclose(keys, entry["keys"][2][5], atol=1e-4)


def document_on_one_line() -> str:
    return " ".join(DOCUMENT.read_text(encoding="utf-8").split())
