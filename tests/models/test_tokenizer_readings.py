"""While a block observes tokenizers, each text that this thread tokenizes is one reading."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedTokenizerBase

from attnviz import extract
from attnviz.extraction.tokens.reading import Reading, watch_tokenizers
from attnviz.utils.cleanup import Cleanup
from models.make_models import make_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s"]
VOCABULARY = {word: number for number, word in enumerate(WORDS)}
THE, CAT, SAT, S = (VOCABULARY[word] for word in ("the", "cat", "sat", "##s"))
CLS, SEP, PAD = (VOCABULARY[word] for word in ("[CLS]", "[SEP]", "[PAD]"))


@pytest.fixture
def bert() -> Any:
    return transformers.BertTokenizer(vocab=VOCABULARY, do_lower_case=True)


def readings_of(call: Callable[[], object]) -> list[Reading]:
    with Cleanup() as undo, undo:
        readings = watch_tokenizers(undo)
        call()
    return readings


def slices(reading: Reading) -> list[str]:
    """The part of the reading's texts that the tokenizers library names for each token."""
    parts = []
    for (start, stop), text, word in zip(
        reading.encoding.offsets,
        reading.encoding.sequence_ids,
        reading.encoding.word_ids,
        strict=True,
    ):
        whole = "" if text is None else reading.texts[text]
        if word is not None and {"boxes", "is_split_into_words"} & set(reading.options):
            # Places are counted from the beginning of the word.
            whole = whole.split()[word]
        parts.append(whole[start:stop])
    return parts


def test_a_text_and_its_options(bert: Any) -> None:
    [reading] = readings_of(lambda: bert("The cats sat", truncation=True, max_length=4))
    assert reading.tokenizer is bert
    assert reading.texts == ("The cats sat",)
    assert reading.ids == (CLS, THE, CAT, SEP)
    assert slices(reading) == ["", "The", "cat", ""]
    assert reading.options["truncation"] is True
    assert reading.options["max_length"] == 4


@pytest.mark.parametrize("return_tensors", [None, "pt", "np"])
def test_a_batch_has_a_reading_for_each_row(bert: Any, return_tensors: str | None) -> None:
    texts = ["the", "the cat sat"]
    readings = readings_of(lambda: bert(texts, padding=True, return_tensors=return_tensors))
    assert [reading.texts for reading in readings] == [("the",), ("the cat sat",)]
    assert readings[0].ids == (CLS, THE, SEP, PAD, PAD)
    assert readings[1].ids == (CLS, THE, CAT, SAT, SEP)


@pytest.mark.parametrize(
    "call",
    [
        lambda bert: bert("the cat", "sat"),
        lambda bert: bert(["the cat"], ["sat"]),
        lambda bert: bert([("the cat", "sat")]),
        lambda bert: bert.encode("the cat", "sat"),
        lambda bert: bert(text="the cat", text_pair="sat"),
        lambda bert: bert([["the", "cat"]], [["sat"]], is_split_into_words=True),
        lambda bert: bert(["the", "cat"], ["sat"], is_split_into_words=True),
        lambda bert: bert(text_target="the cat", text_pair_target="sat"),
    ],
)
def test_pairs_in_all_forms(bert: Any, call: Callable[[Any], object]) -> None:
    [reading] = readings_of(lambda: call(bert))
    assert reading.texts == ("the cat", "sat")
    assert reading.ids == (CLS, THE, CAT, SEP, SAT, SEP)
    assert slices(reading) == ["", "the", "cat", "", "sat", ""]


def test_words_are_joined_with_spaces(bert: Any) -> None:
    [reading] = readings_of(lambda: bert(["The", "cats"], is_split_into_words=True))
    assert reading.texts == ("The cats",)
    assert slices(reading) == ["", "The", "cat", "s", ""]
    one, two = readings_of(lambda: bert([["The"], ["cats", "sat"]], is_split_into_words=True))
    assert (one.texts, two.texts) == (("The",), ("cats sat",))
    assert slices(two) == ["", "cat", "s", "sat", ""]


def test_each_window_of_a_long_text_is_a_reading_of_the_text(bert: Any) -> None:
    texts = ["the cat sat on the mat", "the mat"]
    options = {"max_length": 5, "stride": 1, "truncation": True, "return_overflowing_tokens": True}
    readings = readings_of(lambda: bert(texts, **options))
    rows = bert(texts, **options)
    assert [list(reading.ids) for reading in readings] == rows["input_ids"]
    owners = rows["overflow_to_sample_mapping"]
    assert [reading.texts[0] for reading in readings] == [texts[owner] for owner in owners]
    assert slices(readings[1]) == ["", "sat", "on", "the", ""]


def test_a_chat_has_the_text_of_its_template(bert: Any) -> None:
    bert.chat_template = "{% for m in messages %}[CLS]{{ m.content }}[SEP]{% endfor %}"
    messages = [{"role": "user", "content": "the cat"}]
    [reading] = readings_of(lambda: bert.apply_chat_template(messages, tokenize=True))
    assert reading.texts == ("[CLS]the cat[SEP]",)
    assert reading.ids == (CLS, THE, CAT, SEP)


def test_source_and_target_in_one_call_are_two_readings(bert: Any) -> None:
    source, target = readings_of(lambda: bert("the cat", text_target="sat"))
    assert (source.texts, target.texts) == (("the cat",), ("sat",))
    assert target.ids == (CLS, SAT, SEP)


def test_ids_have_no_reading(slow: Any) -> None:
    assert readings_of(lambda: slow([1, 2])) == []


@pytest.fixture
def slow(tmp_path: Path) -> Any:
    """A tokenizer written in Python."""
    vocabulary = {"<unk>": 0, "the</w>": 1, "c": 2, "at</w>": 3, "s": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\na t</w>\n")
    return transformers.CTRLTokenizer(
        vocab_file=str(tmp_path / "vocab.json"), merges_file=str(tmp_path / "merges.txt")
    )


def test_a_tokenizer_written_in_python(slow: Any) -> None:
    slow.pad_token = "<unk>"
    readings = readings_of(lambda: slow(["the", "the"], ["the the", "the"], padding=True))
    assert [reading.texts for reading in readings] == [("the", "the the"), ("the", "the")]
    expected = [slow("the", "the the")["input_ids"], slow("the", "the")["input_ids"]]
    assert [list(reading.ids) for reading in readings] == expected
    assert all(reading.encoding is None for reading in readings)


BOX = [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["LayoutLMv2Tokenizer", "LayoutLMv3Tokenizer"])
def test_layout_models_that_replace_every_method(name: str, bert: Any) -> None:
    if name == "LayoutLMv2Tokenizer":
        layout: Any = transformers.LayoutLMv2Tokenizer(vocab=VOCABULARY)
    else:
        names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ", "t", "h", "e", "c", "a", "s"]
        layout = transformers.LayoutLMv3Tokenizer(
            vocab={name: number for number, name in enumerate(names)}, merges=[]
        )
    words, question = ["the", "cat"], "sat the"
    [alone] = readings_of(lambda: layout(words, boxes=[BOX] * 2))
    assert alone.texts == ("the cat",)
    [pair] = readings_of(lambda: layout(question, words, boxes=[BOX] * 2))
    assert pair.texts == (question, "the cat")
    assert "".join(slices(pair)).replace(" ", "") == "satthethecat"
    many = readings_of(lambda: layout([words, words[:1]], boxes=[[BOX] * 2, [BOX]]))
    assert [reading.texts for reading in many] == [("the cat",), ("the",)]
    rows = layout([words, words[:1]], boxes=[[BOX] * 2, [BOX]])["input_ids"]
    assert [list(reading.ids) for reading in many] == rows


def test_a_class_that_joins_the_rows_of_several_calls() -> None:
    reader = transformers.DPRReaderTokenizer(vocab=VOCABULARY)
    readings = readings_of(lambda: reader("the cat", "mat", "sat on the mat"))
    assert [reading.texts for reading in readings] == [("the cat", "mat"), ("sat on the mat",)]
    [row] = reader("the cat", "mat", "sat on the mat")["input_ids"]
    assert list(readings[0].ids + readings[1].ids) == row


def test_a_subclass_with_its_own_call() -> None:
    class Shouting(transformers.BertTokenizer):  # type: ignore[misc]
        def __call__(self, text: str, **options: Any) -> Any:
            return super().__call__(text.lower() + " sat", **options)

    [reading] = readings_of(lambda: Shouting(vocab=VOCABULARY)("THE CAT"))
    assert reading.texts == ("the cat sat",)
    assert slices(reading) == ["", "the", "cat", "sat", ""]


def test_a_pipeline_and_a_sentence_transformer(minilm: Any, checkpoint_folder: Path) -> None:
    import sentence_transformers

    model, tokenizer = minilm
    pipe = transformers.pipeline("feature-extraction", model=model, tokenizer=tokenizer)
    [reading] = readings_of(lambda: pipe("The cat sat."))
    assert reading.texts == ("The cat sat.",)
    embedder = sentence_transformers.SentenceTransformer(str(checkpoint_folder), device="cpu")
    embedder.max_seq_length = 3
    [reading] = readings_of(lambda: embedder.encode("The cat sat."))
    assert len(reading.ids) == 3
    assert reading.options["truncation"]


def methods() -> Iterator[tuple[type, str, object]]:
    owners: list[type] = [PreTrainedTokenizerBase]
    while owners:
        owner = owners.pop()
        owners += owner.__subclasses__()
        for name in ("__call__", "encode", "_encode_plus"):
            if name in vars(owner):
                yield owner, name, vars(owner)[name]


def test_all_is_restored_after_an_error(bert: Any) -> None:
    before = list(methods())
    with pytest.raises(ValueError, match="text input"):
        readings_of(lambda: bert(3))
    assert list(methods()) == before


def test_blocks_inside_of_each_other(bert: Any) -> None:
    before = list(methods())
    with Cleanup() as outer, outer:
        outside = watch_tokenizers(outer)
        bert("the")
        inside = readings_of(lambda: bert("cat"))
        bert("sat")
    bert("mat")
    assert [reading.texts for reading in outside] == [("the",), ("cat",), ("sat",)]
    assert [reading.texts for reading in inside] == [("cat",)]
    assert list(methods()) == before


def test_two_threads_see_only_their_own_texts(bert: Any) -> None:
    before = list(methods())
    both_watch, both_read = threading.Barrier(2), threading.Barrier(2)
    by_word: dict[str, list[Reading]] = {}
    tokenizers = {"cat": bert, "sat": transformers.BertTokenizer(vocab=VOCABULARY)}

    def run(word: str) -> None:
        with Cleanup() as undo, undo:
            readings = watch_tokenizers(undo)
            both_watch.wait(timeout=30)
            for _ in range(20):
                tokenizers[word](f"the {word}")
            both_read.wait(timeout=30)
        tokenizers[word]("on the mat")
        by_word[word] = readings

    threads = [threading.Thread(target=run, args=(word,)) for word in tokenizers]
    with Cleanup() as undo, undo:
        own = watch_tokenizers(undo)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert own == []
    for word in tokenizers:
        assert [reading.texts for reading in by_word[word]] == [(f"the {word}",)] * 20
    assert list(methods()) == before


def test_a_tokenizer_may_contain_a_tokenizer_of_another_library(
    bert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MistralCommonBackend has such an attribute, and a method ``added_tokens_decoder``."""
    kind = type("OfAnotherLibrary", (transformers.BertTokenizer,), {"tokenizer": object()})
    other = kind(vocab=VOCABULARY, do_lower_case=True)
    monkeypatch.setattr(kind, "added_tokens_decoder", lambda _: {}, raising=False)
    assert callable(other.added_tokens_decoder)
    model = make_model("bert")
    record, expected = (
        extract(model, "the cats sat", tokenizer=tokenizer) for tokenizer in (other, bert)
    )
    assert record.tokens.text == expected.tokens.text
    assert record.tokens.ids == expected.tokens.ids


@pytest.fixture(scope="module", params=["tekken", "sentencepiece"])
def mistral(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """Return a tiny Mistral, and its tokenizer of mistral-common."""
    package = pytest.importorskip("mistral_common", reason="pip install mistral-common")
    data, folder = Path(package.__file__).parent / "data", tmp_path_factory.mktemp("mistral")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.MistralConfig(
        **sizes, num_key_value_heads=1, intermediate_size=16, vocab_size=131_072
    )
    if request.param == "tekken":
        (folder / "tekken.json").symlink_to(data / "tekken_240911.json")
        config.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    else:
        file = data / "mistral_instruct_tokenizer_241114.model.v7"
        tokenizer = transformers.MistralCommonBackend(file)
        config.vocab_size = len(tokenizer)
    return transformers.MistralForCausalLM(config).eval(), tokenizer


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Where is the cat?"}]},
    {"role": "assistant", "content": "On the mat."},
    {"role": "user", "content": "Why?"},
]


def test_chats_of_mistral_common(mistral: tuple[Any, Any]) -> None:
    """Tokenizers of mistral-common write chats without a template."""
    model, tokenizer = mistral
    assert "MistralCommon" in type(tokenizer).__name__
    own = tokenizer.apply_chat_template(CHAT, return_dict=True)["input_ids"]
    record = extract(model, CHAT, tokenizer=tokenizer)
    assert list(record.tokens.ids or ()) == own
    assert "[INST]" in record.tokens.text
    turns = {
        one.name: tokenizer.decode(own[one.start : one.stop]) for one in record.tokens.passages
    }
    assert {name: text.replace("▁", " ").strip() for name, text in turns.items()} == {
        "system": "Be brief.",
        "user 1": "Where is the cat?",
        "assistant": "On the mat.",
        "user 2": "Why?",
    }
    generated = extract(model, CHAT, tokenizer=tokenizer, generate=2)
    assert list(generated.tokens.ids or ())[:-2] == own
    # A chat that ends with the assistant has no end-of-text token.
    own = tokenizer.apply_chat_template(CHAT[:3], return_dict=True, continue_final_message=True)
    record = extract(model, CHAT[:3], tokenizer=tokenizer)
    assert list(record.tokens.ids or ()) == own["input_ids"]
    assert record.tokens.text[-1] == "."


def test_a_note_on_a_truncated_chat_of_mistral_common(mistral: tuple[Any, Any]) -> None:
    model, tokenizer = mistral
    count = len(tokenizer.apply_chat_template(CHAT, return_dict=True)["input_ids"])
    record = extract(model, CHAT, tokenizer=tokenizer, truncation=5)
    note = f"The text was truncated to the first 5 of its {count} tokens, including special ones."
    assert note in record.notes
    whole = extract(model, CHAT, tokenizer=tokenizer, truncation=count)
    assert "truncated" not in " ".join(whole.notes)


def test_ids_beyond_the_vocabulary_of_mistral_common_are_numbers(mistral: tuple[Any, Any]) -> None:
    """A model may have more embeddings than its tokenizer has entries, and predict such ids."""
    model, tokenizer = mistral
    size = len(tokenizer)
    config = transformers.MistralConfig(**{**model.config.to_dict(), "vocab_size": size + 8})
    larger: Any = transformers.MistralForCausalLM(config).eval()
    with torch.no_grad():
        # One of two opposite rows has a positive logit, and the others have 0.
        larger.lm_head.weight[: size + 7].zero_()
        larger.lm_head.weight[size + 6] = -larger.lm_head.weight[size + 7]
    ids = torch.tensor([[5, size, size + 3]])
    record = extract(larger, {"input_ids": ids}, tokenizer=tokenizer, generate=2)
    assert record.tokens.text[1:3] == (f"#{size}", f"#{size + 3}")
    assert set(record.tokens.text[3:]) <= {f"#{size + 6}", f"#{size + 7}"}


def test_tokens_of_mistral_common_are_parts_of_the_text(mistral: tuple[Any, Any]) -> None:
    """A character of several tokens is complete with the last one."""
    model, tokenizer = mistral
    text = "na\u00efve \U0001f642 \u4e2d\u6587"
    for inputs in (text, [{"role": "user", "content": text}]):
        record = extract(model, inputs, tokenizer=tokenizer)
        assert "does not read" not in " ".join(record.notes)
        shown = "".join(record.tokens.text)
        assert "na\u00efve" in shown
        assert "\ufffd" not in shown
        assert "\u2581" not in shown
