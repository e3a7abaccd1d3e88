"""The tokenizer of the text models: one token for each word."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

__all__ = ["word_tokenizer"]


def word_tokenizer(
    words: Sequence[str], special_tokens: Sequence[str], *, max_length: int
) -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token for each word, capitals read as small letters.

    The special tokens are those for padding, for unknown words and for the end of a text; their ids
    come first. It adds none of them.

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
    # Its clean-up sets full stops and commas against the word before them.
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=padding,
        unk_token=unknown,
        eos_token=end,
        model_max_length=max_length,
    )
