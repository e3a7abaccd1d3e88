"""Whatever a `show_*` function was given, made into one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens

__all__ = ["record_of"]


def record_of(
    model: Any,
    inputs: Any = None,
    *,
    tokens: Sequence[str] | Tokens | None = None,
    sentence_b_start: int | None = None,
    words: bool = False,
    **options: Any,
) -> AttentionRecord:
    """Make the record of what a `show_*` function was given.

    Parameters
    ----------
    model, inputs, tokens, sentence_b_start
        As in `attnviz.show_head_view`.
    words : bool, default False
        Merge subword tokens into words (see `AttentionRecord.merge_words`).
    **options
        Further arguments of `attnviz.extract`, its `heads` as ``keep_heads``. None is the same as
        left out, and so is ``"cpu"`` as a device.

    Returns
    -------
    AttentionRecord
        One record.

    Raises
    ------
    TypeError
        If what is needed is missing, or what cannot be used is given.
    ValueError
        If several examples are given.
    """
    record = _record(model, inputs, tokens, sentence_b_start, options)
    return record.merge_words() if words else record


def _record(
    model: Any,
    inputs: Any,
    tokens: Sequence[str] | Tokens | None,
    sentence_b_start: int | None,
    options: dict[str, Any],
) -> AttentionRecord:
    options = {name: value for name, value in options.items() if _is_given(name, value)}
    for_weights = {"tokens": tokens, "sentence_b_start": sentence_b_start}
    for_weights = {name: value for name, value in for_weights.items() if value is not None}
    for_models = options if inputs is None else {"inputs": inputs} | options
    if isinstance(model, AttentionRecord):
        _refuse(for_weights | for_models, "model is a record, which holds tokens and weights")
        return model
    if isinstance(model, (list, tuple)) and model and isinstance(model[0], AttentionRecord):
        raise TypeError(
            f"model is a list of {len(model)} records, and a view shows one: give records[i]"
        )
    if isinstance(model, Mapping):
        kinds = [name for name in model if str(name).endswith("attentions")]
        if kinds:
            raise TypeError(
                f"model is a {type(model).__name__}, what a model gave; give its weights, "
                f"outputs.{kinds[0]}, with tokens="
            )
    if _is_weights(model):
        return _record_of_weights(model, for_weights, for_models)
    _refuse(for_weights, "model is a model, whose tokens come from inputs")
    if inputs is None:
        raise TypeError(
            "inputs is missing: the text that the model reads, for example "
            'show_head_view(model, "The cat sat.")'
        )
    from attnviz.extraction import extract

    if "keep_heads" in options:
        options["heads"] = options.pop("keep_heads")
    record: AttentionRecord | list[AttentionRecord] = extract(model, inputs, **options)
    if not isinstance(record, list):
        return record
    if len(record) == 1:
        return record[0]
    raise ValueError(
        f"inputs holds {len(record)} examples and a view shows one: "
        "records = attnviz.extract(model, inputs), then show_head_view(records[i])"
    )


def _is_given(name: str, value: Any) -> bool:
    # None is a place: where queries and keys were computed.
    return value != "cpu" if name == "device" else value is not None


def _record_of_weights(
    weights: Any, for_weights: dict[str, Any], for_models: dict[str, Any]
) -> AttentionRecord:
    title = for_models.pop("name", "")
    _refuse(for_models, "model is weights, which are drawn as they are")
    if "tokens" not in for_weights:
        raise TypeError(
            "tokens is missing: weights alone do not say which tokens they belong to, for "
            "example tokens=tokenizer.convert_ids_to_tokens(input_ids[0])"
        )
    return AttentionRecord.from_weights(weights, model=title, **for_weights)


def _refuse(arguments: dict[str, Any], why: str) -> None:
    if arguments:
        raise TypeError(f"{why}; leave out {', '.join(arguments)}")


def _is_weights(model: Any) -> bool:
    if isinstance(model, (list, tuple)):
        return True
    return hasattr(model, "__array__") or hasattr(model, "detach")
