"""Functions for a target, which is a text that a model is forced to produce.

They check the target, and add its ids to the inputs of the model. An encoder-decoder model gets the
ids in its decoder, shifted by one token. Other models get them after the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from attnviz.extraction.families import NOT_TEXT
from attnviz.extraction.hooks import evaluate, first_call
from attnviz.extraction.inputs.batch import (
    Batch,
    ProducedText,
    TokenSequence,
    check_can_append,
    moved_to_model,
)
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import attention_modules, modules_of, scan_modules
from attnviz.extraction.tokens.text import read_tokens
from attnviz.record.passages import ANSWER
from attnviz.record.tokens import Passage, joined_tokens
from attnviz.utils.arguments import short_repr
from attnviz.utils.cleanup import Cleanup

_GENERATED_TYPE = 1


def check_target(
    loaded: Loaded, example: Any, target: Any, decoder_input_ids: Any, *, generating: bool
) -> None:
    """Raise ValueError if arguments for the text to produce contradict each other or the model.

    `target` and `decoder_input_ids` are None if the caller did not pass them. `generating` is
    whether the model will generate the text itself. The error is raised in these cases:

    - The model will generate the text, and `target` or labels in `example` set it, too.
    - Both `target` and `decoder_input_ids` are passed.
    - `decoder_input_ids` are passed, and the model is not an encoder-decoder model.
    - A text is to be produced, and the model is neither causal nor an encoder-decoder model.
    - The decoder of an encoder-decoder model that can generate needs a text, and none is set.
    """
    model, encoder_decoder = loaded.model, loaded.is_encoder_decoder
    name = type(model).__name__
    generates = encoder_decoder and model.can_generate()
    labelled = isinstance(example, Mapping) and "labels" in example
    if generating and (target is not None or labelled):
        raise ValueError(
            "generate: the model would choose the text, and "
            f"{'target already sets' if target is not None else 'the labels in inputs set'} it. "
            "Pass one of them."
        )
    if target is not None and decoder_input_ids is not None:
        raise ValueError("target and decoder_input_ids set the same text. Pass one of them.")
    if decoder_input_ids is not None and not encoder_decoder:
        raise ValueError(
            f"decoder_input_ids: {name} is not an encoder-decoder model. Pass the text to "
            "produce as target=."
        )
    if (target is not None or generating) and not encoder_decoder and not _is_causal(loaded):
        raise ValueError(
            f"{'generate' if generating else 'target'}: {name} cannot produce text (its attention "
            "is bidirectional). Pass a second text as inputs=(first, second)."
        )
    has_text = generating or labelled or target is not None or decoder_input_ids is not None
    if isinstance(example, Mapping):
        has_text = has_text or "decoder_input_ids" in example
    # Decoders that take no ids, such as those that detect objects in images, need no text.
    accepted = loaded.accepted
    if generates and "decoder_input_ids" in accepted and not has_text:
        raise _missing_target(model)
    if "decoder_input_values" in accepted and not (
        isinstance(example, Mapping) and {"decoder_input_values", "labels"} & example.keys()
    ):
        raise ValueError(
            f"inputs: the decoder of {name} reads features of a sound. Pass the processor's output "
            "with decoder_input_values."
        )


def _missing_target(model: PreTrainedModel) -> ValueError:
    return ValueError(
        f"target: the decoder of {type(model).__name__} needs a text. Pass the text as "
        "target=, ids as decoder_input_ids=, or generate= to let the model choose it."
    )


def default_decoder_ids(model: PreTrainedModel, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Return the ids that a model passes to its decoder if the model gets only `arguments`.

    BART models that classify texts or answer questions pass the ids of the encoder, shifted by one
    token. To read the ids, the model is run until it calls its decoder. Raise ValueError if the
    decoder gets no ids.
    """
    moved = {name: moved_to_model(model, value) for name, value in arguments.items()}
    _, passed = first_call([model.get_decoder()], lambda: model(**moved)) or (None, {})
    ids = passed.get("input_ids")
    if not isinstance(ids, torch.Tensor):
        raise _missing_target(model)
    return ids.cpu()


def _is_causal(loaded: Loaded) -> bool:
    model = loaded.model
    flags = [
        bool(entry.module.is_causal)
        for entry in attention_modules(model)
        if hasattr(entry.module, "is_causal")
        and not any(NOT_TEXT.search(part) for part in entry.name.split("."))
    ]
    if loaded.family.bidirectional_prompt:
        return True
    if flags or not model.can_generate():
        return any(flags)
    # No attention module of a text has `is_causal` (BLOOM, GPT-J, XLNet).
    return scan_modules(model).once(("causal",), lambda: _ignores_later_tokens(model))


def _ignores_later_tokens(model: PreTrainedModel) -> bool:
    """Whether the logits of a text do not depend on later tokens, tried with four tokens.

    Assume so if the model does not run with a text alone, as BLIP does not.
    """
    logits = []
    with Cleanup() as undo, undo:
        evaluate(modules_of(model), undo)
        for last in (0, 1):
            ids = torch.tensor([[0, 1, 0, last]], device=model.device)
            try:
                outputs: Any = model(input_ids=ids, attention_mask=torch.ones_like(ids))
                logits.append(outputs.logits[:, :3].float())
            # A model may raise any exception for inputs that it does not accept.
            except Exception:  # noqa: BLE001
                return True
    return torch.allclose(logits[0], logits[1], rtol=0, atol=1e-3 * float(logits[0].abs().max()))


def target_texts(target: Any, count: int) -> list[str]:
    """Convert the argument `target` into a list of one text for each of `count` examples.

    Raise ValueError if `target` is neither a string nor a list of strings, if the number of texts
    is wrong, or if a text is empty.
    """
    texts = [target] if isinstance(target, str) else target
    are_texts = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
    if not are_texts or len(texts) != count or not all(texts):
        raise ValueError(
            f"target must be a string that is not empty, or a list of {count} such strings, one "
            f"per example; got {short_repr(target)}"
        )
    return list(texts)


def shift_labels(model: PreTrainedModel, labels: torch.Tensor) -> torch.Tensor:
    """Return the decoder's input ids for labels: a start id, then all labels except the last.

    Ids and labels are (examples, tokens). Labels of -100 are padding. Raise ValueError if the model
    does not define the start id.
    """
    # If the model has a method for these ids, call it. In mBART, the start id depends on the
    # language.
    prepare: Any = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        ids: torch.Tensor = prepare(labels=labels.to(model.device)).cpu()
        return ids
    configs = (model.config, getattr(model, "generation_config", None))
    starts = [getattr(config, "decoder_start_token_id", None) for config in configs]
    start = next((token for token in starts if token is not None), None)
    if start is None:
        raise ValueError(
            f"target: {type(model).__name__} does not define the start token of its decoder "
            "(config.decoder_start_token_id). Pass ids as decoder_input_ids=."
        )
    padding = getattr(model.config, "pad_token_id", None) or 0
    ids = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    return ids.masked_fill(ids == -100, padding)


def add_labels(
    model: PreTrainedModel, batch: Batch, labels: torch.Tensor, unpadded: torch.Tensor
) -> None:
    """Let the decoder of a model produce `labels`, (examples, tokens).

    The input of the decoder are the labels, shifted by one token. Both have the same length, so
    `unpadded`, bool, (examples, tokens), is the mask of both. It is False for padding.
    """
    batch.arguments["decoder_input_ids"] = shift_labels(model, labels)
    batch.arguments.setdefault("decoder_attention_mask", unpadded.long())
    batch.produced = []
    for row, flags in zip(labels, unpadded.to(labels.device), strict=True):
        ids = tuple(row[flags].tolist())
        batch.produced.append(ProducedText("decoder", 0, ids) if ids else None)


def append_target(loaded: Loaded, batch: Batch, added: torch.Tensor) -> None:
    """Append `added`, the ids of the target, (1, tokens), to the prompt in `batch`, with a note.

    Raise ValueError if `batch` is not one prompt of ids without padding.
    """
    if (
        batch.size != 1
        or "input" not in batch.sequences
        or batch.sequences["input"].unpadded[0] is not None
    ):
        raise ValueError(
            f"target needs one prompt of ids without padding; got {batch.size} encoded "
            "examples. Pass a list of texts and a list of targets."
        )
    check_can_append(batch.arguments, "target")
    append_ids(loaded, batch, added)
    count = added.shape[1]
    subject = "token is" if count == 1 else f"{count} tokens are"
    batch.notes.append(f"The last {subject} the target.")


def append_ids(loaded: Loaded, batch: Batch, added: torch.Tensor) -> None:
    """Append the ids `added`, (1, tokens), to the prompt in `batch`, which must not have padding.

    The appended tokens are the text that the model produces. They count as the second text of a
    pair, so that views can distinguish them from the prompt.
    """
    ids = batch.arguments["input_ids"]
    bidirectional_prompt = loaded.family.bidirectional_prompt
    if bidirectional_prompt:
        # Without types, attention would be bidirectional in the appended tokens, too.
        batch.arguments.setdefault("token_type_ids", torch.zeros_like(ids))
    for name, value in batch.arguments.items():
        # Each argument with one number per token gets numbers for the appended tokens. For most
        # arguments, repeat the number of the prompt's last token, such as 1 in a mask. Masks of
        # cross-attention to images have a row per token.
        of_tokens = isinstance(value, torch.Tensor) and value.shape == ids.shape
        if of_tokens or name in ("cross_attention_mask", "image_attention_mask"):
            more = value[:, -1:].cpu().expand(-1, added.shape[1], *value.shape[2:])
            if name == "position_ids":
                more = more + 1 + torch.arange(added.shape[1])
            elif name == "token_type_ids" and bidirectional_prompt:
                more = torch.full_like(more, _GENERATED_TYPE)
            more = added if name == "input_ids" else more
            batch.arguments[name] = torch.cat([value.cpu(), more], dim=1)
    prompt = batch.tokens["input"][0]
    new_ids = added[0].tolist()
    tokenizer = loaded.find_tokenizer()
    answer, _ = read_tokens(new_ids, tokenizer=tokenizer, sequence=[1] * len(new_ids))
    if new_ids and prompt.passage(ANSWER) is None:
        answer = replace(answer, passages=(Passage(ANSWER, 0, len(new_ids)),))
    batch.sequences["input"] = TokenSequence(len(prompt) + len(answer), [None])
    batch.tokens["input"] = [joined_tokens(prompt, answer)]
    batch.produced = [ProducedText("input", len(prompt) - 1, tuple(new_ids))]
