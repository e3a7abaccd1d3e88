"""The tokenizers of the two text models: whole words, and single characters."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

__all__ = ["character_tokenizer", "word_tokenizer"]


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


def character_tokenizer(
    characters: Sequence[str], special_tokens: Sequence[str], *, max_length: int
) -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token for each character, and the end token behind every text.

    The special tokens are those for padding, the beginning, the end and unknown characters; their
    ids come first.

    Examples
    --------
    >>> made = character_tokenizer("ab", ["<pad>", "<s>", "</s>", "<unk>"], max_length=8)
    >>> made("ba")["input_ids"]
    [5, 4, 2]
    """
    padding, beginning, end, unknown = special_tokens
    ids = {text: number for number, text in enumerate([*special_tokens, *characters])}
    backend = Tokenizer(models.WordLevel(vocab=ids, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {end}",
        pair=f"$A {end} $B:1 {end}:1",
        special_tokens=[(end, ids[end])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=padding,
        bos_token=beginning,
        eos_token=end,
        unk_token=unknown,
        model_max_length=max_length,
    )
