"""Functions that compute a model's predictions: of the tokens of a produced text, or of classes.

A produced text is a text that the model generated, or that it was forced to produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from attnviz.extraction.inputs.batch import Batch, ProducedText
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.tokens.text import token_texts
from attnviz.record.tokens import Candidate, Prediction, Tokens

_NUM_CANDIDATES = 5

# Number of rows of logits converted to float32 at once: about 16 MiB for a vocabulary of 256,000.
_ROWS = 16

_NOT_FINITE = "The model's logits contain NaN: its predictions are not known."


def num_logits(batch: Batch) -> int:
    """Return the number of final positions whose logits are needed to predict all produced texts.

    The final positions include padding. The result is 1 if the model produces no text.
    """
    counts = [
        batch.sequences[produced.sequence].length - _position(batch, index, produced)
        for index, produced in enumerate(batch.produced)
        if produced is not None
    ]
    return max(counts, default=1)


def class_names(model: Any, ids: Iterable[int]) -> list[str]:
    """Return the names of the classes of a classifier."""
    labels = getattr(model.config, "id2label", None) or {}
    return [str(labels.get(class_id, f"class {class_id}")) for class_id in ids]


def predicted_classes(model: Any, batch: Batch, outputs: Any, example: int) -> list[Candidate]:
    """Return the most probable classes of an example, or an empty list without classes.

    The probabilities are those of a softmax, or of one sigmoid per class if several classes of the
    model can be true at once.
    """
    logits = getattr(outputs, "logits", None)
    config = getattr(model, "config", None)
    if (
        not isinstance(logits, torch.Tensor)
        or logits.dim() != 2
        or not 1 < logits.shape[-1] == getattr(config, "num_labels", None)
        or len(logits) != batch.size
        or not bool(torch.isfinite(row := logits[example].detach().float()).all())
    ):
        return []
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    shares = torch.sigmoid(row) if several else torch.softmax(row, dim=-1)
    best, ids = (values.tolist() for values in shares.topk(min(_NUM_CANDIDATES, len(shares))))
    return [
        Candidate(name, identifier, probability)
        for name, identifier, probability in zip(class_names(model, ids), ids, best, strict=True)
    ]


def add_predictions(loaded: Loaded, batch: Batch, outputs: Any) -> None:
    """Add the predictions for each token of the produced texts to ``batch.tokens``.

    `outputs` are the outputs of the model. Without a tokenizer, tokens are shown as ``#id``. If the
    model has no language head, or if the logits of a text contain NaN, a note is added to the
    batch instead.
    """
    texts = {number: text for number, text in enumerate(batch.produced) if text is not None}
    if not texts:
        return
    logits = getattr(outputs, "logits", None)
    largest = max(max(produced.ids) for produced in texts.values())
    if (
        not loaded.model.can_generate()
        or not isinstance(logits, torch.Tensor)
        or logits.dim() != 3
        or logits.shape[-1] <= largest
    ):
        batch.notes.append(
            f"{type(loaded.model).__name__} has no language head: its predictions are not known."
        )
        return
    for index, produced in texts.items():
        sequence = produced.sequence
        # The model may have computed logits only for the final positions. `skipped` is the number
        # of positions before them.
        skipped = batch.sequences[sequence].length - logits.shape[1]
        steps = range(len(produced.ids))
        positions = torch.tensor(
            [_position(batch, index, produced, step) - skipped for step in steps]
        )
        probabilities = _probabilities_of(produced.ids, logits[index], positions)
        if probabilities is None:
            batch.notes.append(_NOT_FINITE)
            continue
        tokens = batch.tokens[sequence][index]
        tokenizer = loaded.find_target_tokenizer()
        predictions = _predictions(produced, probabilities, tokens, tokenizer)
        batch.tokens[sequence][index] = replace(tokens, predictions=predictions)


# Prediction of one produced token: the most probable ids, their probabilities, and the probability
# of the produced id.
_Step = tuple[list[int], list[float], float]


def _probabilities_of(
    ids: Sequence[int], logits: torch.Tensor, positions: torch.Tensor
) -> list[_Step] | None:
    """Return the prediction of each token of a produced text, or None if a probability is NaN.

    `ids` are the ids of the produced text, and `logits` are (positions, vocabulary). `positions`
    has, for each of the ids, the row of `logits` that predicts it.
    """
    steps: list[_Step] = []
    produced_ids = torch.tensor(ids)[:, None]
    for rows, own_ids in zip(positions.split(_ROWS), produced_ids.split(_ROWS), strict=True):
        # Compute probabilities in float32, because half precision has only two or three digits.
        probabilities = torch.softmax(logits[rows.to(logits.device)].float(), dim=-1).cpu()
        if not bool(torch.isfinite(probabilities).all()):
            return None
        best, best_ids = probabilities.topk(min(_NUM_CANDIDATES, probabilities.shape[-1]), dim=-1)
        of_produced = probabilities.gather(1, own_ids)[:, 0]
        steps += zip(best_ids.tolist(), best.tolist(), of_produced.tolist(), strict=True)
    return steps


def _predictions(
    produced: ProducedText, steps: Sequence[_Step], tokens: Tokens, tokenizer: Any
) -> tuple[Prediction, ...]:
    identifiers = sorted({other for best_ids, *_ in steps for other in best_ids} | {*produced.ids})
    texts = dict(zip(identifiers, token_texts(identifiers, tokenizer), strict=True))
    predictions = []
    for query, (produced_id, (best_ids, best, probability)) in enumerate(
        zip(produced.ids, steps, strict=True), produced.first
    ):
        row = query + 1 if query + 1 < len(tokens) else None
        # If a token is only a part of a character, its text depends on the tokens around it.
        # `tokens` has such a text, `texts` does not.
        text = texts[produced_id] if row is None else tokens.text[row]
        candidates = tuple(
            Candidate(text if other == produced_id else texts[other], other, value)
            for other, value in zip(best_ids, best, strict=True)
        )
        predictions.append(
            Prediction(query, Candidate(text, produced_id, probability), candidates, row)
        )
    return tuple(predictions)


def _position(batch: Batch, index: int, text: ProducedText, step: int = 0) -> int:
    """Return the index of the token that predicts a token of a text, counting padding.

    The text is that of the example `index`, and `step` the index of its token.
    """
    unpadded = batch.sequences[text.sequence].unpadded[index]
    position = text.first + step
    return position if unpadded is None else int(unpadded[position])
