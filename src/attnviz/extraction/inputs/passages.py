"""Passages that the inputs of a model have: the user's, the turns of a chat, packed texts, images.

The tokens of a chat's turns follow from its template: the chat is written a second time with marks
around the text of each turn, and the marks say where the template puts it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from attnviz.extraction.capture.rows import restarts
from attnviz.extraction.families import IMAGE_TOKEN_IDS
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.patches import runs_of
from attnviz.record.passages import find_in_order, labelled, with_passages
from attnviz.record.tokens import Tokens

#: Passage of a chat: its name, its text, and the text before it.
Quotation = tuple[str, str, str]

# Marks are characters for private use, which no tokenizer or template gives a meaning.
_FIRST_MARK = 0xF0000
_MARKS = re.compile("[\U000f0000-\U000ffffd]")
# Number of characters by which a text that occurs several times is found.
_CONTEXT = 400


def passages_of(passages: Any, number: int) -> Any:
    """Return the passages of the example `number`. A list may have an entry for each example."""
    is_list = isinstance(passages, list)
    if not is_list or all(isinstance(entry, str | None) for entry in passages):
        return passages
    if number >= len(passages):
        raise ValueError(
            f"passages has {len(passages)} entries, but there are more inputs. Pass one per input."
        )
    return passages[number]


def add_passages(batch: Batch, index: int, tokens: Tokens, config: Any) -> tuple[Tokens, list[str]]:
    """Return the tokens of an example with passages, and notes on tokens that cross a border.

    Without passages of the user, these are the turns of a chat, the texts of a packed row or of a
    pair, and images.
    """
    if batch.passages is not None:
        return with_passages(tokens, batch.passages)
    labels: list[str | None] = [None] * len(tokens)
    borders = restarts(batch, index)
    if borders:
        for number, start in enumerate([0, *borders], 1):
            labels[start:] = [f"document {number}"] * (len(tokens) - start)
    elif 1 in tokens.sequence:
        labels = [None if text is None else f"text {text + 1}" for text in tokens.sequence]
    turns, notes = find_in_order(tokens, batch.quotations) if batch.quotations else ([], [])
    for turn in turns:
        labels[turn.start : turn.stop] = [turn.name] * (turn.stop - turn.start)
    if not borders:
        for run in runs_of(tokens, config, IMAGE_TOKEN_IDS):
            labels[run[0] : run[-1] + 1] = ["image"] * len(run)
    return replace(tokens, passages=labelled(labels)), notes


def quote_chat(reader: Any, messages: Sequence[Mapping[str, Any]]) -> list[Quotation]:
    """Return the passages of chat messages, in the order in which the template writes them.

    A passage is the text of a message, one of several texts of it, its thinking, or the call of a
    tool. `reader` is a tokenizer or processor.
    """
    leaves: list[tuple[str, str]] = []
    text = plain = ""
    roles = Counter(message["role"] for message in messages)
    seen: Counter[str] = Counter()
    marked = []
    for message in messages:
        role = message["role"]
        seen[role] += 1
        name = f"{role} {seen[role]}" if roles[role] > 1 else role
        marked.append(_marked_message(message, name, leaves))
    # A template may raise any exception for texts with marks.
    with suppress(Exception):
        text, plain = (
            call_reader(reader.apply_chat_template, list(chat), tokenize=False)
            for chat in (marked, messages)
        )
    if not plain or _MARKS.sub("", text).split() != plain.split():
        # The template depends on the texts. They are then searched for without it.
        return [(name, leaf, "") for name, leaf in leaves]
    ends: dict[str, tuple[int, int]] = {}
    for index, (name, leaf) in enumerate(leaves):
        first, last = map(text.find, _marks(index))
        if first < 0 <= last:
            # The template left out the beginning, such as the thinking in an earlier turn.
            tail = (leaf[cut:] for cut in range(len(leaf) + 1))
            first = last - next(len(end) for end in tail if text.endswith(end, 0, last))
        if 0 <= first < last:
            known = ends.get(name, (first, last))
            ends[name] = min(first, known[0]), max(last, known[1])
    special = [one for one in getattr(reader, "all_special_tokens", ()) if one]
    borders = re.compile("|".join(["\n", *map(re.escape, special)]))
    quotations: list[Quotation] = []
    for name, (first, last) in sorted(ends.items(), key=lambda item: item[1]):
        start, stop = first, last
        if ": call" in name:
            # The template writes a call of a tool as a line of JSON or XML.
            start = max((match.end() for match in borders.finditer(text, 0, first)), default=0)
            end = borders.search(text, last)
            stop = end.start() if end else len(text)
        before = _MARKS.sub("", text[max(0, start - _CONTEXT) : start])
        quotations.append((name, _MARKS.sub("", text[start:stop]), before))
    return quotations


def _marks(index: int) -> tuple[str, str]:
    """Return the marks at the beginning and at the end of a text."""
    return chr(_FIRST_MARK + 2 * index), chr(_FIRST_MARK + 2 * index + 1)


def _marked_message(
    message: Mapping[str, Any], name: str, leaves: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return a message with marks around its texts, which are added to `leaves` with a name."""
    marked = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        marked["content"] = _marked(content, name, leaves)
    elif isinstance(content, list):
        texts = [part for part in content if isinstance(part, Mapping) and "text" in part]
        marked["content"] = [
            {
                **part,
                "text": _marked(
                    part["text"],
                    f"{name}, part {texts.index(part) + 1}" if len(texts) > 1 else name,
                    leaves,
                ),
            }
            if isinstance(part, Mapping) and "text" in part
            else part
            for part in content
        ]
    for key in ("reasoning_content", "thinking"):
        if key in message:
            marked[key] = _marked(message[key], f"{name}: thinking", leaves)
    calls = message.get("tool_calls") or []
    if calls:
        marked["tool_calls"] = [
            _marked(call, f"{name}: call {number}" if len(calls) > 1 else f"{name}: call", leaves)
            for number, call in enumerate(calls, 1)
        ]
    return marked


def _marked(value: Any, name: str, leaves: list[tuple[str, str]]) -> Any:
    """Return a value with marks around the strings inside of it, without white space around."""
    if isinstance(value, Mapping):
        return {
            key: item if key in ("type", "id") else _marked(item, name, leaves)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_marked(item, name, leaves) for item in value]
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        return value
    first, last = _marks(len(leaves))
    leaves.append((name, text))
    return value.replace(text, f"{first}{text}{last}", 1)
