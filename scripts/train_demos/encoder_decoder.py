"""Demo encoder-decoder: a small BART that converts written dates to ISO form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from train_demos.dates import CHARACTERS, SPECIAL_TOKENS, draw_date
from train_demos.fitting import Checkpoints, Schedule, fit

# Three seeds were tried: 1, 2 and 21. With each of them, all held-out dates were correct. With seed
# 21, the score of the head for the first digit of the month was only 0.61.
_SEED = 1
SCHEDULE = Schedule(steps=1200, learning_rate=2e-3, weight_decay=0.01)
_BATCH = 64
_NUM_POSITIONS = 48


def character_tokenizer(
    characters: Sequence[str], special_tokens: Sequence[str], *, max_length: int
) -> PreTrainedTokenizerFast:
    """Create a tokenizer with one token per character. It adds an end token to each text.

    `special_tokens` are the tokens for padding, start, end and unknown characters. They have the
    ids 0 to 3.

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


def _model(vocabulary: int) -> BartForConditionalGeneration:
    torch.manual_seed(_SEED)
    config = BartConfig(
        vocab_size=vocabulary,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=_NUM_POSITIONS,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=0.08,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = BartForConditionalGeneration(config)
    # A generated date has ten characters and an end token.
    model.generation_config.max_length = 16
    return model


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[BartForConditionalGeneration, PreTrainedTokenizerFast]:
    """Build the model and its tokenizer, and train the model (one minute on one core)."""
    tokenizer = character_tokenizer(CHARACTERS, SPECIAL_TOKENS, max_length=_NUM_POSITIONS)
    model = _model(len(tokenizer))
    generator = np.random.default_rng(_SEED)
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)

    def loss_at(_step: int) -> torch.Tensor:
        dates = [draw_date(generator, held_out=False) for _ in range(_BATCH)]
        inputs = tokenizer([date.text for date in dates], padding=True, return_tensors="pt")
        # All dates in ISO form have the same length, so padding is not needed.
        labels = tokenizer([date.iso for date in dates], return_tensors="pt")["input_ids"]
        loss: torch.Tensor = model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels
        ).loss
        return loss

    fit(model, loss_at, schedule, name="encoder-decoder", checkpoints=checkpoints)
    return model, tokenizer
