"""Tests of the display texts that token ids and vocabulary entries get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from attnviz import AttentionRecord
from attnviz.extraction.tokens.reading import Reading
from attnviz.extraction.tokens.text import read_tokens
from attnviz.record.tokens import Tokens, make_visible
from attnviz.record.vocabulary import _byte_of, display_texts


@pytest.fixture(scope="module")
def byte_level() -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(["The cat sat on the mat.", "the dog"], trainer)
    # One token marks the beginning, the end and unknown words, as in GPT-2.
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>", unk_token="<|end|>"
    )
    tokenizer.add_tokens(["<turn>", "two words"])
    return tokenizer


@pytest.fixture(scope="module")
def checkpoint(checkpoint_folder: Any) -> Any:
    """Return the WordPiece tokenizer of a trained BERT."""
    return transformers.AutoTokenizer.from_pretrained(checkpoint_folder)


def display(tokenizer: Any, *texts: str) -> Tokens:
    encoded = tokenizer(*texts)
    [encoding] = encoded.encodings
    reading = Reading(tokenizer, texts, tuple(encoding.ids), encoding, {})
    return read_tokens(encoding.ids, readings=[reading])[0]


def test_a_character_of_several_tokens_is_shown_in_each(byte_level: Any) -> None:
    tokens = display(byte_level, "a字b")
    assert list(tokens) == ["a", "字 1/3", "字 2/3", "字 3/3", "b"]


def test_a_character_whose_first_byte_shares_a_token_with_text() -> None:
    # é is 0xC3 0xA9: the first token ends with 0xC3 (Ã), and the second begins with 0xA9 (©).
    assert display_texts(["ĠcafÃ", "©s"], alphabet="bytes") == ["·café 1/2", "é 2/2 s"]
    assert display_texts(["ĠðŁ", "ĺĢ"], alphabet="bytes") == ["·😀 1/2", "😀 2/2"]


def test_bytes_are_joined_or_shown_by_number() -> None:
    assert display_texts(["a", "Ã", "b", "©"], alphabet="bytes") == ["a", "‹0xC3›", "b", "‹0xA9›"]
    assert display_texts(["<0xE2>", "<0x82>"], alphabet="metaspace") == ["‹0xE2›", "‹0x82›"]
    entries = ["<0xE5>", "<0xAD>", "<0x97>"]
    assert display_texts(entries, alphabet="metaspace") == ["字 1/3", "字 2/3", "字 3/3"]


def test_a_character_is_not_joined_across_an_added_token(byte_level: Any) -> None:
    half = byte_level.convert_tokens_to_ids(["Ã", "<|end|>", "©"])
    tokens, _ = read_tokens(half, tokenizer=byte_level)
    assert list(tokens) == ["‹0xC3›", "<|end|>", "‹0xA9›"]
    assert tokens.special == (False, True, False)
    assert tokens.sequence == (0, None, 0)


def test_added_tokens_are_shown_unchanged(byte_level: Any) -> None:
    tokens = display(byte_level, "the<turn>two words")
    assert list(tokens)[-2:] == ["<turn>", "two·words"]
    # Both tokens were added without `special_tokens=True`.
    assert not any(tokens.special)


def test_texts_of_a_pair_are_distinguished_without_token_types(checkpoint: Any) -> None:
    tokens = display(checkpoint, "The cat", "the dog")
    second = tokens.sequence.index(1)
    first = tokens.sequence[1 : second - 1]
    assert tokens.sequence == (None, *first, None, *tokens.sequence[second:-1], None)
    assert (set(first), set(tokens.sequence[second:-1])) == ({0}, {1})


def test_an_unknown_word_is_text_and_a_mask_is_special(checkpoint: Any) -> None:
    tokens = display(checkpoint, "the ☃ [MASK]")
    assert list(tokens)[-3:-1] == ["[UNK]", "[MASK]"]
    assert tokens.special[-3:-1] == (False, True)


def test_ids_without_a_vocabulary_entry_are_shown_as_numbers(byte_level: Any) -> None:
    assert read_tokens([3, 17])[0].text == ("#3", "#17")
    assert read_tokens([3, 17])[0].ids == (3, 17)
    assert read_tokens([100_000], tokenizer=byte_level)[0].text == ("#100000",)


def test_an_encoding_needs_no_tokenizer(byte_level: Any) -> None:
    encoded = byte_level("The cat sat")
    reading = Reading(None, (), tuple(encoded["input_ids"]), encoded.encodings[0], {})
    tokens, _ = read_tokens(encoded["input_ids"], readings=[reading])
    assert "".join(tokens) == "The·cat·sat"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_survives_any_split_into_bytes(text: str) -> None:
    """Split the text into one token per byte. Each display text contains the token's character."""
    letter_of = {byte: letter for letter, byte in _byte_of().items()}
    data = text.encode()
    parts_of_glyphs = display_texts([letter_of[byte] for byte in data], alphabet="bytes")
    assert len(parts_of_glyphs) == len(data)
    position = 0
    for glyph in text:
        width = len(glyph.encode())
        parts = parts_of_glyphs[position : position + width]
        expected = make_visible(glyph)
        if width == 1:
            assert parts == [expected]
        else:
            assert parts == [f"{expected} {number}/{width}" for number in range(1, width + 1)]
        position += width


@pytest.mark.parametrize(
    ("entries", "display"),
    [
        (["The", "Ġcat", "ĊĊ", "<|endoftext|>"], ("The", "·cat", "⏎⏎", "<|endoftext|>")),
        (["▁The", "▁ca", "t", "</s>"], ("·The", "·ca", "t", "</s>")),
        (["[CLS]", "un", "##related"], ("[CLS]", "un", "##related")),
        (["The", " cat", "\n"], ("The", "·cat", "⏎")),
    ],
)
def test_entries_of_a_vocabulary_are_decoded_unless_they_are_tokens(
    entries: list[str], display: tuple[str, ...]
) -> None:
    weights = torch.eye(len(entries))[None, None, None]
    assert AttentionRecord.from_weights(weights, entries).tokens.text == display
    # `Tokens.of` takes strings as they are and not as vocabulary entries.
    raw = AttentionRecord.from_weights(weights, Tokens.of(entries)).tokens
    assert raw.text == tuple(make_visible(entry) for entry in entries)
