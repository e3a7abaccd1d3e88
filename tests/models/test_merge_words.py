"""`merge_words` joins tokens of real tokenizers to words, and computes the weights of words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

import attnviz
from attnviz import AttentionRecord, demos
from attnviz.extraction.tokens.reading import Reading
from attnviz.extraction.tokens.text import read_tokens
from models.conftest import SENTENCES
from models.make_models import make_model
from models.tiny import reference
from rounding import forwards_error

TEXT = "The unbelievably tired animal didn't cross the tokenization street."
SECOND = "Hydroelectricity was reintroduced."


def by_offsets(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    """Return the number of each token's word. `offsets` has the start and end of each token.

    A word is a run of tokens of letters and digits with no space between the tokens, or any other
    single token.
    """
    number, numbers = 0, [0]
    for (_, stop), (start, end) in pairwise(offsets):
        inside = start == stop and text[start - 1].isalnum() and text[start:end].isalnum()
        number += not inside
        numbers.append(number)
    return numbers


def test_a_checkpoints_words_have_the_sums_and_means_of_its_own_weights(
    minilm: tuple[Any, Any],
) -> None:
    model, tokenizer = minilm
    record = attnviz.extract(model, (TEXT, SECOND), tokenizer=tokenizer)
    merged = record.merge_words()

    # `numbers` has the number of each token's word, and `texts` the text of each word.
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

    # Array (words, tokens) of 0 and 1: whether the word contains the token.
    belongs = (np.unique(numbers)[:, None] == np.array(numbers)).astype(np.float64)
    own = reference(model, tokenizer(TEXT, SECOND, return_tensors="pt"))["self"]
    for layer, weights in enumerate(own):
        expected = (belongs / belongs.sum(1, keepdims=True)) @ weights[0] @ belongs.T
        # Rounding errors add up over the tokens of a word.
        tolerance = belongs.sum(1).max() * forwards_error(record)
        np.testing.assert_allclose(merged.stack().weights(layer=layer), expected, atol=tolerance)


def test_a_decoder_has_words_of_texts_answers_and_chats(byte_tokenizer: Any) -> None:
    def merged(inputs: Any, **options: Any) -> AttentionRecord:
        record: Any = attnviz.extract(
            make_model("gpt2"), inputs, tokenizer=byte_tokenizer, **options
        )
        words: AttentionRecord = record.merge_words()
        return words

    record = merged("The tired animal didn't sit.")
    # GPT-2's pre-tokenizer splits "didn't" and "sit." into two words each.
    assert record.tokens.text == ("The", "·tired", "·animal", "·didn", "'t", "·sit", ".")
    assert record.stack().causal
    answered = merged("The unsaid.", target=" undone dogs.").tokens
    assert answered.text == ("The", "·unsaid", ".", "·undone", "·dogs", ".")
    assert answered.sequence == (0, 0, 0, 1, 1, 1)
    chat = merged([{"role": "user", "content": "hello undone dogs"}]).tokens
    assert chat.text == ("<s>", "<|user|>", "hello", "·undone", "·dogs", "</s>")


@pytest.fixture(scope="module")
def unsplit_tokenizer() -> Any:
    """Tokenizer like Llama 2's, which writes spaces as "▁" and does not split a text at spaces."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>"], show_progress=False)
    words = [f"▁{word}" for text in SENTENCES for word in text.split()]
    # Train on single words, so that no token contains the end of a word and the next word.
    plain = Tokenizer(models.BPE(unk_token="<unk>"))
    plain.train_from_iterator([*words, "·"], trainer)
    backend.model = plain.model
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_tokenizer_without_word_splitting_is_not_one_word(unsplit_tokenizer: Any) -> None:
    encoded = unsplit_tokenizer("The animal l·l sat.", return_tensors=None)
    assert set(encoded.word_ids()) == {0}
    ids = encoded["input_ids"]
    reading = Reading(None, (), tuple(ids), encoded.encodings[0], {})
    for readings in ([reading], []):
        tokens, _ = read_tokens(ids, tokenizer=unsplit_tokenizer, readings=readings)
        merged = AttentionRecord.from_weights([np.eye(len(tokens))[None]], tokens).merge_words()
        # The dot in "l·l" is not a space, although the display text of a space is also "·".
        assert merged.tokens.text == ("·The", "·animal", "·l·l", "·sat.")


def test_patches_are_not_merged() -> None:
    model, processor = demos.load("vision")
    record = attnviz.extract(model, **demos.example("vision"), processor=processor)
    assert record.merge_words() is record
    words = record.tokens.words
    assert words is not None
    assert words[0] is None
    assert len(set(words)) == len(words)
