"""Words with real tokenizers and models, compared with offsets and the models' own weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

import attnviz
from attnviz import AttentionRecord, demos
from attnviz.extraction.tokens.text import display_tokens
from models.conftest import SENTENCES
from models.make_models import make_model
from rounding import forwards_error

TEXT = "The unbelievably tired animal didn't cross the tokenization street."
SECOND = "Hydroelectricity was reintroduced."


@pytest.fixture(scope="module")
def checkpoint(checkpoint_folder: Path) -> tuple[Any, Any]:
    model = transformers.AutoModel.from_pretrained(
        checkpoint_folder, attn_implementation="eager"
    ).eval()
    return model, transformers.AutoTokenizer.from_pretrained(checkpoint_folder)


def by_offsets(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    """Return the number of the word of each token. Adjacent letters and digits are one word."""
    number, numbers = 0, [0]
    for (_, stop), (start, end) in pairwise(offsets):
        inside = start == stop and text[start - 1].isalnum() and text[start:end].isalnum()
        number += not inside
        numbers.append(number)
    return numbers


def merging(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return a matrix (words, tokens) that is 1 where the token belongs to the word."""
    flags: NDArray[np.bool_] = np.unique(numbers)[:, None] == numbers
    return flags.astype(np.float64)


@torch.no_grad()
def test_a_checkpoints_words_have_the_sums_and_means_of_its_own_weights(
    checkpoint: tuple[Any, Any],
) -> None:
    model, tokenizer = checkpoint
    record = attnviz.extract(model, (TEXT, SECOND), tokenizer=tokenizer)
    merged = record.merge_words()

    numbers, texts = [0], ["[CLS]"]
    for text in (TEXT, SECOND):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        inside = by_offsets(text, offsets)
        for number in sorted(set(inside)):
            parts = [pair for pair, word in zip(offsets, inside, strict=True) if word == number]
            texts.append(text[parts[0][0] : parts[-1][1]].lower())
        numbers += [numbers[-1] + 1 + number for number in inside]
        numbers.append(numbers[-1] + 1)
        texts.append("[SEP]")
    assert merged.tokens.text == tuple(texts)
    assert len(merged.tokens) < len(record.tokens)
    assert merged.tokens.special == tuple(text in ("[CLS]", "[SEP]") for text in texts)
    second = texts.index("[SEP]") + 1
    assert merged.tokens.sequence[second:-1] == (1,) * (len(texts) - second - 1)

    matrix = merging(np.array(numbers))
    own = model(**tokenizer(TEXT, SECOND, return_tensors="pt"), output_attentions=True).attentions
    for layer, weights in enumerate(own):
        expected = (matrix / matrix.sum(1, keepdims=True)) @ weights[0].numpy() @ matrix.T
        computed = merged.stack().weights(layer=layer)
        # A weight between words is a sum over the tokens of one word. The longest word has the most
        # terms.
        off = matrix.sum(1).max() * forwards_error(record)
        np.testing.assert_allclose(computed, expected, atol=off)
        np.testing.assert_allclose(computed.sum(-1), 1, atol=1e-5)


def test_a_batch_of_ids_has_the_words_of_its_texts(checkpoint: tuple[Any, Any]) -> None:
    model, tokenizer = checkpoint
    batch = tokenizer([TEXT, SECOND], return_tensors="pt", padding=True)
    records = attnviz.extract(model, batch, tokenizer=tokenizer)
    for text, record in zip((TEXT, SECOND), records, strict=True):
        alone = attnviz.extract(model, text, tokenizer=tokenizer)
        assert record.tokens.words == alone.tokens.words
        np.testing.assert_allclose(
            record.merge_words().to_numpy()[2], alone.merge_words().to_numpy()[2], atol=1e-5
        )


def test_a_byte_level_decoder_keeps_its_tokenizers_words(byte_tokenizer: Any) -> None:
    model = make_model("gpt2")
    record = attnviz.extract(model, "The tired animal didn't sit.", tokenizer=byte_tokenizer)
    merged = record.merge_words()
    ids = byte_tokenizer("The tired animal didn't sit.")["input_ids"]
    assert attnviz.extract(model, ids, tokenizer=byte_tokenizer).tokens == record.tokens
    # GPT-2's tokenizer splits before an apostrophe and before punctuation.
    assert merged.tokens.text == ("The", "·tired", "·animal", "·didn", "'t", "·sit", ".")
    assert merged.stack().causal


def test_an_answer_and_a_chat_have_words(byte_tokenizer: Any) -> None:
    model = make_model("gpt2")
    record = attnviz.extract(
        model, "The unsaid.", target=" undone dogs.", tokenizer=byte_tokenizer
    ).merge_words()
    assert record.tokens.text == ("The", "·unsaid", ".", "·undone", "·dogs", ".")
    assert record.tokens.sequence == (0, 0, 0, 1, 1, 1)
    messages = [{"role": "user", "content": "hello undone dogs"}]
    chat = attnviz.extract(model, messages, tokenizer=byte_tokenizer).merge_words()
    assert chat.tokens.text == ("<s>", "<|user|>", "hello", "·undone", "·dogs", "</s>")


def test_the_stacks_of_an_encoder_decoder_have_words(piece_tokenizer: Any) -> None:
    model = make_model("bart")
    record = attnviz.extract(
        model, "The cat undone.", target="user sat", tokenizer=piece_tokenizer
    ).merge_words()
    source = ("·The", "·cat", "·undone.", "</s>")
    # The decoder's text begins with a start token and has no end token.
    encoder, decoder, cross = record.stacks.values()
    assert encoder.query_tokens.text == encoder.key_tokens.text == source
    assert decoder.query_tokens.text[1:] == ("·user", "·sat")
    assert (cross.query_tokens, cross.key_tokens) == (decoder.query_tokens, encoder.key_tokens)


@pytest.fixture(scope="module")
def unsplit_tokenizer() -> Any:
    """A tokenizer like that of Llama 2: a space becomes a symbol, and texts are not split at it."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>"], show_progress=False)
    words = [f"▁{word}" for text in SENTENCES for word in text.split()]
    # Trained on words, so that no entry contains a space.
    plain = Tokenizer(models.BPE(unk_token="<unk>"))
    plain.train_from_iterator([*words, "·"], trainer)
    backend.model = plain.model
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_tokenizer_without_word_splitting_is_not_one_word(
    unsplit_tokenizer: Any,
) -> None:
    encoded = unsplit_tokenizer("The animal l·l sat.", return_tensors=None)
    assert set(encoded.word_ids()) == {0}
    for encoding in (encoded.encodings[0], None):
        tokens = display_tokens(
            encoded["input_ids"], tokenizer=unsplit_tokenizer, encoding=encoding
        )
        weights = np.eye(len(tokens))[None]
        merged = AttentionRecord.from_weights([weights], tokens).merge_words()
        # A middle dot in the text is not a space.
        assert merged.tokens.text == ("·The", "·animal", "·l·l", "·sat.")


def test_patches_are_not_merged() -> None:
    model, processor = demos.load("vision")
    record = attnviz.extract(model, **demos.example("vision"), processor=processor)
    assert record.merge_words() is record
    words = record.tokens.words
    assert words is not None
    assert words[0] is None
    assert len(set(words)) == len(words)
