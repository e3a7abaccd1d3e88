"""Configuration of the small GPT-2 models with one token per word."""

from __future__ import annotations

from transformers import GPT2Config

from train_demos.vocabulary import SPECIAL_TOKENS, WORDS

WIDTH = 96
NUM_HEADS = 4


def word_gpt2_config(
    *, num_layers: int, num_positions: int, initializer_range: float
) -> GPT2Config:
    """Return the configuration of a GPT-2 without dropout, whose vocabulary is `WORDS`.

    Examples
    --------
    >>> word_gpt2_config(num_layers=2, num_positions=32, initializer_range=0.02).n_embd
    96
    """
    return GPT2Config(
        vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
        n_positions=num_positions,
        n_embd=WIDTH,
        n_layer=num_layers,
        n_head=NUM_HEADS,
        n_inner=2 * WIDTH,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        initializer_range=initializer_range,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
