"""What two runs of decoders predict at each token that both have.

The models run once more, each over the ids that its record holds, and not at the same time. Only
the logits of the positions that are compared are held, of both models at most `MOST_LOGITS`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.comparison.alignment import Alignment
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate

__all__ = ["MOST_LOGITS", "NextToken", "decoder_stack", "is_factory", "next_tokens"]

#: Logits of each model that are held at once: half a gigabyte of float32.
MOST_LOGITS = 1 << 27
# Rows that are made float32 probabilities at once.
_ROWS = 16


class NextToken(NamedTuple):
    """What two models predict behind one token.

    Attributes
    ----------
    query : int
        The unit whose query predicts.
    divergence : float
        Kullback-Leibler divergence of b's distribution from a's, in bits.
    a, b : tuple of Candidate
        The likeliest next tokens of each, the likeliest first.
    """

    query: int
    divergence: float
    a: tuple[Candidate, ...]
    b: tuple[Candidate, ...]


def is_factory(given: Any) -> bool:
    """Whether it is a function that gives a model."""
    return inspect.isroutine(given) or isinstance(given, functools.partial)


def decoder_stack(record: AttentionRecord) -> AttentionStack:
    """The stack whose queries predict; ValueError where none does."""
    for name in ("decoder", "self"):
        if name in record.stacks and record.stacks[name].causal:
            return record.stacks[name]
    raise ValueError(
        "a next token is predicted by a decoder, in which no query looks ahead; these records have "
        f"{', '.join(map(repr, record.stacks))}, of which none is one"
    )


def next_tokens(
    records: Sequence[AttentionRecord],
    models: Sequence[Any],
    tokenizers: Sequence[Any],
    alignment: Alignment,
    *,
    top_k: int,
    queries: int | None,
) -> list[NextToken]:
    """Compare what the models of two records predict at each unit that both have.

    `models` are what `attnviz.extract` takes, or functions that give it. ValueError where a record
    has no ids, a model predicts nothing, or the vocabularies differ.
    """
    units = np.flatnonzero((alignment.a_lengths > 0) & (alignment.b_lengths > 0))
    if queries is not None:
        units = units[sampled_queries(len(units), queries)]
    kept: list[torch.Tensor] = []
    texts: list[Any] = []
    for record, given_model, given, ends in zip(
        records, models, tokenizers, (alignment.a_ends, alignment.b_ends), strict=True
    ):
        model = given_model() if is_factory(given_model) else given_model
        # The last token of a unit predicts what follows it.
        logits, tokenizer = _logits(record, model, given, ends[units] - 1)
        if len(logits) < len(units):
            units = units[sampled_queries(len(units), len(logits))]
        kept.append(logits)
        texts.append(tokenizer)
        del model
    _check_vocabularies(kept, texts)
    found = []
    for number, (divergence, *likeliest) in enumerate(_compared(kept[0], kept[1], top_k)):
        sides = [
            tuple(
                Candidate(text, token, probability)
                for text, (token, probability) in zip(
                    _texts([token for token, _ in side], tokenizer), side, strict=True
                )
            )
            for side, tokenizer in zip(likeliest, texts, strict=True)
        ]
        found.append(NextToken(int(units[number]), divergence, sides[0], sides[1]))
    return found


def _logits(
    record: AttentionRecord, model: Any, tokenizer: Any, positions: NDArray[np.int64]
) -> tuple[torch.Tensor, Any]:
    """A model's logits at some tokens, (positions, vocabulary), and its tokenizer."""
    from attnviz.extraction.models import evaluate, load
    from attnviz.extraction.readers import find_tokenizer
    from attnviz.utils.restoring import Restoring

    loaded = load(model, tokenizer)
    model = loaded.model
    if not model.can_generate():
        raise ValueError(f"{type(model).__name__} has no language head: it predicts no next token")
    vocabulary = int(model.config.get_text_config(decoder=True).vocab_size)
    most = max(1, MOST_LOGITS // vocabulary)
    if len(positions) > most:
        positions = positions[sampled_queries(len(positions), most)]
    arguments: dict[str, Any] = {**_inputs(record, model)}
    wanted = torch.from_numpy(positions)
    accepted = inspect.signature(model.forward).parameters
    if "use_cache" in accepted:
        arguments["use_cache"] = False
    if "logits_to_keep" in accepted:
        # Of all others no logits are computed.
        arguments["logits_to_keep"] = wanted.to(model.device)
    with Restoring() as undo, undo, undo:
        evaluate(model, undo)
        logits = model(**arguments).logits[0]
    if len(logits) != len(positions):
        logits = logits[wanted.to(logits.device)]
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(f"the logits of {type(model).__name__} hold NaN or infinite numbers")
    return logits.cpu(), find_tokenizer(loaded, from_hub=False)


def _inputs(record: AttentionRecord, model: Any) -> dict[str, torch.Tensor]:
    """The ids that a record was made of, as a model takes them."""
    stack = decoder_stack(record)
    sides = {"input_ids": stack.query_tokens}
    if stack.name == "decoder" and "encoder" in record.stacks:
        sides = {
            "input_ids": record.stacks["encoder"].query_tokens,
            "decoder_input_ids": stack.query_tokens,
        }
    arguments = {}
    for name, tokens in sides.items():
        if tokens.grids:
            raise ValueError("next tokens are compared of texts alone; this input has an image")
        if tokens.ids is None:
            raise ValueError(
                f"the ids of {len(tokens):,} tokens are not known, as of a record of given weights "
                "or of words: compare records that attnviz.extract made, without words=True"
            )
        arguments[name] = torch.tensor([tokens.ids], device=model.device)
    return arguments


def _check_vocabularies(logits: Sequence[torch.Tensor], tokenizers: Sequence[Any]) -> None:
    sizes = [each.shape[-1] for each in logits]
    one, other = tokenizers
    known = one is not None and other is not None and one is not other
    if sizes[0] != sizes[1] or (known and one.get_vocab() != other.get_vocab()):
        raise ValueError(
            f"the two models have different vocabularies ({sizes[0]:,} and {sizes[1]:,} entries): "
            "their next-token distributions cannot be compared"
        )


_Likeliest = list[tuple[int, float]]


def _compared(
    a: torch.Tensor, b: torch.Tensor, top_k: int
) -> Iterator[tuple[float, _Likeliest, _Likeliest]]:
    """Divergence in bits and likeliest entries of each row of logits, a few rows at a time."""
    for start in range(0, len(a), _ROWS):
        part = slice(start, start + _ROWS)
        logs = [torch.log_softmax(each[part].double(), dim=-1) for each in (a, b)]
        terms = logs[0].exp() * (logs[0] - logs[1])
        divergences = (terms.sum(dim=-1) / np.log(2)).clamp(min=0.0).tolist()
        best = [each.exp().topk(min(top_k, each.shape[-1]), dim=-1) for each in logs]
        for row, divergence in enumerate(divergences):
            sides = [
                list(zip(each.indices[row].tolist(), each.values[row].tolist(), strict=True))
                for each in best
            ]
            yield divergence, sides[0], sides[1]


def _texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    from attnviz.extraction.tokens.text import token_texts

    return token_texts(ids, tokenizer)
