"""Tokenizer of the demo models for text. Each word is one token."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def word_tokenizer(
    words: Sequence[str], special_tokens: Sequence[str], *, max_length: int
) -> PreTrainedTokenizerFast:
    """Create a tokenizer with one token per word. It converts texts to lower case.

    `special_tokens` are the tokens for padding, unknown words and the end of a text. They have the
    ids 0 to 2. The tokenizer does not add them to texts.

    Examples
    --------
    >>> made = word_tokenizer(["the", "cat"], ["<pad>", "<unk>", "<end>"], max_length=8)
    >>> made("The cat")["input_ids"]
    [3, 4]
    """
    padding, unknown, end = special_tokens
    ids = {word: number for number, word in enumerate([*special_tokens, *words])}
    backend = Tokenizer(models.WordLevel(vocab=ids, unk_token=unknown))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    # `cleanup` removes the spaces before full stops and commas in decoded texts.
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=padding,
        unk_token=unknown,
        eos_token=end,
        model_max_length=max_length,
    )
