"""`head_statistics` computes scores and roles ("induction", ...), and names texts with errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose

import attnviz
from attnviz import HeadStatistics, head_statistics
from attnviz.extraction import extract as run_extract
from models.conftest import SENTENCES
from models.make_models import make_model
from models.tiny import reference
from rounding import weights_error
from train_demos.sentences import antecedent_sentence, repeated_halves


def decoder_texts(tokenizer: Any, count: int) -> list[str]:
    """Return `count` texts in which 15 random words occur twice, and then `count` sentences."""
    generator = np.random.default_rng(5)
    words = np.arange(len(tokenizer.all_special_ids), len(tokenizer))
    rows = repeated_halves(generator, words, rows=count, length=15)
    repeated = [" ".join(tokenizer.convert_ids_to_tokens(row.tolist())) for row in rows]
    sentences = [antecedent_sentence(generator, held_out=True).prompt for _ in range(count)]
    return [*repeated, *sentences]


@pytest.fixture(scope="module")
def texts(decoder: tuple[Any, Any]) -> list[str]:
    return decoder_texts(decoder[1], 25)


@pytest.fixture(scope="module")
def statistics(decoder: tuple[Any, Any], texts: list[str]) -> HeadStatistics:
    model, tokenizer = decoder
    return head_statistics(model, texts, tokenizer=tokenizer, progress=False)


def test_only_the_two_known_heads_of_the_demo_decoder_have_roles(
    statistics: HeadStatistics,
) -> None:
    roles = statistics.stack().roles()
    roles_of_layers = [
        (layer, name) for layer, names in enumerate(roles.names) for name in names if name
    ]
    assert roles_of_layers == [(0, "previous token"), (1, "induction")]
    head = roles.names[1].index("induction")
    assert roles.label(1, head).startswith("induction 0.")


def test_scores_are_those_of_the_models_own_weights(
    decoder: tuple[Any, Any], texts: list[str], statistics: HeadStatistics
) -> None:
    model, tokenizer = decoder
    scores: dict[str, list[Any]] = {"previous token": [], "first token": [], "self": []}
    for text in texts:
        weights = np.concatenate(reference(model, tokenizer(text, return_tensors="pt"))["self"])
        scores["previous token"].append(np.diagonal(weights, -1, 2, 3).mean(axis=-1))
        scores["first token"].append(weights[..., 0].mean(axis=-1))
        scores["self"].append(np.diagonal(weights, 0, 2, 3).mean(axis=-1))
    for name, of_texts in scores.items():
        means = np.array(statistics.stack().mean(name))
        assert_allclose(means, np.mean(of_texts, axis=0), atol=1e-5, err_msg=name)


def test_random_models_have_no_roles(decoder: tuple[Any, Any]) -> None:
    """The significance level of roles is 5 %, so at most 5 % of random heads may get a role."""
    _, tokenizer = decoder
    texts = decoder_texts(tokenizer, 8)
    with_role = heads = 0
    for seed in range(4):
        torch.manual_seed(seed)
        model = transformers.GPT2LMHeadModel(decoder[0].config).eval()
        if seed % 2:
            # Multiply queries and keys by 4, so that weights are as uneven as in trained models.
            with torch.no_grad():
                for block in model.transformer.h:
                    block.attn.c_attn.weight[:, :192] *= 4
        roles = head_statistics(model, texts, tokenizer=tokenizer, progress=False).stack().roles()
        with_role += sum(name is not None for layer in roles.names for name in layer)
        heads += 12
    assert with_role <= 0.05 * heads


def test_the_known_heads_of_a_trained_checkpoint_have_roles(checkpoint_folder: Path) -> None:
    """The expected scores come from other code and other texts, so the tolerance is large."""
    sentences = attnviz.demos.sentences()
    result = head_statistics(checkpoint_folder, sentences, layers=[0, 1], progress=False)
    stack = result.stack()
    assert stack.layers == (0, 1)
    assert not stack.causal
    assert stack.mean("previous token")[0][2] == pytest.approx(1.0, abs=0.01)
    assert stack.mean("next token")[1][8] == pytest.approx(0.68, abs=0.08)
    assert stack.mean("first token")[1][11] == pytest.approx(0.72, abs=0.08)
    roles = stack.roles()
    assert roles.names[0][2] == "previous token"
    assert roles.names[1][8] == "next token"
    assert roles.label(0, 2) == "previous token 1.00 ± <0.01"


@pytest.fixture
def tiny_bert(word_tokenizer: Any) -> tuple[Any, Any]:
    return make_model("bert"), word_tokenizer


def assert_same_means(one: HeadStatistics, other: HeadStatistics) -> None:
    for name in other.stack().score_names:
        mean = np.array(one.stack().mean(name))
        assert_allclose(mean, np.array(other.stack().mean(name)), atol=1e-6)


TEXTS: Sequence[Any] = [*SENTENCES, "", *SENTENCES[::-1], None, *SENTENCES]


def test_an_error_names_the_text(tiny_bert: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_bert
    with pytest.raises(TypeError, match=r"texts\[8\]: "):
        head_statistics(
            model, [*TEXTS[:8], 3.5, *TEXTS[9:]], tokenizer=tokenizer, batch_size=2, progress=False
        )


def test_saved_parts_add_up_and_other_weights_are_refused(
    tmp_path: Path, tiny_bert: tuple[Any, Any]
) -> None:
    model, tokenizer = tiny_bert
    options: Any = {"tokenizer": tokenizer, "progress": False}
    whole = head_statistics(model, TEXTS, **options)
    first, second = (
        HeadStatistics.load(
            head_statistics(model, TEXTS, part=(number, 2), **options).save(tmp_path / f"{number}")
        )
        for number in range(2)
    )
    both = first + second
    assert both.texts == whole.texts == 12
    assert both.num_skipped == 2
    assert_same_means(both, whole)
    other = make_model("bert")
    with torch.no_grad():
        # The weights of the other model differ in a single number.
        next(iter(other.parameters()))[1, 1] += 1
    with pytest.raises(ValueError, match="differ in weights of the model"):
        first + head_statistics(other, TEXTS, part=(1, 2), **options)


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gpt_oss"])
def test_weights_of_many_heads_at_once_are_those_of_each(kind: str, byte_tokenizer: Any) -> None:
    """Together, the three models have shared key heads, windows, soft caps and sinks."""
    record = run_extract(make_model(kind), SENTENCES[0], tokenizer=byte_tokenizer, progress=False)
    stack = record.stack()
    for layer in stack.layers:
        attention = stack.attention(layer)
        for heads in ((0, 1, 2, 3), (3, 1)):
            weights = attention.block(heads, slice(2, 9))
            separate = [stack.weights(layer=layer, head=head, rows=slice(2, 9)) for head in heads]
            assert_allclose(weights, np.stack(separate), rtol=0, atol=weights_error(attention))


def test_statistics_of_records_equal_those_of_texts(byte_tokenizer: Any) -> None:
    model = make_model("bart")
    options = {"target": SENTENCES, "tokenizer": byte_tokenizer, "progress": False}
    records = run_extract(model, SENTENCES, **options)
    expected = head_statistics(model, SENTENCES, layers=-1, name="mine", **options)
    result = head_statistics(records, layers=-1, name="mine", progress=False)
    assert result.model == "mine"
    for name in expected.stack_names:
        assert result.stack(name).layers == expected.stack(name).layers
        assert len(result.stack(name).layers) == 1
        for score in ("first token", "entropy"):
            one, other = (item.stack(name).mean(score)[0] for item in (result, expected))
            # The two statistics come from different batches, so sums in float32 are rounded
            # differently.
            assert_allclose(one, other, atol=1e-5)
    with pytest.raises(IndexError, match=r"layers=\[0, 7\]: this record has layers 0"):
        head_statistics(records, layers=[0, 7], progress=False)


RECORD = attnviz.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])


@pytest.mark.parametrize(
    ("values", "options", "error", "words"),
    [
        ((["text"],), {}, TypeError, r"records\[0\] must be an AttentionRecord, not 'text'"),
        (([RECORD],), {"tokenizer": "gpt2"}, TypeError, "texts is missing.* Omit tokenizer"),
        ((3,), {}, TypeError, "texts is missing. Pass a model and texts"),
        (("model", ["", None]), {}, ValueError, "texts: all 2 are empty or too long"),
        (("model", "text"), {}, TypeError, "texts is one text"),
        (("model", ["a"]), {"parse": [1, 2]}, ValueError, "parse has 2 entries"),
        (("model", ["a"]), {"columns": {"kind": ["a"]}}, ValueError, "distinct, and not 'kind'"),
    ],
)
def test_bad_arguments_are_refused(
    tiny_bert: tuple[Any, Any], values: Any, options: Any, error: type[Exception], words: str
) -> None:
    model, tokenizer = tiny_bert
    arguments = [model if value == "model" else value for value in values]
    if len(arguments) > 1:
        options = {"tokenizer": tokenizer, **options}
    with pytest.raises(error, match=words):
        head_statistics(*arguments, progress=False, **options)
