"""Small GPT-2 that forms an induction head from random weights in half a minute of training.

The checkpoints of the model (`attnviz.demos.checkpoints`) show how the head forms. Unlike the demo
decoder, the model starts with random weights, and it learns only to continue sequences of random
words that repeat. The period of the repetition differs between training steps, so a head that
attends to a fixed offset is useless. Therefore the induction head forms early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from train_demos.fitting import Checkpoints, Schedule, fit
from train_demos.tokenizers import word_tokenizer
from train_demos.vocabulary import SPECIAL_TOKENS, WORDS
from train_demos.word_gpt2 import word_gpt2_config

_SEED = 1
# Standard deviation of the initial weights. With GPT-2's default of 0.02, which is for wider
# models, the induction head forms later or not at all.
_DEVIATION = 0.05
SCHEDULE = Schedule(steps=480, learning_rate=2e-3, weight_decay=0.01)
_NUM_POSITIONS = 32
_ROWS = 64
# Possible numbers of words before a row repeats.
_PERIODS = range(8, _NUM_POSITIONS // 2 + 1)
_IGNORED = -100


def _model() -> GPT2LMHeadModel:
    torch.manual_seed(_SEED)
    config = word_gpt2_config(
        num_layers=2, num_positions=_NUM_POSITIONS, initializer_range=_DEVIATION
    )
    return GPT2LMHeadModel(config)


def repeated_words(model: Any, *, seed: int, rows: int) -> Callable[[int], torch.Tensor]:
    """Return a function that computes the loss of a model on a new batch of repeated words.

    Each row has random words of `WORDS`, which repeat after a period. The period differs between
    batches.
    """
    generator = np.random.default_rng(seed)
    tokens = np.tile(np.arange(len(SPECIAL_TOKENS), len(SPECIAL_TOKENS) + len(WORDS)), (rows, 1))
    positions = np.arange(_NUM_POSITIONS)

    def loss_at(_step: int) -> torch.Tensor:
        period = int(generator.integers(_PERIODS.start, _PERIODS.stop))
        ids = generator.permuted(tokens, axis=1)[:, positions % period]
        # The first repeated word cannot be predicted, so only the words after it have labels.
        labels = np.where(positions > period, ids, _IGNORED)
        logits = model(torch.from_numpy(ids)).logits
        return cross_entropy(
            logits[:, :-1].flatten(0, 1),
            torch.from_numpy(labels[:, 1:]).flatten(),
            ignore_index=_IGNORED,
        )

    return loss_at


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """Build the model and its tokenizer, and train the model (half a minute on one core)."""
    tokenizer = word_tokenizer(WORDS, SPECIAL_TOKENS, max_length=_NUM_POSITIONS)
    model = _model()
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)
    loss_at = repeated_words(model, seed=_SEED, rows=_ROWS)
    fit(model, loss_at, schedule, name="induction", checkpoints=checkpoints)
    return model, tokenizer
