"""Demo decoder: a small GPT-2 that starts with an induction circuit and is then trained.

With these training data, a model of this size does not form an induction head. (The recipe
"induction" has other data, with which a model does.) Therefore the induction circuit of Olsson et
al. 2022 (arXiv 2209.11895) is written into the weights before training. A head of layer 0 attends
to the previous token and copies it into an unused part of the residual stream. A head of layer 1
searches for the current token in that part. Training then changes all weights. The induction
circuit is not a result of training, but the head that links "it" to its antecedent is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from train_demos.fitting import Checkpoints, Schedule, fit
from train_demos.sentences import (
    Sentence,
    antecedent_sentence,
    recipient_sentence,
    repeated_bigrams,
    repeated_halves,
)
from train_demos.tokenizers import word_tokenizer
from train_demos.vocabulary import SPECIAL_TOKENS, WORDS
from train_demos.word_gpt2 import NUM_HEADS, WIDTH, word_gpt2_config

_SEED = 20
SCHEDULE = Schedule(steps=900, learning_rate=2e-3, weight_decay=0.05)
_NUM_POSITIONS = 128
_HEAD_WIDTH = WIDTH // NUM_HEADS

# Dimensions of the residual stream that the circuit uses for the position, for the copy of the
# previous token, and for the token.
_POSITIONS = slice(0, 32)
_PREVIOUS = slice(32, 32 + _HEAD_WIDTH)
_TOKEN = slice(32 + _HEAD_WIDTH, WIDTH)

# Frequencies of the position vectors, in radians per token. High frequencies distinguish
# neighbouring positions, and low frequencies distinguish distant positions.
_FREQUENCIES = np.geomspace(2.5, 0.03, 16)
_POSITION_AMPLITUDE = 0.2
_PREVIOUS_GAIN = 2.0
_INDUCTION_GAIN = 1.5
_COPY_GAIN = 0.3
_OUTPUT_GAIN = 0.3
# Factor of the random initial weights of output projections. A larger random output would hide the
# copies of tokens that the circuit writes.
_RANDOM_OUTPUT_GAIN = 0.3

# Weight, in the loss, of words that cannot be predicted with certainty. With 0, the model would not
# learn to write sentences.
_UNDECIDED = 0.1
_IGNORED = -100


def _positions() -> NDArray[np.float64]:
    """Return the position vectors, (positions, 32): cosine and sine for each frequency."""
    angles = np.arange(_NUM_POSITIONS)[:, None] * _FREQUENCIES
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(_NUM_POSITIONS, -1)


def _back_one_step() -> NDArray[np.float64]:
    """Return the matrix that turns the vector of a position into that of the previous one."""
    turn = np.zeros((2 * _FREQUENCIES.size, 2 * _FREQUENCIES.size))
    for number, angle in enumerate(_FREQUENCIES):
        block = slice(2 * number, 2 * number + 2)
        turn[block, block] = [
            [math.cos(angle), -math.sin(angle)],
            [math.sin(angle), math.cos(angle)],
        ]
    return turn


@torch.no_grad()
def _plant_circuit(model: GPT2LMHeadModel, generator: torch.Generator) -> None:
    """Write the induction circuit into the weights of a new model, in place.

    Head 0 of layer 0 becomes the previous-token head, and head 0 of layer 1 the induction head.
    """
    stream = model.transformer
    embedding, position = stream.wte.weight, stream.wpe.weight
    embedding[:, _POSITIONS] *= 0.1
    embedding[:, _PREVIOUS] *= 0.1
    position.zero_()
    position[:, _POSITIONS] = torch.from_numpy(_POSITION_AMPLITUDE * _positions()).float()

    query, key, value = (slice(k * WIDTH, k * WIDTH + _HEAD_WIDTH) for k in range(3))
    head = slice(0, _HEAD_WIDTH)
    token_width = _TOKEN.stop - _TOKEN.start
    # The heads read tokens by projecting `_TOKEN` onto a few random orthogonal directions, which
    # suffices to distinguish tokens.
    reading = torch.linalg.qr(torch.randn(token_width, _HEAD_WIDTH, generator=generator)).Q
    turn = torch.from_numpy(_back_one_step()).float()
    identity = torch.eye(_POSITIONS.stop)[:, head]

    for block in stream.h:
        block.attn.c_proj.weight *= _RANDOM_OUTPUT_GAIN
        block.mlp.c_proj.weight *= _RANDOM_OUTPUT_GAIN
    previous, induction = stream.h[0].attn, stream.h[1].attn
    for attention in (previous, induction):
        for part in (query, key, value):
            attention.c_attn.weight[:, part] = 0.0
        attention.c_proj.weight[head] = 0.0

    previous.c_attn.weight[_POSITIONS, query] = _PREVIOUS_GAIN * turn @ identity
    previous.c_attn.weight[_POSITIONS, key] = _PREVIOUS_GAIN * identity
    previous.c_attn.weight[_TOKEN, value] = reading
    previous.c_proj.weight[head, _PREVIOUS] = _COPY_GAIN * torch.eye(_HEAD_WIDTH)

    induction.c_attn.weight[_TOKEN, query] = _INDUCTION_GAIN * reading
    induction.c_attn.weight[_PREVIOUS, key] = _INDUCTION_GAIN * torch.eye(_HEAD_WIDTH)
    induction.c_attn.weight[_TOKEN, value] = reading
    induction.c_proj.weight[head, _TOKEN] = _OUTPUT_GAIN * reading.T


def _model() -> GPT2LMHeadModel:
    torch.manual_seed(_SEED)
    config = word_gpt2_config(num_layers=3, num_positions=_NUM_POSITIONS, initializer_range=0.08)
    model = GPT2LMHeadModel(config)
    _plant_circuit(model, torch.Generator().manual_seed(_SEED))
    return model


class _Batches:
    """Training batches of two kinds: random tokens that repeat, and sentences."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, steps: int) -> None:
        self._steps = steps
        self._generator = np.random.default_rng(_SEED)
        self._tokenizer = tokenizer
        self._tokens = np.arange(len(SPECIAL_TOKENS), len(tokenizer))

    def random_rows(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return token ids, labels and position numbers of random rows with repetitions.

        Labels are -100 for tokens that cannot be predicted. Rows become longer during training.
        """
        done = step / self._steps
        lengths = (24,) if done < 0.15 else (32, 64) if done < 0.5 else (64, 128)
        length = int(self._generator.choice(lengths))
        rows = 64 if length <= 64 else 32
        share_of_bigrams = 0.75 if done < 0.15 else 0.25
        num_bigrams = round(share_of_bigrams * rows)
        bigrams, decided = repeated_bigrams(
            self._generator, self._tokens, rows=num_bigrams, length=length
        )
        halves = repeated_halves(
            self._generator, self._tokens, rows=rows - num_bigrams, length=length // 2
        )
        ids = np.concatenate([bigrams, halves])
        # The first token of the second half cannot be predicted.
        second_half = np.broadcast_to(np.arange(length) > length // 2, halves.shape)
        labels = np.where(np.concatenate([decided, second_half]), ids, _IGNORED)
        # Half of the batches start at a later position, because short rows would otherwise train
        # only the first positions.
        moved = self._generator.random() < 0.5
        start = int(self._generator.integers(_NUM_POSITIONS - length + 1)) if moved else 0
        positions = torch.arange(start, start + length)[None]
        return torch.from_numpy(ids), torch.from_numpy(labels), positions

    def _sentence(self) -> Sentence:
        make = antecedent_sentence if self._generator.random() < 0.6 else recipient_sentence
        return make(self._generator, held_out=False)

    def sentences(self, rows: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids, and weights of the tokens in the loss, both padded on the right."""
        texts, weights = [], []
        for _ in range(rows):
            pair = [self._sentence(), self._sentence()]
            texts.append(" ".join(word for sentence in pair for word in sentence.words))
            weights.append(
                [
                    1.0 if position == sentence.answer else _UNDECIDED
                    for sentence in pair
                    for position in range(len(sentence.words))
                ]
            )
        ids = self._tokenizer(texts, padding=True, return_tensors="pt")["input_ids"]
        counts = torch.zeros(ids.shape)
        for row, weight in enumerate(weights):
            counts[row, : len(weight)] = torch.tensor(weight)
        return ids, counts


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """Build the decoder and its tokenizer, and train the decoder (two minutes on one core)."""
    tokenizer = word_tokenizer(WORDS, SPECIAL_TOKENS, max_length=_NUM_POSITIONS)
    model = _model()
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)
    batches = _Batches(tokenizer, schedule.steps)

    def loss_at(step: int) -> torch.Tensor:
        ids, labels, positions = batches.random_rows(step)
        logits = model(ids, position_ids=positions).logits
        of_repeats = cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED
        )
        ids, counts = batches.sentences()
        logits = model(ids).logits
        losses = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        counted = counts[:, 1:].flatten()
        of_sentences: torch.Tensor = (losses * counted).sum() / counted.sum()
        return of_repeats + of_sentences

    fit(model, loss_at, schedule, name="decoder", checkpoints=checkpoints)
    return model, tokenizer
