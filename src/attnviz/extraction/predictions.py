"""Functions that compute a model's predictions for the tokens of a produced text.

A produced text is a text that the model generated, or that it was forced to produce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from attnviz.extraction.inputs.batch import Batch, ProducedText
from attnviz.extraction.tokens.text import token_texts
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.utils.numbers import format_small

_NUM_CANDIDATES = 5

# Number of rows of logits converted to float32 at once: about 16 MiB for a vocabulary of 256,000.
_ROWS = 16

_NOT_FINITE = "The model's logits contain NaN: its predictions are not known."

# Maximum difference between the probabilities in the steps of a generation and in one forward. A
# larger difference is stated in a note. Half precision has a larger limit, because its rounding
# errors are larger.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_HALF = 0.05


def num_logits(batch: Batch) -> int:
    """Return for how many final positions logits are needed to predict all produced texts.

    The result is 1 if the model produces no text.
    """
    first = [
        _position(batch, index, produced.first)
        for index, produced in enumerate(batch.produced)
        if produced is not None
    ]
    if not first:
        return 1
    return batch.sequences[_sequence_name(batch)].length - min(first)


def add_predictions(model: PreTrainedModel, batch: Batch, outputs: Any, tokenizer: Any) -> None:
    """Add the predictions for each token of the produced texts to ``batch.tokens``.

    `outputs` are the outputs of the model. If `tokenizer` is None, tokens are shown as ``#id``.
    If the model has no language head, only a note is added to the batch.
    """
    if not any(produced is not None for produced in batch.produced):
        return
    logits = getattr(outputs, "logits", None)
    largest = max(max(produced.ids) for produced in batch.produced if produced is not None)
    if (
        not model.can_generate()
        or not isinstance(logits, torch.Tensor)
        or logits.dim() != 3
        or logits.shape[-1] <= largest
    ):
        batch.notes.append(
            f"{type(model).__name__} has no language head: its predictions are not known."
        )
        return
    sequence = _sequence_name(batch)
    for index, produced in enumerate(batch.produced):
        if produced is None:
            continue
        # The model may have computed logits for the final positions only.
        skipped = batch.sequences[sequence].length - logits.shape[1]
        positions = [
            _position(batch, index, produced.first + step) - skipped
            for step in range(len(produced.ids))
        ]
        probabilities = _probabilities_of(produced, logits[index], positions)
        if probabilities is None:
            batch.notes.append(_NOT_FINITE)
            continue
        if probabilities.difference > _TOLERANCE.get(logits.dtype, _TOLERANCE_HALF):
            batch.notes.append(
                "The steps of the generation and the forward that is shown differ: "
                f"probabilities by up to {format_small(probabilities.difference)}."
            )
        tokens = batch.tokens[sequence][index]
        predictions = _predictions(produced, probabilities, tokens, tokenizer)
        batch.tokens[sequence][index] = replace(tokens, predictions=predictions)


@dataclass
class _Probabilities:
    """Probabilities of the tokens of a produced text.

    `candidates` has the most probable ids for each token, with their probabilities. `of_produced`
    has the probability of each produced token. `difference` is the largest absolute difference
    between the probability of an id in a generation step and in the forward. In each step, only the
    most probable id is compared.
    """

    candidates: list[list[tuple[int, float]]]
    of_produced: list[float]
    difference: float = 0.0


def _probabilities_of(
    produced: ProducedText, logits: torch.Tensor, positions: Sequence[int]
) -> _Probabilities | None:
    result = _Probabilities([], [])
    for start in range(0, len(positions), _ROWS):
        part = slice(start, start + _ROWS)
        # Compute probabilities in float32, because half precision has only two or three digits.
        rows = logits[torch.tensor(positions[part], device=logits.device)].float()
        probabilities = torch.softmax(rows, dim=-1).cpu()
        if not bool(torch.isfinite(probabilities).all()):
            return None
        best, ids = probabilities.topk(min(_NUM_CANDIDATES, probabilities.shape[-1]), dim=-1)
        result.candidates += [
            list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), best.tolist(), strict=True)
        ]
        produced_ids = torch.tensor(produced.ids[part])
        result.of_produced += probabilities.gather(1, produced_ids[:, None])[:, 0].tolist()
        for row, (identifier, before) in zip(
            probabilities, produced.most_probable[part], strict=False
        ):
            result.difference = max(result.difference, abs(float(row[identifier]) - before))
    return result


def _predictions(
    produced: ProducedText, probabilities: _Probabilities, tokens: Tokens, tokenizer: Any
) -> tuple[Prediction, ...]:
    identifiers = sorted(
        {other for row in probabilities.candidates for other, _ in row} | set(produced.ids)
    )
    texts = dict(zip(identifiers, token_texts(identifiers, tokenizer), strict=True))
    predictions = []
    for step, (produced_id, probability) in enumerate(
        zip(produced.ids, probabilities.of_produced, strict=True)
    ):
        query = produced.first + step
        row = query + 1 if query + 1 < len(tokens) else None
        # A token may be only a part of a character, so its text depends on its neighbours. Use the
        # text in `tokens` if `tokens` contains the produced token.
        text = texts[produced_id] if row is None else tokens.text[row]
        candidates = tuple(
            Candidate(text if other == produced_id else texts[other], other, value)
            for other, value in probabilities.candidates[step]
        )
        predictions.append(
            Prediction(query, Candidate(text, produced_id, probability), candidates, row)
        )
    return tuple(predictions)


def _sequence_name(batch: Batch) -> str:
    return next(produced.sequence for produced in batch.produced if produced is not None)


def _position(batch: Batch, index: int, position: int) -> int:
    """Return a token's index in the padded sequence. `position` is its index without padding."""
    unpadded = batch.sequences[_sequence_name(batch)].unpadded[index]
    return position if unpadded is None else int(unpadded[position])
