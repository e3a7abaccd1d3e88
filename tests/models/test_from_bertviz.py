"""The code of docs/from-bertviz.md for BertViz and for attnviz draws the same weights."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import AttentionRecord, HeadView, ModelView, NeuronView, show_neuron_view
from attnviz.record.tokens import make_visible
from attnviz.views.record_view import RecordView
from models.bertviz_reference import function_of_bertviz, trained_bert
from models.make_models import make_model
from unit.page_data import data_of

pytestmark = [
    # BertViz does not close the files that it reads.
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

# For each notebook of BertViz, the kind of a tiny model and the name of its tokenizer fixture.
NOTEBOOKS = {
    "gpt2": ("gpt2", "byte_tokenizer"),
    "bert": ("bert", "word_tokenizer"),
    "roberta": ("roberta", "byte_tokenizer"),
    "bart": ("bart", "byte_tokenizer"),
}
TEXTS = {
    "text": "The animal didn't cross the street because it was too tired.",
    "target": "The cat sat on the mat.",
    "sentence_a": "The cat sat on the mat.",
    "sentence_b": "It was tired.",
}


@dataclass(frozen=True)
class Row:
    """A row of a table in docs/from-bertviz.md, with code for both libraries.

    The row is about `arguments`, the names of arguments of the BertViz function `function`. In the
    table of notebooks, `function` is empty and `arguments` contains the names of notebooks.
    """

    function: str
    arguments: tuple[str, ...]
    bertviz: str
    attnviz: str


def rows() -> list[Row]:
    """Return all rows of docs/from-bertviz.md that have three cells."""
    table_rows, function = [], ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"## `bertviz\.(.+)`", line)
        function = heading[1] if heading else function
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            arguments = tuple(re.findall(r"`(\w+)`", cells[0]))
            table_rows.append(Row(function, arguments, code_of(cells[1]), code_of(cells[2])))
    return table_rows


def code_of(cell: str) -> str:
    return "\n".join(line.strip("`") for line in cell.split("<br>"))


def first_cells() -> list[str]:
    """Return the document's code for the first cell of a notebook, for BertViz and for attnviz."""
    document = DOCUMENT.read_text(encoding="utf-8")
    table = re.search(r"\| BertViz \| attnviz \|\n.+\n((?:\|.+\n)+)", document)
    assert table is not None
    lines = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in table[1].splitlines()]
    return ["\n".join(column) for column in zip(*lines, strict=True)]


def run(code: str, names: dict[str, Any]) -> Any:
    """Run the lines of a notebook cell, and return the value of the last line."""
    *lines, last = code.splitlines()
    exec("\n".join(lines), names)  # noqa: S102 - the document's own code
    return eval(last, names)  # noqa: S307


@pytest.fixture(scope="module")
def given_weights(byte_tokenizer: Any) -> dict[str, Any]:
    """Variables that the document's code for `head_view` and `model_view` uses, by name."""
    decoder, both = make_model("gpt2"), make_model("t5", num_decoder_layers=2)
    for model in (decoder, both):
        # Only eager attention returns the weights that BertViz needs.
        model.set_attn_implementation("eager")
    inputs = byte_tokenizer(TEXTS["text"], return_tensors="pt")
    target = byte_tokenizer("the dog", return_tensors="pt").input_ids
    with torch.no_grad():
        attention = decoder(**inputs, output_attentions=True).attentions
        outputs = both(**inputs, decoder_input_ids=target, output_attentions=True)
    tokens = byte_tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
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
    """Variables that the document's code for neuron views uses, by library and name."""
    model, tokenizer = trained_bert(checkpoint_folder)
    ours = {
        "model": transformers.AutoModel.from_pretrained(checkpoint_folder),
        "tokenizer": transformers.AutoTokenizer.from_pretrained(checkpoint_folder),
    }
    return {"bertviz": TEXTS | {"model": model, "tokenizer": tokenizer}, "attnviz": TEXTS | ours}


@pytest.fixture
def names(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], dict[str, dict[str, Any]]]:
    """Return a function that returns variables for the document's code, by library and name.

    The function gets the name of the BertViz function that the code is about.
    """
    # Outside of a notebook, views are written to the folder for temporary files.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    imported: dict[str, Any] = {}
    block = re.search(r"```python\n(.+?)\n\n", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    exec(block[1], imported)  # noqa: S102 - the document's own imports

    def make(function: str) -> dict[str, dict[str, Any]]:
        # BertViz must return the HTML page instead of displaying it.
        returning = functools.partial(function_of_bertviz(function), html_action="return")
        theirs = {function.rpartition(".")[2]: returning}
        if function == "neuron_view.show":
            models = request.getfixturevalue("models_for_neurons")
            return {"bertviz": theirs | models["bertviz"], "attnviz": imported | models["attnviz"]}
        weights = request.getfixturevalue("given_weights")
        return {"bertviz": theirs | weights, "attnviz": imported | weights}

    return make


@pytest.mark.parametrize("function", ["head_view", "model_view", "neuron_view.show"])
def test_no_argument_of_bertviz_is_missing(function: str) -> None:
    named = [name for row in rows() if row.function == function for name in row.arguments]
    assert set(named) == set(inspect.signature(function_of_bertviz(function)).parameters)


@pytest.mark.parametrize(
    "row",
    [row for row in rows() if row.function],
    ids=lambda row: f"{row.function}-{row.arguments[-1]}",
)
def test_both_columns_draw_the_same(
    row: Row, names: Callable[[str], dict[str, dict[str, Any]]]
) -> None:
    # Check that the code for BertViz passes all arguments that the row is about.
    call = ast.parse(row.bertviz, mode="eval").body
    assert isinstance(call, ast.Call)
    signature = inspect.signature(function_of_bertviz(row.function))
    bound = signature.bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    assert set(row.arguments) <= set(bound.arguments)

    available = names(row.function)
    drawn = parameters_of(eval(row.bertviz, available["bertviz"]).data)  # noqa: S307 - the document's
    ours = eval(row.attnviz, available["attnviz"])  # noqa: S307
    if isinstance(ours, str):
        # The code returns an HTML page, of which only the tokens are compared here.
        (entry,) = drawn["attention"]
        (stack,) = data_of(ours)["description"]["stacks"]
        assert stack["query_tokens"]["text"] == [make_visible(text) for text in entry["left_text"]]
    else:
        assert isinstance(ours, VIEWS[row.function])
        compare_settings(drawn, ours)
        compare_attention(drawn, ours)


def rows_of_notebooks(*, neuron: bool) -> list[Any]:
    """Return the rows of notebooks, either those with a neuron view or all others."""
    return [
        pytest.param(row, id=row.arguments[0])
        for row in rows()
        if not row.function and row.arguments[0].startswith("neuron_view") == neuron
    ]


@pytest.mark.slow
@pytest.mark.parametrize("row", rows_of_notebooks(neuron=False))
def test_cells_of_notebooks_draw_the_same(
    row: Row, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kind, tokenizer = NOTEBOOKS[row.arguments[0]]
    # BertViz needs equal numbers of layers and heads in the encoder and the decoder.
    equal = {"encoder_layers": 3, "decoder_attention_heads": 4} if kind == "bart" else {}
    make_model(kind, **equal).save_pretrained(tmp_path)
    namespaces: list[dict[str, Any]] = []
    for column in first_cells():
        namespaces.append({"AutoModel": transformers.AutoModel, "checkpoint": tmp_path})
        exec(column, namespaces[-1])  # noqa: S102 - the document's own code
    theirs, ours = (
        names | TEXTS | {"tokenizer": request.getfixturevalue(tokenizer)} for names in namespaces
    )
    ours["AttentionRecord"] = AttentionRecord
    for view in ("head_view", "model_view"):
        theirs[view] = functools.partial(theirs[view], html_action="return")
        drawn = parameters_of(run(row.bertviz.replace("head_view", view), theirs).data)
        # The code for attnviz may use variables that the code for BertViz defined.
        view_shown = run(row.attnviz.replace("head_view", view), theirs | ours)
        assert isinstance(view_shown, VIEWS[view])
        compare_attention(drawn, view_shown)


def parameters_of(html: str) -> dict[str, Any]:
    """Return the parameters in an HTML page of BertViz: weights, tokens and settings."""
    start = re.search(r"(?:const params = |window\.bertviz_params = )(?=\{)", html)
    assert start is not None
    parameters, _ = json.JSONDecoder().raw_decode(html, start.end())
    if isinstance(parameters["attention"], Mapping):
        # BertViz's neuron view stores attention for several parts of the text. The key "all" means
        # the whole text.
        parameters["attention"] = [{"name": "All", **parameters["attention"]["all"]}]
    return dict(parameters)


def compare_settings(drawn: Mapping[str, Any], view: RecordView) -> None:
    first = view.record.stack()
    assert drawn.get("include_layers", list(first.layers)) == list(first.layers)
    assert (drawn.get("layer") or first.layers[0]) == view.layer
    heads = drawn.get("heads") or ([drawn["head"]] if drawn.get("head") is not None else None)
    assert heads in (None, view.heads)
    if drawn.get("display_mode") == "light":
        assert view.theme == "light"
    included = getattr(view, "include_heads", None)
    assert drawn.get("include_heads") in (None, included, list(range(first.heads_per_layer[0])))


def compare_attention(drawn: Mapping[str, Any], view: RecordView) -> None:
    """Compare the tokens and weights in BertViz's HTML page with those of a view."""
    # Leave out entries for parts of a pair of texts, such as "Sentence A -> Sentence B".
    entries = [entry for entry in drawn["attention"] if "->" not in str(entry["name"])]
    assert {STACKS.get(str(entry["name"]), "self") for entry in entries} == set(view.record.stacks)
    for entry in entries:
        stack = view.record.stack(STACKS.get(str(entry["name"]), "self"))
        for side, tokens in (("left_text", stack.query_tokens), ("right_text", stack.key_tokens)):
            assert list(tokens) == [make_visible(text) for text in entry[side]]
        for number, theirs in zip(stack.layers, entry["attn"], strict=True):
            ours = stack.weights(layer=number)
            if len(theirs) < len(ours):
                # BertViz's HTML page contains only the heads that it shows.
                ours = ours[getattr(view, "include_heads", None)]
            # T5 does not scale its logits down, so they are large and have large rounding errors.
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("row", rows_of_notebooks(neuron=True))
def test_cells_of_neuron_notebooks_draw_the_same(
    row: Row, models_for_neurons: dict[str, dict[str, Any]]
) -> None:
    show = functools.partial(function_of_bertviz("neuron_view.show"), html_action="return")
    # Two of the notebooks load GPT-2 and RoBERTa. The test uses BERT for all notebooks.
    bertviz = re.sub('"(gpt2|roberta)"', '"bert"', row.bertviz)
    drawn = parameters_of(run(bertviz, TEXTS | models_for_neurons["bertviz"] | {"show": show}).data)
    ours = TEXTS | models_for_neurons["attnviz"] | {"show_neuron_view": show_neuron_view}
    compare_attention(drawn, run(row.attnviz, ours))
