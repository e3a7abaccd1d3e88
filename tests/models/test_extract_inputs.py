"""`extract` accepts every form of models and inputs, and refuses bad inputs."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from attnviz import AttentionRecord
from attnviz.extraction import extract
from models.make_models import largest_error, make_model
from models.tiny import picture, reference

TEXT = "The cat sat on the mat."
IDS = [7, 31, 12, 99, 5]


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return make_model("gpt2")


def same(one: AttentionRecord, other: AttentionRecord) -> bool:
    return one.stacks.keys() == other.stacks.keys() and all(
        one.stacks[name].query_tokens == other.stacks[name].query_tokens
        and np.array_equal(one.stacks[name].weights(layer=0), other.stacks[name].weights(layer=0))
        for name in one.stacks
    )


def test_a_folder_brings_class_and_tokenizer(tmp_path: Path, byte_tokenizer: Any) -> None:
    model = make_model("llama")
    folder = tmp_path / "tiny-llama"
    model.save_pretrained(folder)
    byte_tokenizer.save_pretrained(folder)
    record = extract(folder, TEXT)
    assert record.model == "tiny-llama"
    assert same(record, extract(model, TEXT, tokenizer=byte_tokenizer))
    assert same(record, extract(str(folder), TEXT, tokenizer=str(folder)))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert same(record, extract(loaded, TEXT))


def test_a_pipeline_brings_its_tokenizer(gpt2: Any, byte_tokenizer: Any) -> None:
    # A pipeline changes the padding side of its tokenizer, and other tests use this tokenizer.
    tokenizer = copy.deepcopy(byte_tokenizer)
    pipeline = transformers.pipeline("text-generation", model=gpt2, tokenizer=tokenizer)
    assert same(extract(pipeline, TEXT), extract(gpt2, TEXT, tokenizer=byte_tokenizer))


def test_lists_give_the_records_of_single_texts(gpt2: Any, byte_tokenizer: Any) -> None:
    texts = [TEXT, "The dog", "A date such as 3 May 2021"]
    pairs = [("The cat", " sat"), ("The", " dog")]
    for inputs in (texts, [TEXT], pairs):
        records = extract(gpt2, inputs, tokenizer=byte_tokenizer)
        for single, record in zip(inputs, records, strict=True):
            assert same(record, extract(gpt2, single, tokenizer=byte_tokenizer))


def test_a_list_of_pairs_may_have_lists_or_encoded_pairs(gpt2: Any, byte_tokenizer: Any) -> None:
    pairs = [("The cat", " sat"), ("The", " dog")]
    options: dict[str, Any] = {"tokenizer": byte_tokenizer, "progress": False}
    records = extract(gpt2, pairs, **options)
    encoded = [byte_tokenizer(*pair, return_tensors="pt") for pair in pairs]
    for inputs in ([list(pair) for pair in pairs], encoded):
        for one, other in zip(records, extract(gpt2, inputs, **options), strict=True):
            assert same(one, other)


def test_chat_messages_contain_the_first_token_once(gpt2: Any, byte_tokenizer: Any) -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "The dog"},
    ]
    record = extract(gpt2, messages, tokenizer=byte_tokenizer)
    assert "".join(record.tokens) == "<s><|user|>hello</s><|assistant|>The·dog</s>"
    assert record.tokens.special[:2] == (True, True)
    several = extract(gpt2, [messages, messages[:1]], tokenizer=byte_tokenizer, progress=False)
    assert same(several[0], record)
    # In a chat, the target is the answer of the assistant.
    answer = extract(gpt2, messages[:1], tokenizer=byte_tokenizer, target="The dog")
    assert "".join(answer.tokens) == "<s><|user|>hello</s><|assistant|>The·dog"


def test_a_target_of_a_decoder_continues_the_prompt(gpt2: Any, byte_tokenizer: Any) -> None:
    record = extract(gpt2, "The cat", tokenizer=byte_tokenizer, target=" sat on the mat")
    joined = extract(gpt2, "The cat sat on the mat", tokenizer=byte_tokenizer)
    assert record.tokens.text == joined.tokens.text
    assert np.array_equal(
        record.stacks["self"].weights(layer=2), joined.stacks["self"].weights(layer=2)
    )
    count = record.tokens.sequence.count(1)
    assert record.tokens.sequence == (0,) * (len(joined.tokens) - count) + (1,) * count
    assert any("target" in note for note in record.notes)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_a_target_of_an_encoder_decoder_is_shifted(kind: str, piece_tokenizer: Any) -> None:
    model = make_model(kind)
    record = extract(model, "The cat sat", tokenizer=piece_tokenizer, target="the dog")
    encoded = piece_tokenizer("The cat sat", return_tensors="pt")
    labels = piece_tokenizer(text_target="the dog", return_tensors="pt")["input_ids"]
    start = model.config.decoder_start_token_id
    # The decoder reads the target shifted by one token, as in training.
    decoder_ids = [start, *labels[0, :-1].tolist()]
    assert record.stacks["decoder"].query_tokens.ids == tuple(decoder_ids)
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    assert record.stacks["cross"].key_tokens == record.stacks["encoder"].query_tokens
    arguments = {**encoded, "decoder_input_ids": torch.tensor([decoder_ids])}
    assert largest_error(record, reference(model, arguments)) < 1e-4
    assert same(record, extract(model, {**encoded, "labels": labels}, tokenizer=piece_tokenizer))
    by_ids = extract(model, "The cat sat", tokenizer=piece_tokenizer, decoder_input_ids=decoder_ids)
    # Only a target or a generated text has predictions. Ids that the caller passes have none.
    tokens = record.stacks["decoder"].query_tokens
    assert by_ids.stacks["decoder"].query_tokens == replace(tokens, predictions=())


def test_the_decoder_of_a_classifier_reads_the_text(piece_tokenizer: Any) -> None:
    end = piece_tokenizer.eos_token_id
    config = make_model("t5", num_labels=2, eos_token_id=end).config
    model = transformers.T5ForSequenceClassification(config).eval()
    record = extract(model, "The cat sat", tokenizer=piece_tokenizer)
    ids = piece_tokenizer("The cat sat")["input_ids"]
    assert record.stacks["decoder"].query_tokens.ids == (0, *ids[:-1])
    assert any("makes by default" in note for note in record.notes)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_each_text_of_a_list_has_its_target(kind: str, piece_tokenizer: Any) -> None:
    model, options = make_model(kind), {"tokenizer": piece_tokenizer, "progress": False}
    texts, targets = ["The cat", "The dog sat"], ["the mat on the street", "it"]
    records = extract(model, texts, target=targets, **options)
    # In this batch, the queries and the keys of cross-attention have padding.
    batch = piece_tokenizer(texts, return_tensors="pt", padding=True)
    padded = extract(model, batch, target=targets, **options)
    for one, other in zip(records, padded, strict=True):
        for name in one.stacks:
            assert one.stacks[name].query_tokens.ids == other.stacks[name].query_tokens.ids
            weights = other.stacks[name].weights(layer=1)
            assert np.abs(one.stacks[name].weights(layer=1) - weights).max() < 1e-5
        probabilities = [
            [item.token.probability for item in record.stacks["cross"].query_tokens.predictions]
            for record in (one, other)
        ]
        assert probabilities[0] == pytest.approx(probabilities[1], abs=1e-5)
    with pytest.raises(ValueError, match="target must be a list with one entry for each of the 2"):
        extract(model, texts, target="it", **options)


def test_a_tokenizer_of_another_vocabulary_is_refused(gpt2: Any, checkpoint_folder: Path) -> None:
    other = transformers.AutoTokenizer.from_pretrained(checkpoint_folder)
    with pytest.raises(ValueError, match=r"out of range\. GPT2LMHeadModel has the ids 0 to 399"):
        extract(gpt2, TEXT, tokenizer=other)


@pytest.mark.parametrize(
    ("kind", "bound"), [("bert", 64), ("gpt2", 64), ("roberta", 62), ("bart", 64)]
)
def test_more_tokens_than_positions_are_refused(kind: str, bound: int) -> None:
    model = make_model(kind)
    decoder: dict[str, Any] = {"decoder_input_ids": [5, 6]} if kind == "bart" else {}
    extract(model, torch.full((bound,), 9), **decoder)
    with pytest.raises(ValueError, match=f"{bound + 1} tokens are too many.*has {bound} positions"):
        extract(model, torch.full((bound + 1,), 9), **decoder)


def test_ids_are_read_in_every_form(gpt2: Any) -> None:
    record = extract(gpt2, torch.tensor([IDS]))
    assert record.tokens.text == tuple(f"#{number}" for number in IDS)
    assert any("#id" in note for note in record.notes)
    for ids in (torch.tensor(IDS), np.array(IDS), IDS, {"input_ids": [IDS]}):
        assert same(record, extract(gpt2, ids))
    assert same(record, extract(gpt2, [IDS, IDS[:3]], progress=False)[0])
    batch = extract(gpt2, torch.tensor([IDS, IDS[::-1]]))
    assert [item.tokens.ids for item in batch] == [tuple(IDS), tuple(IDS[::-1])]


@pytest.mark.parametrize("tensors", ["pt", None])
def test_the_output_of_a_tokenizer_is_an_input(
    tensors: str | None, gpt2: Any, byte_tokenizer: Any
) -> None:
    encoded = byte_tokenizer(TEXT, return_tensors=tensors, return_offsets_mapping=True)
    encoded.pop("token_type_ids", None)
    record = extract(gpt2, encoded)
    assert record.tokens.text == extract(gpt2, TEXT, tokenizer=byte_tokenizer).tokens.text


def test_an_image_is_read_in_every_form(tmp_path: Path) -> None:
    model = make_model("vit")
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    image = Image.fromarray(picture(40, 40))
    encoded = processor(images=image, return_tensors="pt")
    record = extract(model, encoded)
    assert list(record.stacks) == ["vision"]
    assert record.tokens.text[:6] == ("[CLS]", "0,0", "0,1", "0,2", "0,3", "1,0")
    assert record.tokens.special == (True, *[False] * 16)
    for inputs in (image, np.asarray(image), encoded["pixel_values"], encoded["pixel_values"][0]):
        assert same(record, extract(model, inputs, processor=processor))
    several = extract(model, [image, image], processor=processor, progress=False)
    assert same(several[1], record)
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    assert same(record, extract(tmp_path, image))
    pipeline = transformers.pipeline("image-classification", model=model, image_processor=processor)
    assert same(record, extract(pipeline, image))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("/runs/sentiment/checkpoint-500", "sentiment/checkpoint-500"),
        ("/runs/sentiment/model_weights", "sentiment/model_weights"),
        ("/runs/sentiment/best_model.epoch_3", "sentiment/best_model.epoch_3"),
        ("/runs/sentiment-model", "sentiment-model"),
        ("org/my-bert-model", "my-bert-model"),
        ("C:\\runs\\sentiment\\best_model", "sentiment/best_model"),
        ("/home/.cache/hub/models--openai--gpt2/snapshots/0f2a", "gpt2"),
        ("", "BertForMaskedLM"),
    ],
)
def test_a_record_is_named_after_its_model_and_not_after_a_folder_named_model(
    source: str, name: str
) -> None:
    model = make_model("bert")
    model.name_or_path = source
    assert extract(model, IDS).model == name


@pytest.mark.parametrize(
    ("folder", "source", "name"),
    [
        ("sentiment", ".", "sentiment"),
        ("sentiment/model", ".", "sentiment/model"),
        ("sentiment", "./sentiment", "sentiment"),
        ("sentiment/model", "model", "sentiment/model"),
    ],
)
def test_a_record_of_a_relative_folder_is_named_after_the_folder(
    folder: str, source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model("bert").save_pretrained(tmp_path / folder)
    is_inside = source == "."
    monkeypatch.chdir(tmp_path / folder if is_inside else (tmp_path / folder).parent)
    model = transformers.BertForMaskedLM.from_pretrained(source)
    assert extract(model, IDS).model == name


REFUSED: list[tuple[str, Any, dict[str, Any], type[Exception], str]] = [
    # Empty inputs.
    ("gpt2", "", {}, ValueError, "inputs: the text is empty"),
    ("gpt2", [], {}, ValueError, "inputs: the list is empty"),
    # Texts with a lone surrogate, at several places of the inputs.
    *(
        ("gpt2", inputs, {"target": target}, ValueError, r"text='x\\ud800' has a lone surrogate")
        for inputs, target in (
            ("x\ud800", None),
            (("a", "x\ud800"), None),
            ([{"role": "user", "content": "x\ud800"}], None),
            (TEXT, "x\ud800"),
        )
    ),
    # Unusable values, models and tokenizers.
    *(
        ("gpt2", inputs, {}, TypeError, "^inputs: ")
        for inputs in (None, 3.5, ("a", "b", "c"), ["a", 3], torch.ones(2, 3), b"bytes")
    ),
    ("gpt2", {"input_ids": torch.ones(1, 3)}, {}, TypeError, "inputs: input_ids must be integers"),
    ("rwkv", IDS, {}, ValueError, "RwkvForCausalLM has no attention"),
    ("gpt2", TEXT, {"tokenizer": None}, ValueError, r"tokenizer: inputs contain text.*tokenizer="),
    ("gpt2", TEXT, {"tokenizer": str.split}, TypeError, "tokenizer must be a tokenizer of"),
    # Targets.
    ("gpt2", TEXT, {"target": 3}, ValueError, "target must be a string"),
    ("gpt2", TEXT, {"decoder_input_ids": [1]}, ValueError, "is not an encoder-decoder model"),
    ("gpt2", torch.tensor([IDS, IDS]), {"target": "a"}, ValueError, "target needs one prompt"),
    ("bart", IDS, {}, ValueError, "target: the decoder of .* needs a text"),
    ("bart", IDS, {"target": "a", "decoder_input_ids": [1]}, ValueError, "Pass one of them"),
    ("bert", TEXT, {"target": "the dog"}, ValueError, "BertForMaskedLM cannot produce text"),
    # Encoded batches.
    ("gpt2", {"input_ids": [IDS], "attention_mask": [[0] * 5]}, {}, ValueError, "all padding"),
    ("gpt2", {"input_ids": [IDS, IDS[:3]]}, {}, ValueError, "padding=True"),
]


@pytest.mark.parametrize(("kind", "inputs", "options", "error", "words"), REFUSED)
def test_bad_inputs_are_refused(  # noqa: PLR0917 - fixtures
    kind: str,
    inputs: Any,
    options: dict[str, Any],
    error: type[Exception],
    words: str,
    byte_tokenizer: Any,
) -> None:
    with pytest.raises(error, match=words):
        extract(
            make_model(kind), inputs, **{"tokenizer": byte_tokenizer, "progress": False} | options
        )


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("nobody/no-such-model", OSError, "nobody/no-such-model"),
        ("./missing", OSError, "./missing"),
        ("empty", (OSError, ValueError), "empty"),
        ("unknown", ValueError, "no-such-type"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_refused(
    model: str, error: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "unknown"):
        (tmp_path / name).mkdir()
    (tmp_path / "unknown" / "config.json").write_text('{"model_type": "no-such-type"}')
    with pytest.raises(error, match=words):
        extract(tmp_path / model if (tmp_path / model).is_dir() else model, TEXT)
