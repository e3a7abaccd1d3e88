"""The text that a model is made to produce: given to a decoder, or put behind the prompt."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from attnviz.extraction.batch import Batch, Side
from attnviz.extraction.display import display_tokens
from attnviz.extraction.limits import check_ids
from attnviz.tokens import Tokens, numbered_words

__all__ = ["append_target", "shifted", "target_texts"]


def target_texts(target: Any, count: int) -> list[str]:
    """Read what was given as target.

    Parameters
    ----------
    target : str or list of str
        As given.
    count : int
        Number of examples.

    Returns
    -------
    list of str
        One text an example.

    Raises
    ------
    TypeError, ValueError
        If it is something else, another number of texts, or an empty one.
    """
    texts = [target] if isinstance(target, str) else target
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"target must be a text, or a list of {count} texts; got {type(target).__name__}"
        )
    if len(texts) != count:
        raise ValueError(f"target must have a text an example, {count}; got {len(texts)}")
    if not all(texts):
        raise ValueError("target: the text is empty; give at least one word")
    return list(texts)


def shifted(model: PreTrainedModel, labels: torch.Tensor) -> torch.Tensor:
    """Make decoder inputs of what the decoder is to produce: one step later.

    Parameters
    ----------
    model : PreTrainedModel
        An encoder-decoder model.
    labels : Tensor
        (examples, tokens); -100 is padding.

    Returns
    -------
    Tensor
        As large as `labels`: the token that the decoder starts with, then all but the last.

    Raises
    ------
    ValueError
        If the model doesn't say which token its decoder starts with.
    """
    # Some models start otherwise (mBART with the language), and have a method for it.
    own: Any = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if own is not None:
        ids: torch.Tensor = own(labels=labels.to(model.device)).cpu()
        return ids
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        generation = getattr(model, "generation_config", None)
        start = getattr(generation, "decoder_start_token_id", None)
    if start is None:
        raise ValueError(
            f"target: {type(model).__name__} doesn't say which token its decoder starts with "
            "(config.decoder_start_token_id); give ids as decoder_input_ids="
        )
    padding = getattr(model.config, "pad_token_id", None) or 0
    ids = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    return ids.masked_fill(ids == -100, padding)


def append_target(model: PreTrainedModel, batch: Batch, target: Any, tokenizer: Any) -> None:
    """Put the target behind the prompt: a decoder-only model produces it there.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder-only model.
    batch : Batch
        One prompt without padding; changed.
    target : str
        The text.
    tokenizer : PreTrainedTokenizerBase
        The model's.

    Raises
    ------
    TypeError, ValueError
        If `target` is no text, or `batch` is more than a prompt.
    """
    (text,) = target_texts(target, 1)
    if batch.size != 1 or "input" not in batch.sides or batch.sides["input"].kept[0] is not None:
        raise ValueError(
            f"target: it goes behind one prompt of ids without padding; got {batch.size} encoded "
            "examples. Give a list of texts and a list of targets"
        )
    # By itself, as the model would produce it: joining the texts first could change the prompt's
    # last token.
    added = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    check_ids(model, added, "target")
    for name, value in batch.arguments.items():
        more = {
            "input_ids": added,
            "attention_mask": torch.ones_like(added),
            "token_type_ids": value[:, -1:].expand(added.shape) if value.dim() == 2 else value,
        }.get(name)
        if more is not None:
            batch.arguments[name] = torch.cat([value.cpu(), more.cpu()], dim=1)
    prompt = batch.tokens["input"][0]
    answer = display_tokens(added[0].tolist(), tokenizer=tokenizer, sequence=[1] * added.shape[1])
    batch.sides["input"] = Side(len(prompt) + len(answer), [None])
    batch.tokens["input"] = [_joined(prompt, answer)]
    batch.notes.append(f"The last {len(answer)} tokens are the target (the second text).")


def _joined(first: Tokens, second: Tokens) -> Tokens:
    ids = None if first.ids is None or second.ids is None else first.ids + second.ids
    special, sequence = first.special + second.special, first.sequence + second.sequence
    words = None
    if first.words is not None and second.words is not None:
        words = numbered_words(first.words + second.words, special, sequence)
    return Tokens(
        text=first.text + second.text, special=special, sequence=sequence, ids=ids, words=words
    )
