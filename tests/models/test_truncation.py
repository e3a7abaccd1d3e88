"""The option `truncation` shortens texts that are too long, and adds a note to the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnviz as av
from attnviz import demos, extract
from model_types.build import tiny_model
from models.tiny import SIZE, built

LONG = "The animal did not cross the street because it was too tired . " * 100


def note_of(record: av.AttentionRecord) -> str:
    (note,) = [note for note in record.notes if "was truncated" in note]
    return note


def test_a_text_of_the_maximum_length(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    with pytest.raises(ValueError, match=r"1302 tokens are too many. .* 512.*truncation=True"):
        extract(model, LONG, tokenizer=tokenizer)
    record = extract(model, LONG, tokenizer=tokenizer, truncation=True)
    own = tokenizer(LONG, truncation=True, max_length=512)["input_ids"]
    assert record.tokens.ids == tuple(own)
    assert note_of(record) == (
        "The text was truncated to the first 512 of its 1,302 tokens, including special ones."
    )
    assert record.tokens[-1] == "[SEP]"


def test_truncation_to_a_number_of_tokens(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    record = extract(model, LONG, tokenizer=tokenizer, truncation=12)
    assert len(record.tokens) == 12
    assert "the first 12 of its 1,302" in note_of(record)
    # The model's own limit of 512 tokens also applies.
    assert len(extract(model, LONG, tokenizer=tokenizer, truncation=9_999).tokens) == 512


def test_pairs_and_lists(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    pair = extract(model, ("Who was tired?", LONG), tokenizer=tokenizer, truncation=64)
    assert len(pair.tokens) == 64
    assert {0, 1} <= set(pair.tokens.sequence)
    records = extract(model, ["The cat.", LONG], tokenizer=tokenizer, truncation=True)
    assert [len(record.tokens) for record in records] == [5, 512]
    assert ["was truncated" in " ".join(record.notes) for record in records] == [False, True]


def test_the_side_that_the_tokenizer_cuts(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    tokenizer.truncation_side = "left"
    try:
        record = extract(model, LONG, tokenizer=tokenizer, truncation=8)
    finally:
        tokenizer.truncation_side = "right"
    assert "truncated to the last 8 of" in note_of(record)
    assert record.tokens[-2] == "."


def test_space_for_the_generated_tokens_is_reserved() -> None:
    model, tokenizer = demos.load("decoder")
    text = demos.example("decoder")["inputs"]
    bound = model.config.max_position_embeddings
    long = " ".join([text] * 50)
    record = extract(model, long, tokenizer=tokenizer, generate=5, truncation=True)
    assert len(record.tokens) == bound
    assert f"the first {bound - 5} of" in note_of(record)
    assert len(record.tokens.predictions) == 5
    record = extract(model, long, tokenizer=tokenizer, target="the street", truncation=True)
    assert len(record.tokens) == bound
    assert f"the first {bound - 2} of" in note_of(record)
    with pytest.raises(ValueError, match=f"leaves 0 tokens before {bound} new ones"):
        extract(model, long, tokenizer=tokenizer, generate=bound, truncation=True)


def test_the_target_of_a_decoder_is_truncated() -> None:
    model, tokenizer = demos.load("encoder-decoder")
    example = demos.example("encoder-decoder")
    long = example["target"] * 100
    with pytest.raises(ValueError, match=r"target: .* too many"):
        extract(model, example["inputs"], tokenizer=tokenizer, target=long)
    record = extract(model, example["inputs"], tokenizer=tokenizer, target=long, truncation=True)
    assert "The target was truncated to the first" in note_of(record)


def test_the_target_of_other_inputs_than_texts_is_truncated() -> None:
    model, tokenizer = demos.load("encoder-decoder")
    ids = {"input_ids": torch.tensor([[1, 5, 2]])}
    target = "2019-11-17" * 100
    bound = model.config.max_position_embeddings
    record = extract(model, ids, tokenizer=tokenizer, target=target, truncation=True)
    assert len(record.stacks["decoder"].query_tokens) == bound
    with pytest.raises(TypeError, match="truncation: inputs is dict and not a text"):
        extract(model, ids, tokenizer=tokenizer, target=target, truncation=9)
    with pytest.raises(ValueError, match=r"decoder_input_ids: 99 .* too many.*Pass fewer ids"):
        extract(model, ids, tokenizer=tokenizer, decoder_input_ids=[1] * 99)


def test_encoder_and_decoder_have_maximum_lengths_of_their_own() -> None:
    _, tokenizer = demos.load("encoder-decoder")
    without: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)
    model: Any = tiny_model("t5gemma", "T5GemmaForConditionalGeneration", {})
    model.config.encoder.max_position_embeddings = 30
    model.config.decoder.max_position_embeddings = 20
    long = "2019-11-17" * 10
    record = extract(model, long, tokenizer=without, target=long, truncation=True)
    assert [len(record.stacks[name].query_tokens) for name in ("encoder", "decoder")] == [30, 20]


def test_a_model_without_a_table_of_positions(minilm: tuple[Any, Any]) -> None:
    _, tokenizer = minilm
    settings = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 96}
    model = built("LlamaModel", {**SIZE, **settings})
    assert len(extract(model, LONG, tokenizer=tokenizer, truncation=100).tokens) == 100
    # The limit comes from the tokenizer, or from the configuration if the tokenizer has none.
    assert len(extract(model, LONG, tokenizer=tokenizer, truncation=True).tokens) == 512
    without: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)
    assert len(extract(model, LONG, tokenizer=without, truncation=True).tokens) == 96


@pytest.mark.parametrize(
    ("truncation", "kind", "message"),
    [
        (0, ValueError, "truncation=0 must be at least 1"),
        ("yes", TypeError, "truncation='yes' must be a whole number, True"),
        (2, ValueError, "truncation leaves 2 tokens, and 2 special tokens"),
    ],
)
def test_bad_values_are_refused(
    minilm: tuple[Any, Any], truncation: Any, kind: type[Exception], message: str
) -> None:
    model, tokenizer = minilm
    with pytest.raises(kind, match=message):
        extract(model, LONG, tokenizer=tokenizer, truncation=truncation)


def test_encoded_inputs_are_not_truncated(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    with pytest.raises(TypeError, match="truncation: inputs is BatchEncoding"):
        extract(model, tokenizer(LONG, return_tensors="pt"), tokenizer=tokenizer, truncation=True)


def test_views_and_corpora_accept_truncation(
    minilm: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = minilm
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    view = av.show_head_view(model, LONG, tokenizer=tokenizer, truncation=16)
    assert len(view.record.tokens) == 16
    assert "was truncated to the first 16 of its 1,302" in view.to_html()
    corpus = av.extract_corpus(model, ["The cat sat.", LONG], tokenizer=tokenizer, truncation=20)
    assert len(corpus) == 2
    assert "the first 20 of its 1,302" in " ".join(corpus.notes)
    with pytest.raises(TypeError, match=r"model is a record, .* Omit truncation"):
        av.show_head_view(view.record, truncation=True)
