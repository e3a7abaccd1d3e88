"""Truncation of texts, and notes on the part of a text that a model gets.

A tokenizer may cut a long text into overlapping windows (``return_overflowing_tokens=True``), or
drop the tokens beyond a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from transformers import PreTrainedConfig

from attnviz.extraction.loaded import Loaded
from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.reading import Reading
from attnviz.record.notes import Note
from attnviz.utils.arguments import whole_number

# Smallest `model_max_length` of a tokenizer that means no limit. Tokenizers without a limit state
# about 10**30.
_NO_LIMIT = 10**9


def read_truncation(value: Any) -> bool | int:
    """Convert the argument `truncation` into False, True, or a maximum number of tokens.

    None becomes False. Raise TypeError for other types, and ValueError for numbers below 1.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    hint = "True (as many tokens as the model takes) or False"
    return whole_number("truncation", value, 1, hint=hint)


def notes_on_cuts(
    readings: Sequence[Reading], rows: Sequence[Sequence[int]], name: str = "text"
) -> list[str]:
    """Return notes on texts of which a model gets only a part.

    `readings` are the texts that tokenizers read, and `rows` the ids that the model gets. A
    tokenizer may have truncated a text, or other code may have removed ids before the first or
    after the last one of a row. `name` is the kind of the texts for the notes.
    """
    notes: list[str] = []
    for ids in map(tuple, rows):
        count = len(ids)
        cut = (one for one in readings if ids in (one.ids[:count], one.ids[-count:]))
        reading = next(cut, None)
        num_tokens = 0 if reading is None else _num_tokens(reading)
        if reading is not None and num_tokens > count:
            is_end = getattr(reading.tokenizer, "truncation_side", "right") == "left"
            side = "last" if is_end or ids != reading.ids[:count] else "first"
            note = (
                f"The {name} was truncated to the {side} {count:,} of its {num_tokens:,} tokens, "
                "including special ones."
            )
            notes.append(Note(note, "part of a text"))
    return notes


def _num_tokens(reading: Reading) -> int:
    """Return the number of tokens that a text has without truncation by the tokenizer."""
    options, tokenizer = reading.options, reading.tokenizer
    limit: Any = options.get("max_length") or getattr(tokenizer, "model_max_length", 0)
    windows = options.get("return_overflowing_tokens")
    if options.get("truncation") in _NOT_TRUNCATED or windows or len(reading.ids) < limit:
        return len(reading.ids)
    # The text has as many tokens as the limit, so it may have been longer.
    special = options.get("add_special_tokens", True)
    full = call_reader(tokenizer, *reading.texts, add_special_tokens=special, verbose=False)
    return len(full["input_ids"])


# Values of the argument `truncation` of a tokenizer that do not truncate.
_NOT_TRUNCATED = (None, False, "do_not_truncate")


@dataclass(frozen=True)
class Truncation:
    """Truncation of texts for one model. ``bool(truncation)`` is whether texts are truncated.

    `limit` is a result of `read_truncation`.
    """

    loaded: Loaded
    limit: bool | int

    def __bool__(self) -> bool:
        return self.limit is not False

    def options(
        self, tokenizer: Any, argument: str, *, decoder: bool = False, num_new_tokens: int = 0
    ) -> dict[str, Any]:
        """Return the keyword arguments with which a tokenizer truncates a text that is too long.

        `argument` is the name of the caller's argument with the text, for errors. The other
        arguments are those of `max_tokens`. Raise ValueError if only special tokens would be left.
        """
        max_tokens = self.max_tokens(tokenizer, decoder=decoder, num_new_tokens=num_new_tokens)
        if max_tokens is None:
            return {}
        special = int(tokenizer.num_special_tokens_to_add(pair=False))
        if max_tokens <= special:
            raise ValueError(
                f"{argument}: truncation leaves {max(0, max_tokens)} tokens"
                + (f" before {num_new_tokens} new ones" if num_new_tokens else "")
                + (f", and {special} special tokens are needed" if special else "")
                + ". Pass a larger number"
                + (", a smaller generate=, or a shorter target." if num_new_tokens else ".")
            )
        return {"truncation": True, "max_length": max_tokens}

    def max_tokens(self, tokenizer: Any, *, decoder: bool, num_new_tokens: int) -> int | None:
        """Return the maximum number of tokens that a text may have, or None without a limit.

        `decoder` is whether the text is for the decoder. The text and `num_new_tokens` further
        tokens must fit the positions of the model. If the user passed a maximum number of tokens,
        it also limits a text that is not for the decoder. All other texts must also fit the maximum
        length that the tokenizer or the configuration states.
        """
        if not self:
            return None
        limits = [self.loaded.num_positions["decoder" if decoder else "input"]]
        follows_model = self.limit is True or decoder
        if follows_model:
            limits.append(getattr(tokenizer, "model_max_length", None))
            if all(limit is None or limit >= _NO_LIMIT for limit in limits):
                # Models with rotary position embeddings have no table of positions. Use the
                # maximum length in their configuration, which num_positions does not read. T5Gemma
                # has a configuration for each of encoder and decoder.
                config: Any = self.loaded.model.config
                if not decoder and isinstance(getattr(config, "encoder", None), PreTrainedConfig):
                    config = config.encoder
                config = config.get_text_config()
                limits.append(getattr(config, "max_position_embeddings", None))
        rooms = [
            limit - num_new_tokens
            for limit in limits
            if isinstance(limit, int) and limit < _NO_LIMIT
        ]
        return min(rooms if follows_model else [*rooms, self.limit], default=None)


def window_notes(encoded: Mapping[str, Any], size: int) -> list[list[str]]:
    """Return the notes of each of the `size` rows of a tokenizer's output, or an empty list."""
    encodings = getattr(encoded, "encodings", None) or []
    notes: list[list[str]] = []
    while len(notes) < len(encodings):
        first = encodings[len(notes)]
        # The backend keeps the windows that were not requested, too.
        windows = [first, *first.overflowing]
        in_words = any(map(_begins_again, windows))
        parts = [_part(window, in_words=in_words) for window in windows]
        rows = encodings[len(notes) : len(notes) + len(windows)]
        if len(parts) == 1:
            notes.append([])
        elif [_part(row, in_words=in_words) for row in rows] != parts:
            notes.append(
                [f"The tokenizer has cut its input. The record has {_named(parts[0], in_words)}."]
            )
        else:
            # With `truncation_side="left"`, the first window is the end of the text.
            ordered = sorted(parts)
            notes += [
                [f"Window {ordered.index(part) + 1} of {len(parts)}: {_named(part, in_words)}."]
                for part in parts
            ]
    return notes if len(notes) == size and any(notes) else []


# Part of each text of a row: the number of the text (0 or 1), its first character, and the position
# after its last character. If the caller has split the text into words, they are counted.
_Part = list[tuple[int, int, int]]


def _columns(row: Any) -> list[tuple[int, int, int, int]]:
    """Return the text, word, start and end of each token of a text."""
    columns = zip(row.sequence_ids, row.word_ids, row.offsets, strict=True)
    return [
        (text, -1 if word is None else word, *pair)
        for text, word, pair in columns
        if text is not None and pair[0] < pair[1]
    ]


def _begins_again(row: Any) -> bool:
    """Whether the offsets begin again in each word, because the caller has split the text."""
    return any(
        text == other_text and word != other_word and start >= other_start
        for (text, word, start, _), (other_text, other_word, other_start, _) in pairwise(
            _columns(row)
        )
    )


def _part(row: Any, *, in_words: bool) -> _Part:
    spans: dict[int, list[int]] = {}
    for text, word, start, end in _columns(row):
        spans.setdefault(text, []).extend((word, word + 1) if in_words else (start, end))
    return [(text, min(span), max(span)) for text, span in sorted(spans.items())]


def _named(part: _Part, in_words: bool) -> str:  # noqa: FBT001
    unit = "words" if in_words else "characters"
    names = ("the text",) if len(part) == 1 else ("the first text", "the second text")
    return " and ".join(
        f"{unit} {start} to {end} of {name}"
        for name, (_, start, end) in zip(names, part, strict=True)
    )
