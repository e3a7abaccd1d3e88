"""Tokenizer of the text models, with one token per word."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

__all__ = ["word_tokenizer"]


def word_tokenizer(
    words: Sequence[str], special_tokens: Sequence[str], *, max_length: int
) -> PreTrainedTokenizerFast:
    """Create a lower-casing tokenizer with one token per word.

    The special tokens are those for padding, unknown words and the end of a text, with the first
    ids. The tokenizer does not add them to a text.

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
    # The clean-up removes the space before full stops and commas.
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=padding,
        unk_token=unknown,
        eos_token=end,
        model_max_length=max_length,
    )
